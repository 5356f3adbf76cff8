"""What attacks climb: the log odds against a label, and their gradient."""

import sys
import warnings

import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.evaluation.checks import SMALLEST


def ascent(classifier, by_member):
    """A function of (x, labels, member, weights): the gradient of the objective in x.

    It returns it with the log odds against the label, and whether another class is
    predicted, of each example. Without `by_member` the argument is ignored, and the
    objective is that of the model as a whole.
    """

    def objective(x, labels, member, values):
        outputs = classifier.outputs(x, values, member if by_member else None)
        odds, score = log_odds(outputs, labels, classifier.from_logits)
        prediction = ops.argmax(_two_columns(outputs, classifier.from_logits), axis=1)
        turned = ops.not_equal(ops.cast(prediction, "int32"), labels)
        # The second term gives outputs that ignore x a gradient: zeros.
        return ops.sum(odds) + 0.0 * ops.sum(x), (score, turned)

    differentiate = _backend.gradient_and_more(objective)

    def evaluate(x, labels, member, values):
        gradient, (score, turned) = differentiate(x, labels, member, values)
        return gradient, score, turned

    return evaluate


def log_odds(outputs, labels, from_logits):
    """log((1 - p_y) / p_y) of each example: to differentiate, and to compare.

    The loss -log p_y is log(1 + exp(log odds)), which rises with the log odds, so the
    signs of both gradients are the same. But where p_y rounds to 1 in float32, that of
    the loss is wrong: its part through the label's logit, 1 - p_y, comes out as 0. The
    sum of the other probabilities is known to full precision there, and the gradient of
    the log odds is of order 1 however confident the model is.
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
    # A sum that underflowed has lost its gradient; half of one would be noise.
    told = ops.minimum(own, others) >= SMALLEST
    return ops.where(told, odds, 0.0), odds


def index(member):
    """The index of a member as a tensor; 0 where there is none, and it is ignored."""
    return ops.convert_to_tensor(member or 0, dtype="int32")


def check_gradients(classifier, count, lost, broken):
    """Refuses gradients that are not finite, and warns of examples without any."""
    if broken:
        raise ValueError(
            f"{classifier.subject} must have finite gradients with respect to `x`. "
            "Check it for square roots or logarithms of 0, and give a softmax in "
            f"half precision dtype='float32'. Received: {broken} that are not finite"
        )
    if lost:
        warnings.warn(
            f"{classifier.subject} has a gradient of zero for {lost} of {count} "
            "examples, so the attack leaves them as they are. If the probabilities "
            "are saturated, attack logits instead, with from_logits=True.",
            stacklevel=_level_of_caller(),
        )


def _level_of_caller():
    """The `stacklevel`, for the function that calls this, of the package's caller."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].startswith("keras_mhmcmc."):
        frame, level = frame.f_back, level + 1
    return level


def move(x, epsilon, signs, clip):
    """x + epsilon signs, within the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if clip is None else np.clip(moved, *clip)


def _two_columns(outputs, from_logits):
    if outputs.shape[1] > 1:
        return outputs
    other = ops.zeros_like(outputs) if from_logits else 1.0 - outputs
    return ops.concatenate([other, outputs], axis=1)


def _log(probability):
    return ops.log(ops.maximum(probability, SMALLEST))
