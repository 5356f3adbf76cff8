"""The Gaussian likelihood against scipy's density."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_mhmcmc import losses


def data(shape, seed=1):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=shape).astype("float32")
    prediction = (target + 0.7 * rng.normal(size=shape) + 0.2).astype("float32")
    return target, prediction


def expected(target, prediction, noise_std):
    """Minus the log density of each example, the outputs of one summed."""
    density = stats.norm.logpdf(
        np.asarray(target, "float64"), np.asarray(prediction, "float64"), noise_std
    )
    return -density.reshape(len(density), -1).sum(axis=1)


@pytest.mark.parametrize("noise_std", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (7, 3), (5, 2, 4)])
def test_the_loss_sums_the_outputs_and_averages_the_examples(shape, noise_std):
    target, prediction = data(shape)
    nats = losses.GaussianNLL(noise_std)(target, prediction)
    assert tuple(ops.shape(nats)) == ()
    reference = expected(target, prediction, noise_std).mean()
    assert float(nats) == pytest.approx(reference, rel=1e-5, abs=1e-5)


def test_the_loss_of_each_example_is_its_negative_log_density():
    target, prediction = data((7, 3))
    loss = losses.GaussianNLL(0.4, reduction="none")
    np.testing.assert_allclose(
        ops.convert_to_numpy(loss(target, prediction)),
        expected(target, prediction, 0.4),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("target_shape", "prediction_shape"), [((7,), (7, 1)), ((7, 1), (7,)), ((7,), (7,))]
)
def test_flat_targets_meet_column_predictions_example_by_example(
    target_shape, prediction_shape
):
    target, prediction = data((7,))
    nats = losses.GaussianNLL(0.4)(
        target.reshape(target_shape), prediction.reshape(prediction_shape)
    )
    reference = expected(target, prediction, 0.4).mean()
    assert float(nats) == pytest.approx(reference, rel=1e-5)


def test_integer_targets_are_read_as_numbers():
    prediction = np.array([[0.25], [2.5], [-1.0]], "float32")
    target = np.array([[0], [2], [-3]])
    nats = losses.GaussianNLL(0.5)(target, prediction)
    reference = expected(target, prediction, 0.5).mean()
    assert float(nats) == pytest.approx(reference, rel=1e-5)


def test_a_model_reports_the_mean_over_all_examples():
    target, inputs = data((10, 2), seed=2)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile(loss=losses.GaussianNLL(0.3))
    prediction = model.predict(inputs, verbose=0)
    nats = model.evaluate(inputs, target, batch_size=5, verbose=0)
    reference = expected(target, prediction, 0.3).mean()
    assert nats == pytest.approx(reference, rel=1e-4)


def test_the_loss_survives_serialisation():
    loss = losses.GaussianNLL(0.25, name="noise", reduction="sum")
    stored = keras.saving.serialize_keras_object(loss)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is losses.GaussianNLL
    assert restored.get_config() == loss.get_config()
    assert restored.get_config() == {
        "noise_std": 0.25,
        "min_std": 1e-3,
        "name": "noise",
        "reduction": "sum",
    }
    target, prediction = data((4, 1))
    assert float(restored(target, prediction)) == float(loss(target, prediction))


def test_a_likelihood_of_the_user_with_more_arguments_has_a_configuration():
    class Scaled(losses.GaussianNLL):
        def __init__(self, scale=1.0, **options):
            super().__init__(**options)
            self.scale = scale

        def get_config(self):
            return super().get_config() | {"scale": self.scale}

    assert Scaled(2.0, noise_std=1.0).get_config()["scale"] == 2.0
