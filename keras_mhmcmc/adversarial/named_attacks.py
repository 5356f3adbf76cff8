"""Attacks by name, functions of users in their place, and the strongest of several."""

import functools
import inspect
from collections.abc import Callable
from collections.abc import Mapping
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
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.gradient_attacks import apgd
from keras_mhmcmc.adversarial.gradient_attacks import fgsm
from keras_mhmcmc.adversarial.gradient_attacks import pgd
from keras_mhmcmc.adversarial.objective import Given
from keras_mhmcmc.adversarial.square_search import square
from keras_mhmcmc.evaluation.classifier import Classifier

Name = Literal["fgsm", "pgd", "apgd", "apgd_margin", "square"]
AttackLike = Name | Callable[..., Any]
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
BY_GRADIENTS = ("fgsm", "pgd", "apgd")
# What the callers of a named attack give it themselves.
GIVEN = {"y", "member", "from_logits", "clip", "batch_size"}
_SLACK = 1e-4  # of a user's attack, for rounding


def strongest(
    model: keras.Model | Classifier,
    x: DataLike,
    y: npt.ArrayLike | None,
    epsilon: float,
    *,
    attacks: Sequence[AttackLike] = ("pgd", "apgd", "apgd_margin", "square"),
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
            settings pass `functools.partial(mh.adversarial.pgd, steps=50)`.
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
    parts = several(attacks, seed, member)
    shared = from_logits, clip, batch_size
    given = objective.given(model, x, epsilon, y, member, *shared, needs_targets=True)
    if given.epsilon == 0.0:
        return given.x.copy()
    return strongest_and_each(given, parts)[0]


class Attack(NamedTuple):
    """An attack, by name or a function, and what is known of it."""

    title: str  # for people
    function: Callable[..., Any]  # with its options
    is_named: bool  # or is it a function that the user gave?
    name: str  # of our function behind it, such as "apgd"; "" for another function
    settings: Mapping[str, Any]  # all options of our function
    parts: "Sequence[Attack]" = ()  # of which it is the strongest

    @property
    def norm(self) -> str:
        """Return "linf" or "l2", or "" for a user's function."""
        return str(self.settings.get("norm", "linf")) if self.name else ""

    @property
    def is_iterative(self) -> bool:
        return self.name in ("pgd", "apgd")

    @property
    def is_by_gradients(self) -> bool:
        return self.name in BY_GRADIENTS

    @property
    def details(self) -> str:
        """Return the title with the settings that count, to begin a caption."""
        if self.parts:
            return f"The strongest of {', '.join(part.title for part in self.parts)}"
        if not self.is_named:
            return self.title
        found, settings = self.title, self.settings
        if "queries" in settings:
            found += f" of {settings['queries']} queries"
        if "steps" in settings:
            start = "a random" if settings["random_start"] else "the clean"
            found += f" of {settings['steps']} steps from {start} input"
            if settings["restarts"] > 1:
                found += f", {settings['restarts']} runs"
        return found + ", in the L2 ball," * (self.norm == "l2")


def known(
    argument: str, attack: Any, options: Mapping[str, Any], member: int | None = None
) -> Attack:
    """Return what is known of an attack, or raise an error that names the argument."""
    names = ATTACKS | ({"strongest": strongest} if argument == "attack" else {})
    is_named = isinstance(attack, str) and attack in names
    if not is_named and not callable(attack):
        raise ValueError(
            f"Argument `{argument}` must be {', '.join(map(repr, names))} or a "
            f"function. Received: {argument}={_validate.shown(attack)}"
        )
    if not is_named and member is not None:
        raise ValueError(
            f"Argument `member` must be None if `{argument}` is a function: choose the "
            f"member in the function. Received: member={member!r}"
        )
    own = names[attack] if is_named else attack
    allowed = options_of(own) if is_named else {}
    unknown = ", ".join(f"`{name}`" for name in options if name not in allowed)
    if unknown:
        takes = ", ".join(f"`{name}`" for name in allowed) or "no options"
        raise ValueError(
            f"Arguments {unknown} must be omitted: attack={_validate.shown(attack)} "
            f"takes {takes}. Received: {sorted(options)}"
        )
    if is_named and own is strongest:
        parts = several(**allowed | dict(options), member=member)
        return Attack("the strongest", strongest, True, "", {}, parts)
    function = functools.partial(own, **options)
    name = next((key for key, value in ATTACKS.items() if value is function.func), "")
    settings = options_of(function.func) | function.keywords if name else {}
    _validate.choice("norm", settings.get("norm", "linf"), objective.NORMS)
    return Attack(title(attack), function, is_named, name, settings)


def several(attacks: Any, seed: Any, member: int | None) -> list[Attack]:
    """Return what is known of attacks of one norm, or raise a `ValueError`."""
    if not isinstance(attacks, list | tuple) or not attacks:
        raise ValueError(
            "Argument `attacks` must be a list or tuple of at least one attack, such "
            f'as ("apgd", "square"). Received: attacks={_validate.shown(attacks)}'
        )
    seeds, found = {"seed": _validate.seed(seed)}, []
    for attack in attacks:
        takes_seed = isinstance(attack, str) and attack in ATTACKS and attack != "fgsm"
        found.append(known("attacks", attack, seeds if takes_seed else {}, member))
    norms = {attack.norm for attack in found} - {""}
    if len(norms) > 1:
        raise ValueError(
            "Argument `attacks` must have attacks of one norm: `epsilon` is a length "
            "in this norm. Take 'linf' for all, or 'l2' for all. Received: norms "
            f"{', '.join(sorted(norms))}"
        )
    return found


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return {
        key: parameter.default
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and key not in GIVEN | fixed.keys()
    }


def title(attack: Any) -> str:
    if isinstance(attack, str):
        return TITLES[attack]
    if isinstance(attack, functools.partial):
        options = [f"{key}={value!r}" for key, value in attack.keywords.items()]
        return f"{title(attack.func)} ({', '.join(options)})"
    is_function = inspect.isroutine(attack)
    name = attack.__name__ if is_function else type(attack).__name__
    return TITLES.get(name, name)


def strongest_and_each(given: Given, attacks: Sequence[Attack]) -> tuple[Array, Array]:
    """Return the worst inputs, and which examples each attack misleads (attacks, N)."""
    classifier, x, member = given.classifier, given.x, given.member
    judge = classifier.compiled(objective.evaluation, member is not None)

    def score(moved: Tensor, labels: Tensor, values: Any) -> tuple[Tensor, Tensor]:
        _, loss, fooled = judge(moved, labels, objective.index(member), values)
        return loss, fooled

    best = x.copy()
    best_loss, is_fooled = np.full(len(x), -np.inf), np.zeros(len(x), bool)
    each = []
    for attack in attacks:
        moved = run("attacks", attack, given)
        loss, fooled = classifier.map(score, moved, given.labels)
        better = ~is_fooled & (fooled | (loss > best_loss))
        best[better], best_loss[better] = moved[better], loss[better]
        is_fooled |= fooled
        each.append(fooled)
    return best, np.array(each)


def run(argument: str, attack: Attack, given: Given) -> Array:
    """Return the inputs under an attack. `argument` names it in errors."""
    classifier, x, epsilon = given[:3]
    shared = {"y": given.labels, "clip": given.limits}
    if attack.is_named:
        named: Array = attack.function(
            classifier, x, epsilon, member=given.member, **shared
        )
        return named
    subject = f"Argument `{argument}`"
    result = attack.function(classifier, x.copy(), epsilon, **shared)
    moved = _validate.array(f"{subject} is a function. Its result", result, "float32")
    low, high = given.ends
    slack = _SLACK * (high - low)
    is_right = np.isfinite(moved) & (moved >= low - slack) & (moved <= high + slack)
    if moved.shape != x.shape or not np.all(is_right):
        raise ValueError(
            f"{subject} must be a function that returns finite inputs with the shape "
            f"of `x`, {x.shape}, within its argument `clip`, here [{low:g}, {high:g}]. "
            f"Received: a function that returns shape {moved.shape}, with "
            f"{np.sum(~is_right)} values that are not finite or outside of `clip`"
        )
    change = (moved - x).reshape(len(x), -1)
    largest = float(np.max(np.abs(change), initial=0.0))
    length = float(np.max(np.linalg.norm(change, axis=1)))
    if min(largest, length) > (1.0 + _SLACK) * epsilon + _SLACK:  # in each norm
        warn(
            f"The function of `{argument}` changes inputs by more than "
            f"epsilon={epsilon:g}, a number by up to {largest:.3g} and an input by up "
            f"to {length:.3g} in the Euclidean norm, and its row in a table is not "
            "comparable. Clip the changes to epsilon."
        )
    return moved
