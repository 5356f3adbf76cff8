"""What attacks share: arguments, the objective and its gradient."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc import _warn
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import losses
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import Limits
from keras_mhmcmc.evaluation.checks import are_rounded
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifier


class Given(NamedTuple):
    """The checked arguments that all attacks share."""

    classifier: Classifier
    x: Array  # clean inputs, (N, ...)
    epsilon: float
    labels: Array  # (N,): the classes whose loss the attack raises
    clean: Array  # (N, C): probabilities of the clean inputs
    limits: Limits
    member: int | None

    @property
    def ends(self) -> tuple[float, float]:
        """Return the smallest and largest valid input."""
        return (-np.inf, np.inf) if self.limits is None else self.limits


def given(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    y: Any,
    member: int | None,
    from_logits: bool,
    clip: Any,
    batch_size: int,
    *,
    needs_targets: bool = False,
) -> Given:
    """Check the arguments that all attacks share, and read a data set into memory.

    The labels are `y`, or the model's own predictions if `y` is None.
    """
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    x, y, limits = examples(x, y, clip, needs_targets=needs_targets)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    member = classifier.check_member(member)
    if needs_targets and y is None:
        raise ValueError(
            "Argument `y` must be the true labels. For the model's own predictions "
            "pass their argmax. Received: y=None"
        )
    clean, labels = clean_and_labels(classifier, x, y)
    return Given(classifier, x, epsilon, labels, clean, limits, member)


def examples(
    x: DataLike, y: Any, clip: Any, *, needs_targets: bool = False
) -> tuple[Array, Any, Limits]:
    """Return inputs in float32, labels as they are given, and the limits of inputs."""
    x, y, _ = _data.read(x, y, needs_targets=needs_targets)
    x, limits = checks.inputs_and_limits(x, clip)
    return x, y, limits


def clean_and_labels(classifier: Classifier, x: Array, y: Any) -> tuple[Array, Array]:
    """Return the probabilities of clean inputs (N, C), and the attacked labels (N,)."""
    refuse_integers(classifier)
    clean = classifier.probabilities(x)
    labels = np.argmax(clean, axis=1)
    if y is not None:
        labels = checks.as_labels("y", y, *clean.shape)
    return clean, labels.astype("int32")


def refuse_integers(classifier: Classifier) -> None:
    """Raise a `ValueError` if the model takes integers, which attacks cannot move."""
    if classifier.takes_integers:
        raise ValueError(
            f"{classifier.subject} must take floating-point numbers, because an attack "
            "moves an input by a fraction. It takes integers, such as numbers of words "
            "or pixels in bytes. For words attack the model after its embedding. For "
            "images build it with a floating-point `keras.Input`. Received: an input "
            "of integers"
        )


def ascent(
    classifier: Classifier, by_member: bool, loss: losses.Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the function that evaluates the objective and its gradient.

    The function takes inputs (n, ...), labels (n,), the index of a member, the values
    of the model's variables, and the classes (n,) at which a targeted loss aims. It
    returns the gradient (n, ...), the loss (n,), and whether the model predicts another
    class than the label (n,). If `by_member` is False, the objective is that of the
    whole model, and the index is ignored.
    """
    evaluate_loss = _loss(classifier, by_member, loss)

    def objective(x: Tensor, *arguments: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        value, score, fooled = evaluate_loss(x, *arguments)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(value) + 0.0 * ops.sum(x), (score, fooled)

    differentiate = _backend.gradient_and_more(objective)

    def evaluate(
        x: Tensor,
        labels: Tensor,
        member: Tensor,
        values: Sequence[Tensor],
        targets: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        targets = labels if targets is None else targets
        gradient, (score, fooled) = differentiate(x, labels, member, values, targets)
        return gradient, score, fooled

    return evaluate


def scores(
    classifier: Classifier, by_member: bool, loss: losses.Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the function that evaluates the objective without a gradient.

    It takes inputs, labels, the index of a member and the values of the variables, and
    returns the loss (n,), and whether the model predicts another class (n,).
    """
    evaluate_loss = _loss(classifier, by_member, loss)

    def evaluate(
        x: Tensor, labels: Tensor, member: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        _, score, fooled = evaluate_loss(x, labels, member, values, labels)
        return score, fooled

    return evaluate


def _loss(
    classifier: Classifier, by_member: bool, loss: losses.Loss
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    function = losses.LOSSES[loss]

    def evaluate(
        x: Tensor,
        labels: Tensor,
        member: Tensor,
        values: Sequence[Tensor],
        targets: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs = classifier.outputs(x, values, member if by_member else None)
        value, score = function(outputs, labels, targets, classifier.from_logits)
        columns = losses.two_columns(outputs, classifier.from_logits)
        prediction = ops.cast(ops.argmax(columns, axis=1), "int32")
        return value, score, ops.not_equal(prediction, labels)

    return evaluate


def index(member: int | None) -> Tensor:
    """Return a member's index as a tensor. It is 0, and ignored, for None."""
    return ops.convert_to_tensor(member or 0, dtype="int32")


def check_gradients(
    classifier: Classifier,
    x: Array,
    labels: Array,
    lost: int,
    broken: int,
    has_gradient: bool = False,
) -> None:
    """Refuse gradients that are not finite or all zero, and warn about some zeros.

    `lost` examples of `x` have a gradient of zero, and `broken` numbers are not finite.
    If the model is known to have a gradient elsewhere, zeros are not refused.
    """
    count = len(x)
    if broken:
        raise ValueError(
            f"{classifier.subject} must have finite gradients with respect to `x`. "
            "Check it for square roots or logarithms of 0. Give a softmax in half "
            f"precision dtype='float32'. Received: {broken} values that are not finite"
        )
    if lost == count and not has_gradient and not _all_saturated(classifier, x, labels):
        raise ValueError(
            f"{classifier.subject} must have a gradient with respect to `x`. A model "
            "that rounds, takes an argmax or stops gradients has none: attack it with "
            "`mh.adversarial.square`, which needs no gradient, or with "
            f'attack="square" in a table. Received: gradients of zero for all {count} '
            "examples"
        )
    if lost:
        _warn.warn(
            f"{classifier.subject} has a gradient of zero for {lost} of {count} "
            "examples, so the attack leaves them unchanged. If the probabilities are "
            "saturated, attack logits instead, with from_logits=True. If the model has "
            "no gradient, use `mh.adversarial.square`."
        )


def _all_saturated(classifier: Classifier, x: Array, labels: Array) -> bool:
    """Return whether a probability has underflowed in each example."""
    if classifier.from_logits:
        return False
    probabilities = classifier.probabilities(x)
    own = probabilities[np.arange(len(x)), labels]
    smaller = np.minimum(own, 1.0 - own)
    return bool(np.all((smaller < SMALLEST) | are_rounded(smaller)))


def move(x: Array, epsilon: float, signs: Array, limits: Limits) -> Array:
    """Return x + epsilon * signs, clipped to the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if limits is None else np.clip(moved, *limits)
