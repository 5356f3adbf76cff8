"""The arguments of samplers: as they were given, as JSON has them, and defaults."""

import inspect
import json
import numbers
import typing
from typing import Any

import keras
import numpy as np

WARM_UP = 500  # steps, if the run has four times as many
_LEAST, _LONGEST = 4, 10  # steps of a warm-up, and epochs


def given(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor by name, with defaults.

    A sampler refuses the options of the Keras base class: they are left out. If the
    arguments do not fit, the result is empty, and the constructor raises the error.
    """
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}
    bound.apply_defaults()
    own, *others = signature.parameters.values()
    names = {x.name for x in others if x.kind is not x.VAR_KEYWORD}
    return {name: value for name, value in bound.arguments.items() if name in names}


def configuration(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor in a form that JSON can hold.

    If the annotation of an argument allows a float, an integer becomes a float.
    """
    parameters, config = inspect.signature(cls.__init__).parameters, {}
    for name, value in given.items():
        kind = parameters[name].annotation
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if is_integer and float in (kind, *typing.get_args(kind)):
            value = float(value)
        config[name] = serialized(value)
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


def planned_warm_up(default: int, burn_in: int, steps: float, epoch: int | None) -> int:
    """Return the length of a warm-up in a run of so many steps.

    The other half of a long burn-in is for the adaptation of the rate. `epoch` is the
    number of its steps, for a sampler that compares mini-batches.
    """
    planned = min(default, max(_LEAST, int(min(steps / 4, default)), burn_in // 2))
    longest = 0 if epoch is None else min(burn_in // 2, _LONGEST * epoch)
    return max(planned, longest)
