"""Adversarial examples by gradients: FGSM, projected gradient descent, and Auto-PGD.

The fast gradient sign method takes one step, and projected gradient descent several,
after each of which it projects onto the ball of inputs within `epsilon` of the clean
input. For an ensemble, p is the mean probability. Auto-PGD chooses its step sizes
itself, and has momentum. P gives the nearest point in the ball and the limits:

    z       = P(x_t + eta d(x_t))
    x_{t+1} = P(x_t + alpha (z - x_t) + (1 - alpha) (x_t - x_{t-1}))

d is the sign of the gradient in the L-infinity ball, and the gradient over its length
in the L2 ball. alpha is 0.75, and 1 in the first step. eta begins at 2 epsilon. At some
checkpoints it is halved, and the run goes on from its best point.
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
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.objective import Best
from keras_mhmcmc.evaluation.classifier import Classifier

MOMENTUM = 0.75  # alpha of Auto-PGD
SUCCESSES = 0.75  # rho: the share of steps that should raise the loss


def fgsm(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with the fast gradient sign method.

    The result is clip(x + epsilon sign(grad_x -log p(y | x))), a float32 array with the
    shape of `x`, with the model in inference mode. A warning tells how many examples
    have no sign, since a probability is exactly 0: attack the logits instead.

    Args:
        model: built `keras.Model` that maps `x` to class probabilities, shape (N, C),
            or to the probability of class 1 of two, shape (N, 1). For many calls pass
            an `mh.Classifier` of the model, which is compiled once.
        x: finite inputs, shape (N, ...), or a data set that `fit` takes and that ends.
            It is read into memory.
        epsilon: largest change of an input, in units of `x`, at least 0.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            Defaults to None: the labels of a data set that has some, or else the
            model's own predictions.
        member: index of the member of an `mh.Ensemble` or `mh.MCDropout` that the
            attack misleads. Defaults to None: the mean probability.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        clip: smallest and largest valid input, an increasing pair. `x` must lie
            between them. Defaults to (0, 1); None sets no limits.
        batch_size: number of examples attacked at a time, at least 1. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or it has no gradient.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(2, "softmax", kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> fgsm(model, [[0.75, 0.5]], epsilon=0.25)
    array([[0.5 , 0.75]], dtype=float32)

    Reference: Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing
    adversarial examples", section 4.
    """
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    if given.epsilon == 0.0:
        return given.x.copy()
    return objective.move(given.x, given.epsilon, signs(given), given.limits)


def signs(given: objective.Given, gradients: Array | None = None) -> Array:
    """Return the sign of the loss' gradient (N, ...), which may be known."""
    gradients = gradients_of(given) if gradients is None else gradients
    counts = objective.faults(gradients)
    objective.check_gradients(*given[:2], given.labels, *counts)
    return np.sign(gradients)


def gradients_of(given: objective.Given) -> Array:
    """Return the loss' gradient, a float32 array with the shape of `x`, unchecked."""
    classifier, member = given.classifier, given.member
    function = classifier.compiled(objective.ascent, member is not None)

    def gradient(x: Tensor, labels: Tensor, values: Sequence[Tensor]) -> Tensor:
        return function(x, labels, objective.index(member), values)[0]

    gradients: Array = classifier.map(gradient, given.x, given.labels.astype("int32"))
    return gradients


def pgd(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    steps: int = 20,
    step_size: float | None = None,
    norm: objective.Norm = "linf",
    restarts: int = 1,
    random_start: bool = True,
    keep_strongest: bool = True,
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with projected gradient descent, within `epsilon` of `x`.

    Each of `steps` steps moves by `step_size` along the sign of the gradient of
    -log p(y | x), or with `norm="l2"` along the gradient itself, and then back into the
    ball and the limits. The result is the strongest of the clean input, the FGSM point
    and all points on the way: one that fools the model, which then predicts a class
    other than `y`, or else the one with the highest loss.

    Args:
        model: as in `fgsm`.
        x: as in `fgsm`.
        epsilon: largest change of an input in the norm, in units of `x`, at least 0.
        y: as in `fgsm`.
        steps: number of steps, at least 1. Defaults to 20.
        step_size: length of a step, in units of `x`, at least 0. Defaults to None,
            2.5 epsilon / steps: from any start, every point of the ball is in reach.
        norm: "linf" limits the change of each number of an input, "l2" the Euclidean
            length of the change. Defaults to "linf".
        restarts: number of runs, each from a new random start, at least 1. The
            strongest point of all runs counts. More than one needs `random_start` and
            `keep_strongest`. Defaults to 1.
        random_start: whether to draw the first point uniformly from the ball. If
            False, it is the clean input. Defaults to True.
        keep_strongest: whether to return the strongest point. If False, it is the last
            point, as in the paper. Defaults to True.
        seed: integer in [0, 2**31) that makes random numbers repeatable. Defaults to 0.
        member: as in `fgsm`.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Raises:
        ValueError: as in `fgsm`.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(2, "softmax", kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> pgd(model, [[0.75, 0.5]], epsilon=0.25)
    array([[0.5 , 0.75]], dtype=float32)

    Reference: Madry, Makelov, Schmidt, Tsipras and Vladu (2018), "Towards deep learning
    models resistant to adversarial attacks", section 2.1.
    """
    steps = _validate.integer("steps", steps, 1)
    norm = _validate.choice("norm", norm, objective.NORMS)
    restarts = _checked_restarts(restarts, random_start, keep_strongest)
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    if step_size is None:
        step_size = min(2.5 * given.epsilon / steps, _validate.LARGEST_NUMBER)
    size = _validate.number("step_size", step_size, _validate.NOT_NEGATIVE)
    if given.epsilon == 0.0:
        return given.x.copy()
    step = given.classifier.compiled(_step, given.member is not None, norm)

    def attack(
        is_first: bool, best: Best, start: Tensor, fixed: Fixed
    ) -> tuple[Tensor, Best]:
        def take(point: Tensor, size: float, best: Best) -> tuple[Tensor, Best]:
            return step(point, best, fixed, _numbers(given, size))

        if keep_strongest and is_first:
            point, best = take(fixed.x, given.epsilon, best)  # the step of FGSM
            _, best = take(point, size, best)
        point = start
        for _ in range(steps):
            point, best = take(point, size, best)
        if keep_strongest:
            _, best = take(point, size, best)
        return point, best

    last, strongest = _runs(attack, given, restarts, random_start, norm, seed)
    return strongest if keep_strongest else last


def _checked_restarts(
    restarts: int, random_start: bool, keep_strongest: bool = True
) -> int:
    """Return the number of runs, or raise a `ValueError` if some are of no use."""
    restarts = _validate.integer("restarts", restarts, 1)
    _validate.instance("random_start", random_start, bool, "True or False")
    _validate.instance("keep_strongest", keep_strongest, bool, "True or False")
    if restarts > 1 and not (random_start and keep_strongest):
        raise ValueError(
            "Argument `restarts` must be 1 unless `random_start` is True and the "
            "strongest point is kept: other runs would be the same, or be forgotten. "
            f"Received: restarts={restarts}, random_start={random_start}"
        )
    return restarts


class Fixed(NamedTuple):
    """What stays the same in the steps of a batch."""

    x: Tensor  # (n, ...): the clean inputs
    labels: Tensor  # (n,)
    member: Tensor
    values: Sequence[Tensor]  # of the model's variables


def _step(
    classifier: Classifier, by_member: bool, norm: objective.Norm
) -> Callable[..., tuple[Tensor, Best]]:
    """Return the function that evaluates a point, remembers it, and takes a step."""
    evaluate = objective.ascent(classifier, by_member)

    def step(
        point: Tensor, best: Best, fixed: Fixed, numbers: Tensor
    ) -> tuple[Tensor, Best]:
        x, labels, *model = fixed
        gradient, score, fooled = evaluate(point, labels, *model)
        best = objective.remember(best, point, gradient, score, fooled)
        epsilon, low, high, size = (numbers[i] for i in range(4))
        moved = point + size * objective.direction(gradient, norm)
        return objective.project(moved, x, epsilon, low, high, norm), best

    return step


def _numbers(given: objective.Given, *more: float) -> Tensor:
    """Return epsilon, the smallest and largest valid input, and more, as one tensor."""
    numbers = np.array([given.epsilon, *given.ends, *more], "float32")
    return ops.convert_to_tensor(numbers)


def _runs(
    attack: Callable[..., tuple[Tensor, Best]],
    given: objective.Given,
    restarts: int,
    random_start: bool,
    norm: objective.Norm,
    seed: int,
) -> tuple[Array, Array]:
    """Return the last points, and the strongest ones of several runs of an attack."""
    classifier, x, epsilon, labels, *_ = given
    index = objective.index(given.member)
    best, rng, start = objective.start(x), np.random.default_rng(seed), x

    def one(
        is_first: bool, x: Tensor, start: Tensor, labels: Tensor, *rest: Any
    ) -> tuple[Tensor, Best]:
        *fields, values = rest
        fixed = Fixed(x, labels, index, values)
        return attack(is_first, Best(*fields), start, fixed)

    for run in range(restarts):
        if random_start:
            start = objective.random_start(rng, x, epsilon, given.limits, norm)
        run_one = functools.partial(one, run == 0)
        last, best = classifier.map(run_one, x, start, labels, *best)
    counts = int(np.sum(best.stuck)), int(np.sum(best.broken))
    objective.check_gradients(classifier, x, labels, *counts)
    return last, best.point


def apgd(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    steps: int = 100,
    loss: objective.Loss = "cross_entropy",
    norm: objective.Norm = "linf",
    restarts: int = 1,
    random_start: bool = True,
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with Auto-PGD, which needs no step size.

    The first steps are as long as the ball is wide. At checkpoints the attack halves
    the step size of an example if fewer than 75% of the steps raised its loss, or if
    neither its step size nor its highest loss has changed since the last one, and goes
    on from its best point. The result is the strongest point, as in `pgd`.

    Args:
        model: as in `fgsm`.
        x: as in `fgsm`.
        epsilon: as in `pgd`.
        y: as in `fgsm`.
        steps: number of steps of a run, at least 1. Defaults to 100.
        loss: what the attack raises. "cross_entropy" is -log p(y | x). "margin" is the
            largest other logit less that of the label. Defaults to "cross_entropy".
        norm: as in `pgd`.
        restarts: as in `pgd`.
        random_start: as in `pgd`.
        seed: as in `pgd`.
        member: as in `fgsm`.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Raises:
        ValueError: as in `fgsm`.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(2, "softmax", kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> apgd(model, [[0.75, 0.5]], epsilon=0.25, steps=10)
    array([[0.5 , 0.75]], dtype=float32)

    Reference: Croce and Hein (2020), "Reliable evaluation of adversarial robustness
    with an ensemble of diverse parameter-free attacks", algorithm 1.
    """
    steps = _validate.integer("steps", steps, 1)
    loss = _validate.choice("loss", loss, objective.LOSSES)
    norm = _validate.choice("norm", norm, objective.NORMS)
    restarts = _checked_restarts(restarts, random_start)
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    if given.epsilon == 0.0:
        return given.x.copy()
    size = min(2.0 * given.epsilon, _validate.LARGEST_NUMBER)
    lengths = intervals(steps)
    step = given.classifier.compiled(_auto_step, given.member is not None, loss, norm)

    def attack(
        is_first: bool, best: Best, start: Tensor, fixed: Fixed
    ) -> tuple[Tensor, Best]:
        if is_first:
            run, numbers = _new_run(fixed.x, fixed.labels, size), (1.0, False, 0.0)
            *_, best = step(fixed.x, run, best, fixed, _numbers(given, *numbers))
        point, run = start, _new_run(start, fixed.labels, size)
        for taken in range(steps + 1):  # the last one evaluates the last point
            alpha, interval = MOMENTUM if taken else 1.0, lengths.get(taken, 0)
            numbers = alpha, interval > 0, SUCCESSES * interval
            more = best, fixed, _numbers(given, *numbers)
            point, run, best = step(point, run, *more)
        return point, best

    return _runs(attack, given, restarts, random_start, norm, seed)[1]


def intervals(steps: int) -> dict[int, int]:
    """Return the checkpoints, and how many steps lie between each and the last one."""
    # Section 3.1: w_j = ceil(p_j steps), p_0 = 0, p_1 = 0.22,
    # p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06), here in percent.
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


def _auto_step(
    classifier: Classifier, by_member: bool, loss: objective.Loss, norm: objective.Norm
) -> Callable[..., tuple[Tensor, Run, Best]]:
    """Return the function that evaluates a point, looks back, and takes a step."""
    evaluate = objective.ascent(classifier, by_member, loss)
    choose, nearest = objective.choose, objective.nearest

    def step(
        point: Tensor, run: Run, best: Best, fixed: Fixed, numbers: Tensor
    ) -> tuple[Tensor, Run, Best]:
        x, labels, *model = fixed
        gradient, score, fooled = evaluate(point, labels, *model)
        best = objective.remember(best, point, gradient, score, fooled)
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
        moved = point + objective.as_rows(size, x) * objective.direction(gradient, norm)
        ahead = nearest(moved, x, epsilon, low, high, norm) - point
        moved = point + alpha * ahead + (1.0 - alpha) * (point - run.previous)
        return nearest(moved, x, epsilon, low, high, norm), after, best

    return step
