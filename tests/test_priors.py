"""Gaussian priors: energy, gradient, and which weights have which scale."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_mhmcmc import priors

SHAPES = [(3,), (2, 4), ()]


def tensors_of(arrays):
    return [ops.convert_to_tensor(np.asarray(array, "float32")) for array in arrays]


def variables(names=("a", "b", "c")):
    return [
        keras.Variable(np.zeros(shape, "float32"), name=name)
        for shape, name in zip(SHAPES, names, strict=True)
    ]


def position(seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in SHAPES]


def log_density(x, scale):
    """log N(x; 0, scale^2) without its constant, in float64."""
    x = np.asarray(x, "float64")
    return np.sum(stats.norm.logpdf(x, 0, scale) - stats.norm.logpdf(0, 0, scale))


def energy(prior, arrays):
    return float(prior.energy(tensors_of(arrays), like=0.0))


@pytest.mark.parametrize("scale", [0.1, 1.0, 25.0])
def test_the_energy_is_minus_the_log_density_without_its_constant(scale):
    bound = priors.Gaussian(scale).bind(variables())
    here = position()
    expected = -sum(log_density(x, scale) for x in here)
    assert energy(bound, here) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("train_size", [1, 50])
@pytest.mark.parametrize("scale", [0.5, {"a": 0.5, "b": 2.0}])
def test_the_gradient_is_that_of_the_energy_over_the_training_examples(
    scale, train_size
):
    bound = priors.Gaussian(scale).bind(variables())
    here, loss_gradient = position(), position(seed=2)
    total = bound.add_gradient(tensors_of(here), tensors_of(loss_gradient), train_size)
    for i, shape in enumerate(SHAPES):
        added = ops.convert_to_numpy(total[i]) - loss_gradient[i]
        assert added.shape == shape
        difference = np.zeros(shape)
        for index in np.ndindex(shape):
            # The energy is a parabola: a central difference of any width is exact.
            ahead, behind = (
                [x.astype("float32").copy() for x in here] for _ in range(2)
            )
            ahead[i][index] += 0.5
            behind[i][index] -= 0.5
            difference[index] = energy(bound, ahead) - energy(bound, behind)
        np.testing.assert_allclose(added, difference / train_size, rtol=1e-4, atol=1e-5)


def test_a_flat_prior_leaves_the_loss_gradient_as_it_is():
    bound = priors.Gaussian({"a": 0.5}).bind(variables())
    here, loss_gradient = tensors_of(position()), tensors_of(position(seed=2))
    total = bound.add_gradient(here, loss_gradient, 10)
    for i in (1, 2):
        np.testing.assert_array_equal(
            ops.convert_to_numpy(total[i]), ops.convert_to_numpy(loss_gradient[i])
        )


def test_each_weight_has_the_scale_of_the_first_pattern_in_its_path():
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(2, name="first"),
            keras.layers.Dense(2, name="second"),
        ]
    )
    paths = [variable.path for variable in model.trainable_variables]
    assert ["first/kernel" in paths[0], "second/bias" in paths[3]] == [True, True]
    prior = priors.Gaussian({"first/kernel": 0.5, "kernel$": 2.0, "second": 3.0})
    bound = prior.bind(model.trainable_variables)
    rng = np.random.default_rng(3)
    here = [rng.normal(size=v.shape) for v in model.trainable_variables]
    # first/kernel, first/bias (flat), second/kernel, second/bias
    expected = -(
        log_density(here[0], 0.5)
        + log_density(here[2], 2.0)
        + log_density(here[3], 3.0)
    )
    assert energy(bound, here) == pytest.approx(expected, rel=1e-5)


def test_a_pattern_that_matches_nothing_is_told_with_the_paths():
    prior = priors.Gaussian({"a": 1.0, "kernle": 0.5})
    with pytest.raises(ValueError) as error:
        prior.bind(variables(names=("a", "dense_b", "dense_c")))
    for part in ("kernle", "a, dense_b, dense_c", "`scale`"):
        assert part in str(error.value)


@pytest.mark.parametrize("scale", [0.5, 2, {"kernel": 0.5, "^head/": 2.0}])
def test_a_prior_survives_serialisation(scale):
    prior = priors.Gaussian(scale)
    assert prior.get_config() == {"scale": scale}
    stored = keras.saving.serialize_keras_object(prior)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is priors.Gaussian
    assert restored.get_config() == prior.get_config()
    if isinstance(scale, dict):  # the first match counts, so the order must survive
        assert list(restored.scale) == list(scale)
