"""Whether a model outputs logits: what the user says, and what the model tells."""

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble.compile import takes_logits
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout

WITH_MEMBERS = (Ensemble, MCDropout)


def checked_from_logits(model: keras.Model, from_logits: bool, subject: str) -> bool:
    """Return `from_logits`, or raise a `ValueError` if the model tells otherwise.

    Args:
        model: the model that is evaluated.
        from_logits: whether its outputs are logits, as the user says.
        subject: begins the error, such as "Argument `model`".
    """
    _validate.instance("from_logits", from_logits, bool, "True or False")
    if not isinstance(model, WITH_MEMBERS):
        if not from_logits and takes_logits(model):
            raise ValueError(
                "Argument `from_logits` must be True for a model that was compiled "
                "with a loss from logits. For several models pass a dict, such as "
                f'{{"network": True, "ensemble": False}}. {subject} has the loss '
                f"{model.loss!r}. Received: from_logits=False"
            )
        return from_logits
    activation = model.activation
    if from_logits and not activations.is_linear(activation):
        raise ValueError(
            "Argument `from_logits` must be False for an ensemble that converts "
            "its members' logits to probabilities. For several models pass a dict, "
            'such as {"network": True, "ensemble": False}. Received: from_logits=True, '
            f"and activation={_validate.shown(activations.serialized(activation))}"
        )
    if from_logits:
        warn(
            f"{subject} averages the logits of its members, and not their "
            "probabilities. The mean of the probabilities is the prediction of a "
            "posterior. Make the ensemble with activation='softmax', or 'sigmoid' for "
            "one column, and leave out `from_logits`."
        )
    return from_logits
