"""Probabilities and intervals that keep what they promise, by held-out data.

`TemperatureScaled` divides the logits by a number. Split conformal prediction gives
sets of classes and intervals with a guaranteed coverage: Vovk, Gammerman and Shafer
(2005), "Algorithmic learning in a random world".
"""

import dataclasses
import math
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifier
from keras_mhmcmc.evaluation.evaluate import distribution
from keras_mhmcmc.evaluation.evaluate import given_likelihood
from keras_mhmcmc.evaluation.mixture import LEVEL
from keras_mhmcmc.losses import GaussianNLL
from keras_mhmcmc.losses import Likelihood

LOWEST, HIGHEST = 1e-4, 1e4  # temperatures
_HALVINGS = 50  # of the logarithm of the range: the result is exact to 2e-14
_LAST_DIGITS = 1e-5  # of a prediction, which depend on the size of the batch
_ROUNDING = 1e-9  # of (n + 1) * level: 0.9 is not exact in binary

Method = Literal["absolute", "normalised", "quantile"]
METHODS: tuple[Method, ...] = ("absolute", "normalised", "quantile")


@serializable
class TemperatureScaled(WrapperModel):
    """A model whose class probabilities are those of another model at a temperature.

    It outputs softmax(logits / temperature). The logits of a model that outputs
    probabilities are their logarithms. A temperature above 1 makes the model less
    confident. The predicted class stays the same. The other model runs in inference
    mode, and its weights are shared. `mh.temperature_scaling` finds the temperature.
    For an ensemble it applies to the averaged prediction: the result has no members.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities or logits,
            shape (N, C), or to those of class 1 of two, shape (N, 1).
        temperature: divisor of the logits, greater than 0.
        from_logits: whether `model` outputs logits instead of probabilities. The
            scaled model always outputs probabilities. Defaults to False.
        name: name of the model. Defaults to "temperature_scaled".

    Raises:
        ValueError: an argument is outside its range, or `model` is not built.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> scaled = TemperatureScaled(model, temperature=2.0, from_logits=True)
    >>> scaled.predict(np.log([[0.8, 0.2]]), verbose=0).round(4)  # odds 4, now 2
    array([[0.6667, 0.3333]], dtype=float32)

    Reference: Guo et al. (2017), "On calibration of modern neural networks", eq. (9);
    Rahaman and Thiery (2021), "Uncertainty quantification and deep ensembles", for
    scaling after averaging.
    """

    def __init__(
        self,
        model: keras.Model,
        temperature: float,
        from_logits: bool = False,
        name: str = "temperature_scaled",
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        checks.check_built("Argument `model`", model)
        interval = _validate.POSITIVE
        self.temperature = _validate.number("temperature", temperature, interval)
        _validate.instance("from_logits", from_logits, bool, "True or False")
        self.from_logits = from_logits
        self.model = model
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return class probabilities, shape (N, C) or (N, 1)."""
        outputs = ops.cast(self.model(inputs, training=False), "float32")
        is_one, logits = outputs.shape[-1] == 1, outputs
        if not self.from_logits:
            logits = ops.log(ops.maximum(outputs, checks.SMALLEST))
        if not self.from_logits and is_one:
            logits = logits - ops.log(ops.maximum(1.0 - outputs, checks.ROUNDED))
        logits = logits / self.temperature
        return ops.sigmoid(logits) if is_one else ops.softmax(logits, axis=-1)


def temperature_scaling(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
    batch_size: int = BATCH_SIZE,
) -> TemperatureScaled:
    """Return the model at the temperature that is best on held-out data.

    The temperature minimises the mean negative log-likelihood of the labels, a convex
    function of 1 / temperature. Use data that the model was not trained on, and score
    the result on other data again. `mh.evaluate` and the attacks take the result, whose
    attribute `temperature` is the number.

    Args:
        model: as in `mh.Classifier`, or an `mh.Classifier`.
        x: held-out inputs, as in `mh.evaluate`.
        y: labels, as in `mh.evaluate`. None for a data set.
        from_logits: as in `mh.Classifier`. Defaults to False.
        batch_size: as in `mh.Classifier`. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or no temperature between 1e-4 and 1e4 is best: the model is
            right for all examples, or no better than chance.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> x = np.array([[3.0, 0.0]] * 4)  # a confidence of 95%, right in 3 of 4 cases
    >>> scaled = temperature_scaling(model, x, [0, 0, 0, 1], from_logits=True)
    >>> round(scaled.temperature, 4), scaled.predict(x[:1], verbose=0).round(4)
    (2.7307, array([[0.75, 0.25]], dtype=float32))

    Reference: Guo et al. (2017), section 4.2.
    """
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    outputs, y = _data.predicted(classifier.mean_outputs, x, y)
    logits = classifier.as_logits(outputs)
    labels = checks.as_labels("y", y, *logits.shape)
    temperature = best_temperature(logits, labels)
    return TemperatureScaled(classifier.model, temperature, classifier.from_logits)


def best_temperature(logits: Array, labels: Array) -> float:
    """Return the temperature for logits (N, C) with the lowest NLL of labels (N,)."""
    # Relative to the label. Without errors no number is positive, nor is the slope.
    excess = logits - logits[np.arange(len(labels)), labels][:, None]
    if _slope(excess, 1.0 / LOWEST) <= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must have an example that the model classifies "
            "wrongly: otherwise the best temperature is 0. Pass more held-out "
            f"examples. Received: {len(labels)} examples without an error"
        )
    if _slope(excess, 1.0 / HIGHEST) >= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must be data on which the model is better than "
            "chance. Check that the labels belong to the inputs. Received: a "
            f"temperature above {HIGHEST:g}"
        )
    low, high = math.log(LOWEST), math.log(HIGHEST)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        is_too_low = _slope(excess, math.exp(-middle)) > 0.0
        low, high = (middle, high) if is_too_low else (low, middle)
    return math.exp(0.5 * (low + high))


def _slope(excess: Array, inverse: float) -> float:
    """Return the derivative of the mean NLL with respect to 1 / temperature."""
    scaled = inverse * excess
    powers = np.exp(scaled - np.max(scaled, axis=1, keepdims=True))
    means = np.sum(powers * excess, axis=1) / np.sum(powers, axis=1)
    return float(np.mean(means))


@dataclasses.dataclass(frozen=True)
class ConformalSets:
    """Sets of classes that hold the label with a probability of at least `level`.

    `mh.conformal_sets` makes it from a `classifier`. A class is in the set if 1 minus
    its probability is at most the `threshold`, or 0.00001 more: in another batch a
    probability has other last digits.
    """

    classifier: Classifier
    level: float
    threshold: float

    def predict(self, x: DataLike) -> Array:
        """Return a boolean array of shape (N, C), True for the classes in the sets.

        A set may have no class, if all classes are improbable. `x` are inputs, as in
        `mh.Classifier`.
        """
        return 1.0 - self.classifier.probabilities(x) <= self.threshold + _LAST_DIGITS


@dataclasses.dataclass(frozen=True)
class ConformalIntervals:
    """Intervals that hold the target with a probability of at least `level`.

    `mh.conformal_intervals` makes it, with its `method`, from a compiled `classifier`
    and the `likelihood` of the targets. On each side the intervals of the prediction
    are widened by the `threshold`, in units of the target, or in deviations if `method`
    is "normalised"; and by 0.001% of the prediction, whose last digits depend on the
    batch.
    """

    classifier: Classifier
    level: float
    threshold: float
    method: Method
    likelihood: Likelihood

    def predict(self, x: DataLike) -> tuple[Array, Array]:
        """Return `(low, high)`, two float64 arrays of shape (N,): the intervals' ends.

        `x` are inputs, as in `mh.Classifier`.
        """
        outputs = self.classifier.output_arrays(x)
        given = self.likelihood, self.method, self.level
        low, high, scale = _ends(self.classifier, outputs, *given)
        width = self.threshold * scale
        sizes = np.maximum(np.abs(low), np.abs(high))
        width = width + _LAST_DIGITS * np.maximum(sizes, np.abs(width))
        return low - width, high + width


def conformal_sets(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    level: float = 0.9,
    from_logits: bool = False,
    batch_size: int = BATCH_SIZE,
) -> ConformalSets:
    """Return sets of classes that hold the label with a probability of `level`.

    The score of an example is 1 minus the probability of its label. The threshold is
    the ceil((n + 1) level)-th smallest score of n calibration examples. A set has all
    classes whose score is at most the threshold. Call `predict(x)` of the result.

    The guarantee: if the calibration examples and a new example are exchangeable, for
    example independent draws from one distribution, the set of the new example holds
    its label with a probability of at least `level`, however bad the model is. It is an
    average over calibration data, inputs and labels, and does not hold for each class
    or kind of input, nor for data from another distribution.

    Args:
        model: as in `mh.Classifier`, or an `mh.Classifier`.
        x: n calibration inputs, as in `mh.evaluate`, that neither trained the model nor
            chose its settings.
        y: labels, as in `mh.evaluate`. None for a data set.
        level: probability in (0, 1). It needs at least level / (1 - level) examples.
            Defaults to 0.9.
        from_logits: as in `mh.Classifier`. Defaults to False.
        batch_size: as in `mh.Classifier`. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or there are too few examples for the level.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> x, y = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), [0, 1, 1]
    >>> sets = conformal_sets(model, x, y, level=0.7)
    >>> round(sets.threshold, 4)  # the third smallest of 0.1, 0.6 and 0.2
    0.6
    >>> sets.predict([[0.5, 0.5], [0.7, 0.3]])
    array([[ True,  True],
           [ True, False]])

    Reference: Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued
    classifiers with bounded error levels"; Angelopoulos and Bates (2021), "A gentle
    introduction to conformal prediction and distribution-free uncertainty
    quantification", arXiv:2107.07511, section 1.
    """
    level = _validate.number("level", level, LEVEL)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    outputs, y = _data.predicted(classifier.mean_outputs, x, y)
    probabilities = classifier.as_probabilities(outputs)
    labels = checks.as_labels("y", y, *probabilities.shape)
    scores = 1.0 - probabilities[np.arange(len(labels)), labels]
    return ConformalSets(classifier, level, _threshold(scores, level))


def conformal_intervals(
    model: keras.Model,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    level: float = 0.9,
    method: Method = "absolute",
    likelihood: Likelihood | None = None,
    batch_size: int = BATCH_SIZE,
) -> ConformalIntervals:
    """Return intervals that hold the target with a probability of `level`.

    An interval holds all targets whose score is at most the threshold t, which is that
    of `mh.conformal_sets`. Call `predict(x)` of the result. With a mean m, a deviation
    s, and central quantiles q, r of `mh.predict_distribution`:

    | `method` | score | interval |
    |---|---|---|
    | "absolute" | abs(y - m) | m - t to m + t: the same width for all inputs |
    | "normalised" | abs(y - m) / s | m - t s to m + t s |
    | "quantile" | max(q - y, y - r) | q - t to r + t |

    The guarantee is that of `mh.conformal_sets`. Intervals of one width hold the target
    too often where the noise is small, and too rarely where it is large. The other
    methods follow the noise that the model predicts.

    Args:
        model: built `keras.Model` for one target: it maps inputs to a mean, shape
            (N, 1), or to what its likelihood needs; for example an `mh.Ensemble`.
        x: calibration inputs, as in `mh.conformal_sets`.
        y: finite targets, shape (n,) or (n, 1). None for a data set.
        level: as in `mh.conformal_sets`. Defaults to 0.9.
        method: "absolute", "normalised" or "quantile" (CQR). Defaults to "absolute".
        likelihood: one of `mh.losses`. Defaults to None: the loss that the model was
            compiled with. "absolute" takes a model without a likelihood, too.
        batch_size: as in `mh.Classifier`. Defaults to 256.

    Raises:
        ValueError: an argument is outside its range, the model has several targets, or
            there are too few examples for the level.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(1, kernel_initializer="ones")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> x, y = [[0.0], [1.0], [2.0]], [0.5, 1.25, 1.0]
    >>> intervals = conformal_intervals(model, x, y, level=0.5)
    >>> intervals.threshold  # the second smallest of 0.5, 0.25 and 1
    0.5
    >>> low, high = intervals.predict([[3.0]])
    >>> print(low.round(2), high.round(2))
    [2.5] [3.5]

    Reference: Lei et al. (2018), "Distribution-free predictive inference for
    regression", sections 2 and 5.2; Romano, Patterson and Candès (2019),
    "Conformalized quantile regression".
    """
    level = _validate.number("level", level, LEVEL)
    method = _validate.choice("method", method, METHODS)
    classifier = Classifier(model, batch_size=batch_size)
    likelihood = given_likelihood(likelihood, model)
    if likelihood is None and method != "absolute":
        raise ValueError(
            f'Argument `method` must be "absolute" for a model without a likelihood. '
            "Compile it with one of `mh.losses`, or pass a `likelihood`. "
            f"Received: method={method!r}, likelihood=None"
        )
    likelihood = likelihood or GaussianNLL(1.0)  # of which the mean is used
    outputs, y = _data.predicted(classifier.output_arrays, x, y)
    low, high, scale = _ends(classifier, outputs, likelihood, method, level)
    y = checks.as_targets("y", y, low.shape)
    threshold = _threshold(np.maximum(low - y, y - high) / scale, level)
    return ConformalIntervals(classifier, level, threshold, method, likelihood)


def _threshold(scores: Array, level: float) -> float:
    """Return the ceil((n + 1) level)-th smallest of n scores, or raise."""
    rank = math.ceil((len(scores) + 1) * level - _ROUNDING)
    if rank > len(scores):
        least = math.ceil(level / (1.0 - level) - _ROUNDING)
        raise ValueError(
            f"Argument `x` must have at least {least} calibration examples for a level "
            f"of {level:g}. Pass more examples, or choose a lower level. "
            f"Received: {len(scores)} examples"
        )
    return float(np.sort(scores)[rank - 1])


def _ends(
    classifier: Classifier,
    outputs: Array,
    likelihood: Likelihood,
    method: Method,
    level: float,
) -> tuple[Array, Array, Array]:
    """Return the ends of the intervals before calibration, and the unit of scores."""
    prediction = distribution(classifier, outputs, likelihood)
    mean = prediction.mean()
    if mean.shape[1] != 1:
        raise ValueError(
            f"{classifier.subject} must output one number for each example, or what "
            "its likelihood needs for one target. Calibrate each target by itself, or "
            "compile the model with one of `mh.losses` if an output is no target, such "
            f"as a log variance. Received: {mean.shape[1]} targets"
        )
    low, high = (mean, mean) if method != "quantile" else prediction.interval(level)
    scale = prediction.std() if method == "normalised" else np.ones_like(mean)
    return low[:, 0], high[:, 0], scale[:, 0]
