"""The arguments of samplers: as JSON has them, defaults, and what is refused."""

import inspect
import json
import numbers
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.priors import SpikeSlab

WARM_UP = 500  # steps, if the run has four times as many
_LEAST, _LONGEST = 4, 10  # steps of a warm-up, and epochs
_COARSE = ("bfloat16", "float16")

_LOWER = "Lower the learning rate, or use a Metropolis-Hastings sampler, which rejects "
_LOWER += "steps that are too large."
_KEEP = "Keep samples with `mh.PosteriorSamples` and average the predictions of their "
_KEEP += "ensemble."
_REFUSED = {
    "weight_decay": "Pass `prior=mh.priors.Gaussian(scale)`, for which scale = "
    "1 / sqrt(weight_decay * train_size).",
    **dict.fromkeys(("clipnorm", "clipvalue", "global_clipnorm"), _LOWER),
    **dict.fromkeys(("use_ema", "ema_momentum", "ema_overwrite_frequency"), _KEEP),
    "gradient_accumulation_steps": "Use a larger batch in `fit`.",
    "loss_scale_factor": "Train in float32 or with the policy 'mixed_bfloat16', which "
    "needs no loss scaling.",
}


def given(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a constructor by name, with defaults, but no options.

    If they do not fit, the result is empty, and the constructor raises the error.
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
    """Return arguments as JSON can hold them: integers become floats where allowed."""
    parameters, config = inspect.signature(cls.__init__).parameters, {}
    for name, value in given.items():
        kind = parameters[name].annotation
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if is_integer and float in (kind, *typing.get_args(kind)):
            value = float(value)
        config[name] = serialized(value)
    return config


def recorded(cls: type, given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments to read and compare, as JSON has them, without code."""
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

    The other half of a long burn-in is for the adaptation of the rate.
    """
    planned = min(default, max(_LEAST, int(min(steps / 4, default)), burn_in // 2))
    longest = 0 if epoch is None else min(burn_in // 2, _LONGEST * epoch)
    return max(planned, longest)


def refuse(options: Mapping[str, Any], sampler: type) -> None:
    for option, value in options.items():
        if option not in _REFUSED:
            arguments = inspect.signature(sampler).parameters.values()
            taken = [one.name for one in arguments if one.kind is not one.VAR_KEYWORD]
            raise ValueError(
                f"Argument `{option}` must be left out: {sampler.__name__} takes "
                f"{', '.join(f'`{name}`' for name in taken)}. "
                f"Received: {option}={value!r}"
            )
        is_zero = option == "weight_decay" and value == 0
        if not (value is None or value is False or is_zero):  # it is not switched off
            raise ValueError(
                f"Argument `{option}` must be left out: it would silently change the "
                f"sampled distribution. {_REFUSED[option]} Received: {option}={value!r}"
            )


def check_prior(prior: Any) -> None:
    if isinstance(prior, SpikeSlab):
        raise ValueError(
            "Argument `prior` must be None or a prior such as "
            "`mh.priors.Gaussian(1.0)`. Only `mh.SGLDSA`, `mh.SGHMCSA` and `mh.ESM` "
            f"take a spike-and-slab prior. Received: prior={_validate.shown(prior)}"
        )
    if prior is not None:
        _validate.instance(
            "prior", prior, Prior, "None or a prior such as `mh.priors.Gaussian(1.0)`"
        )


def check_variables(variables: Sequence[keras.Variable]) -> None:
    """Raise a `ValueError` for a constraint, and warn of half precision."""
    for variable in variables:
        if variable.constraint is not None:
            raise ValueError(
                f"The variable '{variable.path}' has a constraint, which would change "
                "the sampled distribution. Build the layer without it, and keep "
                f"weights small by a prior. Received: constraint={variable.constraint}"
            )
    coarse = [variable for variable in variables if variable.dtype in _COARSE]
    if coarse:
        first = coarse[0]
        what = {"count": len(coarse), "path": first.path, "dtype": first.dtype}
        tell("half precision", **what)


def refuse_other_weights(sampled: Sequence[keras.Variable], model: keras.Model) -> None:
    """Raise a `ValueError` unless the sampler moves the weights that `model` trains."""
    frozen = [variable.path for variable in sampled if not variable.trainable]
    if frozen:
        raise ValueError(
            "The trainable layers must stay the same while a sampler runs. After you "
            "change `layer.trainable`, call `model.compile` again with a new sampler, "
            f"which continues from the present weights. Received: {len(frozen)} frozen "
            f"variables that trained at the first step, such as {frozen[0]}"
        )
    trained = {id(variable) for variable in model.trainable_variables}
    if sampled and trained != {id(variable) for variable in sampled}:
        raise ValueError(
            "Argument `optimizer` must be new for each model: this sampler holds the "
            "chain of other weights. Make a new one with the same arguments, or with "
            "`type(optimizer).from_config(optimizer.get_config())`, and compile the "
            f"model with it. Received: a sampler of {len(sampled)} variables, such as "
            f"{sampled[0].path}, and a model with {len(trained)} other trainable ones"
        )


def refuse_loss_scaling(model: keras.Model) -> None:
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "Argument `optimizer` of `compile` must not be wrapped in Keras' loss "
            "scaling, which comes with the policy 'mixed_float16'. Use "
            "'mixed_bfloat16', or `model.compile(..., auto_scale_loss=False)`. "
            "Received: optimizer=LossScaleOptimizer"
        )
