"""What `ParallelChains` refuses: networks that its step would train wrongly."""

from collections.abc import Sequence

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import check_layers

_STEPS = ("train_step", "test_step")


def check_template(model: keras.Model) -> None:
    """Raise a `ValueError` if chains of this network would not be trained as it is."""
    own = _validate.own_methods(model, _STEPS)
    if own:
        raise ValueError(
            "Argument `model` must be a model that Keras' own training step trains: "
            "the chains have a step of their own. Write the loss as a "
            "`keras.losses.Loss`, with `add_loss` or as `compute_loss`. Received: a "
            f"{type(model).__name__}, whose class has {' and '.join(own)}"
        )
    check_layers("model", model)
    for variable in model.trainable_variables:
        if variable.constraint is not None:
            raise ValueError(
                "Argument `model` must have no weights with a constraint: Keras would "
                "apply it to the weights of all chains as if they were one array. "
                "Build the layer without it. A prior keeps weights small. Received: "
                f"constraint={variable.constraint} of '{variable.path}'"
            )


def check_trainable(
    model: keras.Model,
    trainable: Sequence[keras.Variable],
) -> None:
    """Raise a `ValueError` if other layers are trainable than when the chains began.

    Args:
        model: the network of the chains.
        trainable: its trainable variables when the chains were made.
    """
    before, now = (
        {id(v): v for v in vs} for vs in (trainable, model.trainable_variables)
    )
    changed = before.keys() ^ now.keys()
    if changed:
        path = next(v.path for i, v in (before | now).items() if i in changed)
        raise ValueError(
            "The trainable layers of the network must stay the same while there are "
            "chains of it. After you change `layer.trainable`, make new chains that "
            "start where these are: `mh.ParallelChains(model, num_chains, "
            f"start=chains)`. Received: {len(changed)} variables that were frozen or "
            f"unfrozen, such as '{path}'"
        )
