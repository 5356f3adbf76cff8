"""`suggest_learning_rate`: the edge that theory says, and a model left as it was."""

import random

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _data
from keras_mhmcmc import tuning
from keras_mhmcmc.samplers.parts.rate_adaptation import LOW
from tests.support.data_people_write import DATA
from tests.support.models_people_write import MODELS

N = 32


def line(curvature):
    """A model whose loss is a parabola of this second derivative, and its data."""
    model = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros"),
        ]
    )
    model.compile("sgd", "mean_squared_error")
    x = np.full((N, 1), np.sqrt(curvature / 2.0), "float32")
    return model, x, 3.0 * x


# SGD with momentum mu on a parabola converges below 2 (1 + mu) / curvature.
@pytest.mark.parametrize(
    ("curvature", "momentum"), [(0.5, 0.0), (2.0, 0.0), (40.0, 0.0), (2.0, 0.9)]
)
def test_the_suggestion_is_the_largest_stable_rate(curvature, momentum):
    model, x, y = line(curvature)
    edge = 2.0 * (1.0 + momentum) / curvature
    shares = np.array([0.1, 0.3, 0.6, 0.95, 1.05, 2.0])
    sgd = keras.optimizers.SGD(7.0, momentum=momentum)
    table = mh.suggest_learning_rate(
        model, x, y, sgd, rates=edge * shares, steps=300, batch_size=N
    )
    assert table.rate == pytest.approx(0.95 * edge)
    assert "passes" not in table.column("verdict")[4:]
    np.testing.assert_allclose(table.column("start"), 9.0 * curvature / 2.0, rtol=1e-5)


def test_a_langevin_sampler_has_the_edge_of_gradient_descent():
    model, x, y = line(2.0)
    sampler = mh.SGLD(0.1, train_size=1000, seed=0)
    table = mh.suggest_learning_rate(
        model, x, y, sampler, rates=[0.3, 0.9, 1.1, 3.0], steps=100, batch_size=N
    )
    assert table.rate == 0.9 and table.measure == "energy per example"


def test_the_energy_of_a_sampler_has_its_prior():
    model, x, y = line(2.0)
    model.set_weights([np.ones((1, 1))])
    sampler = mh.SGLD(0.1, train_size=10, prior=mh.priors.Gaussian(0.5), seed=0)
    table = mh.suggest_learning_rate(
        model, x, y, sampler, rates=[0.1], steps=4, batch_size=N
    )
    loss, prior = (1.0 - 3.0) ** 2, 0.5 * (1.0 / 0.5) ** 2 / 10
    assert table.rows[0]["start"] == pytest.approx(loss + prior, rel=1e-5)


# What a rate shows does not depend on the rates before it.


def network(optimizer="sgd"):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.3, seed=5),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def data():
    x = np.random.default_rng(1).normal(size=(N, 4)).astype("float32")
    return x, (x[:, 0] > 0).astype("int32")


def test_a_rate_is_tried_from_the_first_weights_with_a_fresh_optimizer():
    x, y = data()
    adam = keras.optimizers.Adam(0.5)
    rows = []
    for rates in ([0.1], [0.001, 0.1]):
        rows.append(
            mh.suggest_learning_rate(
                network(), x, y, adam, rates=rates, steps=6, batch_size=8
            ).rows[-1]
        )
    for name in ("start", "end"):
        assert rows[0][name] == rows[1][name]


def test_a_run_is_that_of_keras_at_this_rate():
    x, y = data()
    rates = mh.suggest_learning_rate(
        network(), x, y, "adam", rates=[0.001, 0.02], steps=6, batch_size=8
    )
    model = network(keras.optimizers.Adam(0.02))
    losses = []
    stream = _data.stream_of(x, y, 8, seed=0)()
    for _, batch in zip(range(6), stream, strict=False):
        losses.append(model.train_on_batch(*batch, return_dict=True)["loss"])
    assert rates.rows[1]["end"] == pytest.approx(np.mean(losses[3:]), rel=1e-5)


# The model is as before.


def state_of(model):
    variables = [*model.variables, *model.metrics_variables]
    if model.optimizer.built:
        variables += model.optimizer.variables
    return [ops.convert_to_numpy(v).tobytes() for v in variables]


def attributes_of(model):
    names = ("optimizer", "train_function", "steps_per_execution", "stop_training")
    return [getattr(model, name, None) for name in names]


def test_a_trained_model_goes_on_as_if_nothing_had_been():
    x, y = data()
    adam = lambda: keras.optimizers.Adam(0.01)
    models = [network(adam()), network(adam())]
    for model in models:
        model.fit(x, y, batch_size=8, epochs=1, shuffle=False, verbose=0)
    model, twin = models
    before, attributes = state_of(model), attributes_of(model)
    sampler = mh.SGHMC(0.1, train_size=N)
    drawn = random.getstate(), np.random.get_state()[1].tolist()
    for optimizer in (None, sampler):
        mh.suggest_learning_rate(model, x, y, optimizer, rates=[0.01, 1.0], steps=4)
        assert state_of(model) == before
        now = attributes_of(model)
        assert all(a is b for a, b in zip(now, attributes, strict=True))
    assert (random.getstate(), np.random.get_state()[1].tolist()) == drawn
    for model in models:
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert state_of(model) == state_of(twin)


def test_an_error_in_a_run_leaves_the_model_as_it_was(monkeypatch):
    x, y = data()
    model = network()
    model.fit(x, y, verbose=0)
    before, attributes = state_of(model), attributes_of(model)

    def fail(self, losses):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning._Trials, "_has_failed", fail)
    with pytest.raises(KeyboardInterrupt):
        mh.suggest_learning_rate(model, x, y, rates=[0.1], steps=4)
    assert state_of(model) == before and attributes_of(model) == attributes


def test_the_given_sampler_stays_as_it_was():
    x, y = data()
    sampler = mh.RSGLD(0.3, train_size=N, batch_size=8, warm_up=3)
    config = sampler.get_config()
    table = mh.suggest_learning_rate(network(), x, y, sampler, rates=[0.1], steps=20)
    assert not sampler.built and sampler.get_config() == config
    assert 0.0 <= table.rows[0]["acceptance"] <= 1.0
    assert table.rows[0]["end"] < table.rows[0]["start"]


NAMES = ("unbuilt", "subclass", "two_inputs", "named_outputs", "normalised", "frozen")


@pytest.mark.parametrize("name", NAMES)
def test_models_as_people_write_them(name):
    keras.utils.set_random_seed(1)
    written = MODELS[name]
    model, (x, y) = written.build(), written.data()
    made = lambda part: part() if callable(part) else part
    loss, metrics = (
        keras.tree.map_structure(made, part) for part in (written.loss, written.metrics)
    )
    model.compile("sgd", loss, metrics=metrics, **written.options)
    if name not in ("unbuilt", "subclass"):
        before = state_of(model)
    else:  # the weights that its initializers draw now
        model(keras.tree.map_structure(lambda a: a[:2], x))
        before = [ops.convert_to_numpy(w).tobytes() for w in model.variables]
    table = mh.suggest_learning_rate(model, x, y, rates=[1e-3, 0.1], steps=20)
    assert state_of(model)[: len(before)] == before
    assert np.isfinite(table.column("end")).all()
    assert (table.column("end") < table.column("start")).any()


FORMS = ("float64", "uint8", "tensors", "frame", "tf_data", "tf_data_without_end")
FORMS += (
    "tf_data_of_dicts",
    "py_dataset",
    "data_loader",
    "several_steps_per_execution",
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.eager_and_compiled
def test_data_as_people_give_them(form):
    given = DATA[form]
    if keras.backend.backend() not in given.backends:
        pytest.skip("Keras does not take them")
    if "tf_data" in form:
        pytest.importorskip("tensorflow")
    elif form == "data_loader":
        pytest.importorskip("torch")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, "softmax")])
    if not isinstance(given.inputs, int):
        model = given.inputs()
    model.compile("sgd", "sparse_categorical_crossentropy", **given.options)
    arguments = given.make()
    arguments.pop("steps_per_epoch", None)
    table = mh.suggest_learning_rate(model, **arguments, rates=[1e-3, 0.03], steps=30)
    assert table.rows[1]["end"] < table.rows[1]["start"]


def test_batches_of_arrays_are_full_and_hold_each_example_once():
    x = np.arange(10)[:, None]
    stream = _data.stream_of({"a": x}, x, 4, seed=0)
    epoch = [batch for batch, _ in zip(stream(), range(4), strict=False)]
    for features, targets, _ in epoch:
        np.testing.assert_array_equal(features["a"], targets)
        assert len(targets) == 4
    assert len(set(np.ravel([batch[1] for batch in epoch[:2]]))) == 8
    again = next(stream())
    np.testing.assert_array_equal(again[1], epoch[0][1])


def test_rates_that_diverge_are_told_from_those_that_pass():
    model, x, y = line(2.0)
    table = mh.suggest_learning_rate(
        model, x, y, rates=[1e30, 0.1, 1e20], steps=20, batch_size=N
    )
    assert list(table.column("learning_rate")) == [0.1, 1e20, 1e30]
    assert list(table.column("verdict")) == ["passes", "not finite", "not finite"]


@pytest.mark.parametrize("kind", [mh.SGLD, mh.SGHMC])
def test_a_sampler_that_stopped_is_not_finite(kind):
    model, x, y = line(2.0)
    table = mh.suggest_learning_rate(
        model, x, y, kind(0.1, train_size=N), rates=[0.1, 1e25], steps=20, batch_size=N
    )
    assert list(table.column("verdict")) == ["passes", "not finite"]


def test_a_rate_at_which_moves_are_rejected_does_not_pass():
    """A random walk far wider than a narrow target; the energy at first falls."""
    model, x, y = line(2.0)
    walk = mh.MHBT(0.1, train_size=N, batch_size=N, temperature=0.1, seed=0)
    table = mh.suggest_learning_rate(model, x, y, walk, rates=[0.05, 2.0], steps=400)
    assert list(table.column("verdict")) == ["passes", "moves rejected"]
    assert table.rows[0]["acceptance"] > LOW > table.rows[1]["acceptance"]


def test_the_rate_of_a_run_does_not_adapt_and_the_warm_up_is_not_judged():
    sampler = mh.RSGLD(0.1, train_size=N, batch_size=8, warm_up=7)
    made = tuning._at_rate(sampler, 0.3, seed=4)
    assert made.arguments["rate_adaptation"] is False
    assert made.arguments["warm_up"] == 7 and made.seed == 4
    assert float(made.learning_rate) == pytest.approx(0.3)
    steps = []
    model = network()
    run = tuning._Trials(model, made, _data.stream_of(*data(), 8, 0), steps=10)
    run._step = lambda batch: steps.append(len(steps)) or 1.0
    made.reset_diagnostics = lambda: steps.append("judged")
    run.run(0.1)
    assert steps.index("judged") == made.warm_up + 5 and len(steps) == 19


# The verdict on each rate, and what the table says to do.


def rows(outcomes, start=(2.0, 2.1, 1.9)):
    rates = [0.01 * 2**place for place in range(len(outcomes))]
    return tuning._rows(rates, np.array(start), outcomes)


NAN = float("nan")


@pytest.mark.parametrize(
    ("outcomes", "verdicts"),
    [
        # A network that a large step has turned off is not taken.
        (
            [(1.8, NAN), (0.1, NAN), (0.9, NAN), (1.7, NAN), (2.5, NAN)],
            "too slow, passes, passes, falls too little, does not fall",
        ),
        (
            [(1.0, 1.0), (0.5, LOW), (0.4, LOW - 0.01), (1.9, 1.0)],
            "passes, passes, moves rejected, falls too little",
        ),
        ([(0.5, NAN), (NAN, NAN)], "passes, not finite"),
        ([(NAN, NAN), (NAN, NAN)], "not finite, not finite"),
        # Less than the noise of the energy at the start.
        ([(1.95, NAN), (1.98, NAN)], "does not fall, does not fall"),
    ],
)
def test_verdicts(outcomes, verdicts):
    made = rows([tuning._Outcome(e, a, bool(np.isfinite(e))) for e, a in outcomes])
    assert ", ".join(row["verdict"] for row in made) == verdicts


@pytest.mark.parametrize(
    ("outcomes", "rate", "advice"),
    [
        ([(0.1, NAN), (0.2, NAN), (1.9, NAN)], 0.02, "Begin at 0.02 or below"),
        ([(0.1, NAN), (0.2, NAN)], 0.02, "add larger `rates`"),
        ([(0.5, 0.0)], None, "smaller `rates`, or raise the temperature"),
        ([(1.99, NAN)], None, "not trained yet"),
        ([(NAN, NAN)], None, "smaller `rates`, and look for such values"),
    ],
)
def test_the_table_says_what_to_do(outcomes, rate, advice):
    made = rows([tuning._Outcome(e, a, bool(np.isfinite(e))) for e, a in outcomes])
    table = tuning.LearningRateTable(made, "SGD", "loss")
    assert table.rate == rate
    assert advice in table.advice and advice in repr(table)
    assert ("accepted" in repr(table)) == (outcomes[0][1] == 0.0)
    heads = list(pytest.importorskip("pandas") and table.to_pandas().columns)
    assert heads == ["learning_rate", "start", "end", "acceptance", "verdict"]


# Bad arguments.

X, Y = data()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": keras.Sequential()}, r"`model` must be compiled.*`model.compile"),
        ({"model": "model"}, r"`model` must be a compiled `keras.Model`"),
        (
            {
                "batch_size": 4,
                "optimizer": mh.MHBT(0.1, train_size=N, batch_size=8),
            },
            r"`batch_size` must be None, or that of the sampler.*8.*batch_size=4",
        ),
        ({"y": Y[:-1]}, r"`x` and `y` must be .*\[32, 31\]"),
        ({"x": iter([X]), "y": None}, r"`x` must be .*`PyDataset`"),
        ({"x": None}, r"`x` must be .*x=None"),
        ({"x": X[0, 0]}, r"`x` must be arrays"),
        ({"x": [X], "y": list(Y)}, r"`y` must be arrays"),
        ({"y": None}, r"`y` must be the targets of the compiled loss"),
        ({"x": (X, Y), "y": None}, r"`y` must be the targets.*apart from `x`"),
        ({"y": np.array(["a"] * N)}, r"`y` must be arrays"),
    ],
)
def test_bad_arguments_are_refused_with_a_remedy(arguments, message):
    good = {"x": X, "y": Y, "rates": [0.1], "steps": 4}
    with pytest.raises(ValueError, match=f"(?s){message}"):
        mh.suggest_learning_rate(**{"model": network()} | good | arguments)


def test_a_loss_that_the_model_adds_needs_no_targets():
    class Autoencoder(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(X.shape[1])

        def call(self, inputs):
            outputs = self.dense(inputs)
            self.add_loss(ops.mean(ops.square(outputs - inputs)))
            return outputs

    model = Autoencoder()
    model.compile("sgd")
    table = mh.suggest_learning_rate(model, X, rates=[0.01, 1e6], steps=8)
    assert table.rate == 0.01


def test_a_data_set_has_its_own_targets():
    dataset = DATA["py_dataset"].make()["x"]
    with pytest.raises(ValueError, match="`y` must be None"):
        mh.suggest_learning_rate(network(), dataset, Y, rates=[0.1])


def test_chains_side_by_side_are_refused():
    chains = mh.ParallelChains(network(), 2)
    chains.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="`model` must be a single network"):
        mh.suggest_learning_rate(chains, X, Y, rates=[0.1])
