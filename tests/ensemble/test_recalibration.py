"""`Ensemble.recalibrate`: statistics of batch normalisation for each member."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import KERAS_VERSION
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit

MOMENTS = ("mean", "variance")


def network(**options):
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(6, use_bias=False, name="first"),
            keras.layers.BatchNormalization(name="norm", **options),
            keras.layers.Dropout(0.5, seed=1),
            keras.layers.Dense(CLASSES, "softmax", name="last"),
        ]
    )


def sampled(model, epochs=3):
    posterior = mh.PosteriorSamples()
    sampler = mh.SGHMC(0.1, train_size=96, seed=0)
    fit(compiled(sampler, model), epochs=epochs, callbacks=[posterior])
    return posterior.ensemble(model)


def values(ensemble):
    """The stacked weights by the names of the member's, layer/variable."""
    paths = [variable.path for variable in ensemble.member.weights]
    names = ["/".join(path.split("/")[-2:]) for path in paths]
    arrays = [keras.ops.convert_to_numpy(v) for v in ensemble.weights[:-1]]
    return dict(zip(names, map(np.array, arrays), strict=True))


@pytest.mark.parametrize("batch_size", [96, 40, 1000])
def test_statistics_are_those_of_all_inputs(batch_size):
    ensemble = sampled(network(momentum=0.9))
    before = values(ensemble)
    x, _ = data()
    ensemble.recalibrate(x, batch_size)
    after = values(ensemble)
    for member in range(3):
        hidden = x @ before["first/kernel"][member]
        stored = [after[f"norm/moving_{s}"][member] for s in MOMENTS]
        # A layer before which nothing normalises: pooled exactly, whatever the batches.
        np.testing.assert_allclose(stored[0], hidden.mean(0), atol=1e-5)
        np.testing.assert_allclose(stored[1], hidden.var(0), rtol=1e-4)
    for name, array in before.items():
        assert np.array_equal(after[name], array) == ("moving" not in name), name
    assert ensemble.member.get_layer("norm").momentum == 0.9


def test_a_second_layer_sees_what_the_first_normalised():
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.BatchNormalization(epsilon=0.0, name="one"),
            keras.layers.Dense(4, use_bias=False, name="kernel"),
            keras.layers.BatchNormalization(name="two"),
            keras.layers.Dense(CLASSES, "softmax"),
        ]
    )
    ensemble = sampled(model)
    x, _ = data()
    ensemble.recalibrate(x, 96)
    found = values(ensemble)
    for member in range(3):
        of = {name: array[member] for name, array in found.items()}
        inner = (x - x.mean(0)) / x.std(0) * of["one/gamma"] + of["one/beta"]
        inner = inner @ of["kernel/kernel"]
        np.testing.assert_allclose(of["two/moving_mean"], inner.mean(0), atol=1e-4)
        np.testing.assert_allclose(of["two/moving_variance"], inner.var(0), rtol=1e-3)


def test_predictions_are_those_of_the_new_statistics():
    # A momentum near 1 leaves the run's statistics near their start.
    ensemble = sampled(network(momentum=0.999))
    x, _ = data()
    lagging = ensemble.predict_members(x)
    ensemble.recalibrate(x)
    of = values(ensemble)
    members = ensemble.predict_members(x)
    for i in range(3):
        z = x @ of["first/kernel"][i] - of["norm/moving_mean"][i]
        z = z / np.sqrt(of["norm/moving_variance"][i] + 1e-3)
        z = z * of["norm/gamma"][i] + of["norm/beta"][i]
        z = np.exp(z @ of["last/kernel"][i] + of["last/bias"][i])
        np.testing.assert_allclose(members[i], z / z.sum(1, keepdims=True), atol=1e-4)
    assert np.abs(members - lagging).max() > 0.1


def test_a_frozen_layer_keeps_its_statistics():
    model = network()
    model.get_layer("norm").trainable = False
    with pytest.raises(ValueError, match="batch normalisation"):
        sampled(model).recalibrate(data()[0])


@pytest.mark.skipif(KERAS_VERSION <= (3, 10), reason="Keras 3.10 has no `renorm`")
def test_batch_renormalisation_is_refused():
    with pytest.raises(ValueError, match=r"\['norm'\] with renorm=True"):
        sampled(network(renorm=True), epochs=2).recalibrate(data()[0])


def test_bad_arguments_are_named():
    ensemble = sampled(network(), epochs=2)
    for arguments, name in (((data()[0], 0), "batch_size"), ((np.ones((0, 5)),), "x")):
        with pytest.raises(ValueError, match=f"`{name}`"):
            ensemble.recalibrate(*arguments)
