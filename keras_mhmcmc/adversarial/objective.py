"""What attacks share: arguments, the losses that they raise, and the gradients.

The losses are functions of the outputs of a model, logits or probabilities. The losses
of logits in the papers do not change if a constant is added to the logits of an
example. So they are computed from log probabilities, which also exist for an ensemble.
"""

from collections.abc import Callable
from typing import Any
from typing import Literal
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import Limits
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifier

Loss = Literal["cross_entropy", "margin", "dlr", "targeted_dlr"]
TIE = 1e-12  # makes the ratio of equal logits 0, with a finite gradient


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
            "moves an input by a fraction. Build a model of images with a "
            "floating-point `keras.Input`, and attack a model of words after its "
            "embedding. Received: an input of integers"
        )


class Case(NamedTuple):
    """What a loss is computed from."""

    outputs: Tensor  # (n, C), C >= 2
    logits: Tensor  # (n, C): the outputs, or the logarithms of probabilities
    labels: Tensor  # (n,)
    targets: Tensor  # (n,): the classes at which a targeted loss aims
    are_logits: bool

    @property
    def is_label(self) -> Tensor:
        """Return which classes are the labels, shape (n, C)."""
        return _is_class(self.outputs, self.labels)

    def logit(self, classes: Tensor) -> Tensor:
        """Return the logit of one class of each example, shape (n,)."""
        is_class = _is_class(self.outputs, classes)
        return ops.sum(ops.where(is_class, self.logits, 0.0), axis=1)


def log_odds(case: Case) -> Tensor:
    """Return log((1 - p_y) / p_y) of each example.

    The loss -log p_y = log(1 + exp(log odds)) rises with the log odds, so both
    gradients have the same sign and direction. But if p_y rounds to 1 in float32, the
    gradient of the loss is wrong: its factor 1 - p_y becomes 0. The log odds use the
    sum of the other probabilities, which keeps full precision. So their gradient is
    right however confident the model is.
    """
    if case.are_logits:
        others = ops.where(case.is_label, -1e30, case.outputs)  # exp of it is 0
        return ops.logsumexp(others, axis=1) - case.logit(case.labels)
    others = ops.sum(ops.where(case.is_label, 0.0, case.outputs), axis=1)
    return _log(others) - case.logit(case.labels)


def margin(case: Case) -> Tensor:
    """Return the largest other logit less that of the label.

    Carlini and Wagner (2017), f_6. It is positive exactly if another class wins.
    """
    own = case.logit(case.labels)
    return ops.max(ops.where(case.is_label, -1e30, case.logits), axis=1) - own


def dlr(case: Case) -> Tensor:
    """Return the difference of logits ratio, the margin over z_(1) - z_(3).

    Croce and Hein (2020), equation (6). z_(k) is the k-th largest logit.
    """
    value, top = margin(case), ops.top_k(case.logits, 3)[0]
    return value / (top[:, 0] - top[:, 2] + TIE)


def targeted_dlr(case: Case) -> Tensor:
    """Return (z_t - z_y) / (z_(1) - (z_(3) + z_(4)) / 2), the DLR towards the targets.

    Croce and Hein (2020), equation (7).
    """
    own, other = case.logit(case.labels), case.logit(case.targets)
    top = ops.top_k(case.logits, 4)[0]
    span = top[:, 0] - 0.5 * (top[:, 2] + top[:, 3])
    return (other - own) / (span + TIE)


LOSSES: dict[Loss, Callable[[Case], Tensor]] = {
    "cross_entropy": log_odds,
    "margin": margin,
    "dlr": dlr,
    "targeted_dlr": targeted_dlr,
}
# The losses that compare several classes, and how many.
CLASSES: dict[Loss, int] = {"dlr": 3, "targeted_dlr": 4}


def case_of(
    outputs: Tensor, labels: Tensor, targets: Tensor | None, are_logits: bool
) -> Case:
    """Return the case of a model's outputs, one column of which stands for two."""
    if outputs.shape[1] == 1:
        other = ops.zeros_like(outputs) if are_logits else 1.0 - outputs
        outputs = ops.concatenate([other, outputs], axis=1)
    logits = outputs if are_logits else _log(outputs)
    targets = labels if targets is None else targets
    return Case(outputs, logits, labels, targets, are_logits)


def _is_class(outputs: Tensor, classes: Tensor) -> Tensor:
    return ops.equal(ops.arange(outputs.shape[1], dtype="int32"), classes[:, None])


def _log(probability: Tensor) -> Tensor:
    return ops.log(ops.maximum(probability, SMALLEST))


def _loss(
    classifier: Classifier, by_member: bool, loss: Loss
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the function that evaluates a loss: for gradients, as a score, and fooled.

    The first result has no gradient where a probability has underflowed: it has lost
    its part of the gradient, and the other part alone would be noise.
    """
    function, are_logits = LOSSES[loss], classifier.from_logits
    reduce = ops.sum if loss == "cross_entropy" else ops.max

    def evaluate(
        x: Tensor, labels: Tensor, member: Tensor, values: Any, targets: Any = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs = classifier.outputs(x, values, member if by_member else None)
        case = case_of(outputs, labels, targets, are_logits)
        outputs = case.outputs
        value = score = function(case)
        if not are_logits:
            own = ops.sum(ops.where(case.is_label, outputs, 0.0), axis=1)
            others = reduce(ops.where(case.is_label, 0.0, outputs), axis=1)
            is_exact = ops.minimum(own, others) >= SMALLEST
            value = ops.where(is_exact, score, 0.0)
        prediction = ops.cast(ops.argmax(outputs, axis=1), "int32")
        return value, score, ops.not_equal(prediction, labels)

    return evaluate


def ascent(
    classifier: Classifier, by_member: bool, loss: Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the function that evaluates the objective and its gradient.

    It takes inputs (n, ...), labels (n,), the index of a member, which is ignored
    unless `by_member`, the values of the model's variables, and the classes (n,) at
    which a targeted loss aims. It returns the gradient (n, ...), the loss (n,), and
    whether the model predicts another class than the label (n,).
    """
    evaluate_loss = _loss(classifier, by_member, loss)

    def objective(x: Tensor, *arguments: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        value, score, fooled = evaluate_loss(x, *arguments)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(value) + 0.0 * ops.sum(x), (score, fooled)

    differentiate = _backend.gradient_and_more(objective)

    def evaluate(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        gradient, (score, fooled) = differentiate(x, *arguments)
        return gradient, score, fooled

    return evaluate


def scores(
    classifier: Classifier, by_member: bool, loss: Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the function of `ascent` without the gradient."""
    evaluate_loss = _loss(classifier, by_member, loss)
    return lambda x, *arguments: evaluate_loss(x, *arguments)[1:]


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
            "Check it for square roots or logarithms of 0, and give a softmax in half "
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
        warn(
            f"{classifier.subject} has a gradient of zero for {lost} of {count} "
            "examples, so the attack leaves them unchanged. Attack logits instead, "
            "with from_logits=True, or use `mh.adversarial.square` if the model has no "
            "gradient."
        )


def _all_saturated(classifier: Classifier, x: Array, labels: Array) -> bool:
    """Return whether a probability has underflowed in each example."""
    if classifier.from_logits:
        return False
    own = classifier.probabilities(x)[np.arange(len(x)), labels]
    smaller = np.minimum(own, 1.0 - own)
    return bool(np.all((smaller < SMALLEST) | checks.are_rounded(smaller)))
