"""Adversarial examples by projected gradient descent in a ball.

Paper: Madry, Makelov, Schmidt, Tsipras and Vladu (2018), "Towards deep learning models
resistant to adversarial attacks", section 2.1. The attack repeats steps of the fast
gradient sign method. After each step it projects onto the ball of inputs within
`epsilon` of the clean input:

    x_{t+1} = clip(project(x_t + step_size sign(grad_x -log p(y | x_t))))

In the L2 ball the gradient over its Euclidean length takes the place of its sign.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.balls import Best
from keras_mhmcmc.evaluation.classifier import Classifier


def pgd(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    steps: int = 20,
    step_size: float | None = None,
    norm: balls.Norm = "linf",
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
    -log p(y | x), and then back into the ball and the limits. `fgsm` tells when
    probabilities hide the sign. With `norm="l2"` a step moves along the gradient
    itself, and the FGSM point is one such step of length `epsilon`.

    A step of fixed size can lower the loss. `keep_strongest` therefore returns the
    strongest of the clean input, the FGSM point and all points on the way. A point
    that fools the model, which then predicts a class other than `y`, is stronger than
    one that does not; otherwise the higher loss is stronger. So the accuracy under
    attacks on the true labels is never above the accuracy under FGSM.

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
        seed: integer in [0, 2**31) that makes the random start repeatable. Defaults
            to 0.
        member: as in `fgsm`.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Returns:
        The adversarial examples, a float32 array with the shape of `x`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are not
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    >>> pgd(model, np.array([[0.75, 0.5]]), epsilon=0.25)
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Madry et al. (2018), section 2.1.
    """
    steps = _validate.integer("steps", steps, 1)
    norm = _validate.choice("norm", norm, balls.NORMS)
    restarts = _validate.integer("restarts", restarts, 1)
    _validate.instance("random_start", random_start, bool, "True or False")
    _validate.instance("keep_strongest", keep_strongest, bool, "True or False")
    if restarts > 1 and not (random_start and keep_strongest):
        raise ValueError(
            "Argument `restarts` must be 1 unless `random_start` and `keep_strongest` "
            "are True: other runs would be the same, or be forgotten. "
            f"Received: restarts={restarts}, random_start={random_start}, "
            f"keep_strongest={keep_strongest}"
        )
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    classifier, x, epsilon, labels = given[:4]
    if step_size is None:
        step_size = min(2.5 * epsilon / steps, _validate.LARGEST_NUMBER)
    step_size = _validate.number("step_size", step_size, _validate.NOT_NEGATIVE)
    if epsilon == 0.0:
        return x.copy()

    step = classifier.compiled(_step, given.member is not None, norm)

    def attack(
        is_first: bool, x: Tensor, start: Tensor, labels: Tensor, *state: Any
    ) -> tuple[Tensor, Best]:
        *fields, values = state

        def take(point: Tensor, size: float, best: Best) -> tuple[Tensor, Best]:
            numbers = np.array([epsilon, size, *given.ends], "float32")
            numbers = ops.convert_to_tensor(numbers)
            index = objective.index(given.member)
            new_point, best = step(point, best, x, labels, index, numbers, values)
            return new_point, best

        best = Best(*fields)
        if keep_strongest and is_first:
            point, best = take(x, epsilon, best)  # the step of FGSM
            _, best = take(point, step_size, best)
        point = start
        for _ in range(steps):
            point, best = take(point, step_size, best)
        if keep_strongest:
            _, best = take(point, step_size, best)
        return point, best

    best, rng, start = balls.start(x), np.random.default_rng(seed), x
    for run in range(restarts):
        if random_start:
            start = balls.random_start(rng, x, epsilon, given.limits, norm)
        from_here = functools.partial(attack, run == 0)
        last, best = classifier.map(from_here, x, start, labels, *best)
    counts = int(np.sum(best.stuck)), int(np.sum(best.broken))
    objective.check_gradients(classifier, x, labels, *counts)
    return best.point if keep_strongest else last


def _step(
    classifier: Classifier, by_member: bool, norm: balls.Norm
) -> Callable[..., tuple[Tensor, Best]]:
    """Return the function that evaluates a point, remembers it, and takes a step."""
    evaluate = objective.ascent(classifier, by_member)

    def step(
        point: Tensor,
        best: Best,
        x: Tensor,
        labels: Tensor,
        member: Tensor,
        numbers: Tensor,  # (4,): epsilon, step size, smallest and largest valid input
        values: Sequence[Tensor],
    ) -> tuple[Tensor, Best]:
        gradient, score, fooled = evaluate(point, labels, member, values)
        best = balls.remember(best, point, gradient, score, fooled)
        epsilon, size, low, high = (numbers[i] for i in range(4))
        moved = point + size * balls.direction(gradient, norm)
        return balls.project(moved, x, epsilon, low, high, norm), best

    return step
