"""A warning about batch normalisation whose statistics lag behind the weights."""

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._warn import warn
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.tuning.batches import batches_of

_EXAMPLES = 256  # that are evaluated
# The loss in inference may be larger by this factor, and by so many nats.
_FACTOR, _NATS = 1.5, 0.1


def warn_of_lag(model: keras.Model, training: float) -> None:
    """Warn if a model has a much larger loss in inference than in training.

    Args:
        model: in a `fit`, with the weights of a sample. Several chains, several losses
            and data that can be read only once are left alone.
        training: its mean loss in this epoch, nats.
    """
    losses, data = _backend.compiled_losses(model), _backend.fitted_data(model)
    layers = [
        layer.name
        for layer in _backend.inner_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    if (
        not layers
        or data is None
        or len(losses) != 1
        or isinstance(model, StackedModel)
    ):
        return
    try:
        x, y, _ = next(batches_of(data["x"], data["y"], _EXAMPLES, seed=0)())
    except ValueError:  # a generator, whose mini-batches belong to `fit`
        return
    # Not by `Loss.__call__`, which divides by the number of replicas.
    values = losses[0][0].call(ops.convert_to_tensor(y), model(x, training=False))
    inference = float(np.mean(ops.convert_to_numpy(values)))
    if inference > _FACTOR * training + _NATS:
        warn(
            f"At the first sample the mean loss is {training:.3g} nats in training, "
            f"and {inference:.3g} in inference: the moving statistics of batch "
            "normalisation lag behind the weights. Estimate those of each sample with "
            "`posterior.ensemble(model, recalibrate=x)`, keep samples later "
            "(`burn_in`), or give the layers a smaller `momentum`. Received: "
            f"{', '.join(layers[:5])}"
        )
