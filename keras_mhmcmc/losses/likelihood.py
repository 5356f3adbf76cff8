"""`Likelihood`: a loss that is a mean negative log-likelihood, in nats per example."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _laws
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import PrintedAsCall
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn

_FEW = 20  # fewer targets tell nothing about a grid
_KNEE = 30.0  # above it a rate grows linearly with the output, and cannot overflow


class Likelihood(PrintedAsCall, keras.losses.Loss):
    """Abstract: a negative log-likelihood, in nats per example.

    It sums over the targets of an example and averages over examples. Targets are
    independent given the outputs. The last axis of the model's outputs has
    `outputs(D)` numbers for D targets: first one number for each target, then the next
    number for each.

    A mask of the predictions leaves out positions, such as those of padding: an example
    is worth the sum over its other positions. Sample weights multiply examples.

    Args:
        name: name of the loss.
        reduction: as in `keras.losses.Loss`. Keep the default, the mean over examples:
            the samplers expect this unit.

    Raises:
        ValueError: an argument is outside its range; or, when the loss is computed,
            the model has not as many outputs as the targets need.
    """

    noise_std: float | None = None  # deviation of the noise, where it is known
    min_std = math.inf  # smallest deviation that it can predict; counts have none

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        kinds = (str, type(None))
        _validate.instance("name", name, kinds, "a text, or None")
        _validate.scope_name(name)
        hint = 'a text such as "sum_over_batch_size", or None'
        _validate.instance("reduction", reduction, kinds, hint)
        super().__init__(name=name, reduction=reduction)

    @property
    def _parts(self) -> int:
        """Number of outputs of one target."""
        raise NotImplementedError

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        """Return the nats of each target. Each of its outputs has its shape."""
        raise NotImplementedError

    def _law(self, *parts: Array) -> _laws.Law:
        """Return the law of targets given outputs (members, examples, targets)."""
        raise NotImplementedError

    def outputs(self, targets: int) -> int:
        """Return the number of outputs that a model needs for so many targets.

        Args:
            targets: number of targets of an example, at least 1.
        """
        return self._parts * _validate.integer("targets", targets, 1)

    def mixture(self, outputs: Array) -> _laws.Law:
        """Return what the members of an ensemble predict.

        Args:
            outputs: their outputs, shape (members, examples, columns).

        Raises:
            ValueError: the number of columns is no multiple of what a target needs.
        """
        columns = outputs.shape[2]
        if columns % self._parts:
            raise ValueError(
                f"The model must have {self._parts} outputs for each target of "
                f"`{self!r}`. Received: {columns} outputs"
            )
        return self._law(*np.split(np.asarray(outputs, "float64"), self._parts, axis=2))

    def constant(self, y: Array) -> Array:
        """Return the outputs of a good prediction that is the same for all examples.

        Args:
            y: targets of examples, shape (N, ...).

        Returns:
            An array of the shape of one example's outputs.
        """
        y = np.asarray(y, "float64")
        parts = self._constant(y.mean(axis=0), y.std(axis=0))
        return np.concatenate([np.atleast_1d(part) for part in parts], axis=-1)

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        """Return each output of a target with this mean and standard deviation."""
        raise NotImplementedError

    def warn_of_grid(self, y: Array) -> None:
        """Warn if targets have few distinct values, and the deviation is free.

        Args:
            y: targets of examples, shape (N, ...).
        """
        if self.noise_std is not None or len(y) < _FEW:
            return
        for column in np.asarray(y, "float64").reshape(len(y), -1).T:
            values = np.unique(column)
            gap = float(np.min(np.diff(values), initial=np.inf))
            if len(values) <= len(column) / 10 and 2.0 * self.min_std < gap < np.inf:
                warn(
                    f"A target has {len(values)} distinct values in {len(column)} "
                    f"examples, at least {gap:g} apart: a density whose deviation is "
                    "free grows without bound on such a grid. Set "
                    f"min_std={0.5 * gap:g}, half of a step, or use a likelihood of "
                    f"counts or classes. Received: {self!r}"
                )
                return

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None
    ) -> Tensor:
        """Return the mean of the nats of the examples, or what `reduction` says."""
        mask = _backend.mask_of(y_pred)
        if mask is not None:
            # Keras would apply the mask of positions to the sums over positions.
            y_true, y_pred = (y_true, mask), ops.multiply(y_pred, 1.0)
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Any, y_pred: Tensor) -> Tensor:
        """Return the nats of each example, shape (N,)."""
        y_true, mask = y_true if isinstance(y_true, tuple) else (y_true, None)
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.cast(y_true, y_pred.dtype)
        self._check_shapes(tuple(y_true.shape), tuple(y_pred.shape))
        parts = [y_pred]
        if self._parts > 1:
            parts = ops.split(y_pred, self._parts, axis=-1)
        y_true = ops.reshape(y_true, ops.shape(parts[0]))
        nats = self._nats(y_true, *parts)
        if mask is not None:
            while len(mask.shape) < len(nats.shape):
                mask = ops.expand_dims(mask, -1)
            nats = ops.where(mask > 0.5, nats, 0.0)
        return ops.sum(ops.reshape(nats, (ops.shape(nats)[0], -1)), axis=1)

    def _check_shapes(
        self, y_true: Sequence[int | None], y_pred: Sequence[int | None]
    ) -> None:
        """Raise a `ValueError` if a model has other outputs than the targets need."""
        width = None if not y_pred else y_pred[-1]
        if self._parts > 1 and width is not None:
            each = width // self._parts if width % self._parts == 0 else -1
            shapes = [list(y_true), [*y_pred[:-1], each]]
        else:
            shapes = [list(y_true), list(y_pred)]
        for shape in shapes:
            while len(shape) > 1 and shape[-1] == 1:
                shape.pop()
        fits = len(shapes[0]) == len(shapes[1]) > 0
        # A length of None is unknown until the step runs.
        pairs = zip(*shapes, strict=True) if fits else []
        if fits and all(a == b or None in (a, b) for a, b in pairs):
            return
        if self._parts == 1:
            raise ValueError(
                "Arguments `y_true` and `y_pred`, the targets and the model's outputs, "
                "must have the same shape (examples, ...), apart from last axes of "
                f"length 1. Received: y_true of shape {tuple(y_true)} and y_pred of "
                f"shape {tuple(y_pred)}"
            )
        targets = y_true[-1] if len(y_true) == len(y_pred) and y_true else 1
        needed = f"{self._parts} outputs for each target"
        if targets and targets > 0:
            needed = f"{self.outputs(targets)} outputs for {targets} target(s)"
        raise ValueError(
            f"Argument `y_pred`, the model's outputs, must have {needed} along its "
            f"last axis: `{self!r}` needs {self._parts} for each target. Let the last "
            f"layer have as many. Received: y_true of shape {tuple(y_true)} and y_pred "
            f"of shape {tuple(y_pred)}"
        )


def log_rate(xp: Any, raw: Any, knee: float = _KNEE) -> Any:
    """Return the logarithm of exp(raw), which grows linearly above the knee.

    `xp` is `numpy` or `keras.ops`.
    """
    return xp.minimum(raw, knee) + xp.log1p(xp.maximum(raw - knee, 0.0))
