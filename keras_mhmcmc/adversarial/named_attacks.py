"""Attacks by name, and functions of users in their place."""

import functools
import inspect
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import Literal
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial.auto_gradient import apgd
from keras_mhmcmc.adversarial.gradient_sign import fgsm
from keras_mhmcmc.adversarial.projected_gradient import pgd
from keras_mhmcmc.adversarial.square_search import square
from keras_mhmcmc.evaluation.checks import Limits
from keras_mhmcmc.evaluation.classifier import Classifier

Name = Literal["fgsm", "pgd", "apgd", "apgd_margin", "square"]
Attack = Name | Callable[..., Any]
ATTACKS: dict[str, Callable[..., Array]] = {
    "fgsm": fgsm,
    "pgd": pgd,
    "apgd": apgd,
    "apgd_margin": functools.partial(apgd, loss="margin"),
    "square": square,
}
TITLES = {
    "fgsm": "FGSM",
    "pgd": "PGD",
    "apgd": "APGD",
    "apgd_margin": "APGD on the margin",
    "square": "Square",
}
_SLACK = 1e-4  # of a user's attack, for rounding
BY_GRADIENTS = ("fgsm", "pgd", "apgd")
# What the callers of a named attack give it themselves.
GIVEN = {"y", "member", "from_logits", "clip", "batch_size"}


def check(argument: str, attack: Any, names: Iterable[str] = tuple(ATTACKS)) -> None:
    """Raise a `ValueError` unless `attack` is one of some names or a function."""
    is_name = isinstance(attack, str) and attack in names
    if not callable(attack) and not is_name:
        listed = ", ".join(repr(name) for name in names)
        raise ValueError(
            f"Argument `{argument}` must be {listed} or a function. "
            f"Received: {argument}={_validate.shown(attack)}"
        )


def options_of(
    name: str, attacks: dict[str, Callable[..., Any]] = ATTACKS
) -> dict[str, Any]:
    """Return the options of a named attack, with their defaults."""
    attack = attacks[name]
    fixed = attack.keywords if isinstance(attack, functools.partial) else {}
    return {
        key: parameter.default
        for key, parameter in inspect.signature(attack).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key not in GIVEN | fixed.keys()
    }


def check_options(
    attack: Any, options: dict[str, Any], attacks: dict[str, Callable[..., Any]]
) -> None:
    """Raise a `ValueError` if the attack does not take these options."""
    if not options:
        return
    with_options = [name for name in attacks if options_of(name, attacks)]
    if attack not in with_options:
        listed = ", ".join(f'"{name}"' for name in with_options)
        raise ValueError(
            f"Arguments {_listed(options)} must be omitted unless `attack` is one of "
            f"{listed}, which take options. Received: attack={attack!r}"
        )
    known = options_of(attack, attacks)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"Arguments {_listed(unknown)} must be omitted: the options of {attack!r} "
            f"are {_listed(known)}. Received: {sorted(options)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def run(
    argument: str,
    attack: Attack,
    classifier: Classifier,
    x: Array,
    epsilon: float,
    labels: Array,
    limits: Limits,
    member: int | None,
    options: dict[str, Any],
) -> Array:
    """Return the inputs under an attack. `argument` names it in errors."""
    given = {"y": labels, "clip": limits}
    if isinstance(attack, str):
        named = ATTACKS[attack]
        return named(classifier, x, epsilon, member=member, **given, **options)
    result = attack(classifier, x.copy(), epsilon, **given)
    moved = _checked_result(argument, result, x.shape, limits)
    _warn_of_length(argument, moved - x, epsilon)
    return moved


def _checked_result(
    argument: str, result: Any, shape: tuple[int, ...], limits: Limits
) -> Array:
    """Return the result of a user's attack in float32, or raise a `ValueError`."""
    subject = f"Argument `{argument}`"
    result = _validate.array(f"{subject} is a function. Its result", result, "float32")
    if result.shape != shape or not np.isfinite(result).all():
        raise ValueError(
            f"{subject} must be a function that returns finite inputs with the shape "
            f"of `x`, {shape}. Received: a function that returns shape {result.shape}, "
            f"with {np.sum(~np.isfinite(result))} values that are not finite"
        )
    if limits is not None:
        slack = _SLACK * (limits[1] - limits[0])
        least, most = float(np.min(result)), float(np.max(result))
        if least < limits[0] - slack or most > limits[1] + slack:
            raise ValueError(
                f"{subject} must be a function that returns inputs within its argument "
                f"`clip`, here [{limits[0]:g}, {limits[1]:g}]. Received: a function "
                f"that returns values between {least:g} and {most:g}"
            )
    return result


def _warn_of_length(argument: str, change: Array, epsilon: float) -> None:
    """Warn if a user's attack leaves the ball in each norm that we know."""
    largest = float(np.max(np.abs(change), initial=0.0))
    length = float(np.max(np.linalg.norm(change.reshape(len(change), -1), axis=1)))
    if min(largest, length) > (1.0 + _SLACK) * epsilon + _SLACK:
        warn(
            f"The function of `{argument}` changes inputs by more than epsilon="
            f"{epsilon:g}: a number by up to {largest:.3g}, and an input by up to "
            f"{length:.3g} in the Euclidean norm. Its row in a table is not comparable."
        )


def title(attack: Any) -> str:
    """Return the name of an attack for people."""
    if isinstance(attack, str):
        return TITLES[attack]
    if isinstance(attack, functools.partial):
        options = [f"{key}={value!r}" for key, value in attack.keywords.items()]
        return f"{title(attack.func)} ({', '.join(options)})"
    return TITLES.get(_name(attack), _name(attack))


class Known(NamedTuple):
    """What is known of an attack."""

    title: str  # for people
    name: str  # of the function behind it, such as "apgd"; "" for a user's function
    norm: str  # "linf" or "l2"; "" for a user's function
    finds_one_step: bool  # whether it is at least as strong as FGSM by construction

    @property
    def is_by_gradients(self) -> bool:
        """Return whether the attack follows gradients."""
        return self.name in BY_GRADIENTS

    @property
    def is_iterative(self) -> bool:
        """Return whether the attack takes several steps by gradients."""
        return self.is_by_gradients and self.name != "fgsm"


def known(attack: Any, options: dict[str, Any]) -> Known:
    """Return what is known of an attack, by name or a function, and its options."""
    function = ATTACKS[attack] if isinstance(attack, str) else attack
    while isinstance(function, functools.partial):
        options = function.keywords | options
        function = function.func
    names = [name for name, own in ATTACKS.items() if own is function]
    if not names:
        return Known(title(attack), "", "", False)
    options = options_of(names[0]) | options
    kept = names[0] == "pgd" and options["keep_strongest"] is True
    norm = _validate.choice("norm", options.get("norm", "linf"), balls.NORMS)
    return Known(title(attack), names[0], norm, kept)


def _name(attack: Any) -> str:
    """Return the name of a function, or of the class of another callable."""
    return attack.__name__ if inspect.isroutine(attack) else type(attack).__name__
