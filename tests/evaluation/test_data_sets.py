"""What takes `x` and `y` takes data as `fit` takes them, with the results of arrays."""

import functools
import weakref

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

EXAMPLES, SIZE, FEATURES, CLASSES = 43, 10, 4, 3  # the last batch has 3 examples


@functools.cache
def arrays():
    """Inputs, and labels that are right for three quarters of the examples."""
    rng = np.random.default_rng(0)
    x = rng.random((EXAMPLES, FEATURES), dtype="float32")
    right = network().predict(x, verbose=0).argmax(1)
    return x, np.where(np.arange(EXAMPLES) % 4, right, (right + 1) % CLASSES)


def parts(x, y):
    """Batches (x, y)."""
    for start in range(0, EXAMPLES, SIZE):
        rows = slice(start, start + SIZE)
        yield keras.tree.map_structure(lambda array, rows=rows: array[rows], (x, y))


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.parts = list(parts(x, y))

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, index):
        return self.parts[index]


def tf_data(x, y):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(SIZE)


def data_loader(x, y):
    from torch.utils.data import DataLoader

    examples = [
        keras.tree.map_structure(lambda array, i=i: array[i], (x, y))
        for i in range(EXAMPLES)
    ]
    return DataLoader(examples, batch_size=SIZE)


# Of arrays: what is passed as x and y.
FORMS = {
    "generator": lambda x, y: (parts(x, y),),
    "py_dataset": lambda x, y: (Batches(x, y),),
    "tf_data": lambda x, y: (tf_data(x, y),),
    "data_loader": lambda x, y: (data_loader(x, y),),
    "tensors": lambda x, y: tuple(map(keras.ops.convert_to_tensor, (x, y))),
    "lists": lambda x, y: (x.tolist(), y.tolist()),
}


def frame(x, y):
    import pandas

    return pandas.DataFrame(x), pandas.Series(y)


def weighted(x, y):
    return ((*part, np.ones(len(part[1]))) for part in parts(x, y))


def unequal(x, y):
    """With batches of other sizes, of which the largest is computed in parts."""
    ends = [0, 1, 31, 33, EXAMPLES]
    return [(x[a:b], y[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


FORMS |= {
    "frame": frame,
    "sample_weight": lambda x, y: (weighted(x, y),),
    "unequal": lambda x, y: (iter(unequal(x, y)),),
}


def network(outputs=CLASSES):
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(5, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(outputs, "softmax" if outputs > 1 else None),
        ]
    )


def ensemble(outputs=CLASSES):
    rng = np.random.default_rng(2)
    made = mh.Ensemble(network(outputs), 2)
    stacked = made.stacked_values()
    made.set_members([a + 0.3 * rng.random(a.shape) for a in stacked], [1.0, 2.0])
    return made


def scores(*data):
    models = {"network": network(), "ensemble": ensemble()}
    table = mh.evaluate(models, *data, batch_size=16, ood={"a": 1.5 - arrays()[0][:9]})
    return [list(row.values())[1:] for row in table.rows]


def regression(*data):
    models = {"network": network(1), "ensemble": ensemble(1)}
    rows = mh.evaluate(models, *data, noise_std=0.5, batch_size=16).rows
    return [list(row.values())[1:] for row in rows]


def curve(x, y=None):
    table = mh.adversarial.robustness_curve({"a": network()}, x, y, [0.0, 0.1])
    return [list(row.values())[2:] for row in table.rows]


def transfer(x, y=None):
    models = {"a": network()}
    table = mh.adversarial.transfer(models, models, x, y, 0.1, attack="fgsm")
    return [list(row.values())[2:] for row in table.rows]


def shift(*data):
    grey = {"half": lambda x, severity: x / 2}
    rows = mh.evaluate_shift({"a": network()}, *data, corruptions=grey).rows
    return [list(row.values())[2:] for row in rows]


def recalibrated(x, y=None):
    made = ensemble()
    made.recalibrate(x, batch_size=EXAMPLES)
    return made.stacked_values()[4:6]


def laplace(*data):
    prior = mh.priors.Gaussian(1.0)
    made = mh.baselines.last_layer_laplace(network(), *data, prior=prior, members=3)
    return made.stacked_values()[-2]


def sampled_head(*data):
    made, _ = mh.baselines.sample_last_layer(
        network(),
        *data,
        prior=mh.priors.Gaussian(1.0),
        members=4,
        num_chains=2,
        num_steps=4,
        progress=False,
    )
    return made.predict(arrays()[0], verbose=0)


def of_the_call(*data):
    """A `BayesianEnsemble` evaluates what it is given."""
    made = mh.BayesianEnsemble(network(1), 2, seed=0)
    made._averaged = ensemble(1)
    for model in (made, made._averaged):
        model.compile(loss=mh.losses.GaussianNLL(0.5), metrics=["mse"])
    return made.evaluate(*data)


def strongest(x, y=None):
    return mh.adversarial.strongest(network(), x, y, 0.1, attacks=["fgsm"])


# With labels or targets.
SCORED = {
    "evaluate": scores,
    "evaluate a regression": regression,
    "conformal_sets": lambda *data: mh.conformal_sets(network(), *data).threshold,
    "conformal_intervals": lambda *data: (
        mh.conformal_intervals(network(1), *data).threshold
    ),
    "temperature_scaling": lambda *data: (
        mh.temperature_scaling(network(), *data).temperature
    ),
    "robustness_curve": curve,
    "transfer": transfer,
    "strongest": strongest,
    "evaluate_shift": shift,
    "last_layer_laplace": laplace,
    "sample_last_layer": sampled_head,
    "BayesianEnsemble.evaluate": of_the_call,
}
# With inputs alone, or labels that may be missing.
OF_INPUTS = {
    "recalibrate": recalibrated,
    "fgsm": lambda x, y=None: mh.adversarial.fgsm(network(), x, 0.1, y=y),
    "pgd": lambda x, y=None: mh.adversarial.pgd(network(), x, 0.1, y=y, steps=2),
    "apgd": lambda x, y=None: mh.adversarial.apgd(network(), x, 0.1, y=y, steps=2),
    "square": lambda x, y=None: mh.adversarial.square(
        network(), x, 0.1, y=y, queries=9
    ),
    "predict_distribution": lambda x, y=None: mh.predict_distribution(
        ensemble(1), x, noise_std=0.5
    ).mean(),
    "logits": lambda x, y=None: mh.Classifier(ensemble()).logits(x),
    "redrawn": lambda x, y=None: mh.Classifier(ensemble()).redrawn(x),
    "sets": lambda x, y=None: mh.conformal_sets(network(), *arrays()).predict(x),
    "intervals": lambda x, y=None: mh.conformal_intervals(
        network(1), *arrays()
    ).predict(x),
}
FIRST = ("evaluate", "conformal_sets", "temperature_scaling", "recalibrate", "fgsm")
CASES = [(form, name) for form in FORMS for name in FIRST]
CASES += [("generator", name) for name in (*SCORED, *OF_INPUTS) if name not in FIRST]


def same(found, expected):
    for one, other in zip(
        keras.tree.flatten(found), keras.tree.flatten(expected), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize(("form", "name"), CASES)
@pytest.mark.filterwarnings("ignore:The chains of the last layer")
def test_each_form_of_data_has_the_results_of_arrays(form, name):
    run = (SCORED | OF_INPUTS)[name]
    same(run(*FORMS[form](*arrays())), run(*arrays()))


def test_images_of_a_data_set_are_corrupted():
    x = np.random.default_rng(0).random((EXAMPLES, 6, 6), dtype="float32")
    found = mh.corrupt(parts(x, arrays()[1]), "gaussian_noise", 2)
    same(found, mh.corrupt(x, "gaussian_noise", 2))


def with_several_inputs(form):
    """A model, and its inputs as a dict or a list."""
    keras.utils.set_random_seed(1)
    inputs = [keras.Input((2,), name="a"), keras.Input((2,), name="b")]
    x = keras.layers.BatchNormalization()(keras.layers.Concatenate()(inputs))
    outputs = keras.layers.Dense(CLASSES, "softmax")(x)
    x = np.split(arrays()[0], 2, axis=1)
    if form is dict:
        inputs, x = (dict(zip("ab", values, strict=True)) for values in (inputs, x))
    return keras.Model(inputs, outputs), x


@pytest.mark.parametrize("kind", ["generator", "py_dataset", "tf_data", "data_loader"])
@pytest.mark.parametrize("form", [dict, list])
def test_several_inputs(form, kind):
    model, x = with_several_inputs(form)
    y = arrays()[1]
    of_tuples = tuple(x) if form is list and kind == "tf_data" else x

    def results(*data, other):
        table = mh.evaluate({"a": model}, *data, ood=other)
        made = mh.Ensemble(model, 1)
        yield [list(row.values())[1:] for row in table.rows]
        yield made.stacked_values()

    def data():
        return FORMS[kind](of_tuples, y)

    same(list(results(*data(), other=data()[0])), list(results(x, y, other=x)))
    statistics = []
    for given in (data()[0], x):
        made = mh.Ensemble(model, 1)
        made.recalibrate(given)
        statistics.append(made.stacked_values())
    same(*statistics)


def test_a_data_set_is_read_once_for_all_models_and_never_joined():
    x, y = arrays()
    seen, alive = [], []

    def one_at_a_time():
        for i in range(EXAMPLES):
            seen.append(weakref.ref(batch := x[i : i + 1].copy()))
            yield batch, y[i : i + 1]
            del batch
            alive.append(sum(ref() is not None for ref in seen))

    models = {"network": network(), "ensemble": ensemble()}
    found = mh.evaluate(models, one_at_a_time()).rows
    expected = mh.evaluate(models, x, y).rows
    same(*([list(row.values())[1:] for row in rows] for rows in (found, expected)))
    assert len(seen) == EXAMPLES and max(alive) <= 3


def test_a_generator_may_predict_for_one_call():
    data = parts(*arrays())
    mh.evaluate({"a": network()}, data)
    with pytest.raises(ValueError, match="`x` .*at least one batch.*make it again"):
        mh.evaluate({"a": network()}, data)


REFUSALS = {
    "without targets": (
        lambda: (((x,) for x, _ in parts(*arrays())),),
        r"`x` must be a data set whose batches are pairs \(x, y\).*zip",
    ),
    "of dicts": (
        lambda: (({"x": x, "y": y} for x, y in parts(*arrays())),),
        "batches are pairs",
    ),
    "with targets twice": (
        lambda: (parts(*arrays()), arrays()[1]),
        "`y` must be None if `x` is a data set",
    ),
    "of examples": (
        lambda: (zip(*arrays(), strict=True),),
        r"`x` must be a data set of batches.*batch\(32\)",
    ),
    "with NaN": (
        lambda: (parts(np.full((EXAMPLES, FEATURES), np.nan), arrays()[1]),),
        "`x` must be finite",
    ),
    "of other shape": (
        lambda: (parts(np.ones((EXAMPLES, 7)), arrays()[1]),),
        "`x` must have the shape",
    ),
}


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case, name):
    make, message = REFUSALS[case]
    if (name, case) in {
        ("BayesianEnsemble.evaluate", "with NaN"),  # Keras reads the inputs
        ("BayesianEnsemble.evaluate", "of other shape"),
        ("evaluate_shift", "of other shape"),  # it asks for the shape later
    }:
        return
    data = make()
    y = (None,) if name == "strongest" and len(data) == 1 else ()
    with pytest.raises(ValueError, match=f"(?s){message}"):
        SCORED[name](*data, *y)


class OfSeveral(keras.Model):
    """Takes two inputs in one list, and does not declare them."""

    def __init__(self):
        super().__init__()
        self.norm, self.dense = keras.layers.BatchNormalization(), None
        self.dense = keras.layers.Dense(CLASSES, "softmax")

    def call(self, inputs, training=None):
        first, second = inputs
        return self.dense(self.norm(first + second, training=training))


def test_a_list_of_rows_is_recalibrated_as_an_array_and_a_tuple_as_several():
    x, y = arrays()
    for rows in (x.tolist(), list(x), tuple(map(tuple, x.tolist()))):
        same(recalibrated(rows), recalibrated(x))
    model = OfSeveral()
    halves = tuple(np.split(x, 2, axis=1))
    model(halves)
    results = []
    for given in (halves, parts(list(halves), y)):
        made = mh.Ensemble(model, 1)
        made.recalibrate(given)
        results.append(made.stacked_values())
    same(*results)
    with pytest.raises(ValueError, match="`x` must be .*several inputs as a tuple"):
        mh.Ensemble(model, 1).recalibrate(list(halves))
    with pytest.raises(ValueError, match=r"`x` must .*Received: shape \(2, 3\)"):
        ensemble().recalibrate([[1.0, 2.0, 3.0]] * 2)
