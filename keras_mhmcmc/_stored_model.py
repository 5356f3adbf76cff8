"""Models of this package that users save, and copies of the users' own."""

import functools
import inspect
import types
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._serialize import attributes
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike

# Of a model that Keras cannot make again.
ERRORS = AttributeError, NotImplementedError, TypeError, ValueError
_FOREIGN = (keras.layers.TorchModuleWrapper, keras.layers.TFSMLayer)


def with_callback(
    callbacks: Any,
    own: keras.callbacks.Callback,
    first: keras.callbacks.Callback | None = None,
) -> Any:
    """Return the argument `callbacks` of a `fit`, with `first`, the user's, `own`."""
    before = [] if first is None else [first]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks[:0] = before
        callbacks.append(own)
        return callbacks
    given = [] if callbacks is None else callbacks
    return [*before, *keras.tree.flatten(given), own]


def check_layers(name: str, model: keras.Model) -> None:
    """Raise a `ValueError` if a network of several members would not be each member."""
    layers = _backend.inner_layers(model)
    carry = [x.name for x in layers if isinstance(x, keras.layers.RNN) and x.stateful]
    if carry:
        raise ValueError(
            f"Argument `{name}` must have no layers with `stateful=True`: they carry "
            "states from one mini-batch to the next, and the members have no states "
            "of their own. Pass the network built with `stateful=False`, which has the "
            f"same weights, and whole sequences. Received: {', '.join(carry)}"
        )
    foreign = [x.name for x in layers if isinstance(x, _FOREIGN)]
    if foreign:
        raise ValueError(
            f"Argument `{name}` must have no layers that wrap code of another library, "
            "which reads its own weights for all members. Write them with layers of "
            f"Keras. Received: {', '.join(foreign)}"
        )


def rebuilt(
    model: keras.Model, change: Callable[[Any], Any] = lambda config: config
) -> keras.Model:
    return recipe(model)(change)


def recipe(model: keras.Model) -> Callable[..., keras.Model]:
    """Return a function that makes new models of the architecture `model` has now.

    They have the same classes and functions, which need not be registered.
    """
    known: dict[str, Any] = {}
    layers: dict[str, list[keras.layers.Layer]] = {}
    for layer in _backend.inner_layers(model):
        layers.setdefault(layer.name, []).append(layer)
        kind = type(layer)
        if kind.__module__.startswith("keras."):
            continue
        if known.setdefault(kind.__name__, kind) is not kind:
            raise ValueError(
                f"two classes of layers have the name {kind.__name__!r}: give each "
                "class a name of its own"
            )

    def named(config: Any, owners: Sequence[Any] = ()) -> Any:
        """Return a configuration with a name for each function."""
        if isinstance(config, list | tuple):
            return type(config)(named(value) for value in config)
        if not isinstance(config, dict):
            return config
        new = {}
        for key, value in config.items():
            is_dict = isinstance(value, dict)
            found = [_function(owner, key) for owner in owners if is_dict]
            if any(each is not None for each in found):
                if any(each is not found[0] for each in found):
                    raise ValueError(
                        f"two layers have the name {config['name']!r} and different "
                        f"functions `{key}`: give each layer a name of its own"
                    )
                name = f"function {len(known)}"
                known[name] = found[0]
                value = {"class_name": "function", "config": name}
                value |= {"registered_name": name, "module": None}
            elif key == "config" and is_dict:
                value = named(value, layers.get(value.get("name", ""), ()))
                value = _taken(value, known.get(config.get("class_name", "")))
            else:
                value = named(value)
            new[key] = value
        return new

    with warnings.catch_warnings():  # of lambdas, which here no file has to hold
        warnings.filterwarnings("ignore", ".* includes a `lambda`")
        # Of Keras' variables on PyTorch, in the settings of an optimizer.
        warnings.simplefilter("ignore", DeprecationWarning)
        config = named(architecture(model))
    trainable = [layer.trainable for layer in _backend.inner_layers(model)]

    def make(change: Callable[[Any], Any] = lambda config: config) -> keras.Model:
        new: keras.Model = keras.saving.deserialize_keras_object(change(config), known)
        pairs = zip(_backend.inner_layers(new), trainable, strict=True)
        for layer, value in pairs:  # the outer ones first, which set those inside
            layer.trainable = value
        return new

    return make


def recipe_if_needed(model: keras.Model) -> Callable[..., keras.Model]:
    try:
        return recipe(model)
    except ERRORS as error:
        return functools.partial(_failed, error)


def _failed(error: Exception) -> keras.Model:
    raise error


def _taken(config: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Return a configuration without what the constructor of a user does not take."""
    if kind is None:
        return config
    parameters = inspect.signature(kind).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return config
    left_out = {"name", "trainable", "dtype"} - set(parameters)
    return {name: value for name, value in config.items() if name not in left_out}


def _function(layer: keras.layers.Layer, key: str) -> Any:
    """Return the function that a layer has for an entry of its configuration."""
    value = getattr(layer, key, getattr(layer, f"_{key}", None))
    is_function = isinstance(value, types.FunctionType)
    return value if is_function and value.__module__[:6] != "keras." else None


class StoredModel(keras.Model):
    """Abstract: a model whose `.keras` file can be loaded with another backend.

    The layers inside cast inputs, and weights survive inputs that are refused.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name, autocast=False)

    def save(self, filepath: PathLike, *args: Any, **options: Any) -> None:
        """Save the model to a `.keras` file, as `keras.Model.save` does."""
        if str(filepath).endswith((".h5", ".hdf5")):
            raise ValueError(
                "Argument `filepath` must end in `.keras`: in an HDF5 file this model "
                'could not be found again. Save as "name.keras", or the weights alone '
                'with `save_weights("name.weights.h5")`. '
                f"Received: filepath={str(filepath)!r}"
            )
        super().save(filepath, *args, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        """Return predictions, as `keras.Model.predict` does."""
        with _backend.values_kept(self):
            return super().predict(*args, **options)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        """Return the loss and the metrics, as `keras.Model.evaluate` does."""
        with _backend.values_kept(self):
            return super().evaluate(*args, **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        super().compile_from_config(_backend.portable(config))

    def quantize(self, *args: Any, **options: Any) -> None:
        """Quantize the layers, as `keras.Model.quantize` does.

        Raises:
            NotImplementedError: the model has stacked weights, and no layers.
        """
        if not self.layers:
            raise NotImplementedError(
                f"{type(self).__name__} cannot be quantized: it stacks the weights of "
                "several networks, and Keras quantizes layers. Quantize a copy of the "
                "network itself, with the weights of one of them."
            )
        super().quantize(*args, **options)


class WrapperModel(StoredModel):
    """Abstract: a model with an argument `model`, which its configuration holds."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, attributes of the same names."""
        model = keras.saving.serialize_keras_object(self.model)
        return attributes(self) | {"model": model}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the model with these arguments. Its weights are loaded later."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))


class StackedModel(StoredModel):
    """Abstract: the weights of many members, stacked along a leading axis."""

    num_chains: int
    template: keras.Model  # which gives every chain its architecture
    # Of arrays (chains, ...) or (samples, chains, ...) for all of `weights`, those for
    # `template.weights`.
    member_weights: Callable[[Sequence[Array]], list[Array]]
    chain_results: Callable[[], dict[str, Array]]  # the metrics (chains,) by name
    examples_seen: Callable[[], int]  # of this epoch, in Keras' mean of the loss
