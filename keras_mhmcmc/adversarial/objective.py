"""What attacks share: arguments, losses, gradients, and the balls in which they stay.

The margin of logits does not change if a constant is added to the logits of an example.
So it is computed from log probabilities, which also exist for an ensemble.

The L-infinity ball limits the change of each number of an input, and the L2 ball the
Euclidean length of the change of the whole input.
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

Loss = Literal["cross_entropy", "margin"]
LOSSES: tuple[Loss, ...] = ("cross_entropy", "margin")
Norm = Literal["linf", "l2"]
NORMS: tuple[Norm, ...] = ("linf", "l2")
# Of `nearest`. 7 were enough for each of 500 images of digits, of MNIST and of
# Fashion-MNIST, and for changes three times as long as the radius.
ROUNDS = 7


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
    """Check the arguments that all attacks share, and read a data set into memory."""
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    x, y, limits = examples(x, y, clip, needs_targets=needs_targets)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    classifier.check_member(member)
    refuse_integers(classifier)
    if needs_targets and y is None:
        raise ValueError(
            "Argument `y` must be the true labels. For the model's own predictions "
            "pass their argmax. Received: y=None"
        )
    return given_of(classifier, x, y, epsilon, limits, member)


def examples(
    x: DataLike, y: Any, clip: Any, *, needs_targets: bool = False
) -> tuple[Array, Any, Limits]:
    """Return inputs in float32, labels as they are given, and the limits of inputs."""
    x, y, _ = _data.read(x, y, needs_targets=needs_targets)
    x, limits = checks.inputs_and_limits(x, clip)
    return x, y, limits


def given_of(
    classifier: Classifier,
    x: Array,
    y: Any,
    epsilon: float,
    limits: Limits,
    member: int | None,
) -> Given:
    """Return the arguments with the labels, and the probabilities of clean inputs."""
    clean = classifier.probabilities(x)
    labels = np.argmax(clean, axis=1)
    if y is not None:
        labels = checks.as_labels("y", y, *clean.shape)
    return Given(classifier, x, epsilon, labels.astype("int32"), clean, limits, member)


def refuse_integers(classifier: Classifier) -> None:
    """Raise a `ValueError` if the model takes integers, which attacks cannot move."""
    if classifier.takes_integers:
        raise ValueError(
            f"{classifier.subject} must take floating-point numbers, because an attack "
            "moves an input by a fraction. Build a model of images with a "
            "floating-point `keras.Input`, and attack a model of words after its "
            "embedding. Received: an input of integers"
        )


def outputs_and_logits(outputs: Tensor, are_logits: bool) -> tuple[Tensor, Tensor]:
    """Return outputs (n, C), one column of which stands for two, and their logits."""
    if outputs.shape[1] == 1:
        other = ops.zeros_like(outputs) if are_logits else 1.0 - outputs
        outputs = ops.concatenate([other, outputs], axis=1)
    return outputs, outputs if are_logits else _log(outputs)


def is_class(outputs: Tensor, classes: Tensor) -> Tensor:
    """Return whether a column is the class (n,) of its row, shape (n, C)."""
    return ops.equal(ops.arange(outputs.shape[1], dtype="int32"), classes[:, None])


def _log(probability: Tensor) -> Tensor:
    return ops.log(ops.maximum(probability, SMALLEST))


def evaluation(
    classifier: Classifier, by_member: bool, loss: Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the function that evaluates a loss: for gradients, as a score, and fooled.

    The cross-entropy log(1 + exp(log odds)) rises with the log odds,
    log((1 - p_y) / p_y), so the gradients of both have the same direction. But if p_y
    rounds to 1 in float32, the factor 1 - p_y of the first one becomes 0. The log odds
    use the sum of the other probabilities, which keeps full precision.

    The margin is the largest other logit less that of the label: f_6 of Carlini and
    Wagner (2017).
    """
    are_logits = classifier.from_logits

    def others_of(outputs: Tensor, logits: Tensor, is_label: Tensor) -> Tensor:
        if loss == "margin":
            return ops.max(ops.where(is_label, -1e30, logits), axis=1)
        if are_logits:  # exp(-1e30) is 0
            return ops.logsumexp(ops.where(is_label, -1e30, outputs), axis=1)
        return _log(ops.sum(ops.where(is_label, 0.0, outputs), axis=1))

    def evaluate(
        x: Tensor, labels: Tensor, member: Tensor, values: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs = classifier.outputs(x, values, member if by_member else None)
        outputs, logits = outputs_and_logits(outputs, are_logits)
        is_label = is_class(outputs, labels)
        own = ops.sum(ops.where(is_label, logits, 0.0), axis=1)
        value = score = others_of(outputs, logits, is_label) - own
        if not are_logits:
            # A probability that has underflowed has lost its part of the gradient. The
            # other part alone would be noise.
            reduce = ops.max if loss == "margin" else ops.sum
            kept = ops.sum(ops.where(is_label, outputs, 0.0), axis=1)
            rest = reduce(ops.where(is_label, 0.0, outputs), axis=1)
            value = ops.where(ops.minimum(kept, rest) >= SMALLEST, score, 0.0)
        prediction = ops.cast(ops.argmax(outputs, axis=1), "int32")
        return value, score, ops.not_equal(prediction, labels)

    return evaluate


def ascent(
    classifier: Classifier, by_member: bool, loss: Loss = "cross_entropy"
) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Return the function from x, labels (n,), a member's index, and variables' values.

    It returns the gradient (n, ...), the loss (n,), and whether the model is fooled.
    """
    evaluate_loss = evaluation(classifier, by_member, loss)

    def objective(x: Tensor, *arguments: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        value, score, fooled = evaluate_loss(x, *arguments)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(value) + 0.0 * ops.sum(x), (score, fooled)

    differentiate = _backend.gradient_and_more(objective)

    def evaluate(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        gradient, (score, fooled) = differentiate(x, *arguments)
        return gradient, score, fooled

    return evaluate


def index(member: int | None) -> Tensor:
    """Return a member's index as a tensor. It is 0, and ignored, for None."""
    return ops.convert_to_tensor(member or 0, dtype="int32")


def faults(gradients: Array) -> tuple[int, int]:
    """Return how many examples have no gradient, and numbers that are not finite."""
    rows = gradients.reshape(len(gradients), -1)
    return int(np.sum(~np.any(rows, axis=1))), int(np.sum(~np.isfinite(rows)))


def check_gradients(
    classifier: Classifier,
    x: Array,
    labels: Array,
    lost: int,
    broken: int,
    has_gradient: bool = False,
) -> None:
    """Refuse gradients that are not finite or all zero, and warn about some zeros."""
    count = len(x)  # of which `lost` have no gradient
    if broken:
        raise ValueError(
            f"{classifier.subject} must have finite gradients with respect to `x`. "
            "Check it for square roots or logarithms of 0, and give a softmax in half "
            f"precision dtype='float32'. Received: {broken} values that are not finite"
        )
    is_refused = lost == count and not has_gradient
    if is_refused and not classifier.from_logits:  # unless all have underflowed
        own = classifier.probabilities(x)[np.arange(count), labels]
        is_refused = not np.all(checks.are_lost(np.minimum(own, 1.0 - own)))
    if is_refused:
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


def direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Return the steepest step of length 1: the sign, or gradient over length."""
    if norm == "linf":
        return ops.sign(gradient)
    # The squares of small gradients would underflow in float32.
    axes = feature_axes(gradient)
    largest = ops.max(ops.abs(gradient), axis=axes, keepdims=True)
    scaled = gradient / ops.maximum(largest, SMALLEST)
    return scaled / ops.maximum(_length(scaled), 1.0)


def project(
    moved: Tensor, x: Tensor, epsilon: Tensor, low: Tensor, high: Tensor, norm: Norm
) -> Tensor:
    """Return the points moved into the ball around `x`, and then into the limits."""
    change = moved - x
    if norm == "linf":
        change = ops.clip(change, -epsilon, epsilon)
    else:
        longest = epsilon / ops.maximum(_length(change), SMALLEST)
        change = change * ops.minimum(1.0, longest)
    return ops.clip(x + change, low, high)


def nearest(
    moved: Tensor, x: Tensor, epsilon: Tensor, low: Tensor, high: Tensor, norm: Norm
) -> Tensor:
    """Return the points of the ball and the limits that are nearest to `moved`.

    In the L2 ball, the limits may bring a point of `project` nearer to `x` than it has
    to be. The nearest is clip(x + t d), d = moved - x, with the largest t <= 1 that

        t = min(1, sqrt((epsilon^2 - sum_C b^2) / sum_F d^2))

    allows: C are the numbers that the limits stop, b their changes, F the others. The
    loop begins at the t of no limits. So t only rises, until C stays the same.
    """
    if norm == "linf":
        return project(moved, x, epsilon, low, high, norm)
    axes = feature_axes(x)
    change = moved - x
    shares = change / epsilon  # the squares of small changes would underflow
    t = ops.minimum(1.0, 1.0 / ops.maximum(_length(shares), SMALLEST))
    for _ in range(ROUNDS):
        point = ops.clip(x + t * change, low, high)
        is_stopped = ops.logical_or(point <= low, point >= high)
        stopped = ops.where(is_stopped, (point - x) / epsilon, 0.0)
        free = ops.where(is_stopped, 0.0, shares)
        left = 1.0 - ops.sum(ops.square(stopped), axis=axes, keepdims=True)
        length = ops.maximum(_length(free), SMALLEST)
        wider = ops.sqrt(ops.maximum(left, 0.0)) / length
        t = ops.minimum(1.0, ops.maximum(t, wider))
    # The projection takes away what rounding has added to the length.
    point = ops.clip(x + t * change, low, high)
    return project(point, x, epsilon, low, high, norm)


def move(x: Array, epsilon: float, signs: Array, limits: Limits) -> Array:
    """Return x + epsilon * signs, clipped to the limits."""
    moved = x + np.float32(epsilon) * signs
    return moved if limits is None else np.clip(moved, *limits)


def random_start(
    rng: np.random.Generator, x: Array, epsilon: float, limits: Limits, norm: Norm
) -> Array:
    """Return points that are drawn uniformly from the balls, within the limits."""
    if norm == "linf":
        noise = rng.uniform(-1.0, 1.0, x.shape)
    else:
        noise = rng.normal(size=x.shape)
        flat = noise.reshape(len(x), -1)
        # The share of the ball within the radius r is r^d.
        radii = rng.uniform(size=len(x)) ** (1.0 / flat.shape[1])
        lengths = radii / np.linalg.norm(flat, axis=1)
        noise = noise * lengths.reshape(-1, *[1] * (x.ndim - 1))
    return move(x, epsilon, noise.astype("float32"), limits)


def feature_axes(x: Tensor) -> tuple[int, ...]:
    """Return all axes but that of the examples, the last one first."""
    # On PyTorch, Keras 3.10 reduces one axis after the other.
    return tuple(range(len(x.shape) - 1, 0, -1))


def _length(change: Tensor) -> Tensor:
    """Return the Euclidean length of each example, shape (n, 1, ...)."""
    squares = ops.sum(ops.square(change), axis=feature_axes(change), keepdims=True)
    return ops.sqrt(squares)


class Best(NamedTuple):
    """What an attack remembers of each example, as tensors or arrays."""

    point: Tensor  # (n, ...): the strongest point so far
    score: Tensor  # (n,): its loss
    fooled: Tensor  # (n,): whether it fools the model, 0 or 1
    stuck: Tensor  # (n,): whether all gradients were zero
    broken: Tensor  # (n,): how many numbers of the gradients were not finite


def start(x: Array) -> Best:
    """Return what is known before the first evaluation: any point is stronger."""
    count = len(x)
    none, zeros = np.full(count, -np.inf, "float32"), np.zeros(count, "int32")
    return Best(x, none, zeros, np.ones(count, "bool"), zeros)


def is_stronger(
    fooled: Tensor, score: Tensor, best_fooled: Tensor, best_score: Tensor
) -> Tensor:
    """Return which points are stronger (n,): they fool, or have the higher loss."""
    higher = ops.logical_and(fooled == best_fooled, score > best_score)
    return ops.logical_or(fooled > best_fooled, higher)


def remember(
    best: Best, point: Tensor, gradient: Tensor, score: Tensor, fooled: Tensor
) -> Best:
    """Return the strongest points after one more evaluation."""
    fooled = ops.cast(fooled, "int32")
    better = is_stronger(fooled, score, best.fooled, best.score)
    axes = feature_axes(point)
    return Best(
        choose(better, point, best.point),
        ops.where(better, score, best.score),
        ops.maximum(fooled, best.fooled),
        ops.logical_and(best.stuck, ops.logical_not(ops.any(gradient != 0, axis=axes))),
        best.broken + ops.sum(ops.cast(~ops.isfinite(gradient), "int32"), axis=axes),
    )


def choose(condition: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the first (n, ...) where a condition (n,) holds, else the second."""
    return ops.where(as_rows(condition, first), first, second)


def as_rows(values: Tensor, x: Tensor) -> Tensor:
    """Return tensors of shape (n,) in the shape (n, 1, ...), to go with `x`."""
    return ops.reshape(values, (-1, *[1] * (len(x.shape) - 1)))
