"""The moves of the Square attack in the L2 ball.

Paper: Andriushchenko, Croce, Flammarion and Hein (2020), equation (2) and algorithm 3.
A query empties two windows of the change of an image, and gives their length, and what
is left of epsilon, to the first window. There it adds a pattern of two bumps, one up
and one down, to the direction that the change had.
"""

from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.evaluation.checks import SMALLEST

TILES = 5  # of the first change, along each side
SMALLEST_WINDOW = 3


class Move(NamedTuple):
    """A query of each example: where, and what is added there."""

    pattern: Array  # (n, H, W, C): in the first window
    first: Array  # (n, H, W): 1 in the first window, else 0
    either: Array  # (n, H, W): 1 in one of both windows, else 0


def bumps(height: int, width: int) -> Array:
    """Return two bumps, up in the upper half and down in the lower, of length 1.

    Equation (2). A window of one row has them in its left and its right half.
    """
    if height == 1:
        return bumps(width, 1).T if width > 1 else np.ones((1, 1))
    half = height // 2
    both = [_bump(half, width), -_bump(height - half, width)]
    pattern = np.concatenate(both)
    return pattern / np.linalg.norm(pattern)


def _bump(height: int, width: int) -> Array:
    """Return sum_{c=d}^{n} 1 / (c + 1)^2 at the distance d of the centre, length 1."""
    n = max(height, width) // 2
    rows = np.abs(np.arange(height) - height // 2)[:, None]
    columns = np.abs(np.arange(width) - width // 2)
    terms = 1.0 / np.arange(1, n + 2) ** 2
    tails = np.cumsum(terms[::-1])[::-1]
    values = tails[np.maximum(rows, columns)]
    return np.asarray(values / np.linalg.norm(values))


def window(covered: float, image: tuple[int, int, int]) -> tuple[int, int]:
    """Return the height and width of a window that covers a share of the image.

    Its side is odd and at least 3, if the image has as much.
    """
    height, width, _ = image
    if height == 1:
        return 1, min(max(round(covered * width), SMALLEST_WINDOW), width)
    largest = min(height, width)
    side = max(round((covered * height * width) ** 0.5), SMALLEST_WINDOW)
    side += 1 - side % 2
    return (min(side, largest - 1 + largest % 2 or 1),) * 2


def first_change(rng: np.random.Generator, image: tuple[int, int, int]) -> Array:
    """Return a grid of bumps of random signs and orientations, of length 1, (H, W, C).

    The paper has 5 tiles along each side. An image of less than 15 pixels has fewer.
    """
    change = np.zeros(image)
    counts = [max(min(TILES, length // SMALLEST_WINDOW), 1) for length in image[:2]]
    sides = [length // count for length, count in zip(image[:2], counts, strict=True)]
    starts = [
        (length - count * side) // 2
        for length, count, side in zip(image[:2], counts, sides, strict=True)
    ]
    for row in range(counts[0]):
        for column in range(counts[1]):
            tile = bumps(*sides)
            if rng.random() < 0.5 and sides[0] == sides[1]:
                tile = tile.T
            top, left = starts[0] + row * sides[0], starts[1] + column * sides[1]
            place = slice(top, top + sides[0]), slice(left, left + sides[1])
            change[place] = tile[..., None] * rng.choice([-1.0, 1.0], image[2])
    return change / np.linalg.norm(change)


def query_of(
    image: tuple[int, int, int],
    share: float,
    query: int,
    change: Array,
    numbers: Array,
) -> Move:
    """Return a query: of the clean images, of all of a change, and then of windows.

    The first change is (n, H, W, C). The numbers (n, 5 + C) are uniform: two places, an
    orientation, and a sign for each channel.
    """
    if query >= 1:
        return move(numbers, window(share, image), image)
    everywhere = np.full(change.shape[:3], float(query == 0), "float32")
    return Move(change * everywhere[..., None], everywhere, everywhere)


def move(numbers: Array, size: tuple[int, int], image: tuple[int, int, int]) -> Move:
    """Return the query that uniform numbers (n, 5 + C) stand for."""
    height, width, channels = image
    free = np.array([height, width] * 2) - np.array(size * 2) + 1
    places = (numbers[:, :4] * free).astype("int32")
    row = np.arange(height) - places[:, 0:4:2, None]  # (n, 2, H): from the window's top
    column = np.arange(width) - places[:, 1:4:2, None]
    inside = ((row >= 0) & (row < size[0]))[..., None]
    inside = inside & ((column >= 0) & (column < size[1]))[:, :, None]
    base = bumps(*size)
    turned = base.T if size[0] == size[1] else base
    of_row = np.clip(row[:, 0], 0, size[0] - 1)[:, :, None]
    of_column = np.clip(column[:, 0], 0, size[1] - 1)[:, None]
    is_turned = (numbers[:, 4] < 0.5)[:, None, None]
    pattern = np.where(is_turned, turned[of_row, of_column], base[of_row, of_column])
    signs = np.where(numbers[:, 5:] < 0.5, -1.0, 1.0).reshape(-1, 1, 1, channels)
    return Move(
        (signs * (pattern * inside[:, 0])[..., None]).astype("float32"),
        inside[:, 0].astype("float32"),
        inside.any(axis=1).astype("float32"),
    )


def changed(change: Tensor, taken: Move, epsilon: Tensor) -> Tensor:
    """Return the change of each image (n, H, W, C) after a query, before the limits.

    Algorithm 3, lines 4 to 9.
    """
    first, either = taken.first[..., None], taken.either[..., None]
    squares = ops.square(change)
    axes, channels = (2, 1), change.shape[-1]
    total = ops.sum(squares, axis=(3, 2, 1), keepdims=True)
    unused = ops.maximum(ops.square(epsilon) - total, 0.0)
    length = ops.sqrt(ops.sum(squares * first, axis=axes, keepdims=True))
    added = taken.pattern + change * first / ops.maximum(length, SMALLEST)
    available = ops.sum(squares * either, axis=axes, keepdims=True) + unused / channels
    added_length = ops.sqrt(ops.sum(ops.square(added), axis=axes, keepdims=True))
    added = added / ops.maximum(added_length, SMALLEST) * ops.sqrt(available)
    return change * (1.0 - either) + added
