"""Corrupted images, and scores of models on inputs that are corrupted more and more."""

import functools
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import cast

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _data
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import as_inputs
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._warn import warn
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.classifier import Models
from keras_mhmcmc.evaluation.classifier import as_classifiers

_TITLES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}
SCORES = tuple(_TITLES)
_OTHER_UNITS = 10.0  # times the largest number of clean inputs, or of corrupted ones


def evaluate_shift(
    models: Models,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    corruptions: Sequence[str] | Mapping[str, Any] | None = None,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    image_shape: Sequence[int] | None = None,
    seed: int = 0,
    clip: Sequence[float] = (0.0, 1.0),
    from_logits: bool | Mapping[str, bool] = False,
    bins: int = 15,
    batch_size: int = 256,
) -> "ShiftTable":
    """Score models on inputs that are corrupted more and more.

    A model that is honest about its uncertainty loses accuracy under corruption, but
    stays calibrated. All models see the same corrupted inputs. Plot the result with
    `mh.plots.shift`.

    Args:
        models: classifiers, as in `mh.evaluate`.
        x: images as in `mh.corrupt`, or rows of pixels with `image_shape`; or a data
            set of pairs (x, y). It is read into memory.
        y: labels, as in `mh.evaluate`.
        corruptions: names of corruptions of `mh.corrupt`; or a dict from names to
            functions `(x, severity) -> x`, or to dicts from severities to inputs with
            the shape of `x`, such as those of CIFAR-10-C. Defaults to None: all of
            `mh.corrupt`.
        severities: increasing integers, at least 1; with `mh.corrupt` from 1 to 5. The
            clean inputs, 0, are always there. Defaults to (1, 2, 3, 4, 5).
        image_shape: shape (H, W) or (H, W, C) of an image, or (C, H, W), if `x` has
            rows of pixels. Defaults to None: `x` has images.
        seed: seed of the corruptions. Defaults to 0.
        clip: smallest and largest valid number of an image. Defaults to (0, 1).
        from_logits: as in `mh.evaluate`. Defaults to False.
        bins: number of confidence bins of the calibration error. Defaults to 15.
        batch_size: number of examples computed at a time. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, or a model's outputs are not
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layers = [keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")]
    >>> model = keras.Sequential([keras.Input((4, 4)), *layers])
    >>> x, y = np.random.default_rng(0).random((8, 4, 4)), np.arange(8) % 2
    >>> table = evaluate_shift({"model": model}, x, y, corruptions=["contrast"])
    >>> table.column("model", "severity").tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]

    Reference: Ovadia et al. (2019), "Can you trust your model's uncertainty?
    Evaluating predictive uncertainty under dataset shift".
    """
    x, y, _ = _data.read(x, y, needs_targets=True)
    x = as_inputs("x", x)
    is_list = isinstance(severities, Sequence) and not isinstance(severities, str)
    given = severities if is_list else ()
    levels = [_validate.integer("severities", level, 1) for level in given]
    if not levels or levels != sorted(set(levels)):
        raise ValueError(
            "Argument `severities` must be at least one integer, in increasing order. "
            f"Received: severities={_validate.shown(severities)}"
        )
    makers = _makers(corruptions, x, levels, image_shape, seed, clip)
    classifiers = as_classifiers(models, from_logits, batch_size)
    rows = []
    cases = [("clean", 0), *((name, level) for name in makers for level in levels)]
    for corruption, severity in cases:
        inputs = x
        if severity:
            inputs = _same_shape(corruption, makers[corruption](severity), x)
        for name, classifier in classifiers.items():
            probabilities = classifier.probabilities(inputs)
            labels = checks.as_labels("y", y, *probabilities.shape)
            row = {"model": name, "corruption": corruption, "severity": severity}
            row["accuracy"] = metrics.accuracy(probabilities, labels)
            row["nll"] = metrics.nll(probabilities, labels)
            row["ece"] = metrics.ece(probabilities, labels, bins)
            rows.append(row)
    return ShiftTable(rows)


class ShiftTable(_table.PrintedTable):
    """Scores of models on corrupted inputs, each at one severity in a row.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `corruption` | the corruption's name, or "clean" |
    | `severity` | the severity, 0 for clean inputs |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood, in nats |
    | `ece` | expected calibration error |

    `print` shows the means over the corruptions, with a line for each model.
    """

    def __init__(self, rows: Sequence[_table.Row]) -> None:
        texts = ("model", "corruption")
        self.rows = _table.checked_rows(rows, ("severity", *SCORES), texts)
        self.models = list(dict.fromkeys(row["model"] for row in self.rows))

    def column(self, model: str, name: str, corruption: str | None = None) -> Array:
        """Return a score of a model, one value for each severity in increasing order.

        `name` is "severity", "accuracy", "nll" or "ece", and `corruption` the name of a
        corruption, or None for the mean over all. A `ValueError` tells if there is no
        such model, column or corruption.
        """
        _validate.choice("model", model, self.models)
        _validate.choice("name", name, ("severity", *SCORES))
        known = tuple(dict.fromkeys(row["corruption"] for row in self.rows))
        if corruption is not None:
            _validate.choice("corruption", corruption, known)
        found: dict[int, list[float]] = {}
        for row in self.rows:
            is_wanted = corruption in (None, row["corruption"]) or not row["severity"]
            if row["model"] == model and is_wanted:
                found.setdefault(row["severity"], []).append(row[name])
        return np.array([np.mean(found[severity]) for severity in sorted(found)])

    def _printed(self) -> _table.Printed:
        count = len({row["corruption"] for row in self.rows if row["severity"]})
        severities = self.column(self.models[0], "severity")
        caption = f"By severity, means over {count} corruptions; 0 is clean."
        return _table.by_model(_TITLES, severities, self.models, self.column, caption)


def _makers(
    corruptions: Any,
    x: Array,
    levels: Sequence[int],
    image_shape: Any,
    seed: int,
    clip: Sequence[float],
) -> dict[str, Callable[[int], Any]]:
    """Return, for each corruption, a function from the severity to inputs."""
    given = tuple(CORRUPTIONS) if corruptions is None else corruptions
    if not isinstance(given, Mapping | list | tuple) or not given:
        raise ValueError(
            "Argument `corruptions` must be at least one name in a list, or a dict "
            "from names to functions or to dicts of inputs, or None for all of "
            f"{', '.join(CORRUPTIONS)}. "
            f"Received: corruptions={_validate.shown(corruptions)}"
        )
    images = x
    if image_shape is not None and not isinstance(given, Mapping):
        shape = tuple(image_shape) if isinstance(image_shape, list | tuple) else ()
        sizes = [_validate.integer("image_shape", size, 1) for size in shape]
        count = math.prod(x.shape[1:])
        if len(sizes) not in (2, 3) or math.prod(sizes) != count:
            raise ValueError(
                "Argument `image_shape` must be (H, W) or (H, W, C) with as many "
                f"numbers as an example of `x` has, {count}. "
                f"Received: image_shape={_validate.shown(image_shape)}"
            )
        images = x.reshape(len(x), *sizes)

    def maker(name: str) -> Callable[[int], Any]:
        if not isinstance(given, Mapping):
            _validate.choice("corruptions", name, tuple(CORRUPTIONS))
            options: dict[str, Any] = {"seed": seed, "clip": clip}
            made = functools.partial(corrupt, images, name, **options)
            return lambda severity: made(severity=severity).reshape(x.shape)
        own = given[name]
        if callable(own):
            return lambda severity: own(x.copy(), severity)
        if isinstance(own, Mapping) and set(levels) <= set(own):
            return own.__getitem__
        received = list(own) if isinstance(own, Mapping) else _validate.shown(own)
        raise ValueError(
            "Argument `corruptions` must have functions `(x, severity) -> x`, or dicts "
            f"from each of the severities {list(levels)} to inputs, as its values. "
            f"Received: {name!r} with {received}"
        )

    return {name: maker(name) for name in given}


def _same_shape(name: str, inputs: Any, x: Array) -> Array:
    """Return corrupted inputs, or raise if their shape is not that of `x`."""
    inputs = as_inputs(f"corruptions[{name!r}]", inputs)
    if inputs.shape != x.shape:
        raise ValueError(
            "Argument `corruptions` must give inputs with the shape of `x`, "
            f"{x.shape}, in the same order. Received: {name!r} with {inputs.shape}"
        )
    largest, clean = np.abs(inputs).max(), np.abs(x).max()
    if largest > _OTHER_UNITS * clean or clean > _OTHER_UNITS * largest:
        warn(
            f"The inputs of corruptions[{name!r}] have other units than `x`: their "
            f"largest number is {largest:.3g}, and that of `x` is {clean:.3g}. Scale "
            "them as `x` is scaled, for example by 1/255."
        )
    return inputs


def corrupt(
    x: DataLike,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    clip: Sequence[float] = (0.0, 1.0),
) -> Array:
    """Return corrupted images, in float32 and in `clip`, with the shape of `x`.

    | corruption | what happens to an image | severity 1 to 5 |
    |---|---|---|
    | `"gaussian_noise"` | normal noise is added to each number | standard deviation 0.04, 0.08, 0.12, 0.18, 0.26 of the range `clip` |
    | `"blur"` | a normal density blurs the image | standard deviation 1.2, 2, 3, 4, 5.5% of the height |
    | `"rotation"` | the image turns about its centre, left or right at random | 8, 15, 25, 35, 50 degrees |
    | `"contrast"` | the numbers shrink towards the image's mean | 75, 55, 40, 25, 15% are left |
    | `"translation"` | the image moves up, down, left or right at random | 4, 8, 12, 17, 23% of height or width |

    The lower end of `clip` fills what comes in from outside the image.

    Args:
        x: finite images in `clip`, shape (N, H, W) or (N, H, W, C); (N, C, H, W) if
            `keras.config.image_data_format()` is "channels_first"; or a data set that
            `fit` takes and that ends. It is read into memory, without its targets.
        corruption: name of the corruption.
        severity: an integer from 1 to 5.
        seed: integer seed of the noise and of the directions, at least 0. Severities
            share them. Defaults to 0.
        clip: smallest and largest valid number of an image. Defaults to (0, 1).

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import numpy as np
    >>> x = np.zeros((1, 5, 5), "float32")
    >>> x[0, 2, 2] = 1.0
    >>> round(float(corrupt(x, "contrast", 3).max()), 3)
    0.424

    Reference: Hendrycks and Dietterich (2019), "Benchmarking neural network robustness
    to common corruptions and perturbations", for the kinds of corruptions. The sizes
    of the severities are this package's, and suit small and large images.
    """  # noqa: E501
    _validate.choice("corruption", corruption, tuple(CORRUPTIONS))
    severity = _validate.integer("severity", severity, 1, high=5)
    seed = _validate.seed(seed)
    x, limits = checks.inputs_and_limits(_data.read(x).x, clip, is_bounded=True)
    low, high = cast(tuple[float, float], limits)
    if x.ndim not in (3, 4):
        raise ValueError(
            "Argument `x` must be images of shape (N, H, W) or (N, H, W, C). Reshape "
            "rows of pixels first, or pass `image_shape` to `mh.evaluate_shift`. "
            f"Received: shape {x.shape}"
        )
    checks.warn_of_channels(x)
    is_first = keras.config.image_data_format() == "channels_first"
    channels = 1 if is_first and x.ndim == 4 else -1
    # The images start at 0, which fills what comes in from outside.
    images = np.moveaxis(x - low, channels, -1)
    function, amounts = CORRUPTIONS[corruption]
    # The same noise and directions at each severity.
    rng = np.random.default_rng(seed)
    images = function(images, amounts[severity - 1], high - low, rng)
    images = np.moveaxis(images, -1, channels)
    return np.clip(images + low, low, high).astype("float32")


def _noisy(x: Array, share: float, span: float, rng: np.random.Generator) -> Array:
    return x + share * span * rng.standard_normal(x.shape, dtype="float32")


def _blurred(x: Array, share: float, span: float, rng: np.random.Generator) -> Array:
    width = share * x.shape[1]
    widths = (0.0, width, width, 0.0)[: x.ndim]
    return np.asarray(_ndimage().gaussian_filter(x, widths, mode="nearest"))


def _rotated(x: Array, degrees: float, span: float, rng: np.random.Generator) -> Array:
    angles = np.where(rng.random(len(x)) < 0.5, degrees, -degrees)
    rotate = functools.partial(_ndimage().rotate, axes=(0, 1), reshape=False, order=1)
    return np.stack([rotate(*pair) for pair in zip(x, angles, strict=True)])


def _faded(x: Array, share: float, span: float, rng: np.random.Generator) -> Array:
    mean = x.mean(axis=tuple(range(1, x.ndim)), keepdims=True)
    return np.asarray(mean + share * (x - mean))


def _shifted(x: Array, share: float, span: float, rng: np.random.Generator) -> Array:
    direction = rng.integers(4, size=len(x))
    steps = np.zeros((len(x), x.ndim - 1))
    lengths = share * np.take(x.shape[1:3], direction // 2)
    steps[np.arange(len(x)), direction // 2] = (1 - 2 * (direction % 2)) * lengths
    pairs = zip(x, steps, strict=True)
    return np.stack([_ndimage().shift(*pair, order=1) for pair in pairs])


def _ndimage() -> Any:
    from scipy import ndimage  # takes a tenth of a second

    return ndimage


# Functions, and the amounts of the severities 1 to 5 in the unit of `corrupt`'s table.
CORRUPTIONS: dict[str, tuple[Callable[..., Array], tuple[float, ...]]] = {
    "gaussian_noise": (_noisy, (0.04, 0.08, 0.12, 0.18, 0.26)),
    "blur": (_blurred, (0.012, 0.02, 0.03, 0.04, 0.055)),
    "rotation": (_rotated, (8.0, 15.0, 25.0, 35.0, 50.0)),
    "contrast": (_faded, (0.75, 0.55, 0.4, 0.25, 0.15)),
    "translation": (_shifted, (0.04, 0.08, 0.12, 0.17, 0.23)),
}
