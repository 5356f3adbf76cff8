"""The objective of attacks: the log odds against a label, and their gradient."""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _warn
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial.inputs import Limits
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.classifier import Classifier

# From (x, labels, member, values) to (gradient, score, fooled); see `ascent`.
Ascent = Callable[
    [Tensor, Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, Tensor, Tensor]
]


def ascent(classifier: Classifier, by_member: bool) -> Ascent:
    """Return the function that evaluates the objective and its gradient.

    The function takes inputs (n, ...), labels (n,), the index of a member, and the
    values of the model's variables. It returns the gradient (n, ...), the log odds
    against the labels (n,), and whether the model predicts another class (n,). If
    `by_member` is False, the objective is that of the whole model, and the index is
    ignored.
    """

    def objective(
        x: Tensor, labels: Tensor, member: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs = classifier.outputs(x, values, member if by_member else None)
        odds, score = log_odds(outputs, labels, classifier.from_logits)
        prediction = ops.argmax(_two_columns(outputs, classifier.from_logits), axis=1)
        fooled = ops.not_equal(ops.cast(prediction, "int32"), labels)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(odds) + 0.0 * ops.sum(x), (score, fooled)

    differentiate = _backend.gradient_and_more(objective)

    def evaluate(
        x: Tensor, labels: Tensor, member: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        gradient, (score, fooled) = differentiate(x, labels, member, values)
        return gradient, score, fooled

    return evaluate


def log_odds(
    outputs: Tensor, labels: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return log((1 - p_y) / p_y) of each example, for gradients and as a score.

    The loss -log p_y = log(1 + exp(log odds)) rises with the log odds, so both
    gradients have the same sign. But if p_y rounds to 1 in float32, the gradient of
    the loss is wrong: its factor 1 - p_y becomes 0. The log odds use the sum of the
    other probabilities, which keeps full precision. So their gradient is right however
    confident the model is.

    The first result has no gradient where a probability has underflowed.
    """
    outputs = _two_columns(outputs, from_logits)
    is_label = ops.equal(ops.arange(outputs.shape[1], dtype="int32"), labels[:, None])
    own = ops.sum(ops.where(is_label, outputs, 0.0), axis=1)
    if from_logits:
        others = ops.where(is_label, -1e30, outputs)  # exp(-1e30 - anything) is 0
        odds = ops.logsumexp(others, axis=1) - own
        return odds, odds
    others = ops.sum(ops.where(is_label, 0.0, outputs), axis=1)
    odds = _log(others) - _log(own)
    # A sum that has underflowed has lost its part of the gradient. The other part
    # alone would be noise.
    is_exact = ops.minimum(own, others) >= SMALLEST
    return ops.where(is_exact, odds, 0.0), odds


def index(member: int | None) -> Tensor:
    """Return a member's index as a tensor. It is 0, and ignored, for None."""
    return ops.convert_to_tensor(member or 0, dtype="int32")


def check_gradients(classifier: Classifier, count: int, lost: int, broken: int) -> None:
    """Refuse gradients that are not finite, and warn about gradients of zero.

    `lost` of `count` examples have a gradient of zero, and `broken` numbers are not
    finite.
    """
    if broken:
        raise ValueError(
            f"{classifier.subject} must have finite gradients with respect to `x`. "
            "Check it for square roots or logarithms of 0. Give a softmax in half "
            f"precision dtype='float32'. Received: {broken} values that are not finite"
        )
    if lost:
        _warn.warn(
            f"{classifier.subject} has a gradient of zero for {lost} of {count} "
            "examples, so the attack leaves them unchanged. If the probabilities are "
            "saturated, attack logits instead, with from_logits=True."
        )


def move(x: Array, epsilon: float, signs: Array, limits: Limits) -> Array:
    """Return x + epsilon * signs, clipped to the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if limits is None else np.clip(moved, *limits)


def _two_columns(outputs: Tensor, from_logits: bool) -> Tensor:
    """Return outputs of shape (n, C), C >= 2. One column stands for class 1 of two."""
    if outputs.shape[1] > 1:
        return outputs
    other = ops.zeros_like(outputs) if from_logits else 1.0 - outputs
    return ops.concatenate([other, outputs], axis=1)


def _log(probability: Tensor) -> Tensor:
    return ops.log(ops.maximum(probability, SMALLEST))
