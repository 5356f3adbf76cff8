"""What an ensemble is compiled with, made of what its model is compiled with."""

import keras

_ACTIVATION_OF_LOGITS = {
    "SparseCategoricalCrossentropy": "softmax",
    "CategoricalCrossentropy": "softmax",
    "CategoricalFocalCrossentropy": "softmax",
    "BinaryCrossentropy": "sigmoid",
    "BinaryFocalCrossentropy": "sigmoid",
}
_KEPT = ("loss_weights", "metrics", "weighted_metrics")


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
    config = model.get_compile_config()
    config = {name: config.get(name) for name in _KEPT}
    loss = model.loss
    if of_probabilities:
        config = _without_logits(config)
        loss = keras.tree.map_structure(_of_probabilities, loss)
    return keras.saving.deserialize_keras_object(config) | {"loss": loss}


def _of_probabilities(loss):
    if _activation_of(loss) is None:
        return loss
    return type(loss).from_config(loss.get_config() | {"from_logits": False})


def _without_logits(config):
    """A serialised structure in which nothing expects logits."""
    if isinstance(config, dict):
        return {
            key: False if key == "from_logits" else _without_logits(value)
            for key, value in config.items()
        }
    if isinstance(config, list | tuple):
        return type(config)(_without_logits(value) for value in config)
    return config
