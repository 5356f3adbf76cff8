"""Models that hold another model, and are saved with it."""

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StoredModel
from keras_mhmcmc.ensemble.ensemble import Ensemble

_OWN_STEPS = ("compute_loss", "compute_metrics", "train_step")


class WithEnsemble(StoredModel):
    """Abstract: a model that makes an ensemble, and predicts with it."""

    @property
    def ensemble(self) -> Ensemble:
        """Return the ensemble, or raise a `ValueError` if there is none yet."""
        raise NotImplementedError


def check_trains_as_keras(model: keras.Model) -> None:
    """Refuse a model that the usual training step does not train."""
    _validate.instance("model", model, keras.Model, "a `keras.Model`")
    own = _validate.own_methods(model, _OWN_STEPS)
    if own:
        raise ValueError(
            "Argument `model` must be a model that Keras' own training step trains. "
            "Write a loss of your own as a `keras.losses.Loss` or with `add_loss`, and "
            "leave the step to Keras. Received: a "
            f"{type(model).__name__}, whose class has {', '.join(own)}"
        )
    if model.built and not model.trainable_variables:
        raise ValueError(
            "Argument `model` must have trainable weights. Train the network before "
            "you make an ensemble of it, or make its layers trainable. "
            f"Received: model={model!r}"
        )
