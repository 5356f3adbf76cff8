"""Adversarial examples by Auto-PGD, which chooses its step sizes itself.

Paper: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an
ensemble of diverse parameter-free attacks", algorithm 1. A step has momentum:

    z       = P(x_t + eta d(x_t))
    x_{t+1} = P(x_t + alpha (z - x_t) + (1 - alpha) (x_t - x_{t-1}))

d is the sign of the gradient in the L-infinity ball, and the gradient over its length
in the L2 ball. P gives the nearest point that is in the ball and within the limits.
alpha is 0.75, and 1 in the first step. eta begins at 2 epsilon. At some checkpoints it
is halved, and the run goes on from its best point.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import losses
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.balls import Best
from keras_mhmcmc.evaluation.classifier import Classifier

MOMENTUM = 0.75  # alpha
SUCCESSES = 0.75  # rho: the share of steps that should raise the loss


def apgd(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    steps: int = 100,
    loss: losses.Loss = "cross_entropy",
    norm: balls.Norm = "linf",
    restarts: int = 1,
    random_start: bool = True,
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with Auto-PGD, which needs no step size.

    The first steps are as long as the ball is wide. At checkpoints, which come closer
    and closer, the attack looks back for each example. It halves the step size of an
    example if fewer than 75% of the steps raised its loss, or if neither its step size
    nor its highest loss has changed since the last checkpoint. Then the example goes
    on from its best point. The result is the strongest point, as in `pgd`.

    Args:
        model: as in `fgsm`.
        x: as in `fgsm`.
        epsilon: as in `pgd`.
        y: as in `fgsm`.
        steps: number of steps of a run, at least 1. Defaults to 100.
        loss: what the attack raises. "cross_entropy" is -log p(y | x). "margin" is the
            largest other logit less that of the label. "dlr" is the margin over the
            distance of the largest and the third largest logit; it does not depend on
            the scale of the logits, and needs 3 classes. "targeted_dlr" is the same
            towards one other class, and needs 4 classes. Defaults to "cross_entropy".
        norm: as in `pgd`.
        restarts: number of runs, each from a new random start, at least 1. The
            strongest point of all runs counts. With "targeted_dlr" the first run aims
            at the most probable other class, the next at the second, and so on. More
            than one run needs `random_start` or "targeted_dlr". Defaults to 1.
        random_start: as in `pgd`.
        seed: as in `pgd`.
        member: as in `fgsm`.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Returns:
        The adversarial examples, a float32 array with the shape of `x`.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, it has no gradient, or too few classes for the loss.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    >>> apgd(model, np.array([[0.75, 0.5]]), epsilon=0.25, steps=10)
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Croce and Hein (2020), algorithm 1 and equations (6) and (7).
    """
    steps = _validate.integer("steps", steps, 1)
    loss = _validate.choice("loss", loss, tuple(losses.LOSSES))
    norm = _validate.choice("norm", norm, balls.NORMS)
    restarts = _validate.integer("restarts", restarts, 1)
    _validate.instance("random_start", random_start, bool, "True or False")
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    classifier, x, epsilon, labels, clean = given[:5]
    needed, is_targeted = losses.CLASSES.get(loss, 2), loss == "targeted_dlr"
    if clean.shape[1] < needed:
        raise ValueError(
            "Argument `loss` must be 'cross_entropy' or 'margin' for a model of "
            f"{clean.shape[1]} classes. {loss!r} compares {needed} classes. "
            f"Received: loss={loss!r}"
        )
    most = clean.shape[1] - 1 if is_targeted else 1
    if restarts > most and not random_start:
        raise ValueError(
            f"Argument `restarts` must be at most {most} unless `random_start` is "
            "True: further runs would be the same. "
            f"Received: restarts={restarts}, random_start=False"
        )
    if epsilon == 0.0:
        return x.copy()

    first_size = min(2.0 * epsilon, _validate.LARGEST_NUMBER)
    lengths = intervals(steps)
    step = classifier.compiled(_step, given.member is not None, loss, norm)

    def attack(
        is_first: bool,
        x: Tensor,
        start: Tensor,
        labels: Tensor,
        targets: Tensor,
        *state: Any,
    ) -> Best:
        *fields, values = state

        def take(
            point: Tensor, run: Run, best: Best, interval: int, alpha: float
        ) -> tuple[Tensor, Run, Best]:
            more = alpha, interval > 0, SUCCESSES * interval
            numbers = np.array([epsilon, *given.ends, *more], "float32")
            numbers = ops.convert_to_tensor(numbers)
            fixed = x, labels, targets, objective.index(given.member), numbers, values
            point, run, best = step(point, run, best, *fixed)
            return point, run, best

        best = Best(*fields)
        if is_first:
            *_, best = take(x, _new_run(x, labels, first_size), best, 0, 1.0)
        point, run = start, _new_run(start, labels, first_size)
        for taken in range(steps + 1):  # the last one evaluates the last point
            alpha = 1.0 if taken == 0 else MOMENTUM
            point, run, best = take(point, run, best, lengths.get(taken, 0), alpha)
        return best

    others = clean.copy()  # the other classes, the most probable first
    others[np.arange(len(x)), labels] = -1.0
    others = np.argsort(-others, axis=1, kind="stable")[:, :-1].astype("int32")
    best, rng, start = balls.start(x), np.random.default_rng(seed), x
    for run in range(restarts):
        if random_start:
            start = balls.random_start(rng, x, epsilon, given.limits, norm)
        targets = others[:, run % others.shape[1]] if is_targeted else labels
        from_here = functools.partial(attack, run == 0)
        best = classifier.map(from_here, x, start, labels, targets, *best)
    stuck = best.stuck
    if loss in losses.CLASSES:  # the DLR is constant where the label is third
        stuck = stuck & (best.fooled == 0)
    counts = int(np.sum(stuck)), int(np.sum(best.broken))
    objective.check_gradients(classifier, x, labels, *counts)
    return best.point


def intervals(steps: int) -> dict[int, int]:
    """Return the checkpoints, and how many steps lie between each and the last one.

    Croce and Hein (2020), section 3.1: w_j = ceil(p_j steps), p_0 = 0, p_1 = 0.22,
    p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06). The p_j are whole percents.
    """
    before, percent, last, found = 0, 22, 0, {}
    while percent < 100:
        checkpoint = -(-percent * steps // 100)  # rounded up
        if last < checkpoint < steps:
            found[checkpoint] = checkpoint - last
            last = checkpoint
        before, percent = percent, percent + max(percent - before - 3, 6)
    return found


class Run(NamedTuple):
    """What a run of Auto-PGD remembers of each example; (n,) where not said."""

    previous: Tensor  # (n, ...): the point before the current one
    value: Tensor  # loss of the point from which the last step began
    top: Tensor  # (n, ...): the point with the highest loss of this run
    top_gradient: Tensor  # (n, ...)
    top_value: Tensor  # its loss
    checked_value: Tensor  # the highest loss at the last checkpoint
    size: Tensor  # eta, the step size
    was_halved: Tensor  # whether the last checkpoint halved it
    successes: Tensor  # steps since then that raised the loss


def _new_run(start: Tensor, labels: Tensor, size: float) -> Run:
    """Return the state of a run that has evaluated nothing."""
    low = ops.full(labels.shape, -np.inf, dtype="float32")
    return Run(
        previous=start,
        value=-low,  # the first evaluation is no success
        top=start,
        top_gradient=ops.zeros_like(start),
        top_value=low,
        checked_value=low,
        size=ops.full(labels.shape, size, dtype="float32"),
        was_halved=ops.zeros(labels.shape, "bool"),
        successes=ops.zeros(labels.shape, "float32"),
    )


def _step(
    classifier: Classifier, by_member: bool, loss: losses.Loss, norm: balls.Norm
) -> Callable[..., tuple[Tensor, Run, Best]]:
    """Return the function that evaluates a point, looks back, and takes a step."""
    evaluate = objective.ascent(classifier, by_member, loss)
    choose, nearest = balls.choose, balls.nearest

    def step(
        point: Tensor,
        run: Run,
        best: Best,
        x: Tensor,
        labels: Tensor,
        targets: Tensor,
        member: Tensor,
        numbers: Tensor,  # (6,)
        values: Sequence[Tensor],
    ) -> tuple[Tensor, Run, Best]:
        gradient, score, fooled = evaluate(point, labels, member, values, targets)
        best = balls.remember(best, point, gradient, score, fooled)
        epsilon, low, high, alpha, checkpoint, needed = (numbers[i] for i in range(6))

        successes = run.successes + ops.cast(score > run.value, "float32")
        higher = score > run.top_value
        top = choose(higher, point, run.top)
        top_gradient = choose(higher, gradient, run.top_gradient)
        top_value = ops.where(higher, score, run.top_value)
        # At the start of a run, the highest loss is that of its first point.
        is_new = ops.equal(run.checked_value, -np.inf)
        checked_value = ops.where(is_new, score, run.checked_value)

        # Conditions 1 and 2 of the paper.
        few = successes < needed
        same = ops.logical_and(~run.was_halved, ops.equal(top_value, checked_value))
        is_checkpoint = checkpoint > 0.0
        halve = ops.logical_and(is_checkpoint, ops.logical_or(few, same))
        size = ops.where(halve, 0.5 * run.size, run.size)
        point = choose(halve, top, point)
        gradient = choose(halve, top_gradient, gradient)
        after = Run(
            previous=point,
            value=ops.where(halve, top_value, score),
            top=top,
            top_gradient=top_gradient,
            top_value=top_value,
            checked_value=ops.where(is_checkpoint, top_value, checked_value),
            size=size,
            was_halved=ops.where(is_checkpoint, halve, run.was_halved),
            successes=ops.where(is_checkpoint, 0.0, successes),
        )
        rows = (-1, *[1] * (len(x.shape) - 1))
        moved = point + ops.reshape(size, rows) * balls.direction(gradient, norm)
        ahead = nearest(moved, x, epsilon, low, high, norm) - point
        moved = point + alpha * ahead + (1.0 - alpha) * (point - run.previous)
        return nearest(moved, x, epsilon, low, high, norm), after, best

    return step
