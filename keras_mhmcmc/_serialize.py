"""Keras serialisation of the package's objects, and of models without weights."""

from collections.abc import Callable
from typing import Any
from typing import Self
from typing import TypeVar

import keras

Class = TypeVar("Class", bound=type)

serializable: Callable[[Class], Class] = keras.saving.register_keras_serializable(
    package="keras_mhmcmc"
)


class Configurable:
    """Abstract: an object that Keras can rebuild from its constructor's arguments."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """Return the call that builds the object."""
        if type(self).get_config is Configurable.get_config:
            return super().__repr__()
        arguments = (f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({', '.join(arguments)})"

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the object from the arguments of its constructor."""
        return cls(**config)


def architecture(model: keras.Model) -> dict[str, Any]:
    """Return the serialised model without its compile arguments."""
    config = keras.saving.serialize_keras_object(model)
    return {key: value for key, value in config.items() if key != "compile_config"}
