"""Adversarial examples by projected gradient descent, in the L-infinity ball.

Paper: Madry, Makelov, Schmidt, Tsipras and Vladu (2018), "Towards deep learning models
resistant to adversarial attacks", section 2.1. Steps of the fast gradient sign method,
each of which is projected onto the inputs that are within `epsilon` of the clean one:

    x_{t+1} = clip(project(x_t + step_size sign(grad_x -log p(y | x_t))))
"""

import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc.adversarial import inputs
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation.classifier import as_classifier


def pgd(
    model,
    x,
    epsilon,
    *,
    y=None,
    steps=20,
    step_size=None,
    random_start=True,
    keep_strongest=True,
    seed=0,
    member=None,
    from_logits=False,
    clip=(0.0, 1.0),
    batch_size=256,
):
    """Adversarial examples by projected gradient descent, within `epsilon` of `x`.

    Takes `steps` steps of `step_size` along the sign of the gradient of -log p(y | x),
    back into the ball and the limits after each. The sign is that of `fgsm`, right
    where a float32 p(y | x) rounds to 1.

    A signed step of fixed size need not raise the loss, so the last point may be a
    weaker attack than one before it, or than FGSM. `keep_strongest` returns the
    strongest of the clean input, the FGSM point and all points on the way: of those
    that are classified otherwise than `y`, or of all if there are none, the one with
    the highest loss. So an example that FGSM turns is always turned, and the accuracy
    under attacks on the true labels is never above that under FGSM.

    Args:
        model: built `keras.Model` from `x` to class probabilities of shape (N, C), or
            to the probability of class 1 of two, of shape (N, 1); or an
            `mh.Classifier` of one, which is compiled once for many calls.
        x: inputs, finite, N examples along the first axis.
        epsilon: largest change of an input, in units of `x`, at least 0.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None: the model's own predictions, so that the attack knows no label.
        steps: number of steps, at least 1.
        step_size: length of a step, in units of `x`. None: 2.5 epsilon / steps, with
            which every point of the ball is in reach from any start.
        random_start: whether the first point is drawn uniformly from the ball; else it
            is the clean input.
        keep_strongest: whether the strongest point is returned; else the last one, as
            in the paper.
        seed: integer that the start is drawn from.
        member: index of the member of an `mh.Ensemble` or `mh.MCDropout` whose loss
            the attack raises. None: that of the averaged probability.
        from_logits: whether the model outputs logits in place of probabilities.
        clip: smallest and largest valid input, a pair in increasing order. `x` must
            lie between them. None: no limits.
        batch_size: number of examples attacked at a time, at least 1.

    Returns:
        A float32 NumPy array shaped like `x`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are no
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
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    steps = _validate.integer("steps", steps, 1)
    if step_size is None:
        step_size = 2.5 * epsilon / steps
    step_size = _validate.number("step_size", step_size, _validate.NOT_NEGATIVE)
    _validate.instance("random_start", random_start, bool, "True or False")
    _validate.instance("keep_strongest", keep_strongest, bool, "True or False")
    seed = _validate.seed(seed)
    x, clip = inputs.inputs_and_limits(x, clip)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    member = classifier.check_member(member)
    labels = inputs.attacked_labels(classifier, x, y).astype("int32")
    if epsilon == 0.0:
        return x.copy()
    start = x
    if random_start:
        noise = np.random.default_rng(seed).uniform(-1.0, 1.0, x.shape)
        start = objective.move(x, epsilon, noise.astype("float32"), clip)

    low, high = (-np.inf, np.inf) if clip is None else clip
    step = classifier.compiled(_step, member is not None)

    def attack(x, start, labels, values):
        def take(point, size, best):
            numbers = ops.convert_to_tensor(np.float32([epsilon, size, low, high]))
            given = (x, labels, objective.index(member), numbers, values)
            return step(point, best, *given)

        worst = ops.full(labels.shape, -np.inf, dtype="float32")
        best = (x, worst, ops.zeros(labels.shape, "int32"), *_no_gradients(labels))
        if keep_strongest:
            point, best = take(x, epsilon, best)  # a step of FGSM
            _, best = take(point, step_size, best)
        point = start
        for _ in range(steps):
            point, best = take(point, step_size, best)
        if keep_strongest:
            _, best = take(point, step_size, best)
        strongest, _, _, stuck, broken = best
        return (strongest if keep_strongest else point), stuck, broken

    moved, stuck, broken = classifier.map(attack, x, start, labels)
    counts = int(np.sum(stuck)), int(np.sum(broken))
    objective.check_gradients(classifier, len(x), *counts)
    return moved


def _no_gradients(labels):
    """Of each example: all gradients so far are zero, and how many are broken."""
    return ops.ones(labels.shape, "bool"), ops.zeros(labels.shape, "int32")


def _step(classifier, by_member):
    """A function that takes a step and remembers the strongest point."""
    evaluate = objective.ascent(classifier, by_member)

    def step(point, best, x, labels, member, numbers, values):
        gradient, score, turned = evaluate(point, labels, member, values)
        best_point, best_score, best_turned, stuck, broken = best
        turned = ops.cast(turned, "int32")
        higher = ops.logical_and(turned == best_turned, score > best_score)
        better = ops.logical_or(turned > best_turned, higher)
        rows = (-1, *[1] * (len(x.shape) - 1))
        axes = tuple(range(1, len(x.shape)))
        best = (
            ops.where(ops.reshape(better, rows), point, best_point),
            ops.where(better, score, best_score),
            ops.maximum(turned, best_turned),
            ops.logical_and(stuck, ops.logical_not(ops.any(gradient != 0, axis=axes))),
            broken + ops.sum(ops.cast(~ops.isfinite(gradient), "int32"), axis=axes),
        )
        epsilon, size, low, high = (numbers[i] for i in range(4))
        moved = point + size * ops.sign(gradient)
        moved = x + ops.clip(moved - x, -epsilon, epsilon)
        return ops.clip(moved, low, high), best

    return step
