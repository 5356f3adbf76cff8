"""Losses that are mean negative log-likelihoods, as every sampler needs."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import PrintedAsCall
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor

__all__ = ["GaussianNLL"]


def __dir__() -> list[str]:
    return __all__


@serializable
class GaussianNLL(PrintedAsCall, keras.losses.Loss):
    """Negative log-likelihood of targets with normal noise of a known size.

    The targets are y = model(x) + noise_std * Z with standard normal noise Z. The loss
    is in nats per example: it sums over the outputs of an example and averages over
    examples. The mean squared error is no such likelihood, because it does not depend
    on the size of the noise.

    Args:
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0.
        name: name of the loss. Defaults to "gaussian_nll".
        reduction: as in `keras.losses.Loss`. Keep the default, the mean over examples:
            the samplers expect this unit.

    Raises:
        ValueError: an argument is outside its range; or, when the loss is computed,
            the shapes of the targets and of the model's outputs differ.

    Example:

    >>> loss = GaussianNLL(noise_std=0.5)
    >>> round(float(loss([[0.0]], [[1.0]])), 4)
    2.2258
    """

    def __init__(
        self,
        noise_std: float,
        name: str | None = "gaussian_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        kinds = (str, type(None))
        _validate.instance("name", name, kinds, "a text, or None")
        hint = 'a text such as "sum_over_batch_size", or None'
        _validate.instance("reduction", reduction, kinds, hint)
        super().__init__(name=name, reduction=reduction)
        self.noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None
    ) -> Tensor:
        """Return the mean of the nats of the examples, or what `reduction` says.

        Raises:
            ValueError: shapes differ, or the predictions have a mask.
        """
        if _backend.has_mask(y_pred):
            raise ValueError(
                "Argument `y_pred` must have no mask: this loss adds up all positions "
                "of an example, those of padding as well. Predict one value for each "
                "example, or write a `keras.losses.Loss` whose `call` returns the nats "
                "of each position, and multiply `train_size` by their number. "
                f"Received: y_pred of shape {tuple(y_pred.shape)} with a mask"
            )
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the nats of each example, shape (N,)."""
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.cast(y_true, y_pred.dtype)
        _check_shapes(y_true.shape, y_pred.shape)
        y_true = ops.reshape(y_true, ops.shape(y_pred))
        residual = (y_true - y_pred) / self.noise_std
        constant = math.log(self.noise_std) + 0.5 * math.log(2.0 * math.pi)
        nats = 0.5 * ops.square(residual) + constant
        return ops.sum(ops.reshape(nats, (ops.shape(nats)[0], -1)), axis=1)

    def get_config(self) -> dict[str, Any]:
        return {
            "noise_std": self.noise_std,
            "name": self.name,
            "reduction": self.reduction,
        }


def _check_shapes(y_true: Sequence[int | None], y_pred: Sequence[int | None]) -> None:
    """Raise a `ValueError` if two shapes differ in more than last axes of length 1."""
    shapes = [list(y_true), list(y_pred)]
    for shape in shapes:
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
    fits = len(shapes[0]) == len(shapes[1]) > 0
    # A length of None is unknown until the step runs.
    pairs = zip(*shapes, strict=True) if fits else []
    if not fits or any(a != b and None not in (a, b) for a, b in pairs):
        raise ValueError(
            "Arguments `y_true` and `y_pred`, the targets and the model's outputs, "
            "must have the same shape (examples, ...), apart from last axes of length "
            f"1. Received: y_true of shape {tuple(y_true)} and y_pred of shape "
            f"{tuple(y_pred)}"
        )
