"""One number that calibrates a classifier: the temperature of its probabilities."""

import math
from typing import Any

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
from keras_mhmcmc.evaluation.checks import ROUNDED
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifier

LOWEST, HIGHEST = 1e-4, 1e4
_HALVINGS = 50  # of the logarithm of the range: the result is exact to 2e-14


@serializable
class TemperatureScaled(WrapperModel):
    """A model whose class probabilities are those of another model at a temperature.

    It outputs softmax(logits / temperature). The logits of a model that outputs
    probabilities are their logarithms. A temperature above 1 makes the model less
    confident, below 1 more. The predicted class stays the same. The other model runs
    in inference mode, and its weights are shared. `mh.temperature_scaling` finds the
    temperature.

    For an ensemble the temperature applies to the averaged prediction. So the scaled
    model has no members, and no mutual information.

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
        if not isinstance(model, keras.Model) or not model.built:
            raise ValueError(
                "Argument `model` must be a `keras.Model` that is built. Call it on a "
                f"batch of inputs, or train it, first. Received: {model!r}"
            )
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
            logits = ops.log(ops.maximum(outputs, SMALLEST))
        if not self.from_logits and is_one:
            logits = logits - ops.log(ops.maximum(1.0 - outputs, ROUNDED))
        logits = logits / self.temperature
        return ops.sigmoid(logits) if is_one else ops.softmax(logits, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "temperature": self.temperature,
            "from_logits": self.from_logits,
            "name": self.name,
        }


def temperature_scaling(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None = None,
    *,
    from_logits: bool = False,
    batch_size: int = BATCH_SIZE,
) -> TemperatureScaled:
    """Return the model at the temperature that is best on held-out data.

    The temperature minimises the mean negative log-likelihood of the labels. This
    function of 1 / temperature is convex. So its slope is bisected, and the minimum is
    the global one. Use data that the model was not trained on, and score the result on
    other data again. `mh.evaluate` and the attacks take the result, whose attribute
    `temperature` is the number.

    Args:
        model: as in `mh.Classifier`, or an `mh.Classifier`.
        x: finite held-out inputs, shape (N, ...), or a dict or list of them; or a data
            set that `fit` takes, of pairs (x, y).
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None for a data set.
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
    labels = as_labels("y", y, *logits.shape)
    temperature = best_temperature(logits, labels)
    return TemperatureScaled(classifier.model, temperature, classifier.from_logits)


def best_temperature(logits: Array, labels: Array) -> float:
    """Return the temperature for logits (N, C) with the lowest NLL of labels (N,)."""
    # Relative to the label. Without errors no number is positive, nor is the slope.
    excess = logits - logits[np.arange(len(labels)), labels][:, None]
    if _slope(excess, 1.0 / LOWEST) <= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must have an example that the model classifies "
            "wrongly. Otherwise the likelihood rises until the temperature is 0. Pass "
            f"more held-out examples. Received: {len(labels)} examples without an error"
        )
    if _slope(excess, 1.0 / HIGHEST) >= 0.0:
        raise ValueError(
            "Arguments `x` and `y` must be data on which the model is better than "
            "chance. Otherwise the likelihood rises until all classes are equally "
            "probable. Check that the labels belong to the inputs. Received: a "
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
