"""`TemperatureScaled`: a classifier whose probabilities are softened or sharpened."""

from typing import Any

import keras
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.evaluation.checks import ROUNDED
from keras_mhmcmc.evaluation.checks import SMALLEST


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
        self.temperature = _validate.number(
            "temperature", temperature, _validate.POSITIVE
        )
        self.from_logits = _validate.instance(
            "from_logits", from_logits, bool, "True or False"
        )
        self.model = model
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        """Return class probabilities, shape (N, C) or (N, 1)."""
        outputs = ops.cast(self.model(inputs, training=False), "float32")
        if outputs.shape[-1] == 1:
            logits = outputs
            if not self.from_logits:
                logits = _log(outputs) - ops.log(ops.maximum(1.0 - outputs, ROUNDED))
            return ops.sigmoid(logits / self.temperature)
        logits = outputs if self.from_logits else _log(outputs)
        return ops.softmax(logits / self.temperature, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "temperature": self.temperature,
            "from_logits": self.from_logits,
            "name": self.name,
        }


def _log(probability: Tensor) -> Tensor:
    return ops.log(ops.maximum(probability, SMALLEST))
