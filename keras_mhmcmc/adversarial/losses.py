"""Losses that attacks raise: the log odds against a label, margins and DLR.

All are functions of the outputs of a model, logits or probabilities. The losses of
logits in the papers do not change if a constant is added to the logits of an example.
So they are computed from log probabilities, which also exist for an ensemble.
"""

from collections.abc import Callable
from typing import Literal

from keras import ops

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.evaluation.checks import SMALLEST

Loss = Literal["cross_entropy", "margin", "dlr", "targeted_dlr"]
TIE = 1e-12  # makes the ratio of equal logits 0, with a finite gradient
# From (outputs, labels, targets, from_logits) to (values for gradients, scores).
LossFunction = Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]


def log_odds(
    outputs: Tensor, labels: Tensor, targets: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return log((1 - p_y) / p_y) of each example, for gradients and as a score.

    The loss -log p_y = log(1 + exp(log odds)) rises with the log odds, so both
    gradients have the same sign and direction. But if p_y rounds to 1 in float32, the
    gradient of the loss is wrong: its factor 1 - p_y becomes 0. The log odds use the
    sum of the other probabilities, which keeps full precision. So their gradient is
    right however confident the model is.

    The first result has no gradient where a probability has underflowed.
    """
    outputs = two_columns(outputs, from_logits)
    is_label = _is_class(outputs, labels)
    own = ops.sum(ops.where(is_label, outputs, 0.0), axis=1)
    if from_logits:
        others = ops.where(is_label, -1e30, outputs)  # exp(-1e30 - anything) is 0
        odds = ops.logsumexp(others, axis=1) - own
        return odds, odds
    others = ops.sum(ops.where(is_label, 0.0, outputs), axis=1)
    return _where_exact(_log(others) - _log(own), ops.minimum(own, others))


def margin(
    outputs: Tensor, labels: Tensor, targets: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return the largest other logit less that of the label, as in `log_odds`.

    Carlini and Wagner (2017), f_6. It is positive exactly if another class wins.
    """
    outputs = two_columns(outputs, from_logits)
    own, others = _own_and_others(outputs, labels)
    if from_logits:
        value = others - own
        return value, value
    return _where_exact(_log(others) - _log(own), ops.minimum(own, others))


def dlr(
    outputs: Tensor, labels: Tensor, targets: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return the difference of logits ratio, as in `log_odds`.

    Croce and Hein (2020), equation (6): the margin over z_(1) - z_(3), the distance of
    the largest and the third largest logit.
    """
    outputs = two_columns(outputs, from_logits)
    logits = outputs if from_logits else _log(outputs)
    own, others = _own_and_others(logits, labels)
    top = ops.top_k(logits, 3)[0]
    value = (others - own) / (top[:, 0] - top[:, 2] + TIE)
    return _where_logits_exact(value, outputs, labels, from_logits)


def targeted_dlr(
    outputs: Tensor, labels: Tensor, targets: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    """Return the DLR towards a class `targets` of each example, as in `log_odds`.

    Croce and Hein (2020), equation (7): (z_t - z_y) over
    z_(1) - (z_(3) + z_(4)) / 2.
    """
    outputs = two_columns(outputs, from_logits)
    logits = outputs if from_logits else _log(outputs)
    own = ops.sum(ops.where(_is_class(logits, labels), logits, 0.0), axis=1)
    other = ops.sum(ops.where(_is_class(logits, targets), logits, 0.0), axis=1)
    top = ops.top_k(logits, 4)[0]
    span = top[:, 0] - 0.5 * (top[:, 2] + top[:, 3])
    value = (other - own) / (span + TIE)
    return _where_logits_exact(value, outputs, labels, from_logits)


LOSSES: dict[Loss, LossFunction] = {
    "cross_entropy": log_odds,
    "margin": margin,
    "dlr": dlr,
    "targeted_dlr": targeted_dlr,
}
# The losses that compare several classes, and how many.
CLASSES: dict[Loss, int] = {"dlr": 3, "targeted_dlr": 4}


def two_columns(outputs: Tensor, from_logits: bool) -> Tensor:
    """Return outputs of shape (n, C), C >= 2. One column stands for class 1 of two."""
    if outputs.shape[1] > 1:
        return outputs
    other = ops.zeros_like(outputs) if from_logits else 1.0 - outputs
    return ops.concatenate([other, outputs], axis=1)


def logit_of(outputs: Tensor, labels: Tensor, from_logits: bool) -> Tensor:
    """Return the logit of one class of each example, shape (n,)."""
    values = two_columns(outputs, from_logits)
    values = values if from_logits else _log(values)
    return ops.sum(ops.where(_is_class(values, labels), values, 0.0), axis=1)


def _is_class(outputs: Tensor, classes: Tensor) -> Tensor:
    return ops.equal(ops.arange(outputs.shape[1], dtype="int32"), classes[:, None])


def _own_and_others(outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of each label, and the largest output of another class."""
    is_label = _is_class(outputs, labels)
    own = ops.sum(ops.where(is_label, outputs, 0.0), axis=1)
    return own, ops.max(ops.where(is_label, -1e30, outputs), axis=1)


def _where_exact(value: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
    """Return a loss without a gradient where a probability underflowed, and as it is.

    A probability that has underflowed has lost its part of the gradient. The other
    part alone would be noise.
    """
    return ops.where(probability >= SMALLEST, value, 0.0), value


def _where_logits_exact(
    value: Tensor, outputs: Tensor, labels: Tensor, from_logits: bool
) -> tuple[Tensor, Tensor]:
    if from_logits:
        return value, value
    return _where_exact(value, ops.minimum(*_own_and_others(outputs, labels)))


def _log(probability: Tensor) -> Tensor:
    return ops.log(ops.maximum(probability, SMALLEST))
