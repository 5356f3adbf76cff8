"""The arguments of samplers: as they were given, as JSON has them, and defaults."""

import inspect
import json
import numbers
import typing
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.samplers.parts.rate_adaptation import RateAdaptation
from keras_mhmcmc.schedules import Schedule

# Settings with which reversible proposals move a network.
WARM_UP = 500  # steps, if the run has four times as many
_LONGEST = 10  # epochs of warm-up
REFRESH_PROBABILITY = 0.1


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


def network_settings(
    proposal: Proposal,
    learning_rate: Any,
    refresh_probability: float | None,
    warm_up: int | None,
    rate_adaptation: bool | None,
) -> dict[str, Any]:
    """Return the settings of `Metropolis`. None is the default of the proposal.

    A schedule of the learning rate is not adapted by default: it has its own rates.
    """
    is_reversible = proposal.has_backward
    if refresh_probability is None:
        refresh_probability = REFRESH_PROBABILITY if is_reversible else 0.0
    if warm_up is None:
        warm_up = WARM_UP if is_reversible else 0
    if rate_adaptation is None:
        rate_adaptation = is_reversible and not isinstance(learning_rate, Schedule)
    return {
        "refresh_probability": refresh_probability,
        "warm_up": warm_up,
        "rate_adaptation": adaptation_or_none(rate_adaptation),
    }


def longest_warm_up(burn_in: int, train_size: int, batch_size: int) -> int:
    """Return the longest warm-up of a run that keeps no sample in `burn_in` steps.

    The other half of the burn-in is for the adaptation of the rate.
    """
    return min(burn_in // 2, _LONGEST * (train_size // batch_size))


def adaptation_or_none(rate_adaptation: Any) -> RateAdaptation | None:
    """Return how the rate is adapted; None: it is not."""
    _validate.choice("rate_adaptation", rate_adaptation, (True, False))
    return RateAdaptation() if rate_adaptation else None
