"""What an ensemble is compiled with, made of what its model is compiled with."""

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._warn import warn

_ACTIVATION_OF_LOGITS = {
    "SparseCategoricalCrossentropy": "softmax",
    "CategoricalCrossentropy": "softmax",
    "CategoricalFocalCrossentropy": "softmax",
    "BinaryCrossentropy": "sigmoid",
    "BinaryFocalCrossentropy": "sigmoid",
}


def activation_of(model):
    """The name of what turns the outputs of `model` into probabilities, or None.

    Raises:
        ValueError: the losses of several outputs need several of them.
    """
    if not model.compiled:
        return None
    found = [_activation_of(loss) for loss in keras.tree.flatten(model.loss)]
    if len(set(found)) > 1:
        raise ValueError(
            "Argument `activation` must be given for a model whose outputs need "
            "different ones: 'linear' averages the outputs as they are. To average "
            "probabilities, give those outputs of the model a softmax or sigmoid, "
            "and compile it with losses without from_logits=True. Received: "
            f"activation=None, and losses that need {found}"
        )
    return found[0]


def _activation_of(loss):
    if isinstance(loss, keras.losses.Loss) and loss.get_config().get("from_logits"):
        return _ACTIVATION_OF_LOGITS.get(type(loss).__name__)
    return None


def arguments(model, of_probabilities):
    """Arguments of `compile`: loss, metrics and their weights.

    `of_probabilities` says that logits of the model are probabilities here.
    """
    # The objects as they were given: not all of them are registered with Keras.
    config = _backend.compile_arguments(model)
    loss = model.loss
    if of_probabilities:
        loss = keras.tree.map_structure(_of_probabilities, loss)
    return {
        "loss": loss,
        "loss_weights": config["loss_weights"],
        "metrics": _again(config["metrics"], of_probabilities),
        "weighted_metrics": _again(config["weighted_metrics"], of_probabilities),
    }


def _of_probabilities(loss):
    if _activation_of(loss) is None:
        return loss
    return type(loss).from_config(loss.get_config() | {"from_logits": False})


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
