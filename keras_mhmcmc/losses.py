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
        ValueError: `noise_std` is not a positive number, or, when the loss is computed,
            the targets have another shape than the model's outputs.

    Example:

    >>> loss = GaussianNLL(noise_std=0.5)
    >>> round(float(loss([[0.0]], [[1.0]])), 4)
    2.2258
    """

    def __init__(self, noise_std, name="gaussian_nll", reduction="sum_over_batch_size"):
        kinds = (str, type(None))
        _validate.instance("name", name, kinds, "a text, or None")
        hint = 'a text such as "sum_over_batch_size", or None'
        _validate.instance("reduction", reduction, kinds, hint)
        super().__init__(name=name, reduction=reduction)
        self.noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)

    def call(self, y_true, y_pred):
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.cast(y_true, y_pred.dtype)
        _check_shapes(y_true.shape, y_pred.shape)
        y_true = ops.reshape(y_true, ops.shape(y_pred))
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


def _check_shapes(y_true, y_pred):
    """Raises unless targets fit outputs, but for axes of length 1 at the end."""
    shapes = [list(y_true), list(y_pred)]
    for shape in shapes:
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
    fits = len(shapes[0]) == len(shapes[1]) > 0
    # A length of None is known when the step runs.
    pairs = zip(*shapes, strict=True) if fits else []
    if not fits or any(a != b and None not in (a, b) for a, b in pairs):
        raise ValueError(
            "Arguments `y_true` and `y_pred`, the targets and the model's outputs, "
            "must have the same shape (examples, ...), but for axes of length 1 at the "
            f"end. Received: y_true of shape {tuple(y_true)} and y_pred of shape "
            f"{tuple(y_pred)}"
        )
