"""`evaluate_shift`: scores of models on inputs that are corrupted more and more."""

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal

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
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifiers import Models
from keras_mhmcmc.evaluation.classifiers import as_classifiers
from keras_mhmcmc.evaluation.corruptions import CORRUPTIONS
from keras_mhmcmc.evaluation.corruptions import corrupt

if TYPE_CHECKING:
    import pandas

SCORES = ("accuracy", "nll", "ece")
_CLEAN = "clean"
_OTHER_UNITS = 10.0  # times the largest number of clean inputs, or of corrupted ones
_TITLES = {"accuracy": "accuracy", "nll": "NLL", "ece": "ECE"}


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
    verbose: Literal[0, 1] = 0,
) -> "ShiftTable":
    """Score models on inputs that are corrupted more and more.

    A model that is honest about its uncertainty loses accuracy under corruption, but
    stays calibrated. All models see the same corrupted inputs.

    Args:
        models: a model, a list of models, or a dict from names to models, as in
            `mh.evaluate`: built `keras.Model`s, such as an `mh.Ensemble`, or
            `mh.Classifier`s.
        x: finite images in `clip`, shape (N, H, W) or (N, H, W, C); or rows of pixels
            with `image_shape`; or a data set of pairs (x, y) that `fit` takes and that
            ends. It is read into memory.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None for a data set.
        corruptions: names of corruptions of `mh.corrupt`; or a dict from names to
            functions `(x, severity) -> x`, or to dicts from severities to inputs with
            the shape of `x`, such as those of CIFAR-10-C. Defaults to None: all of
            `mh.corrupt`.
        severities: increasing integers, at least 1; with `mh.corrupt` from 1 to 5.
            Severity 0, the clean inputs, is always there. Defaults to
            (1, 2, 3, 4, 5).
        image_shape: shape (H, W) or (H, W, C) of an image, if `x` has rows of pixels;
            (C, H, W) if `keras.config.image_data_format()` is "channels_first".
            Defaults to None: `x` has images.
        seed: seed of the corruptions. Defaults to 0.
        clip: smallest and largest valid number of an image. Defaults to (0, 1).
        from_logits: whether the models output logits instead of probabilities, a bool
            or a dict from the models' names to bools. Defaults to False.
        bins: number of confidence bins of the calibration error. Defaults to 15.
        batch_size: number of examples computed at a time. Defaults to 256.
        verbose: 1 shows a progress bar that counts corrupted sets, 0 shows nothing.
            Defaults to 0.

    Returns:
        A `ShiftTable`. Print it, plot it with `mh.plots.shift`, or use `column`,
        `rows` or `to_pandas()`.

    Raises:
        ImportError: SciPy is not installed, and a corruption needs it.
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
    levels = _levels(severities)
    bins = _validate.integer("bins", bins, 1)
    _validate.choice("verbose", verbose, (0, 1))
    makers = _makers(corruptions, x, image_shape, seed, clip)
    classifiers = as_classifiers(models, from_logits, batch_size)
    total = 1 + len(makers) * len(levels)
    bar = keras.utils.Progbar(total, unit_name="set") if verbose else None
    rows = []
    cases = [(_CLEAN, 0), *((name, level) for name in makers for level in levels)]
    for corruption, severity in cases:
        inputs = x
        if severity:
            inputs = _same_shape(corruption, makers[corruption](severity), x)
        for name, classifier in classifiers.items():
            probabilities = classifier.probabilities(inputs)
            labels = as_labels("y", y, *probabilities.shape)
            row = {"model": name, "corruption": corruption, "severity": severity}
            row["accuracy"] = metrics.accuracy(probabilities, labels)
            row["nll"] = metrics.nll(probabilities, labels)
            row["ece"] = metrics.ece(probabilities, labels, bins)
            rows.append(row)
        if bar is not None:
            bar.add(1)
    return ShiftTable(rows)


class ShiftTable(_table.PrintedTable):
    """Scores of models on corrupted inputs.

    A row holds the scores of a model for one corruption at one severity.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `corruption` | the corruption's name, or "clean" |
    | `severity` | the severity, 0 for clean inputs |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood, in nats |
    | `ece` | expected calibration error |

    `print` shows the means over the corruptions, with a line for each model.

    Args:
        rows: list of at least one dict with these keys.

    Raises:
        ValueError: `rows` has another type or other keys, or the models differ in
            their corruptions or severities.
    """

    def __init__(self, rows: Sequence[_table.Row]) -> None:
        texts = ("model", "corruption")
        self.rows = _table.checked_rows(rows, ("severity", *SCORES), texts)
        self.models = list(dict.fromkeys(row["model"] for row in self.rows))
        cases = {
            tuple(
                sorted(
                    (row["corruption"], row["severity"])
                    for row in self.rows
                    if row["model"] == model
                )
            )
            for model in self.models
        }
        if len(cases) > 1:
            raise ValueError(
                "Argument `rows` must have the same corruptions and severities for "
                "each model. Received: models that differ in these"
            )

    def column(self, model: str, name: str, corruption: str | None = None) -> Array:
        """Return a score of a model by severity.

        Args:
            model: name of the model.
            name: "severity", "accuracy", "nll" or "ece".
            corruption: name of a corruption. Defaults to None, the mean over all of
                them.

        Returns:
            An array with one value for each severity, in increasing order.

        Raises:
            ValueError: there is no such model, column or corruption.
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

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def _printed(self) -> _table.Printed:
        count = len({row["corruption"] for row in self.rows if row["severity"]})
        severities = [f"{value:g}" for value in self.column(self.models[0], "severity")]
        lines: list[list[str]] = []
        for name, title in _TITLES.items():
            lines.append([title, *severities])
            for model in self.models:
                cells = map(_table.number, self.column(model, name))
                lines.append([str(model), *cells])
        heads = range(0, len(lines), len(self.models) + 1)
        caption = f"By severity, means over {count} corruptions; 0 is clean."
        return _table.Printed(lines, heads, caption)


def _levels(severities: Any) -> list[int]:
    """Return the severities as increasing integers, or raise a `ValueError`."""
    if isinstance(severities, str) or not isinstance(severities, Sequence):
        severities = ()
    levels = [_validate.integer("severities", level, 1) for level in severities]
    if not levels or levels != sorted(set(levels)):
        raise ValueError(
            "Argument `severities` must be at least one integer, in increasing order. "
            f"Received: severities={_validate.shown(severities)}"
        )
    return levels


def _makers(
    corruptions: Any, x: Array, image_shape: Any, seed: int, clip: Sequence[float]
) -> dict[str, Callable[[int], Any]]:
    """Return, for each corruption, a function from the severity to inputs."""
    if corruptions is None:
        corruptions = tuple(CORRUPTIONS)
    if isinstance(corruptions, Mapping):
        if corruptions:
            return {name: _own(name, given, x) for name, given in corruptions.items()}
    elif not isinstance(corruptions, str) and isinstance(corruptions, Sequence):
        images = _as_images(x, image_shape)
        makers = {}
        for name in corruptions:
            _validate.choice("corruptions", name, tuple(CORRUPTIONS))
            makers[name] = _named(name, images, x.shape, seed, clip)
        if makers:
            return makers
    raise ValueError(
        "Argument `corruptions` must be at least one name in a list, or a dict from "
        "names to functions or to dicts of inputs, or None for all of "
        f"{', '.join(CORRUPTIONS)}. "
        f"Received: corruptions={_validate.shown(corruptions)}"
    )


def _named(
    name: str, images: Array, shape: tuple[int, ...], seed: int, clip: Sequence[float]
) -> Callable[[int], Array]:
    """Return the function of a corruption of `mh.corrupt`."""

    def make(severity: int) -> Array:
        made = corrupt(images, name, severity, seed=seed, clip=clip)
        return made.reshape(shape)

    return make


def _own(name: str, given: Any, x: Array) -> Callable[[int], Any]:
    """Return the function of a user's corruption, or raise a `ValueError`."""
    if callable(given):
        return lambda severity: given(x.copy(), severity)
    if not isinstance(given, Mapping):
        raise ValueError(
            "Argument `corruptions` must have functions `(x, severity) -> x`, or dicts "
            "from severities to inputs, as its values. "
            f"Received: corruptions[{name!r}]={_validate.shown(given)}"
        )

    def find(severity: int) -> Any:
        if severity not in given:
            raise ValueError(
                "Argument `corruptions` must have inputs for each of `severities`. "
                f"Received: corruptions[{name!r}] with the severities {list(given)}, "
                f"without {severity}"
            )
        return given[severity]

    return find


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


def _as_images(x: Array, image_shape: Any) -> Array:
    """Return rows of pixels as images, or raise a `ValueError`."""
    if image_shape is None:
        if x.ndim not in (3, 4):
            raise ValueError(
                "Argument `x` must be images of shape (N, H, W) or (N, H, W, C). For "
                "rows of pixels pass `image_shape`, the shape of an image. "
                f"Received: shape {x.shape}"
            )
        return x
    shape = tuple(image_shape) if isinstance(image_shape, list | tuple) else ()
    sizes = [_validate.integer("image_shape", size, 1) for size in shape]
    count = math.prod(x.shape[1:])
    if len(sizes) not in (2, 3) or math.prod(sizes) != count:
        raise ValueError(
            "Argument `image_shape` must be (H, W) or (H, W, C) with as many numbers "
            f"as an example of `x` has, {count}. "
            f"Received: image_shape={_validate.shown(image_shape)}"
        )
    return x.reshape(len(x), *sizes)
