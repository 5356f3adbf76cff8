"""Adversarial examples by random search, without gradients: the Square attack.

In the L-infinity ball (algorithms 1 and 2 of the paper) the attack starts from vertical
stripes of +- epsilon. Each query sets a random square of the image to x + epsilon or
x - epsilon in each channel, and keeps the change if it raises the margin of another
class over the label. The squares become smaller and smaller.

In the L2 ball (equation (2) and algorithm 3) a query empties two windows of the change
of an image, and gives their length, and what is left of epsilon, to the first window.
There it adds a pattern of two bumps, one up and one down, to the direction that the
change had.
"""

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
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.classifier import Classifier

SHARE = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
# After these of 10,000 queries, the share of the image that a square covers is halved.
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
LOOK_EVERY = 100  # queries between two looks whether all examples fool the model
TILES = 5  # of the first change in the L2 ball, along each side of 15 pixels or more
SMALLEST_WINDOW = 3  # in the L2 ball
Image = tuple[int, int, int]  # height, width, channels


def square(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    queries: int = 5000,
    norm: objective.Norm = "linf",
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
        epsilon: as in `pgd`.
        y: as in `fgsm`.
        queries: number of predictions for each example after that of the clean input,
            at least 1. Defaults to 5000.
        norm: as in `pgd`.
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
    query-efficient black-box adversarial attack via random search", algorithms 1 to 3.
    The default share and number of queries are those of AutoAttack.
    """
    queries = _validate.integer("queries", queries, 1)
    norm = _validate.choice("norm", norm, objective.NORMS)
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
    step = classifier.compiled(_step, given.member is not None, shape, is_first, norm)

    def attack(x: Tensor, labels: Tensor, rows: Tensor, values: Any) -> Tensor:
        start, draws = _draws(seed, ops.convert_to_numpy(rows), queries, image, norm)
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
                move = Move(start * float(query == 0), places, places)
            else:
                size = window(share(query, queries, initial_share), image, norm)
                move = move_of(draws[:, query - 1], size, image, norm)
            best = step(best, Move(*map(ops.convert_to_tensor, move)), *fixed)
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


def window(covered: float, image: Image, norm: objective.Norm) -> tuple[int, int]:
    """Return the height and width of a square that covers a share of the image."""
    # In the L2 ball the side is at least 3 and odd, if the image has as much.
    height, width, _ = image
    if height == 1:
        least, largest = (1, max(width - 1, 1)) if norm == "linf" else (3, width)
        return 1, min(max(round(covered * width), least), largest)
    side, largest = round((covered * height * width) ** 0.5), min(height, width)
    if norm == "linf":
        side = min(max(side, 1), max(largest - 1, 1))
    else:
        side = max(side, SMALLEST_WINDOW)
        side = min(side + 1 - side % 2, largest - 1 + largest % 2 or 1)
    return side, side


def _draws(
    seed: int, rows: Array, queries: int, image: Image, norm: objective.Norm
) -> tuple[Array, Array]:
    """Return first changes (n, ...), and the numbers (n, queries, k) of `move_of`."""
    firsts, places = [], 5 if norm == "l2" else 2
    draws = np.empty((len(rows), queries, places + image[2]), "float32")
    for index, row in enumerate(rows):
        rng = np.random.default_rng([seed, int(row)])
        if norm == "l2":
            firsts.append(first_change(rng, image))
        else:  # a sign for each column and channel
            firsts.append(rng.choice([-1.0, 1.0], size=image[1:])[None])
        draws[index] = rng.random(draws.shape[1:], "float32")
    return np.stack(firsts).astype("float32"), draws


# Of each example: the best image, its margin, and whether it fools the model, 0 or 1.
State = tuple[Tensor, Tensor, Tensor]


class Move(NamedTuple):
    """A query of each example: where, and what is put or added there."""

    pattern: Array  # (n, H or 1, W, C): in the first window
    first: Array  # (n, H, W): 1 in the first window, else 0
    either: Array  # (n, H, W): 1 in one of both windows, else 0


def _step(
    classifier: Classifier,
    by_member: bool,
    shape: tuple[int, ...],
    is_first: bool,
    norm: objective.Norm,
) -> Callable[..., State]:
    """Return the function that changes windows of each image, and asks the model."""
    evaluate = objective.evaluation(classifier, by_member, "margin")

    def step(
        best: State,
        move: Move,
        clean: Tensor,  # (n, H, W, C)
        labels: Tensor,
        member: Tensor,
        numbers: Tensor,  # (3,): epsilon, smallest and largest valid input
        values: Sequence[Tensor],
    ) -> State:
        epsilon, low, high = (numbers[i] for i in range(3))
        current, best_score, best_fooled = best
        if norm == "linf":
            moved = ops.clip(clean + epsilon * move.pattern, low, high)
            moved = ops.where(move.first[..., None] > 0.0, moved, current)
        else:
            change = changed(current - clean, move, epsilon)
            moved = ops.clip(clean + change, low, high)
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


def move_of(
    numbers: Array, size: tuple[int, int], image: Image, norm: objective.Norm
) -> Move:
    """Return the query that uniform numbers (n, k) stand for.

    They are the place of a window, or in the L2 ball those of two and an orientation,
    and a sign for each channel.
    """
    places = numbers[:, : 4 if norm == "l2" else 2]
    count = places.shape[1] // 2
    free = np.array(image[:2] * count) - np.array(size * count) + 1
    corners = (places * free).astype("int32")
    row = np.arange(image[0]) - corners[:, 0::2, None]  # (n, windows, H): from its top
    column = np.arange(image[1]) - corners[:, 1::2, None]
    inside = ((row >= 0) & (row < size[0]))[..., None]
    inside = inside & ((column >= 0) & (column < size[1]))[:, :, None]
    first, either = inside[:, 0].astype("float32"), inside.any(axis=1).astype("float32")
    is_up = numbers[:, -image[2] :] >= 0.5
    signs = np.where(is_up, 1.0, -1.0).astype("float32")[:, None, None]
    if norm == "linf":
        shape = len(signs), 1, *image[1:]
        return Move(np.broadcast_to(signs, shape), first, either)
    base = bumps(*size)
    turned = base.T if size[0] == size[1] else base
    of_row = np.clip(row[:, 0], 0, size[0] - 1)[:, :, None]
    of_column = np.clip(column[:, 0], 0, size[1] - 1)[:, None]
    is_turned = (numbers[:, 4] < 0.5)[:, None, None]
    pattern = np.where(is_turned, turned[of_row, of_column], base[of_row, of_column])
    pattern = (pattern * inside[:, 0])[..., None] * signs
    return Move(pattern.astype("float32"), first, either)


def changed(change: Tensor, move: Move, epsilon: Tensor) -> Tensor:
    """Return the changes (n, H, W, C) after a query: algorithm 3, lines 4 to 9."""
    first, either = move.first[..., None], move.either[..., None]
    squares = ops.square(change)
    axes, channels = (2, 1), change.shape[-1]
    total = ops.sum(squares, axis=(3, 2, 1), keepdims=True)
    unused = ops.maximum(ops.square(epsilon) - total, 0.0)
    length = ops.sqrt(ops.sum(squares * first, axis=axes, keepdims=True))
    added = move.pattern + change * first / ops.maximum(length, SMALLEST)
    available = ops.sum(squares * either, axis=axes, keepdims=True) + unused / channels
    added_length = ops.sqrt(ops.sum(ops.square(added), axis=axes, keepdims=True))
    added = added / ops.maximum(added_length, SMALLEST) * ops.sqrt(available)
    return change * (1.0 - either) + added


def first_change(rng: np.random.Generator, image: Image) -> Array:
    """Return a grid of bumps of random signs and directions, of length 1, (H, W, C)."""
    change = np.zeros(image)
    counts = [max(min(TILES, length // SMALLEST_WINDOW), 1) for length in image[:2]]
    height, width = image[0] // counts[0], image[1] // counts[1]
    above, before = image[0] % counts[0] // 2, image[1] % counts[1] // 2
    for top in range(above, above + counts[0] * height, height):
        for left in range(before, before + counts[1] * width, width):
            tile = bumps(height, width)
            if rng.random() < 0.5 and height == width:
                tile = tile.T
            signs = rng.choice([-1.0, 1.0], image[2])
            change[top : top + height, left : left + width] = tile[..., None] * signs
    return change / np.linalg.norm(change)


def bumps(height: int, width: int) -> Array:
    """Return two bumps, up and down, of length 1: equation (2)."""
    if height == 1:  # the left half and the right one, not the upper and the lower
        return bumps(width, 1).T if width > 1 else np.ones((1, 1))
    half = height // 2
    pattern = np.concatenate([_bump(half, width), -_bump(height - half, width)])
    return pattern / np.linalg.norm(pattern)


def _bump(height: int, width: int) -> Array:
    """Return sum_{c=d}^{n} 1 / (c + 1)^2 at the distance d of the centre, length 1."""
    rows = np.abs(np.arange(height) - height // 2)[:, None]
    columns = np.abs(np.arange(width) - width // 2)
    terms = 1.0 / np.arange(1, max(height, width) // 2 + 2) ** 2
    tails = np.cumsum(terms[::-1])[::-1]
    values = tails[np.maximum(rows, columns)]
    return np.asarray(values / np.linalg.norm(values))
