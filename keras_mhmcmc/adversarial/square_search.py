"""Adversarial examples by random search, without gradients: the Square attack.

Paper: Andriushchenko, Croce, Flammarion and Hein (2020), "Square Attack: a
query-efficient black-box adversarial attack via random search", algorithms 1 and 2, in
the L-infinity ball. The attack starts from vertical stripes of +- epsilon. Each query
sets a random square of the image to x + epsilon or x - epsilon in each channel, and
keeps the change if it raises the margin of another class over the label. The squares
become smaller and smaller. `square_l2` has the moves in the L2 ball.
"""

from collections.abc import Callable
from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial import square_l2
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import Classifier

SHARE = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
# After these of 10,000 queries, the share of the image that a square covers is halved.
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
LOOK_EVERY = 100  # queries between two looks whether all examples fool the model


def square(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    queries: int = 5000,
    norm: balls.Norm = "linf",
    initial_share: float = 0.8,
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model by random search: it needs predictions, and no gradient.

    The attack changes each number of an input by at most `epsilon`, or with
    `norm="l2"` the whole input by a change of at most this length. It shows what
    gradients hide: a model that rounds looks robust to `fgsm` and `pgd` only because
    its gradient is zero. An example that fools the model stays as it is. The search
    needs outputs that change. If a softmax outputs only 0 and 1, each query is a guess,
    and a warning says so: attack the logits instead.

    Inputs of shape (N, H, W, C) and (N, H, W) are images of C channels and of one, and
    of shape (N, C, H, W) if `keras.config.image_data_format()` is "channels_first".
    Inputs of any other shape are read as images of one row: a square is then a run of
    neighbouring numbers.

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
        seed: integer in [0, 2**31) that makes the search repeatable. Each example has
            random numbers of its own, whatever `batch_size` is. Defaults to 0.
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
    >>> square(model, np.array([[0.75, 0.5]]), epsilon=0.25, queries=20)
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Andriushchenko et al. (2020), algorithms 1 to 3. The default share and
    number of queries are those of AutoAttack (Croce and Hein, 2020).
    """
    queries = _validate.integer("queries", queries, 1)
    norm = _validate.choice("norm", norm, balls.NORMS)
    initial_share = _validate.number("initial_share", initial_share, SHARE)
    seed = _validate.seed(seed)
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    classifier, x, epsilon, labels, clean = given[:5]
    if epsilon == 0.0:
        return x.copy()

    checks.warn_of_channels(x)
    if not classifier.from_logits:
        _warn_of_saturation(clean, labels)
    is_first = x.ndim == 4 and keras.config.image_data_format() == "channels_first"
    image = image_shape((*x.shape[2:], x.shape[1]) if is_first else x.shape[1:])
    numbers = np.array([epsilon, *given.ends], "float32")
    first, count, move = {
        "linf": (_stripes, 2, _linf_move),
        "l2": (square_l2.first_change, 5, square_l2.query_of),
    }[norm]
    step = classifier.compiled(_step, given.member is not None, image, is_first, norm)

    def attack(
        x: Tensor, labels: Tensor, rows: Tensor, values: Sequence[Tensor]
    ) -> Tensor:
        sizes = queries, count + image[2]
        start, draws = _draws(seed, ops.convert_to_numpy(rows), *sizes, image, first)
        index = objective.index(given.member)
        fixed = x, labels, index, ops.convert_to_tensor(numbers), values
        best: State = (
            x,
            ops.full(labels.shape, -np.inf),
            ops.zeros(labels.shape, "int32"),
        )
        # The first query asks for the clean input, and the second for the start.
        for query in range(-1, queries):
            if query % LOOK_EVERY == 1 and ops.convert_to_numpy(best[2]).all():
                break
            covered = share(query, queries, initial_share)
            parts = move(image, covered, query, start, draws[:, max(query - 1, 0)])
            arrays = [ops.convert_to_tensor(part) for part in parts]
            best = step(best, arrays, *fixed)
        return best[0]

    moved: Array = classifier.map(attack, x, labels, np.arange(len(x), dtype="int32"))
    return moved


def _warn_of_saturation(clean: Array, labels: Array) -> None:
    """Warn of examples whose probabilities do not change at the clean input.

    Args:
        clean: probabilities of the clean inputs, shape (N, C).
        labels: the attacked classes, shape (N,).
    """
    others = clean.copy()
    others[np.arange(len(labels)), labels] = 0.0
    largest = others.max(axis=1)
    is_flat = (largest < checks.SMALLEST) | checks.are_rounded(largest)
    flat = int(np.sum(is_flat))
    if flat:
        warn(
            f"For {flat} of {len(labels)} examples the model outputs a probability of "
            "exactly 1, which small changes of an input do not change. So Square only "
            "guesses there, and the model looks more robust than it is. Attack a model "
            "that ends in logits, with from_logits=True."
        )


Image = tuple[int, int, int]  # height, width, channels
# Of each example: the best point, its margin, and whether it fools the model, 0 or 1.
State = tuple[Tensor, Tensor, Tensor]


def image_shape(shape: tuple[int, ...]) -> Image:
    """Return the height, width and channels as which the attack reads an input."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    if len(shape) == 2:
        return shape[0], shape[1], 1
    return 1, int(np.prod(shape)), 1


def share(query: int, queries: int, initial: float) -> float:
    """Return the share of the image that the square of a query covers.

    Section 3.2 of the paper: the halvings are those of 10,000 queries, rescaled.
    """
    passed = int(10_000 * query / queries)
    return initial / 2.0 ** sum(passed > halving for halving in HALVINGS)


def window(covered: float, image: Image) -> tuple[int, int]:
    """Return the height and width of a square that covers a share of the image.

    In an image of one row it is a run of that share of the row.
    """
    height, width, _ = image
    if height == 1:
        return 1, min(max(round(covered * width), 1), max(width - 1, 1))
    side = round((covered * height * width) ** 0.5)
    side = min(max(side, 1), max(min(height, width) - 1, 1))
    return side, side


def _draws(
    seed: int,
    rows: Array,
    queries: int,
    numbers: int,
    image: Image,
    first: Callable[..., Array],
) -> tuple[Array, Array]:
    """Return first moves (n, ...), and uniform numbers (n, queries, numbers).

    Each example has a generator of its own.
    """
    firsts, draws = [], np.empty((len(rows), queries, numbers), "float32")
    for index, row in enumerate(rows):
        rng = np.random.default_rng([seed, int(row)])
        firsts.append(first(rng, image))
        draws[index] = rng.random(draws.shape[1:], "float32")
    return np.stack(firsts).astype("float32"), draws


def _stripes(rng: np.random.Generator, image: Image) -> Array:
    """Return the signs of the first stripes, (W, C)."""
    return rng.choice([-1.0, 1.0], size=image[1:])


def _linf_move(
    image: Image, share: float, query: int, stripes: Array, numbers: Array
) -> Sequence[Array]:
    """Return the signs, places and size of a query in the L-infinity ball.

    The signs of the stripes are (n, W, C). The numbers (n, 2 + C) stand for a place,
    and a sign for each channel.
    """
    if query < 1:  # a window of no size, or of all
        size = np.array([0, 0] if query < 0 else image[:2], "int32")
        return stripes, np.zeros((len(stripes), 2), "int32"), size
    size = np.array(window(share, image), "int32")
    places = numbers[:, :2] * (np.array(image[:2]) - size + 1)
    signs = np.where(numbers[:, 2:] < 0.5, -1.0, 1.0).astype("float32")
    signs = np.broadcast_to(signs[:, None], stripes.shape)
    return signs, places.astype("int32"), size


def _step(
    classifier: Classifier,
    by_member: bool,
    image: Image,
    is_first: bool,
    norm: balls.Norm,
) -> Callable[..., State]:
    """Return the function that changes windows of each image, and asks the model."""
    evaluate = objective.scores(classifier, by_member, "margin")

    def as_image(x: Tensor) -> Tensor:  # (n, H, W, C)
        x = ops.transpose(x, (0, 2, 3, 1)) if is_first else x
        return ops.reshape(x, (-1, *image))

    def as_input(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return ops.reshape(ops.transpose(x, (0, 3, 1, 2)) if is_first else x, shape)

    def step(
        best: State,
        move: Sequence[Tensor],  # see `_linf_search` and `square_l2.Move`
        x: Tensor,
        labels: Tensor,
        member: Tensor,
        numbers: Tensor,  # (3,): epsilon, smallest and largest valid input
        values: Sequence[Tensor],
    ) -> State:
        epsilon, low, high = (numbers[i] for i in range(3))
        point, best_score, best_fooled = best
        clean, current = as_image(x), as_image(point)
        if norm == "linf":
            signs, places, size = move
            moved = ops.clip(clean + epsilon * signs[:, None], low, high)
            moved = ops.where(_inside(places, size, image), moved, current)
        else:
            change = current - clean
            change = square_l2.changed(change, square_l2.Move(*move), epsilon)
            moved = ops.clip(clean + change, low, high)
        moved = as_input(moved, x.shape)
        score, fooled = evaluate(moved, labels, member, values)
        fooled = ops.cast(fooled, "int32")
        better = balls.is_stronger(fooled, score, best_fooled, best_score)
        better = ops.logical_and(better, best_fooled == 0)  # what fools the model stays
        return (
            balls.choose(better, moved, point),
            ops.where(better, score, best_score),
            ops.maximum(fooled, best_fooled),
        )

    return step


def _inside(places: Tensor, size: Tensor, image: Image) -> Tensor:
    """Return which pixels are in the windows, shape (n, H, W, 1).

    `places` (n, 2) are the upper left corners, and `size` (2,) the height and width.
    """
    inside = []
    for axis, length in enumerate(image[:2]):
        offset = ops.arange(length, dtype="int32") - places[:, axis : axis + 1]
        inside.append(ops.logical_and(offset >= 0, offset < size[axis]))
    rows, columns = inside
    return ops.logical_and(rows[:, :, None], columns[:, None])[..., None]
