"""What an ensemble is compiled with, made of what its model is compiled with."""

import functools
import inspect

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations

_ACTIVATION_OF_LOGITS = {
    "SparseCategoricalCrossentropy": "softmax",
    "CategoricalCrossentropy": "softmax",
    "CategoricalFocalCrossentropy": "softmax",
    "BinaryCrossentropy": "sigmoid",
    "BinaryFocalCrossentropy": "sigmoid",
}
_OF_LOGITS = {
    keras.losses.sparse_categorical_crossentropy: "softmax",
    keras.losses.categorical_crossentropy: "softmax",
    keras.losses.binary_crossentropy: "sigmoid",
}


def activation_of(model):
    """What turns the outputs of `model` into probabilities: a name, a list, or None.

    A list has a name, or None, for each output, in the order of `keras.tree.flatten`.
    """
    if not model.compiled:
        return None
    _warn_of_logits(model)
    found = [_activation_of(loss) for loss in _losses(model)]
    return found[0] if len(set(found)) == 1 else found


def _losses(model):
    """The loss of each output, in the order of `keras.tree.flatten`."""
    losses = model.loss
    if isinstance(losses, dict) and isinstance(model, keras.Function):
        # Keras finds them by the names of outputs, and all need not have one.
        outputs = model.output
        names = sorted(outputs) if isinstance(outputs, dict) else model.output_names
        losses = [losses.get(name) for name in names]
    return _flat(losses)


def _flat(losses):
    """Leaves in the order of `keras.tree.flatten`, None among them."""
    if isinstance(losses, dict):
        return [leaf for name in sorted(losses) for leaf in _flat(losses[name])]
    if isinstance(losses, list | tuple):
        return [leaf for loss in losses for leaf in _flat(loss)]
    return [losses]


def _activation_of(loss):
    """What turns logits into probabilities, if `loss` says that it takes logits."""
    if isinstance(loss, functools.partial):
        return _OF_LOGITS.get(loss.func) if loss.keywords.get("from_logits") else None
    if isinstance(loss, keras.losses.Loss) and loss.get_config().get("from_logits"):
        kinds = (kind.__name__ for kind in type(loss).__mro__)
        return next(filter(None, map(_ACTIVATION_OF_LOGITS.get, kinds)), None)
    return None


def _of_probabilities(loss):
    if isinstance(loss, functools.partial):
        return functools.partial(
            loss.func, *loss.args, **(loss.keywords | {"from_logits": False})
        )
    return type(loss).from_config(loss.get_config() | {"from_logits": False})


def _warn_of_logits(model):
    """Warns if the loss is a function, which does not say whether it takes logits."""
    unknown = [
        loss
        for loss in keras.tree.flatten(model.loss)
        if inspect.isroutine(loss) and not loss.__module__.startswith("keras.")
    ]
    if unknown:
        warn(
            "The ensemble cannot read from the loss whether the outputs of the model "
            "are logits, and averages them as they are. For logits pass "
            'activation="softmax" or "sigmoid"; otherwise "linear", and this warning '
            f"goes. Received: loss={unknown[0]!r}"
        )


def arguments(model, activation):
    """Arguments of `compile`: loss, metrics and their weights.

    Args:
        model: the model, compiled.
        activation: what the ensemble does to its outputs, as `activations.checked`
            gives it. What was a logit may be a probability then.
    """
    # The objects as they were given: not all of them are registered with Keras.
    config = _backend.compile_arguments(model)
    losses = _losses(model)
    functions = activations.of_each(activation, len(losses))
    changed = {
        id(loss): _of_probabilities(loss)
        for loss, function in zip(losses, functions, strict=True)
        if _activation_of(loss) and function is not keras.activations.linear
    }
    loss = keras.tree.map_structure(lambda x: changed.get(id(x), x), model.loss)
    of_probabilities = bool(changed)
    return {
        "loss": loss,
        "loss_weights": config["loss_weights"],
        "metrics": _again(config["metrics"], of_probabilities),
        "weighted_metrics": _again(config["weighted_metrics"], of_probabilities),
    }


def _again(metrics, of_probabilities):
    """New metrics like these: their sums are not those of the model."""
    if isinstance(metrics, dict):
        return {name: _again(m, of_probabilities) for name, m in metrics.items()}
    if isinstance(metrics, list | tuple):
        # Lists of lists stay as long as the outputs that they belong to.
        again = [_again(metric, of_probabilities) for metric in metrics]
        return [metric for metric in again if metric is not None]
    if not isinstance(metrics, keras.metrics.Metric):
        return metrics  # names and functions have no state
    config = metrics.get_config()
    if of_probabilities and "from_logits" in config:
        config["from_logits"] = False
    try:
        return type(metrics).from_config(config)
    except (TypeError, ValueError) as error:
        warn(
            f"The metric {metrics.name!r} cannot be made again from its `get_config`, "
            "so the ensemble is compiled without it. Give its class a `get_config` "
            "with the arguments of its constructor, and register functions with "
            f"`keras.saving.register_keras_serializable`. Received: {error}"
        )
        return None
