"""Adversarial examples by random search, without gradients: the Square attack.

The attack starts from vertical stripes of +- epsilon (algorithms 1 and 2 of the paper).
Each query sets a random square of the image to x + epsilon or x - epsilon in each
channel, and keeps the change if it raises the margin of another class over the label.
The squares become smaller and smaller.
"""

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
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import Classifier

SHARE = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
# After these of 10,000 queries, the share of the image that a square covers is halved.
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
LOOK_EVERY = 100  # queries between two looks whether all examples fool the model
Image = tuple[int, int, int]  # height, width, channels


def square(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    queries: int = 5000,
    initial_share: float = 0.8,
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model by random search: it needs predictions, and no gradient.

    It shows what gradients hide: a model that rounds looks robust to `fgsm` and `pgd`
    only because its gradient is zero. An example that fools the model stays as it is.
    If a softmax outputs only 0 and 1, each query is a guess: attack the logits instead.

    Inputs of shape (N, H, W, C) and (N, H, W) are images of C channels and of one, and
    of shape (N, C, H, W) if `keras.config.image_data_format()` is "channels_first".
    Others are read as images of one row: a square is a run of neighbouring numbers.

    Args:
        model: as in `fgsm`.
        x: as in `fgsm`.
        epsilon: largest change of a number of an input, in units of `x`, at least 0.
            For the L2 ball take `apgd`, or ART's `HopSkipJump` with `art_classifier`.
        y: as in `fgsm`.
        queries: number of predictions for each example after that of the clean input,
            at least 1. Defaults to 5000.
        initial_share: share of the image that the first squares cover, in (0, 1].
            Defaults to 0.8.
        seed: as in `pgd`. Each example has random numbers of its own, whatever
            `batch_size` is. Defaults to 0.
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
    >>> square(model, [[0.75, 0.5]], epsilon=0.25, queries=20)
    array([[0.5 , 0.75]], dtype=float32)

    Reference: Andriushchenko, Croce, Flammarion and Hein (2020), "Square Attack: a
    query-efficient black-box adversarial attack via random search", algorithms 1 and 2.
    The default share and number of queries are those of AutoAttack.
    """
    queries = _validate.integer("queries", queries, 1)
    initial_share = _validate.number("initial_share", initial_share, SHARE)
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    classifier, x, epsilon, labels, clean = given[:5]
    if epsilon == 0.0:
        return x.copy()

    checks.warn_of_channels(x)
    others = clean.copy()
    others[np.arange(len(labels)), labels] = 0.0
    flat = int(np.sum(checks.are_lost(others.max(axis=1))))
    if flat and not classifier.from_logits:
        warn(
            f"For {flat} of {len(labels)} examples the model outputs a probability of "
            "exactly 1, so Square only guesses, and the model looks more robust than "
            "it is. Attack a model that ends in logits, with from_logits=True."
        )
    is_first = x.ndim == 4 and keras.config.image_data_format() == "channels_first"
    images = np.moveaxis(x, 1, 3) if is_first else x
    shape, image = images.shape[1:], image_shape(images.shape[1:])
    numbers = np.array([epsilon, *given.ends], "float32")
    step = classifier.compiled(_step, given.member is not None, shape, is_first)

    def attack(x: Tensor, labels: Tensor, rows: Tensor, values: Any) -> Tensor:
        start, draws = _draws(seed, ops.convert_to_numpy(rows), queries, image)
        index = objective.index(given.member)
        fixed = x, labels, index, ops.convert_to_tensor(numbers), values
        lowest, none = ops.full(labels.shape, -np.inf), ops.zeros(labels.shape, "int32")
        best: State = (x, lowest, none)
        # The first query asks for the clean input, and the second for the start.
        for query in range(-1, queries):
            if query % LOOK_EVERY == 1 and ops.convert_to_numpy(best[2]).all():
                break
            if query < 1:
                places = np.full((len(start), *image[:2]), query == 0, "float32")
                move = start * float(query == 0), places
            else:
                size = window(share(query, queries, initial_share), image)
                move = move_of(draws[:, query - 1], size, image)
            best = step(best, *map(ops.convert_to_tensor, move), *fixed)
        return best[0]

    rows = np.arange(len(x), dtype="int32")
    moved: Array = classifier.map(attack, images.reshape(-1, *image), labels, rows)
    moved = moved.reshape(images.shape)
    return np.moveaxis(moved, 3, 1) if is_first else moved


def image_shape(shape: tuple[int, ...]) -> Image:
    """Return the height, width and channels as which the attack reads an input."""
    if len(shape) in (2, 3):
        return shape[0], shape[1], shape[2] if len(shape) == 3 else 1
    return 1, int(np.prod(shape)), 1


def share(query: int, queries: int, initial: float) -> float:
    """Return the share of the image that a query's square covers: section 3.2."""
    passed = int(10_000 * query / queries)
    return initial / 2.0 ** sum(passed > halving for halving in HALVINGS)


def window(covered: float, image: Image) -> tuple[int, int]:
    """Return the height and width of a square that covers a share of the image."""
    height, width, _ = image
    if height == 1:
        return 1, min(max(round(covered * width), 1), max(width - 1, 1))
    side, largest = round((covered * height * width) ** 0.5), min(height, width)
    side = min(max(side, 1), max(largest - 1, 1))
    return side, side


def _draws(seed: int, rows: Array, queries: int, image: Image) -> tuple[Array, Array]:
    """Return first changes (n, 1, W, C), and numbers (n, queries, k) for `move_of`."""
    firsts = []
    draws = np.empty((len(rows), queries, 2 + image[2]), "float32")
    for index, row in enumerate(rows):
        rng = np.random.default_rng([seed, int(row)])
        # A sign for each column and channel.
        firsts.append(rng.choice([-1.0, 1.0], size=image[1:])[None])
        draws[index] = rng.random(draws.shape[1:], "float32")
    return np.stack(firsts).astype("float32"), draws


# Of each example: the best image, its margin, and whether it fools the model, 0 or 1.
State = tuple[Tensor, Tensor, Tensor]


def _step(
    classifier: Classifier,
    by_member: bool,
    shape: tuple[int, ...],
    is_first: bool,
) -> Callable[..., State]:
    """Return the function that changes a square of each image, and asks the model."""
    evaluate = objective.evaluation(classifier, by_member, "margin")

    def step(
        best: State,
        signs: Tensor,  # (n, 1, 1 or W, C)
        inside: Tensor,  # (n, H, W): 1 in the square, else 0
        clean: Tensor,  # (n, H, W, C)
        labels: Tensor,
        member: Tensor,
        numbers: Tensor,  # (3,): epsilon, smallest and largest valid input
        values: Sequence[Tensor],
    ) -> State:
        epsilon, low, high = (numbers[i] for i in range(3))
        current, best_score, best_fooled = best
        moved = ops.clip(clean + epsilon * signs, low, high)
        moved = ops.where(inside[..., None] > 0.0, moved, current)
        inputs = ops.reshape(moved, (-1, *shape))
        inputs = ops.transpose(inputs, (0, 3, 1, 2)) if is_first else inputs
        _, score, fooled = evaluate(inputs, labels, member, values)
        fooled = ops.cast(fooled, "int32")
        better = objective.is_stronger(fooled, score, best_fooled, best_score)
        better = ops.logical_and(better, best_fooled == 0)  # what fools the model stays
        return (
            objective.choose(better, moved, current),
            ops.where(better, score, best_score),
            ops.maximum(fooled, best_fooled),
        )

    return step


def move_of(numbers: Array, size: tuple[int, int], image: Image) -> tuple[Array, Array]:
    """Return the signs and the square that uniform numbers (n, k) stand for.

    They are the place of a square, and a sign for each channel.
    """
    free = np.array(image[:2]) - np.array(size) + 1
    corners = (numbers[:, :2] * free).astype("int32")
    row = np.arange(image[0]) - corners[:, :1]  # (n, H): from its top
    column = np.arange(image[1]) - corners[:, 1:2]
    inside = ((row >= 0) & (row < size[0]))[:, :, None]
    inside = inside & ((column >= 0) & (column < size[1]))[:, None]
    signs = np.where(numbers[:, 2:] >= 0.5, 1.0, -1.0).astype("float32")
    return signs[:, None, None], inside.astype("float32")
