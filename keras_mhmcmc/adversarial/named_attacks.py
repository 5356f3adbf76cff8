"""Attacks by name, functions of users in their place, and the strongest of several."""

import functools
import inspect
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.gradient_attacks import apgd
from keras_mhmcmc.adversarial.gradient_attacks import fgsm
from keras_mhmcmc.adversarial.gradient_attacks import pgd
from keras_mhmcmc.adversarial.objective import Given
from keras_mhmcmc.adversarial.square_search import square
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


def strongest(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None,
    epsilon: float,
    *,
    attacks: Sequence[Attack] = ("pgd", "apgd", "apgd_margin", "square"),
    seed: int = 0,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with several attacks, and keep the worst for each example.

    Of each example the result is the first attack's that makes the model predict
    another class than `y`. If none does, it is the one with the highest loss of `y`. So
    the accuracy is never above the accuracy under one of the attacks.

    Args:
        model: as in `fgsm`.
        x: finite inputs, shape (N, ...), or a data set of pairs (x, y) as in `fgsm`.
        y: true labels, as in `fgsm`. None for a data set.
        epsilon: largest change of an input, in units of `x`, at least 0.
        attacks: sequence of at least one attack. "fgsm", "pgd", "apgd" and "square"
            are the functions of these names with their defaults, and "apgd_margin" is
            `apgd` with the margin loss. A function is called as
            `attack(classifier, x, epsilon, y=labels, clip=clip)` with an
            `mh.Classifier`, and returns inputs with the shape of `x`. For other
            settings pass `functools.partial(mh.adversarial.apgd, loss="dlr")`.
        seed: as in `pgd`, of the named attacks. Defaults to 0.
        member: as in `fgsm`. All attacks must then be names.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Raises:
        ValueError: as in `fgsm`, or the model has no gradient for an attack that needs
            one.

    Example:

    >>> import keras
    >>> layer = keras.layers.Dense(2, "softmax", kernel_initializer="identity")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> strongest(model, [[0.75, 0.5]], [0], 0.25, attacks=["fgsm", "pgd"])
    array([[0.5 , 0.75]], dtype=float32)

    Reference: Croce and Hein (2020), section 6, who combine other attacks.
    """
    attacks = checked_attacks(attacks, member)
    seed = _validate.seed(seed)
    shared = from_logits, clip, batch_size
    given = objective.given(model, x, epsilon, y, member, *shared, needs_targets=True)
    if given.epsilon == 0.0:
        return given.x.copy()
    return strongest_and_each(given, attacks, seed)[0]


def strongest_and_each(
    given: Given, attacks: Sequence[Attack], seed: int
) -> tuple[Array, Array]:
    """Return the worst inputs, and which examples each attack misleads (attacks, N)."""
    classifier, x, member = given.classifier, given.x, given.member
    judge = classifier.compiled(objective.scores, member is not None)

    def score(moved: Tensor, labels: Tensor, values: Any) -> tuple[Tensor, Tensor]:
        return judge(moved, labels, objective.index(member), values)

    best = x.copy()
    best_loss, is_fooled = np.full(len(x), -np.inf), np.zeros(len(x), bool)
    each = []
    for attack in attacks:
        known = options_of(attack) if isinstance(attack, str) else {}
        options = {"seed": seed} if "seed" in known else {}
        moved = run("attacks", attack, given, options)
        loss, fooled = classifier.map(score, moved, given.labels.astype("int32"))
        better = ~is_fooled & (fooled | (loss > best_loss))
        best[better], best_loss[better] = moved[better], loss[better]
        is_fooled |= fooled
        each.append(fooled)
    return best, np.array(each)


WITH_STRONGEST: dict[str, Callable[..., Array]] = {**ATTACKS, "strongest": strongest}


def checked_attacks(attacks: Sequence[Attack], member: int | None) -> list[Attack]:
    """Return the attacks as a list, or raise a `ValueError`."""
    if not isinstance(attacks, list | tuple) or not attacks:
        raise ValueError(
            "Argument `attacks` must be a list or tuple of at least one attack, such "
            f'as ("apgd", "square"). Received: attacks={_validate.shown(attacks)}'
        )
    for attack in attacks:
        check("attacks", attack, ATTACKS)
    if member is not None and any(map(callable, attacks)):
        raise ValueError(
            "Argument `member` must be None if `attacks` has a function, which chooses "
            f"what it attacks. Received: member={member!r}"
        )
    norms = {known(attack, {}).norm for attack in attacks} - {""}
    if len(norms) > 1:
        raise ValueError(
            "Argument `attacks` must have attacks of one norm: `epsilon` is a length "
            "in this norm. Take 'linf' for all, or 'l2' for all. Received: norms "
            f"{', '.join(sorted(norms))}"
        )
    return list(attacks)


def check(argument: str, attack: Any, names: Iterable[str]) -> None:
    """Raise a `ValueError` unless `attack` is one of some names or a function."""
    if not callable(attack) and not (isinstance(attack, str) and attack in names):
        raise ValueError(
            f"Argument `{argument}` must be {', '.join(map(repr, names))} or a "
            f"function. Received: {argument}={_validate.shown(attack)}"
        )


def options_of(name: str) -> dict[str, Any]:
    """Return the options of a named attack, with their defaults."""
    attack = WITH_STRONGEST[name]
    fixed = attack.keywords if isinstance(attack, functools.partial) else {}
    return {
        key: parameter.default
        for key, parameter in inspect.signature(attack).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key not in GIVEN | fixed.keys()
    }


def check_options(attack: Any, options: dict[str, Any]) -> None:
    """Raise a `ValueError` if the attack does not take these options."""
    if not options:
        return
    with_options = [name for name in WITH_STRONGEST if options_of(name)]
    if attack not in with_options:
        listed = ", ".join(f'"{name}"' for name in with_options)
        raise ValueError(
            f"Arguments {_listed(options)} must be omitted unless `attack` is one of "
            f"{listed}, which take options. Received: attack={attack!r}"
        )
    known = options_of(attack)
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(
            f"Arguments {_listed(unknown)} must be omitted: the options of {attack!r} "
            f"are {_listed(known)}. Received: {sorted(options)}"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def run(argument: str, attack: Attack, given: Given, options: dict[str, Any]) -> Array:
    """Return the inputs under an attack. `argument` names it in errors."""
    classifier, x, epsilon, limits = *given[:3], given.limits
    shared = {"y": given.labels, "clip": limits}
    if isinstance(attack, str):
        named, member = ATTACKS[attack], given.member
        return named(classifier, x, epsilon, member=member, **shared, **options)
    subject = f"Argument `{argument}`"
    result = attack(classifier, x.copy(), epsilon, **shared)
    moved = _validate.array(f"{subject} is a function. Its result", result, "float32")
    if moved.shape != x.shape or not np.isfinite(moved).all():
        raise ValueError(
            f"{subject} must be a function that returns finite inputs with the shape "
            f"of `x`, {x.shape}. Received: a function that returns shape {moved.shape}"
            f", with {np.sum(~np.isfinite(moved))} values that are not finite"
        )
    least, most = float(np.min(moved)), float(np.max(moved))
    low, high = given.ends
    slack = _SLACK * (high - low)
    if least < low - slack or most > high + slack:
        raise ValueError(
            f"{subject} must be a function that returns inputs within its argument "
            f"`clip`, here [{low:g}, {high:g}]. Received: a function that returns "
            f"values between {least:g} and {most:g}"
        )
    _warn_of_length(argument, moved - x, epsilon)
    return moved


def _warn_of_length(argument: str, change: Array, epsilon: float) -> None:
    """Warn if a user's attack leaves the ball in each norm that we know."""
    largest = float(np.max(np.abs(change), initial=0.0))
    length = float(np.max(np.linalg.norm(change.reshape(len(change), -1), axis=1)))
    if min(largest, length) > (1.0 + _SLACK) * epsilon + _SLACK:
        warn(
            f"The function of `{argument}` changes inputs by more than "
            f"epsilon={epsilon:g}, a number by up to {largest:.3g} and an input by up "
            f"to {length:.3g} in the Euclidean norm, and its row in a table is not "
            "comparable. Clip the changes to epsilon."
        )


def title(attack: Any) -> str:
    """Return the name of an attack for people."""
    if isinstance(attack, str):
        return TITLES[attack]
    if isinstance(attack, functools.partial):
        options = [f"{key}={value!r}" for key, value in attack.keywords.items()]
        return f"{title(attack.func)} ({', '.join(options)})"
    is_function = inspect.isroutine(attack)
    name = attack.__name__ if is_function else type(attack).__name__
    return TITLES.get(name, name)


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
