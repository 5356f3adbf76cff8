"""The arguments that a sampler was made with, for its configuration."""

import inspect
import json
import numbers
import typing
from typing import Any

import keras
import numpy as np


def given_arguments(
    cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a constructor by name, with defaults.

    The options of the Keras base class are left out, since a sampler refuses all of
    them. If the arguments do not fit, the result is empty: the constructor itself
    raises the error.
    """
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    own, *_ = signature.parameters
    parameters = signature.parameters
    return {
        name: value
        for name, value in bound.arguments.items()
        if name != own and parameters[name].kind is not inspect.Parameter.VAR_KEYWORD
    }


def configuration(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor in a form that JSON can hold.

    If the annotation of an argument allows a float, an integer becomes a float.
    """
    parameters = inspect.signature(cls.__init__).parameters
    config = {}
    for name, value in given.items():
        kinds = (parameters[name].annotation,)
        kinds += typing.get_args(parameters[name].annotation)
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        config[name] = serialized(
            float(value) if is_integer and float in kinds else value
        )
    return config


def recorded(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor to read and compare, as JSON has them.

    Functions, and objects without a configuration, stand by their names: unlike a
    configuration, the result never has code in it.
    """
    config: dict[str, Any] = {}
    for name, value in given.items():
        if inspect.isroutine(value):
            config[name] = value.__name__
            continue
        try:
            config |= configuration(cls, {name: value})
        except (NotImplementedError, TypeError, ValueError):  # it has none
            config[name] = type(value).__name__
    return json.loads(json.dumps(config, default=lambda value: type(value).__name__))


def serialized(value: Any) -> Any:
    """Return `value` in a form that JSON can hold. Numbers get Python's own types."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return keras.saving.serialize_keras_object(value)
