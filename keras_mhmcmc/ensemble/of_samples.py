"""`ensemble_of`: the ensemble of samples of a compiled model."""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc._stored_model import check_layers
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble import compile as ensemble_compile
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble


def ensemble_of(
    model: keras.Model,
    stacked: Sequence[Array],
    weights: npt.NDArray[np.float64],
    activation: ActivationLike,
    chunk: int | None = None,
) -> Ensemble:
    """Return the ensemble of these samples, compiled if `model` is.

    Args:
        model: the model that was sampled.
        stacked: one array (members, ...) for each of `model.weights`.
        weights: the members' importance weights, shape (members,).
        activation: as in `Ensemble`; None stands for what the model's loss needs.
        chunk: as in `Ensemble`.
    """
    check_layers("model", model)
    if activation is None:
        activation = ensemble_compile.activation_of(model)
    else:
        ensemble_compile.warn_of_second_activation(model, activation)
    # Weights that all samples share are views with a stride of 0.
    common = [i for i, values in enumerate(stacked) if values.strides[0] == 0]
    shared = common if len(common) < len(stacked) else []
    ensemble = Ensemble(model, len(weights), activation, chunk, shared)
    ensemble.set_members(stacked, weights)
    if model.compiled:
        ensemble.compile(**ensemble_compile.arguments(model, ensemble.activation))
    return ensemble
