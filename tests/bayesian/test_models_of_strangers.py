"""`BayesianEnsemble` on models and data as people write them."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from scipy import special

import keras_mhmcmc as mh
from keras_mhmcmc.bayesian import scores
from keras_mhmcmc.bayesian.chains import Setting
from keras_mhmcmc.bayesian.choices import Choice
from keras_mhmcmc.bayesian.choices import has_fixed_rest
from keras_mhmcmc.bayesian.choices import is_random
from keras_mhmcmc.bayesian.data import divided
from keras_mhmcmc.bayesian.data import weights_of_outputs
from keras_mhmcmc.bayesian.fit import Fit
from keras_mhmcmc.bayesian.members import Plan
from keras_mhmcmc.bayesian.progress import Progress
from keras_mhmcmc.bayesian.stored_kernel import Unstored
from keras_mhmcmc.bayesian.stored_kernel import config_of
from keras_mhmcmc.bayesian.stored_kernel import kernel_of
from tests.bayesian.test_bayesian_ensemble import blobs
from tests.bayesian.test_bayesian_ensemble import line
from tests.bayesian.test_bayesian_ensemble import network
from tests.support.arguments_of_samplers import TABLE

THIRDS = pytest.mark.in_turn("jax", "tensorflow", "torch")
CLASSES = keras.losses.SparseCategoricalCrossentropy


def fitted(model, x, y, loss=None, sampler="auto", metrics=None, **options):
    ensemble = mh.BayesianEnsemble(model, 2, sampler=sampler, max_samples=8, seed=0)
    optimizer = keras.optimizers.Adam(0.02)
    ensemble.compile(loss or mh.losses.GaussianNLL(), optimizer, metrics)
    arguments = {"epochs": 2, "sampling": 1.0, "verbose": 0} | options
    ensemble.fit(x, y, **arguments)
    return ensemble


def sampled_on_all_data(ensemble):
    """Whether no rate was tried, which mini-batches need."""
    trials = [r for r in ensemble.report.rows if r["phase"] == "trial"]
    return all("rate" not in row["setting"] for row in trials)


def with_layers(*between, outputs=2):
    keras.utils.set_random_seed(0)
    dense = layers.Dense(4, "tanh"), layers.Dense(outputs)
    return keras.Sequential([keras.Input((1,)), dense[0], *between, dense[1]])


def adapted():
    layer = layers.Normalization()
    layer.adapt(line()[0])
    model = with_layers()
    return keras.Sequential([keras.Input((1,)), layer, *model.layers])


def frozen():
    model = with_layers(layers.BatchNormalization())
    model.layers[1].trainable = False
    return model


# What stands between the layers, and whether its state is fixed.
RESTS = {
    "normalization": (adapted, True),
    "dropout": (lambda: with_layers(layers.Dropout(0.5)), True),
    "noise": (lambda: with_layers(layers.GaussianNoise(0.1)), True),
    "frozen": (frozen, True),
    "batch normalization": (lambda: with_layers(layers.BatchNormalization()), False),
    "spectral": (lambda: with_layers(layers.SpectralNormalization(layers.Dense(3))), 0),
}


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("name", RESTS)
def test_only_weights_that_training_changes_stand_in_the_way(name):
    make, is_fixed = RESTS[name]
    model = make()
    before = [np.array(ops.convert_to_numpy(v)) for v in model.variables]
    assert has_fixed_rest(model, line()[0]) == is_fixed
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), value)


@THIRDS
@pytest.mark.parametrize("adapt", ["freeze", "lora"])
def test_weights_that_do_not_move_cost_no_samples(adapt):
    """A network of 5 million weights of which some thousands move."""
    body = layers.Dense(5000, name="body")
    model = keras.Sequential([keras.Input((1000,)), body, layers.Dense(1)])
    choice = Choice("auto", "auto", "auto", None)
    before = choice.kept(model, 1)
    if adapt == "freeze":
        body.trainable = False
    else:
        body.enable_lora(1)
        body.bias.trainable = False
    assert before < 10
    assert choice.kept(model, 1) >= 200


def test_chains_on_all_data_see_the_network_without_dropout():
    ensemble = fitted(with_layers(layers.Dropout(0.5)), *line(), sampling=4.0)
    assert sampled_on_all_data(ensemble)
    one, two = (ensemble.predict_members(line()[0]) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert "without dropout" in repr(ensemble.report)
    assert not is_random(keras.Sequential([layers.LSTM(3)]), np.ones((2, 3, 1)))


def test_each_chain_of_a_kernel_has_the_statistics_of_its_member():
    kernel = mh.kernels.sgld(1e-6)  # which hardly moves
    model = with_layers(layers.BatchNormalization())
    ensemble = fitted(model, *line(), sampler=kernel, epochs=10, sampling=0.2)
    stacked = ensemble.ensemble.stacked_values()
    places = [k for k, v in enumerate(model.weights) if "moving_mean" in v.path]
    found = np.unique(stacked[places[0]], axis=0)
    assert len(found) == 2 and np.all(np.ptp(found, axis=0) > 0.0)


@THIRDS
def test_an_image_to_image_model_counts_its_pixels():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 4, 4, 1)).astype("float32")
    y = (x[..., 0] > 0).astype("int32")
    pixels = layers.Conv2D(2, 3, padding="same")
    model = keras.Sequential([keras.Input((4, 4, 1)), pixels])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ensemble = fitted(model, x, y, CLASSES(from_logits=True), metrics=["accuracy"])
    assert not [str(w.message) for w in told if "train_size" in str(w.message)]
    probabilities = ensemble.predict(x, verbose=0)
    chosen = np.take_along_axis(probabilities, y[..., None], axis=-1)
    nll = -np.mean(np.log(chosen))
    loss = ensemble.evaluate(x, y, verbose=0)[0]
    assert loss == pytest.approx(nll, rel=1e-4)
    nats = scores.HeldOut(ensemble.model, x, y).nats(ensemble.ensemble.stacked_values())
    assert nats.shape[1:] == (40, 16)
    weights = ensemble.ensemble.averaging_weights
    assert np.mean(scores.mixture(nats, weights)) == pytest.approx(nll, rel=1e-4)


def test_terms_are_labels_pixels_or_the_whole_example():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 5, 2)).astype("float32")
    labels = (rng.uniform(size=(3, 5, 2)) > 0.5).astype("float32")
    model = network(2)
    model.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    found = ops.convert_to_numpy(scores.Nats(model).nats(labels, logits))
    expected = -special.log_expit(np.where(labels > 0, logits, -logits))
    np.testing.assert_allclose(found, expected.reshape(3, -1), rtol=1e-5, atol=1e-6)
    model.compile(loss=CLASSES(from_logits=True))
    y, mask = rng.integers(0, 2, (3, 5)), np.arange(5) < [[1], [3], [5]]
    found = ops.convert_to_numpy(scores.Nats(model).nats(y, logits, [mask]))
    logs = np.take_along_axis(special.log_softmax(logits, -1), y[..., None], -1)
    np.testing.assert_allclose(found, -1.0 * mask * logs[..., 0], rtol=1e-5, atol=1e-6)
    model.compile(loss=mh.losses.GaussianNLL())
    assert scores.Nats(model).nats(labels[..., :1], logits).shape == (3, 1)


@pytest.mark.parametrize("kind", ["sequential", "subclass"])
def test_the_data_build_a_model(kind):
    class Network(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    sequential = keras.Sequential([layers.Dense(3, "relu"), layers.Dense(2)])
    model = {"sequential": sequential, "subclass": Network()}[kind]
    ensemble = fitted(model, *line())
    assert ensemble.predict(line()[0], verbose=0).shape == (80, 1)
    with pytest.raises(ValueError, match="list of trained models"):
        mh.BayesianEnsemble([keras.Sequential([layers.Dense(1)])])


def test_a_lambda_layer_keeps_its_function(tmp_path):
    x, y = line()
    factor = 2.0
    model = keras.Sequential(
        [keras.Input((1,)), layers.Lambda(lambda x: x * factor), layers.Dense(2)]
    )
    ensemble = fitted(model, x, y)
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras", safe_mode=False)
    np.testing.assert_array_equal(loaded.predict(x), ensemble.predict(x))


@THIRDS
def test_several_inputs_and_outputs_in_a_list():
    one, two = keras.Input((1,)), keras.Input((2,))
    joined = layers.Concatenate()([one, two])
    heads = [layers.Dense(2)(joined), layers.Dense(3)(joined)]
    model = keras.Model([one, two], heads)
    (x, y), rng = line(), np.random.default_rng(0)
    inputs = [x, rng.normal(size=(80, 2)).astype("float32")]
    losses = [mh.losses.GaussianNLL(), CLASSES(from_logits=True)]
    sampler = mh.SGLD(1e-4, train_size=80)
    targets = [y, rng.integers(0, 3, 80)]
    metrics = [["mae"], ["accuracy"]]
    ensemble = fitted(model, inputs, targets, losses, sampler, metrics, sampling=0.1)
    mean, probabilities = ensemble.predict(inputs, verbose=0)
    found = ensemble.evaluate(inputs, targets, verbose=0, return_dict=True)
    outputs, _ = ensemble.predict_members(inputs)
    weights = ensemble.ensemble.averaging_weights
    expected = np.tensordot(weights, outputs[..., :1], axes=1)
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    nats = -np.log(probabilities[np.arange(80), targets[1]])
    density = [losses[0].call(y, output) for output in outputs]
    density = np.stack([ops.convert_to_numpy(part) for part in density])
    loss = np.mean(scores.mixture(density, weights)) + np.mean(nats)
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    names = model.output_names
    mae, accuracy = (
        found[f"{n}_{m}"] for n, m in zip(names, ("mae", "accuracy"), strict=True)
    )
    assert mae == pytest.approx(np.mean(np.abs(mean - y)), rel=1e-4)
    assert accuracy == pytest.approx(np.mean(probabilities.argmax(1) == targets[1]))


def test_a_forecast_of_each_step_of_a_sequence():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5, 2)).astype("float32")
    model = keras.Sequential([keras.Input((5, 2)), layers.Dense(2)])
    ensemble = fitted(model, x, x[..., :1])
    assert ensemble.predict(x, verbose=0).shape == (40, 5, 1)
    nats = scores.HeldOut(ensemble.model, x, x[..., :1])
    nats = nats.nats(ensemble.ensemble.stacked_values())
    nll = np.mean(scores.mixture(nats, ensemble.ensemble.averaging_weights))
    assert ensemble.evaluate(x, x[..., :1]) == pytest.approx(nll, rel=1e-4)


class Falling(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that is not registered with Keras."""

    def __call__(self, step):
        return 1e-3 / (1.0 + ops.cast(step, "float32"))

    def get_config(self):
        return {}


def test_a_kernel_is_in_the_file_where_it_can_be(tmp_path):
    x, y = line()
    kernel = mh.kernels.sgld(mh.schedules.PowerDecay(1e-3, 1.0, 0.3))
    for sampler, text in ((kernel, repr(kernel)), (mh.kernels.sgld(Falling()), None)):
        ensemble = fitted(network(), x, y, sampler=sampler, sampling=0.1)
        ensemble.save(tmp_path / "ensemble.keras")
        loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
        np.testing.assert_array_equal(loaded.predict(x), ensemble.predict(x))
        if text is not None:
            assert repr(loaded.sampler) == text
            continue
        with pytest.raises(ValueError, match=r"again: .* `ensemble.sampler` .*Falling"):
            loaded.fit(x, y)
        assert loaded.get_config()["sampler"] == ensemble.get_config()["sampler"]
        loaded.sampler = sampler
        loaded.fit(x, y, epochs=1, sampling=0.1, verbose=0)


@pytest.mark.parametrize("name", [name for name in TABLE if "kernels." in name])
def test_every_kernel_can_be_in_a_file(name):
    given = TABLE[name].good
    arguments = given() if callable(given) else given
    kernel = getattr(mh.kernels, name.removeprefix("kernels."))(**arguments)
    config = config_of(kernel)
    assert repr(kernel_of(config)) == repr(kernel) and config["kernel"] is not None
    gone = config | {"kernel": config["kernel"] | {"part": ["os", "system"]}}
    assert kernel_of(gone) == Unstored(config["text"])


def test_a_kernel_brings_its_own_warm_up():
    kernel = mh.kernels.mclmc(warm_up=30)
    ensemble = fitted(network(), *line(), sampler=kernel, refit=False)
    assert [row["steps"] - 30 for row in ensemble.report.rows[1:]] == [4, 4]


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_only_chains_that_count_warn(monkeypatch, share):
    """Trials run the chains, too, and say nothing."""
    monkeypatch.setattr(
        scores, "share_of_members", lambda own, *_: (share, scores.mixture(own))
    )
    x, y = blobs()
    sampler, weights = mh.SGLD(1e-3, train_size=60), np.full(60, 3.0)
    loss = CLASSES(from_logits=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fitted(network(2, 2), x, y, loss, sampler, sample_weight=weights)
    found = [w for w in told if "counts an example 3 times" in str(w.message)]
    assert bool(found) == (share < 1.0)


def test_class_weights_are_weights_of_examples():
    x, y = blobs()
    loss = CLASSES(from_logits=True)
    weights = np.where(y == 1, 3.0, 1.0)
    given = dict(class_weight={1: 3.0}), dict(sample_weight=weights)
    one, two = (
        fitted(network(2, 2), x, y, loss, sampling=0, **options).predict(x, verbose=0)
        for options in given
    )
    np.testing.assert_array_equal(one, two)
    plain = fitted(network(2, 2), x, y, loss, sampling=0).predict(x, verbose=0)
    assert np.mean(one[:, 1] - plain[:, 1]) > 0.01
    with pytest.raises(ValueError, match="`class_weight` must be a dict"):
        fitted(network(2, 2), x, y, loss, class_weight=[1.0, 3.0])
    with pytest.raises(ValueError, match="`class_weight` must be None if an example"):
        fitted(network(2, 2), x, np.stack([y, y], 1)[..., None], loss, class_weight={})
    with pytest.raises(ValueError, match="`sample_weight` must have one number"):
        fitted(network(2, 2), x, y, loss, sample_weight=np.ones((60, 2)))
    with pytest.raises(ValueError, match="as many examples as one another"):
        fitted(network(2, 2), x, [0, 1] * 30, loss)


@THIRDS
def test_evaluate_counts_weights_and_leaves_out_padding():
    """As Keras does for a single network."""
    x = np.where(np.arange(5)[:, None] < [[[2]], [[5]], [[4]]], 1.0, 0.0)
    x = np.tile(x, (4, 1, 1)).astype("float32")
    y = np.where(x > 0, 0.5 * x, 100.0)
    model = keras.Sequential(
        [keras.Input((5, 1)), layers.Masking(), layers.Dense(3), layers.Dense(2)]
    )
    weights = np.arange(12.0)
    model.compile(loss=mh.losses.GaussianNLL())
    expected = model.evaluate(x, y, sample_weight=weights, verbose=0)
    metrics = [keras.metrics.MeanAbsoluteError(name="mae")]
    one = mh.BayesianEnsemble([model], seed=0)
    one.compile(mh.losses.GaussianNLL(), "sgd", weighted_metrics=metrics)
    one.fit(x, y, sampling=0, verbose=0)
    loss, mae = one.evaluate(x, y, sample_weight=weights, verbose=0)
    assert loss == pytest.approx(expected, rel=1e-4) and loss < 1e3
    errors = np.abs(one.predict(x) - y)[..., 0]
    counts = weights[:, None] * (x[..., 0] > 0)
    assert mae == pytest.approx(np.sum(errors * counts) / np.sum(counts), rel=1e-4)
    halves = [(x[k::2], y[k::2], weights[k::2]) for k in (0, 1)]
    assert one.evaluate(iter(halves))[0] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="`sample_weight` must have one number"):
        one.evaluate(x, y, sample_weight=np.ones((12, 5)))
    with pytest.raises(TypeError, match="steps"):
        one.evaluate(x, y, steps=1)


@THIRDS
def test_terms_are_those_that_neither_a_mask_nor_a_class_leaves_out():
    x = np.zeros((2048, 7, 1), "float32")  # sorted by length: 2, then 4
    x[:, :2], x[1024:, 2:4] = 1.0, 1.0
    y = np.tile([0, 255, 1, 255, 255, 0, 1], (2048, 1))
    for between, own, expected in (
        ([layers.Masking()], None, 3.0),
        ([], 255, 4.0),
        ([layers.Masking()], 255, 1.5),
        ([], None, 7.0),
    ):
        model = keras.Sequential([keras.Input((7, 1)), *between, layers.Dense(2)])
        loss = CLASSES(from_logits=True, ignore_class=own)
        model.compile(loss=loss)
        run = Fit(model, {}, "sgd", Plan(0, 32, 1), 0, None, True)
        targets = np.minimum(y, y if own else 1)
        run._data, run._is_training = (x, targets, None), np.ones(2048, bool)
        assert run._terms() == pytest.approx(expected)


@pytest.mark.eager_and_compiled
def test_weights_of_examples_are_none_of_positions():
    """Here a batch has as many examples as an example has positions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 4, 3)).astype("float32")
    y, weights = rng.integers(0, 2, (4, 4)), np.array([0.0, 1.0, 2.0, 5.0])
    model = keras.Sequential([keras.Input((4, 3)), layers.Dense(2)])
    model.compile(loss=CLASSES(from_logits=True))
    outputs = model(x)
    shaped = weights_of_outputs(weights, [model.loss], outputs)
    nats = ops.convert_to_numpy(scores.Nats(model).nats(y, outputs))
    loss = ops.convert_to_numpy(model.loss(y, outputs, shaped))
    assert loss == pytest.approx(np.mean(weights[:, None] * nats), rel=1e-5)
    density = mh.losses.GaussianNLL()
    both = weights_of_outputs(weights, [model.loss, density], [outputs, outputs])
    assert [array.shape for array in both] == [(4, 4), (4,)]
    assert weights_of_outputs(weights, ["mse"], outputs[:, 0]).shape == (4,)


def test_class_weights_count_once_and_several_labels_are_refused():
    y = np.arange(6) % 2
    column = np.full((6, 1), 2.0)
    for targets in (y, np.eye(2)[y]):
        data = divided(y, targets, column, {1: 3.0}, None, None, 0, 0)[0]
        np.testing.assert_array_equal(data[2], np.where(y, 6.0, 2.0))
    with pytest.raises(ValueError, match="several labels"):
        divided(y, np.ones((6, 2)), None, {1: 3.0}, None, None, 0, 0)


@pytest.mark.parametrize(
    "kernel", [mh.kernels.sgld(1e-4), mh.SGLD(1e-4, train_size=80)]
)
@pytest.mark.parametrize("steps", [1, 7, 59])
def test_no_more_samples_are_kept_than_asked_for(kernel, steps):
    model = network()
    model.compile(loss=mh.losses.GaussianNLL())
    run = Fit(
        model,
        {"loss": model.loss},
        "sgd",
        Plan(0, 80, 1),
        0,
        Progress(model, None, 0),
        True,
    )
    run._data, run._is_training = (*line(), None), np.ones(80, bool)
    phase = run.phase(Choice(kernel, 1.0, 1.0, None))
    phase.warm_up = steps
    starts = [np.stack([w, w]) for w in model.get_weights()]
    samples = phase.run(starts, Setting(), steps, 4, False)
    assert 0 < len(samples) <= 2 * 4


def test_several_outputs_of_a_poisson_are_summed():
    model = network(3)
    model.compile(loss="poisson")
    y, rates = np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 2.0, 4.0]])
    nats = ops.convert_to_numpy(scores.Nats(model).nats(y, rates))
    np.testing.assert_allclose(nats, rates - y * np.log(rates), rtol=1e-5)


@pytest.mark.parametrize("weights", [None, [10, 1]])
def test_a_mean_over_labels_beside_another_output_is_told(weights):
    one = keras.Input((1,))
    heads = [layers.Dense(10, "sigmoid")(one), layers.Dense(2)(one)]
    model = keras.Model(one, heads)
    losses = ["binary_crossentropy", mh.losses.GaussianNLL()]
    model.compile(loss=losses, loss_weights=weights)
    run = Fit(model, {}, "sgd", Plan(0, 32, 1), 0, None, True)
    x, y = line()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run.divide(x, [np.ones((80, 10)), y], None, None, None, None)
    found = any("pass loss_weights=[10, 1]" in str(w.message) for w in told)
    assert found == (weights is None)


@THIRDS
def test_weights_train_a_list_of_masked_outputs():
    """One has a term for each position, the other one for each example."""
    x = np.ones((16, 4, 1), "float32") * (np.arange(4) < 3)[:, None]
    one = keras.Input((4, 1))
    masked = layers.Masking()(one)
    model = keras.Model(one, [layers.Dense(2)(masked), layers.Dense(2)(masked)])
    losses, y = [CLASSES(from_logits=True), mh.losses.GaussianNLL()], x[..., 0] > 0
    weights = 1.0 + np.arange(16) % 3
    sampler = mh.SGLD(1e-4, train_size=16)
    ensemble = fitted(model, x, [y, x], losses, sampler, sample_weight=weights)
    loss = ensemble.evaluate(x, [y, x], sample_weight=weights)
    assert isinstance(loss, float) and np.isfinite(loss)
