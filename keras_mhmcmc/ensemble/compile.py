"""The loss, metrics and activation of an ensemble, from those of its model."""

import functools
import inspect
import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import tree

from keras_mhmcmc import _backend
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.activations import Activations

# What `compile` takes for one output: a `keras.losses.Loss`, a function, a name, None.
Loss = Any


class Outputs:
    """The outputs of a compiled model, in the order of `keras.tree.flatten`.

    Losses, their weights and metrics may be one for all outputs, a structure like that
    of the outputs, a flat list, or a dict by the names of the outputs. The outputs of a
    subclass of `keras.Model` are taken to have the structure of its loss, and there are
    `count` of them if it has one loss for all.
    """

    def __init__(self, model: keras.Model, count: int = 1) -> None:
        self._names: list[str] = []
        self._structure = model.loss if tree.is_nested(model.loss) else [None] * count
        if isinstance(model, keras.Function):
            self._structure, self._names = model.output, list(model.output_names)
        self.count = len(tree.flatten(self._structure))

    def listed(self, values: Any) -> list[Any]:
        """Return the value of each output, None where there is none."""
        found: list[Any] = [None] * self.count
        self.changed(values, found.__setitem__, range(self.count))
        return found

    def changed(
        self, values: Any, change: Callable[[Any, Any], Any], options: Sequence[Any]
    ) -> Any:
        """Return `values` after change(option of the output, value) for each value.

        One value for several outputs becomes one for each. Values that `change` turns
        into None are left out where an output has several.

        Raises:
            ValueError: it is not known which output a value belongs to.
        """
        # A list may also be several losses of one output. Equal options need no order.
        is_one = len(set(options)) == 1 and (self.count == 1 or not self._names)
        own = options[0] if is_one else tree.pack_sequence_as(self._structure, options)
        return self._changed(values, change, own)

    def _changed(
        self, values: Any, change: Callable[[Any, Any], Any], options: Any
    ) -> Any:
        is_one = not tree.is_nested(options)
        if values is None:
            return None
        if isinstance(values, dict):
            if not is_one and not isinstance(options, dict):
                options = dict(zip(self._names, tree.flatten(options), strict=False))
            unknown = [] if is_one else sorted(set(values) - set(options))
            if unknown:
                raise ValueError(
                    "The losses and metrics of a model whose outputs have different "
                    "activations must say to which output they belong: pass `loss` of "
                    "`compile` as a dict by the names of the outputs. Received: "
                    f"values for {unknown}, where the known names are {sorted(options)}"
                )
            return {
                name: self._changed(value, change, options if is_one else options[name])
                for name, value in values.items()
            }
        if isinstance(values, list | tuple):
            if is_one:
                options = [options] * len(values)
            elif isinstance(options, dict) or len(options) != len(values):
                options = tree.flatten(options)
            new = [
                self._changed(value, change, option)
                for value, option in zip(values, options, strict=False)
            ]
            new = [each for each in new if each is not None or not is_one]
            return tuple(new) if isinstance(values, tuple) else new
        return tree.map_structure(lambda option: change(option, values), options)


# The function that turns logits into probabilities, by class of loss.
_ACTIVATION_OF_CLASS = {
    "SparseCategoricalCrossentropy": "softmax",
    "CategoricalCrossentropy": "softmax",
    "CategoricalFocalCrossentropy": "softmax",
    "BinaryCrossentropy": "sigmoid",
    "BinaryFocalCrossentropy": "sigmoid",
}
_ACTIVATION_OF_FUNCTION = {
    keras.losses.sparse_categorical_crossentropy: "softmax",
    keras.losses.categorical_crossentropy: "softmax",
    keras.losses.binary_crossentropy: "sigmoid",
}


def activation_of(model: keras.Model) -> str | list[str | None] | None:
    """Return the name of the function from outputs to probabilities, or None.

    If outputs need different functions, the result is a list with one entry for each,
    in the order of `keras.tree.flatten`.
    """
    if not model.compiled:
        _warn_of_linear_outputs(model)
        return None
    _warn_of_unknown_losses(model)
    found = [_activation_of(loss) for loss in losses_of(model)]
    for loss, activation in zip(losses_of(model), found, strict=True):
        if activation == "softmax":
            _check_axis(loss)
    return found[0] if len(set(found)) == 1 else found


def takes_logits(model: keras.Model) -> bool:
    """Return whether a loss that the model was compiled with says it takes logits."""
    return model.compiled and any(map(_activation_of, losses_of(model)))


def _check_axis(loss: Loss) -> None:
    """Refuse to guess the activation for classes that are not along the last axis."""
    config = loss.keywords if isinstance(loss, functools.partial) else loss.get_config()
    axis = config.get("axis", -1)
    if axis != -1:
        raise ValueError(
            "Argument `activation` must be given for a loss whose classes are not "
            "along the last axis: a registered function, such as "
            f"`lambda x: keras.ops.softmax(x, axis={axis})` with a name. "
            f"Received: activation=None, and a loss with axis={axis}"
        )


def losses_of(model: keras.Model) -> list[Loss]:
    """Return the loss of each output, in the order of `keras.tree.flatten`."""
    return Outputs(model).listed(model.loss)


def _activation_of(loss: Loss) -> str | None:
    """Return what turns logits into probabilities, if `loss` says it takes logits."""
    if isinstance(loss, functools.partial):
        takes_logits = loss.keywords.get("from_logits")
        return _ACTIVATION_OF_FUNCTION.get(loss.func) if takes_logits else None
    if isinstance(loss, keras.losses.Loss) and loss.get_config().get("from_logits"):
        for kind in type(loss).__mro__:
            if kind.__name__ in _ACTIVATION_OF_CLASS:
                return _ACTIVATION_OF_CLASS[kind.__name__]
    return None


def _of_probabilities(value: Any) -> Any:
    """Return a loss or metric like this one that takes probabilities, not logits."""
    if isinstance(value, functools.partial):
        keywords = value.keywords | {"from_logits": False}
        return functools.partial(value.func, *value.args, **keywords)
    return type(value).from_config(value.get_config() | {"from_logits": False})


def _warn_of_unknown_losses(model: keras.Model) -> None:
    """Warn if a loss of the user does not say whether it takes logits."""
    unknown = list(filter(is_unknown, tree.flatten(model.loss)))
    if unknown:
        warn(
            "The loss does not say whether the model's outputs are logits, and the "
            'ensemble averages them as they are. Pass activation="softmax" or '
            '"sigmoid" if they are logits, or "linear" if they are means or '
            f"probabilities. Received: loss={unknown[0]!r}"
        )


def _warn_of_linear_outputs(model: keras.Model) -> None:
    """Warn if the outputs of a model without a loss may be logits."""
    is_graph = isinstance(model, keras.Sequential | keras.Function)
    last: Any = model.layers[-1] if is_graph else None
    has_activation = isinstance(last, keras.layers.Dense | keras.layers.Activation)
    if has_activation and last.activation is keras.activations.linear:
        warn(
            "The model is not compiled, so the ensemble averages its outputs as they "
            "are, even if they are logits. Compile the model with its loss, or pass "
            'activation="softmax" or "sigmoid" for logits, or "linear" for other '
            f"outputs. Received: a last layer {last.name!r} that is linear"
        )


def warn_of_second_activation(model: keras.Model, activation: ActivationLike) -> None:
    """Warn if an activation is for logits, and the loss takes probabilities."""
    if not model.compiled:
        return
    outputs, is_new = _activated(model, activations.checked(activation))
    losses = outputs.listed(model.loss)
    if any(map(_takes_probabilities, itertools.compress(losses, is_new))):
        warn(
            "The loss of the model takes probabilities, and `activation` would be a "
            "second softmax or sigmoid: the ensemble then averages probabilities that "
            "are too even. Leave `activation` out. "
            f"Received: activation={activation!r}, loss={model.loss!r}"
        )


def _takes_probabilities(loss: Loss) -> bool:
    """Return whether `loss` says that it takes probabilities."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if isinstance(loss, keras.losses.Loss):
        is_known = any(k.__name__ in _ACTIVATION_OF_CLASS for k in type(loss).__mro__)
        return is_known and loss.get_config().get("from_logits") is False
    return loss in _ACTIVATION_OF_FUNCTION


def is_unknown(loss: Loss) -> bool:
    """Return whether `loss` is the user's own, and may take outputs of any meaning."""
    if not isinstance(loss, keras.losses.Loss):
        function = loss.func if isinstance(loss, functools.partial) else loss
        return callable(loss) and not function.__module__.startswith("keras.")
    if isinstance(loss, keras.losses.CTC):
        return True  # takes logits, and has no option that says so
    ours = ("keras", __name__.partition(".")[0])
    kinds = type(loss).__mro__
    base = next(kind for kind in kinds if kind.__module__.partition(".")[0] in ours)
    # A subclass of one of Keras's own losses takes what that loss takes, unless it
    # computes something else.
    own = any("call" in vars(kind) for kind in kinds[: kinds.index(base)])
    says = loss.get_config().get("from_logits") is False or _activation_of(loss)
    return (base is keras.losses.Loss or own) and not says


def arguments(model: keras.Model, activation: Activations) -> dict[str, Any]:
    """Return arguments of `compile` for an ensemble: loss, metrics, their weights.

    After its activation, outputs that were logits may be probabilities, and the loss
    and metrics of `model` follow.
    """
    outputs, is_new = _activated(model, activation)
    # The objects themselves: not all of them are registered with Keras.
    config = _backend.compile_arguments(model)

    def changed(name: str, change: Callable[[Any, Any], Any]) -> Any:
        return outputs.changed(config[name], change, is_new)

    return {
        "loss": outputs.changed(model.loss, _new_loss, is_new),
        "loss_weights": changed("loss_weights", lambda _, weight: weight),
        "metrics": changed("metrics", _new_metric),
        "weighted_metrics": changed("weighted_metrics", _new_metric),
    }


def _activated(
    model: keras.Model, activation: Activations
) -> tuple[Outputs, list[bool]]:
    """Return the outputs of a model, and whether each has an activation."""
    outputs = Outputs(model, len(activation) if isinstance(activation, tuple) else 1)
    functions = activations.of_each(activation, outputs.count)
    return outputs, [function is not keras.activations.linear for function in functions]


def _new_loss(of_probabilities: bool, loss: Loss) -> Loss:
    """Return the loss of an output that has, or has not, become probabilities."""
    is_changed = of_probabilities and _activation_of(loss)
    return _of_probabilities(loss) if is_changed else loss


def _new_metric(of_probabilities: bool, metric: Any) -> Any:
    """Return a new metric like this one, since the model's metric holds its own sums.

    Return None, with a warning, if that is not possible.
    """
    if of_probabilities and _is_for_logits(metric):
        warn(
            "The model has logits, and the ensemble has probabilities: a metric for "
            "logits gives wrong numbers in `ensemble.evaluate`. Compile the ensemble "
            'with a metric for probabilities, or pass activation="linear" to average '
            f"logits. Received: metric={metric!r}"
        )
    if isinstance(metric, functools.partial):
        takes_logits = of_probabilities and metric.keywords.get("from_logits")
        return _of_probabilities(metric) if takes_logits else metric
    if not isinstance(metric, keras.metrics.Metric):
        return metric  # names and functions have no state
    try:
        if of_probabilities and "from_logits" in metric.get_config():
            return _of_probabilities(metric)
        return type(metric).from_config(metric.get_config())
    except (TypeError, ValueError) as error:
        warn(
            f"The metric {metric.name!r} cannot be rebuilt from its `get_config`, so "
            "the ensemble is compiled without it. Give its class a `get_config` with "
            "the arguments of its constructor, and register functions with "
            f"`keras.saving.register_keras_serializable`. Received: {error}"
        )
        return None


def _is_for_logits(metric: Any) -> bool:
    """Return whether a metric may need logits, and does not say `from_logits`."""
    if inspect.isroutine(metric):
        return not metric.__module__.startswith("keras.")
    if not isinstance(metric, keras.metrics.Metric):
        return False
    config = metric.get_config()
    thresholds = config.get("thresholds", config.get("threshold"))
    if thresholds is None or isinstance(thresholds, str):
        return False
    return any(not 0.0 < value < 1.0 for value in tree.flatten(thresholds))
