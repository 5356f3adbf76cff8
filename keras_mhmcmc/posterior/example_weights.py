"""A warning about weights of examples that change how often the data count."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn

_TOLERANCE = 0.05  # of the mean, which is 1 if the data count once
_ERRORS = 4.0  # standard errors of the mean over the first mini-batches


class ExampleWeights:
    """A look at the weights of the examples in `fit`, whose mean should be 1.

    Keras divides the weighted sum of the losses by the number of examples. So the mean
    of the weights multiplies the likelihood. Weights of 0 leave examples out, and may
    stay: the others count once. With the reduction "mean_with_sample_weight" Keras
    divides by the sum of the weights, and their mean does not matter.

    Weights that are arrays are known before the first step. Those of a pipeline are
    noted as `fit` reads them, until their mean is certain, or for one epoch.
    """

    def __init__(self) -> None:
        self._is_finished = False
        self._name = ""
        self._arrays: dict[str, list[Array]] = {}
        self._sums: dict[int, Array] = {}  # count, sum and squares, for each output

    def begin(self, model: keras.Model) -> None:
        """Read arrays of weights, or begin to note those of a pipeline."""
        data, batches = _backend.fitted_data(model), _backend.fitted_batches(model)
        if data is None or self._is_finished:
            return
        given, self._sums = data["class_weight"], {}
        self._arrays = {
            "argument `sample_weight`": _sample_weights(data["sample_weight"]),
            "argument `class_weight`": _class_weights(given, data["y"]),
        }
        self._name = list(self._arrays)[1] if given else "third element of the data"
        if batches is not None and not any(self._arrays.values()):
            _backend.wrap_batches(batches, self._noted)

    def _noted(self, batches: Any) -> Any:
        if self._is_finished:
            return batches
        return _backend.noted_weights(batches, self._note)

    def _note(self, weights: Any) -> None:
        parts = [] if self._is_finished else keras.tree.flatten(weights)
        for i, part in enumerate(parts):
            if part is not None:
                used = np.asarray(ops.convert_to_numpy(part), "float64")
                used = used[used != 0.0]
                moments = np.array([used.size, np.sum(used), np.sum(used**2)])
                self._sums[i] = self._sums.get(i, 0.0) + moments

    def check_first(self, model: keras.Model) -> None:
        """Warn of weights that are arrays, after the first mini-batch."""
        reductions = {loss.reduction for loss, _ in _backend.compiled_losses(model)}
        if "mean_with_sample_weight" in reductions:
            self._is_finished = True
        if self._is_finished:
            return
        for name, weights in self._arrays.items():
            used = [one[one != 0.0] for one in weights if np.any(one)]
            for mean in {float(np.mean(one)) for one in used}:
                self._check(name, mean, "")
            self._is_finished |= bool(weights)
        self._arrays = {}

    def check(self, is_whole: bool) -> None:
        """Warn of the weights of a pipeline, if their mean is certain by now.

        Args:
            is_whole: whether all of an epoch has been seen.
        """
        if self._is_finished:
            return
        self._is_finished = is_whole
        for count, total, squares in [sums for sums in self._sums.values() if sums[0]]:
            mean = total / count
            variance = max(squares / count - mean**2, 0.0)
            slack = 0.0 if is_whole else _ERRORS * float(np.sqrt(variance / count))
            if self._check(self._name, mean, f" (over the first {count:.0f})", slack):
                self._is_finished = True

    def _check(self, name: str, mean: float, seen: str, slack: float = 0.0) -> bool:
        if abs(mean - 1.0) <= _TOLERANCE + slack:
            return False
        width = "narrower" if mean > 1.0 else "wider"
        warn(
            f"The {name} of `fit` counts an example {mean:.3g} times on average{seen}, "
            f"and the likelihood with it. The sampled posterior is {width} than that "
            "of the data. Divide the weights by their mean over the examples, unless "
            "you want this likelihood."
        )
        return True


def _sample_weights(given: Any) -> list[Array]:
    """Return the weights of each output that are arrays."""
    parts = keras.tree.flatten(given)
    return [
        np.asarray(ops.convert_to_numpy(part), "float64")
        for part in parts
        if isinstance(part, np.ndarray) or ops.is_tensor(part)
    ]


def _class_weights(given: Any, y: Any) -> list[Array]:
    """Return the weight of each example's class, or none if it is not known."""
    is_array = isinstance(y, np.ndarray) or ops.is_tensor(y)
    if not isinstance(given, dict) or not is_array or len(y.shape) == 0:
        return []
    labels = np.asarray(ops.convert_to_numpy(y))
    if labels.ndim > 1 and labels.shape[-1] > 1:  # one column for each class
        labels = np.argmax(labels, axis=-1)
    kinds, counts = np.unique(labels, return_counts=True)
    weights = [float(given.get(int(kind), 1.0)) for kind in kinds]
    return [np.repeat(np.array(weights, "float64"), counts)]
