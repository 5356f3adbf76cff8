"""Keras serialisation of the package's objects, and of models without weights."""

import inspect
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Self
from typing import TypeVar

import keras

Class = TypeVar("Class", bound=type)

serializable: Callable[[Class], Class] = keras.saving.register_keras_serializable(
    package="keras_mhmcmc"
)


class PrintedAsCall:
    """Abstract: an object with a configuration, which prints as the call for it."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, attributes of the same names."""
        return attributes(self)

    def __repr__(self) -> str:
        try:
            return call_text(type(self), self.get_config())
        except NotImplementedError:
            return super().__repr__()


class Configurable(PrintedAsCall):
    """Abstract: an object that Keras can rebuild from its constructor's arguments."""

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the object from the arguments of its constructor."""
        return cls(**config)


def attributes(instance: Any) -> dict[str, Any]:
    """Return the arguments of a constructor that are attributes by their names."""
    kind = type(instance)
    parameters = inspect.signature(kind).parameters.values()
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [p.name for p in parameters if p.kind not in open_ended]
    try:
        return {name: getattr(instance, name) for name in names}
    except AttributeError as error:
        raise NotImplementedError(
            f"{kind.__name__} must have a method `get_config`, or all arguments of its "
            f"constructor as attributes: {error}"
        ) from error


def call_text(cls: type, arguments: Mapping[str, Any]) -> str:
    """Return the call of a constructor as text, without arguments at their defaults."""
    parameters = inspect.signature(cls).parameters
    shown = []
    for place, name in enumerate(parameters):
        default = parameters[name].default
        if name not in arguments or _is_default(arguments[name], default):
            continue
        is_first = place == 0 and default is inspect.Parameter.empty
        text = repr(arguments[name])
        shown.append(text if is_first else f"{name}={text}")
    return f"{cls.__name__}({', '.join(shown)})"


def _is_default(value: Any, default: Any) -> bool:
    # Types are compared first: an array has no truth value.
    return type(value) is type(default) and bool(value == default)


def architecture(model: keras.Model) -> dict[str, Any]:
    """Return the serialised model without its compile arguments."""
    config = keras.saving.serialize_keras_object(model)
    return {key: value for key, value in config.items() if key != "compile_config"}
