"""Losses that are mean negative log-likelihoods, which every sampler needs."""

import math

import keras
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable


@serializable
class GaussianNLL(keras.losses.Loss):
    """Negative log-likelihood of a normal distribution with known noise.

    Mean squared error is not a likelihood: its scale says nothing of the noise. This
    loss is, for targets y = model(x) + noise_std * Z, in nats per example. The outputs
    of one example are summed, examples are averaged.

    Args:
        noise_std: standard deviation of the noise, in units of the target, above 0.
        name: name of the loss.
        reduction: as in `keras.losses.Loss`; only the default, the mean over
            examples, gives the samplers the unit they expect.

    Raises:
        ValueError: `noise_std` is not a positive number.

    Example:

    >>> loss = GaussianNLL(noise_std=0.5)
    >>> round(float(loss([[0.0]], [[1.0]])), 4)
    2.2258
    """

    def __init__(self, noise_std, name="gaussian_nll", reduction="sum_over_batch_size"):
        super().__init__(name=name, reduction=reduction)
        self.noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)

    def call(self, y_true, y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.reshape(ops.cast(y_true, y_pred.dtype), ops.shape(y_pred))
        residual = (y_true - y_pred) / self.noise_std
        constant = math.log(self.noise_std) + 0.5 * math.log(2.0 * math.pi)
        nats = 0.5 * ops.square(residual) + constant
        return ops.sum(ops.reshape(nats, (ops.shape(nats)[0], -1)), axis=1)

    def get_config(self):
        return {
            "noise_std": self.noise_std,
            "name": self.name,
            "reduction": self.reduction,
        }
