"""What `ParallelChains` refuses: networks and optimizers that do not suit it."""

from typing import Any

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import check_layers
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.samplers.named import NAMED

_STEPS = ("train_step", "test_step")

# These treat every weight by itself, so that a leading chain axis changes nothing.
_ELEMENTWISE = (
    keras.optimizers.Adadelta,
    keras.optimizers.Adagrad,
    keras.optimizers.Adam,
    keras.optimizers.Adamax,
    keras.optimizers.Ftrl,
    keras.optimizers.Lion,
    keras.optimizers.Nadam,
    keras.optimizers.RMSprop,
    keras.optimizers.SGD,
)

# Options that would mix the chains, or that count steps, which a loop would repeat.
_REFUSED = {
    "clipnorm": "Use `clipvalue`, since the norm would be over all chains.",
    "global_clipnorm": "Use `clipvalue`, since the norm would be over all chains.",
    "use_ema": "Keep weights with `mh.PosteriorSamples` instead.",
    "gradient_accumulation_steps": "Use a larger batch in `fit`.",
    "loss_scale_factor": "The chains compute in the precision of their layers.",
}


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
                "apply it to all chains as if they were one array. Build the layer "
                "without it, and keep weights small by a prior. Received: "
                f"constraint={variable.constraint} of '{variable.path}'"
            )


def checked_optimizer(optimizer: Any) -> keras.optimizers.Optimizer | None:
    """Return the optimizer, or raise a `ValueError` if it would mix the chains."""
    names = [*NAMED, *(kind.__name__.lower() for kind in _ELEMENTWISE)]
    try:
        is_name = isinstance(optimizer, str)
        optimizer = keras.optimizers.get(optimizer.lower() if is_name else optimizer)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "Argument `optimizer` must be an optimizer, such as mh.SGLD(...), or the "
            f"name of one: {', '.join(names)}. "
            f"Received: optimizer={_validate.shown(optimizer)}"
        ) from error
    if optimizer is None or isinstance(optimizer, Sampler):
        return optimizer
    if not isinstance(optimizer, _ELEMENTWISE):
        kinds = ", ".join(kind.__name__ for kind in _ELEMENTWISE)
        raise ValueError(
            "Argument `optimizer` must be a sampler of this package, or an optimizer "
            "that treats every weight by itself: others would mix the chains. Of "
            f"Keras' optimizers use one of {kinds}. Received: "
            f"optimizer={type(optimizer).__name__}"
        )
    for option, remedy in _REFUSED.items():
        value = getattr(optimizer, option)
        if value is not None and value is not False:
            raise ValueError(
                f"Argument `optimizer` must not have `{option}`. {remedy} "
                f"Received: {option}={value!r}"
            )
    return optimizer
