"""Logits, losses and gradients of a classifier, as other libraries' attacks ask."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import as_inputs
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import losses
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.inputs import refuse_integers
from keras_mhmcmc.evaluation.checks import Limits
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Classifier

PROBES = 32  # random inputs that show what the model outputs
SMALLEST_SHARE = 1e-20  # of the other classes; see `Derivatives.loss_gradient`


class Derivatives:
    """A classifier, and the derivatives of its logits and of its cross-entropy.

    Attacks call these functions with fewer and fewer examples, because they leave out
    those that already fool the model. The examples are filled up to a power of two, so
    that JAX and TensorFlow compile each function a few times only.

    Args:
        classifier: the classifier.
        input_shape: shape of one input, or None for the shape that the model declares.
        limits: smallest and largest valid input, or None.
    """

    def __init__(self, classifier: Classifier, input_shape: Any, limits: Limits):
        refuse_integers(classifier)
        self.classifier = classifier
        self.input_shape = _checked_shape(classifier, input_shape)
        low, high = limits or (0.0, 1.0)
        low, high = (low, high) if np.isfinite([low, high]).all() else (0.0, 1.0)
        rng = np.random.default_rng(0)
        shape = (PROBES, *self.input_shape)
        self.probes = rng.uniform(low, high, shape).astype("float32")
        # This refuses a regression model, whose outputs are no probabilities.
        self.classes = classifier.probabilities(self.probes).shape[1]
        self._has_warned = False
        self._has_gradient = False  # whether an example had one

    def logits(self, x: npt.ArrayLike) -> Array:
        """Return logits in float32, shape (N, C), C >= 2."""
        x = self._inputs(x)
        values = self.classifier.logits(self._filled_up(x))[: len(x)]
        return values.astype("float32")

    def loss(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return the cross-entropy -log p(y | x) of each example, shape (N,)."""
        x, labels = self._checked(x, y)
        function = self.classifier.compiled(objective.scores, False)

        def odds(x: Tensor, labels: Tensor, values: Sequence[Tensor]) -> Tensor:
            return function(x, labels, objective.index(None), values)[0]

        # -log p = log(1 + exp(log odds against the label)).
        loss = np.logaddexp(0.0, self._map(odds, x, labels).astype("float64"))
        return loss.astype("float32")

    def loss_gradient(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """Return the gradient of `loss` with respect to `x`, in the shape of `x`.

        It is (1 - p(y | x)) times the gradient of the log odds. Where a model is very
        confident the factor counts as 1e-20, so that the sign and the direction
        remain.
        """
        x, labels = self._checked(x, y)
        gradients, odds = self._gradients_and_odds(x, labels)
        self._check(gradients, x, labels)
        share = np.exp(-np.logaddexp(0.0, -odds.astype("float64")))
        share = np.maximum(share, SMALLEST_SHARE).reshape(-1, *[1] * (x.ndim - 1))
        return (share * gradients).astype("float32")

    def _gradients_and_odds(self, x: Array, labels: Array) -> tuple[Array, Array]:
        """Return the gradients of the log odds against the labels, and the odds."""
        function = self.classifier.compiled(objective.ascent, False)

        def both(
            x: Tensor, labels: Tensor, values: Sequence[Tensor]
        ) -> tuple[Tensor, Tensor]:
            gradient, odds, _ = function(x, labels, objective.index(None), values)
            return gradient, odds

        pair: tuple[Array, Array] = self._map(both, x, labels)
        return pair

    def class_gradient(self, x: npt.ArrayLike, label: Any = None) -> Array:
        """Return gradients of logits with respect to `x`.

        Args:
            x: inputs, shape (N, ...).
            label: a class, a class of each example, shape (N,), or None for all
                classes.

        Returns:
            A float32 array of shape (N, C, ...) for all classes, or (N, 1, ...).
        """
        x = self._inputs(x)
        if label is None:
            every = [np.full(len(x), k, "int32") for k in range(self.classes)]
        elif np.ndim(label) == 0:
            high = self.classes - 1
            chosen = _validate.integer("label", label, 0, high=high)
            every = [np.full(len(x), chosen, "int32")]
        else:
            labels = as_labels("label", label, len(x), self.classes)
            every = [labels.astype("int32")]
        function = self.classifier.compiled(_gradient_of_logits)
        # (N, classes asked for, ...)
        gradients = np.stack([self._map(function, x, k) for k in every], axis=1)
        if label is None:
            predicted = np.argmax(self.logits(x), axis=1)
            self._check(gradients, x, predicted)
        elif not np.any(gradients):
            self.class_gradient(x)  # one logit may be constant, but not all
        return gradients.astype("float32")

    def check_gradient(self) -> None:
        """Raise a `ValueError` if the model has no gradient at random inputs."""
        labels = np.argmax(self.logits(self.probes), axis=1).astype("int32")
        gradients, _ = self._gradients_and_odds(self.probes, labels)
        self._has_gradient = bool(np.any(gradients))
        if not self._has_gradient:
            lost = len(self.probes)
            objective.check_gradients(self.classifier, self.probes, labels, lost, 0)

    def _inputs(self, x: npt.ArrayLike) -> Array:
        """Return `x` as one array of the model's input shape, or raise."""
        return np.asarray(self.classifier.checked_inputs(as_inputs("x", x)))

    def _checked(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[Array, Array]:
        x = self._inputs(x)
        return x, as_labels("y", y, len(x), self.classes).astype("int32")

    def _check(self, gradients: Array, x: Array, labels: Array) -> None:
        """Refuse gradients that are not finite or all zero; warn once of some zeros.

        Attacks of ART call with single examples. So zeros are refused only if random
        inputs have no gradient either.
        """
        count = len(x)
        broken = int(np.sum(~np.isfinite(gradients)))
        lost = int(np.sum(~np.any(gradients.reshape(count, -1), axis=1)))
        self._has_gradient |= lost < count
        if not self._has_gradient and not broken:
            self.check_gradient()
        told = lost if not (self._has_gradient and self._has_warned) else 0
        objective.check_gradients(
            self.classifier, x, labels, told, broken, self._has_gradient
        )
        self._has_warned |= lost > 0

    def _filled_up(self, array: Array) -> Array:
        """Return the rows, and copies of the last one up to a power of two."""
        count = len(array)
        size = min(1 << (count - 1).bit_length(), self.classifier.batch_size)
        return array[np.minimum(np.arange(max(count, size)), count - 1)]

    def _map(self, function: Callable[..., Any], *arrays: Array) -> Any:
        results = self.classifier.map(function, *map(self._filled_up, arrays))
        count = len(arrays[0])
        return keras.tree.map_structure(lambda part: part[:count], results)


def logits_of(classifier: Classifier) -> Callable[..., Tensor]:
    """Return the function from inputs and values of the variables to logits."""

    def logits(x: Tensor, values: Sequence[Tensor]) -> Tensor:
        return losses.logits(classifier.outputs(x, values), classifier.from_logits)

    return logits


def _gradient_of_logits(classifier: Classifier) -> Callable[..., Tensor]:
    def chosen(
        x: Tensor, labels: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        outputs = classifier.outputs(x, values)
        logits = losses.logit_of(outputs, labels, classifier.from_logits)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(logits) + 0.0 * ops.sum(x), logits

    differentiate = _backend.gradient_and_more(chosen)

    def gradient(x: Tensor, labels: Tensor, values: Sequence[Tensor]) -> Tensor:
        return differentiate(x, labels, values)[0]

    return gradient


def _checked_shape(classifier: Classifier, input_shape: Any) -> tuple[int, ...]:
    """Return the shape of one input, or raise a `ValueError`."""
    declared = classifier.input_shape
    if input_shape is None and declared is not None and None not in declared:
        return tuple(int(length) for length in declared if length is not None)
    if not isinstance(input_shape, list | tuple) or not input_shape:
        raise ValueError(
            "Argument `input_shape` must be the shape of one input, a list or tuple of "
            "lengths such as (28, 28, 1). It may be omitted only if the model declares "
            "a shape without None. Received: input_shape="
            f"{_validate.shown(input_shape)}, and a model that declares {declared}"
        )
    lengths = tuple(_validate.integer("input_shape", n, 1) for n in input_shape)
    fits = declared is None or (
        len(declared) == len(lengths)
        and all(a in (None, b) for a, b in zip(declared, lengths, strict=True))
    )
    if not fits:
        raise ValueError(
            f"Argument `input_shape` must fit the model's input shape {declared}. "
            f"Received: input_shape={_validate.shown(input_shape)}"
        )
    return lengths
