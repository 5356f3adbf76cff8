"""`BayesianEnsemble`: one call that trains, samples, chooses and averages."""

import dataclasses
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from scipy import special

import keras_mhmcmc as mh
from keras_mhmcmc.bayesian import chains
from keras_mhmcmc.bayesian import members
from keras_mhmcmc.bayesian import scores
from keras_mhmcmc.bayesian.chains import Setting
from keras_mhmcmc.bayesian.fit import Fit

THIRDS = pytest.mark.in_turn("jax", "tensorflow", "torch")
CLASSES = keras.losses.SparseCategoricalCrossentropy


def line(count=80, seed=0):
    """Points around a line, with noise that grows."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (count, 1)).astype("float32")
    noise = (0.1 + 0.1 * (x > 0)) * rng.normal(size=x.shape)
    return x, (x + noise).astype("float32")


def network(outputs=2, inputs=1, units=6):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(units, "tanh"), keras.layers.Dense(outputs)]
    return keras.Sequential([keras.Input((inputs,)), *layers])


def blobs(count=60):
    """Two classes of points."""
    rng = np.random.default_rng(1)
    y = np.arange(count) % 2
    return (rng.normal(size=(count, 2)) + 3.0 * y[:, None]).astype("float32"), y


def fitted(**options):
    arguments = {"epochs": 10, "batch_size": 64, "sampling": 40.0, "verbose": 0}
    # Members that are hardly trained, which sampling improves by far.
    ensemble = mh.BayesianEnsemble(network(), 2, max_samples=40, seed=3)
    ensemble.compile(mh.losses.GaussianNLL(), keras.optimizers.AdamW(0.01))
    ensemble.fit(*line(), **arguments | options)
    return ensemble


@pytest.fixture(scope="module")
def regression():
    return fitted()


@pytest.mark.parametrize("shape", [(5, 2), (5, 2, 1), (5, 1), (5,)])
def test_dense_layers_have_the_outputs_of_the_model(shape):
    model = network(outputs=3, inputs=2 if 2 in shape else 1)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    x = keras.ops.convert_to_tensor(x)
    assert chains._is_dense(model)
    for inputs in (x, (x,)):
        found = keras.ops.convert_to_numpy(chains._of_columns(model.layers, inputs))
        outputs = keras.ops.convert_to_numpy(model(x))
        np.testing.assert_allclose(found, outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Dense(4, "softmax"),  # not of one number at a time
        keras.layers.Dense(4, use_bias=False),
        keras.layers.Dense(4, dtype="mixed_bfloat16"),
        keras.layers.Dense(4, "sigmoid"),  # Keras reads its logits back
        keras.layers.BatchNormalization(),
    ],
)
def test_other_layers_compute_their_outputs_themselves(layer):
    assert not chains._is_dense(keras.Sequential([keras.Input((2,)), layer]))


def test_other_inputs_go_through_the_model():
    layer = keras.layers.Dense(4)
    layer(keras.Input((2,)))  # its first inputs have two axes, those below three
    assert not chains._is_dense(keras.Sequential([keras.Input((5, 2)), layer]))
    rounded = keras.Input((2,), dtype="int32")
    model = keras.Sequential([rounded, keras.layers.Dense(4)])
    assert not chains._is_dense(model)


def test_chains_that_cannot_be_compiled_run_slower_and_say_so(monkeypatch):
    ways, sample = [], chains.sample

    def without_compiler(*arguments, jit_compile="auto", **options):
        ways.append(jit_compile)
        if jit_compile is True:
            raise RuntimeError("no compiler here")
        return sample(*arguments, **options)

    monkeypatch.setattr(chains, "sample", without_compiler)
    monkeypatch.setattr(chains, "COMPILED", 50)
    monkeypatch.setattr(chains._backend, "can_compile", lambda: True)
    with pytest.warns(UserWarning, match="mend this: RuntimeError: no compiler"):
        fitted(epochs=3, sampling=20.0)
    assert True in ways and ways.count("auto") >= ways.count(True)


@pytest.mark.eager_and_compiled
def test_a_regression_is_predicted_with_its_noise(regression):
    x, y = line(400, seed=5)
    law = mh.predict_distribution(regression, x)
    nats = scores.nats_of_members(
        scores.Nats(regression.model).nats, y, regression.predict_members(x)
    )
    weights = regression.ensemble.averaging_weights
    np.testing.assert_allclose(
        -law.log_prob(y), scores.mixture(nats, weights), rtol=1e-3, atol=1e-3
    )
    table = mh.evaluate({"ensemble": regression}, x, y)
    nll = np.mean(scores.mixture(nats, weights))
    assert table.rows[0]["nll"] == pytest.approx(nll, rel=1e-3)
    assert regression.evaluate(x, y) == pytest.approx(nll, rel=1e-3)
    truth = -np.mean(
        -0.5 * np.square((y - x) / (0.1 + 0.1 * (x > 0)))
        - np.log(0.1 + 0.1 * (x > 0))
        - 0.5 * np.log(2.0 * np.pi)
    )
    constant = 0.5 * np.log(2.0 * np.pi * np.e * np.var(y))
    assert truth - 0.05 < nll < 0.5 * (truth + constant)
    assert regression.predict(x, verbose=0).shape == (400, 1)
    assert np.sqrt(np.mean(np.square(regression.predict(x, verbose=0) - x))) < 0.1


def test_the_report_has_each_phase(regression):
    report = regression.report
    assert [row["phase"] for row in report.rows] == ["members", "trial", "samples"]
    members, trial, _ = report.rows
    assert trial["gain"] == pytest.approx(members["nll"] - trial["nll"])
    assert "T=1, prior=1" in repr(report)
    assert len(report.to_pandas()) == 3


@pytest.mark.eager_and_compiled
def test_a_saved_ensemble_predicts_the_same(regression, tmp_path):
    x, _ = line(10)
    regression.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    np.testing.assert_array_equal(
        loaded.predict_members(x), regression.predict_members(x)
    )
    np.testing.assert_array_equal(loaded.predict(x), regression.predict(x))


def test_a_seed_makes_the_run_repeatable():
    x, _ = line(10)
    one, two = (fitted(sampling=2.0).predict(x) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_without_sampling_it_is_a_deep_ensemble():
    ensemble = fitted(sampling=0)
    assert ensemble.ensemble.num_members == 2
    assert [row["phase"] for row in ensemble.report.rows] == ["members"]


def test_trained_models_become_the_members():
    x, y = line()
    models = []
    for seed in (0, 1, 2):
        model = network()
        model.compile(keras.optimizers.Adam(0.02), mh.losses.GaussianNLL())
        keras.utils.set_random_seed(seed)
        model.fit(x, y, epochs=20, verbose=0)
        models.append(model)
    ensemble = mh.BayesianEnsemble(models, seed=0)
    ensemble.compile(loss=mh.losses.GaussianNLL())
    ensemble.fit(x, y, sampling=0, verbose=0)
    for member, model in zip(ensemble.predict_members(x), models, strict=True):
        np.testing.assert_allclose(member, model.predict(x, verbose=0), atol=1e-6)
    ensemble.fit(x, y, sampling=0.01, verbose=0)
    assert {row["phase"] for row in ensemble.report.rows} >= {"members", "trial"}


def model_of_images():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(3, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(2),
        ]
    )


def model_of_words():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            keras.layers.Embedding(10, 4),
            keras.layers.LSTM(4),
            keras.layers.Dense(2),
        ]
    )


def model_of_two_inputs():
    """Attention of a query over a sequence."""
    keras.utils.set_random_seed(0)
    query, sequence = (
        keras.Input((2, 4), name="query"),
        keras.Input((5, 4), name="keys"),
    )
    mixed = keras.layers.MultiHeadAttention(1, 4)(query, sequence)
    mixed = keras.layers.LayerNormalization()(keras.layers.Add()([query, mixed]))
    outputs = keras.layers.Dense(2)(keras.layers.Flatten()(mixed))
    return keras.Model({"query": query, "keys": sequence}, outputs)


def inputs_of(name, y):
    rng = np.random.default_rng(2)
    shift = y.astype("float32")
    if name == "images":
        x = rng.normal(size=(len(y), 8, 8, 1)) + shift[:, None, None, None]
    elif name == "words":
        return rng.integers(0, 5, (len(y), 6)) + 5 * y[:, None]
    else:
        query = rng.normal(size=(len(y), 2, 4)) + shift[:, None, None]
        keys = rng.normal(size=(len(y), 5, 4))
        return {"query": query.astype("float32"), "keys": keys.astype("float32")}
    return x.astype("float32")


MODELS = {
    "images": model_of_images,
    "words": model_of_words,
    "two inputs": model_of_two_inputs,
}


@THIRDS
@pytest.mark.parametrize("name", MODELS)
def test_models_that_people_write(name, tmp_path):
    y = np.arange(60) % 2
    x = inputs_of(name, y)
    model = MODELS[name]()
    sampler = mh.PSGLD(1e-3, train_size=60, temperature=0.1)
    ensemble = mh.BayesianEnsemble(
        model, 2, sampler=sampler, temperature=0.1, prior=1.0, max_samples=4, seed=0
    )
    adam = keras.optimizers.Adam(0.02)
    ensemble.compile(CLASSES(from_logits=True), adam, metrics=["accuracy"])
    ensemble.fit(x, y, epochs=25, batch_size=25, sampling=0.5, verbose=0)
    probabilities = ensemble.predict(x, verbose=0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
    accuracy = np.mean(probabilities.argmax(axis=1) == y)
    assert accuracy > 0.8
    scores_of_keras = ensemble.evaluate(x, y, return_dict=True, verbose=0)
    nll = -np.mean(np.log(probabilities[np.arange(len(y)), y]))
    assert scores_of_keras["loss"] == pytest.approx(nll, rel=1e-3)
    assert scores_of_keras["accuracy"] == pytest.approx(accuracy)
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    np.testing.assert_allclose(
        loaded.predict(x, verbose=0), probabilities, rtol=1e-5, atol=1e-6
    )


def test_loaders_are_read_once():
    x, y = blobs()

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, number):
            part = slice(20 * number, 20 * number + 20)
            return x[part], y[part]

    ensemble, arrays = (mh.BayesianEnsemble(network(2, 2), 2, seed=0) for _ in "ab")
    for one, data in ((ensemble, (Batches(),)), (arrays, (x, y))):
        one.compile(CLASSES(from_logits=True), "sgd")
        one.fit(*data, epochs=3, sampling=0, verbose=0)
    np.testing.assert_array_equal(
        ensemble.predict(x, verbose=0), arrays.predict(x, verbose=0)
    )


@THIRDS
def test_a_sampler_by_its_name():
    """The held-out examples choose its rate, around the usual one."""
    x, y = blobs()
    ensemble = mh.BayesianEnsemble(
        network(2, 2), 2, sampler="SGHMC", temperature=0.1, prior=1.0, seed=0
    )
    assert ensemble.get_config()["sampler"] == "sghmc"
    ensemble.compile(CLASSES(from_logits=True), keras.optimizers.Adam(0.05))
    report = ensemble.fit(x, y, epochs=5, sampling=0.1, verbose=0)
    trials = repr(report)
    assert "prior=1, rate=0.03 " in trials and "prior=1, rate=0.09 " in trials
    with pytest.raises(ValueError, match="auto, sgld, psgld, sghmc, sgnht, sgmclmc"):
        mh.BayesianEnsemble(network(2, 2), sampler="mint")


@pytest.mark.parametrize(
    ("loss", "sampling", "units", "count"),
    [
        (mh.losses.GaussianNLL(min_std=0.5), "auto", 8, 16),
        (mh.losses.GaussianNLL(min_std=0.5), "auto", 4000, 8),
        (mh.losses.GaussianNLL(min_std=0.5), 0, 8, 4),
        (CLASSES(from_logits=True), "auto", 8, 4),
    ],
)
def test_chains_are_many_where_a_gradient_of_all_data_is_cheap(
    loss, sampling, units, count, monkeypatch
):
    def train(run, count):
        raise InterruptedError(f"before {count} members")

    monkeypatch.setattr(Fit, "train", train)
    x, y = blobs()
    ensemble = mh.BayesianEnsemble(network(2, 2, units), seed=0)
    ensemble.compile(loss)
    with pytest.raises(InterruptedError, match=f"before {count} members"):
        ensemble.fit(x, y, sampling=sampling, verbose=0)


def test_samples_that_are_worse_are_not_averaged():
    """A sampler that destroys the networks leaves the trained members."""
    x, y = blobs(600)
    sampler = mh.SGLD(20.0, train_size=600)
    ensemble = mh.BayesianEnsemble(network(2, 2), 2, sampler=sampler, seed=0)
    ensemble.compile(CLASSES(from_logits=True), keras.optimizers.Adam(0.05))
    ensemble.fit(x, y, epochs=30, sampling=1.0, verbose=0)
    assert ensemble.ensemble.num_members == 2
    assert "these are the trained members" in repr(ensemble.report)


def test_half_of_the_held_out_examples_is_scored_by_the_best_on_the_other_half():
    """The lowest of many rounds of noise is low; what is crossed has the mean."""
    rng = np.random.default_rng(0)
    rounds = rng.normal(1.0, 0.5, (200, 1, 8))  # of a network that never gets better
    shown = iter(rounds)
    held_out = SimpleNamespace(size=8, nats=lambda _: next(shown))
    best = members.Members([], np.full(1, np.inf), np.full((2, 1), np.inf), rounds[0])
    trainer = members.Trainer(*[None] * 2, held_out, *[None] * 4, "part")
    trainer._stacked = list
    for _ in rounds:
        trainer._keep(best, is_last=False)
    means = rounds.mean(axis=2)[:, 0]
    assert best.nats[0] == means.min() < 0.7
    first = rounds[rounds[:, 0, ::2].mean(axis=1).argmin(), 0, 1::2]
    np.testing.assert_array_equal(best.crossed[0, 1::2], first)
    assert abs(best.crossed.mean() - 1.0) < 3 * 0.5 / np.sqrt(8)


@pytest.mark.slow
def test_longer_training_stands_where_sampling_does_not_pay():
    x, y = blobs(600)
    sampler = mh.SGLD(1e3, train_size=600)
    ensemble = mh.BayesianEnsemble(network(2, 2), 2, sampler=sampler, seed=0)
    ensemble.compile(CLASSES(from_logits=True), "adam")
    ensemble.fit(x, y, epochs=30, sampling=1.0, verbose=0)
    assert "trained members, for 2 times as long" in repr(ensemble.report)
    assert [row["phase"] for row in ensemble.report.rows][-1] == "refit"


@pytest.mark.parametrize(
    ("nats", "has_classes", "share"),
    [
        ([0.2, 0.2, 0.2], False, 0.02),
        ([0.2] * 99, False, 0.01),
        ([0.9, 0.9, 0.9], False, 1.0),
        ([0.1, 0.9, 0.5], False, 0.5),
        ([0.2, 0.2, 0.2], True, 0.02),
        ([0.1, 0.9, 0.4], True, 1.0),
    ],
)
def test_the_usual_part_is_averaged_unless_another_is_clearly_better(
    nats, has_classes, share
):
    members, samples = np.full((1, len(nats)), 0.5), np.array([nats])
    found, mean = scores.share_of_members(members, samples, has_classes)
    assert found == share
    weighted = share * np.exp(-members[0]) + (1.0 - share) * np.exp(-samples[0])
    np.testing.assert_allclose(mean, -np.log(weighted))


@pytest.mark.parametrize("from_logits", [True, False])
def test_nats_of_classes_are_those_of_numpy(from_logits):
    model = network(3)
    loss = CLASSES(from_logits=from_logits)
    model.compile(loss=loss)
    logits = np.random.default_rng(0).normal(size=(4, 5, 3)).astype("float32")
    y = np.array([0, 2, 1, 0, 1])
    logs = special.log_softmax(logits.astype("float64"), axis=2)
    outputs = logits if from_logits else np.exp(logs).astype("float32")
    found = scores.nats_of_members(scores.Nats(model).nats, y, outputs)
    np.testing.assert_allclose(found, -logs[:, np.arange(5), y], rtol=1e-4)
    mean = np.mean(np.exp(-found), axis=0)
    np.testing.assert_allclose(scores.mixture(found), -np.log(mean), rtol=1e-6)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    expected = -np.log(weights @ np.exp(-found))
    np.testing.assert_allclose(scores.mixture(found, weights), expected, rtol=1e-6)


def test_the_search_ends_where_no_neighbour_is_better():
    axes = {"temperature": (0.01, 0.1, 1.0), "prior": (0.5, 1.0, 2.0)}
    asked = []

    def score(setting):
        asked.append(setting)
        return np.log10(setting.temperature) ** 2 + (setting.prior - 0.5) ** 2

    assert scores.lowest(score, Setting(0.1, 2.0), axes) == Setting(1.0, 0.5)
    assert len(set(asked)) == 4


@pytest.mark.parametrize("name", ["rate", "temperature"])
def test_a_larger_step_or_temperature_must_be_clearly_better(name):
    axes = {name: (0.001, 0.003, 0.01)}
    start = dataclasses.replace(Setting(), **{name: 0.001})
    for clear, chosen in ((0.003, 0.003), (0.01, 0.001)):
        found = scores.lowest(
            lambda setting: -getattr(setting, name),
            start,
            axes,
            is_clear=lambda one, _, clear=clear: getattr(one, name) == clear,
        )
        assert getattr(found, name) == chosen


def compiled(**options):
    ensemble = mh.BayesianEnsemble(network(), 2, **options)
    ensemble.compile(loss=mh.losses.GaussianNLL())
    return ensemble


def test_what_does_not_fit_is_refused_with_a_remedy():
    x, y = line()
    with pytest.raises(ValueError, match="call `compile` first"):
        mh.BayesianEnsemble(network(), 2).fit(x, y)
    with pytest.raises(ValueError, match="call `compile` and `fit` first"):
        compiled().predict(x)
    with pytest.raises(ValueError, match="`loss` must be a mean negative"):
        mh.BayesianEnsemble(network(), 2).compile()
    broken = x.copy()
    broken[3] = np.nan
    with pytest.raises(ValueError, match="`x` must be finite.* 1 of 80 values"):
        compiled().fit(broken, y)
    with pytest.raises(ValueError, match="as many examples as one another"):
        compiled().fit(x, y[:70])
    with pytest.raises(ValueError, match="2 outputs for 1 target|4 outputs"):
        compiled().fit(x, np.tile(y, (1, 2)), epochs=1, verbose=0)
    numbers = {"batch_size": 0, "epochs": 0, "sampling": -1.0, "refit": 2}
    for name, value in (numbers | {"validation_split": 1.0}).items():
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            compiled().fit(x, y, verbose=0, **{name: value})


def test_a_held_out_part_of_one_class_is_told():
    x, y = blobs()
    ensemble = mh.BayesianEnsemble(network(2, 2), 2, seed=0)
    ensemble.compile(loss=CLASSES(from_logits=True))
    zeros = y == 0
    with pytest.warns(UserWarning, match="one class alone"):
        ensemble.fit(
            x, y, epochs=1, sampling=0, verbose=0, validation_data=(x[zeros], y[zeros])
        )
