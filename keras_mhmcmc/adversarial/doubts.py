"""Reasons to doubt the robustness in a table of attacks, as sentences with a remedy.

The checks are those of Carlini et al. (2019), "On evaluating adversarial robustness",
section 4, and of the flags of AutoAttack (Croce and Hein, 2020).

Chance does not warn: a binomial test decides at `LEVEL` what is above a limit. If
attacks are on the model's own predictions, some of them correct a wrong prediction.
Accuracies are then those of the examples that the model classifies correctly without
an attack: for these the prediction is the true label.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc.adversarial import balls
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.gradient_attacks import gradients_of
from keras_mhmcmc.adversarial.named_attacks import Attack
from keras_mhmcmc.adversarial.named_attacks import known
from keras_mhmcmc.adversarial.named_attacks import run
from keras_mhmcmc.adversarial.objective import Given
from keras_mhmcmc.evaluation.checks import Limits

LEVEL = 0.01  # of the tests
SQUARE_GAIN = 0.002  # AutoAttack's tolerance for what only Square misleads
SMALL_SHARE = 1 / 255  # of the range of the inputs, for a largest strength
BYTES = 100.0  # a range that only inputs such as pixels in [0, 255] have
LARGEST_CHANGE = 1e-3  # of a probability between two calls, by rounding
REPEATED = 256  # at most so many examples are attacked again, with twice the steps


def of_units(largest: float, limits: Limits) -> list[str]:
    """Return a sentence if the largest strength may be in units of other inputs."""
    span = math.inf if limits is None else limits[1] - limits[0]
    is_tiny = 0.0 < largest < SMALL_SHARE * span
    if not is_tiny or not BYTES <= span < math.inf:
        return []
    return [
        f"The largest epsilon is {largest:g} in units of the inputs, which range over "
        f"{span:g}: 8/255 of a pixel in [0, 1] is 8 of a pixel in [0, 255]. Multiply "
        "the epsilons by the range, if they are meant for inputs in [0, 1]."
    ]


class Trial(NamedTuple):
    """What is known of a model under attacks of one strength."""

    epsilon: float
    right: Array  # (n,): whether the model predicts the label, where that counts
    misled: Array  # (attacks, N): whether it predicts another class than the attacked


class Watch:
    """What a table sees of the attacks on one model, and the warnings that follow."""

    def __init__(self, attack: Attack, given: Given, labels: Array) -> None:
        self.attack, self.given, self.labels = attack, given, labels
        self.attacks = list(attack.parts or [attack])
        is_known = any(part.is_by_gradients for part in self.attacks)
        self.gradients = gradients_of(given) if is_known else None
        # The points of PGD, if it keeps the strongest, include that of FGSM.
        self.with_one_step = (
            attack.is_iterative
            and attack.norm == "linf"
            and attack.settings.get("keep_strongest") is not True
            and given.member is None
        )
        if self.with_one_step:
            self.attacks.append(known("attack", "fgsm", {}))
        is_own = np.array_equal(given.labels, labels)
        judged = np.argmax(given.clean, axis=1) == labels
        self.judged = np.ones_like(judged) if is_own else judged
        self.trials: list[Trial] = []

    def add(self, epsilon: float, probabilities: Array, misled: Array | None) -> None:
        """Note probabilities (N, C), and what each attack misleads, (attacks, N)."""
        given, prediction = self.given, np.argmax(probabilities, axis=1)
        if misled is None:
            misled = (prediction != given.labels)[None]
        if self.with_one_step and self.gradients is not None:
            signs = np.sign(self.gradients)
            moved = balls.move(given.x, epsilon, signs, given.limits)
            other = np.argmax(given.classifier.probabilities(moved), axis=1)
            misled = np.stack([*misled, other != given.labels])
        right = (prediction == self.labels)[self.judged]
        self.trials.append(Trial(epsilon, right, misled))

    def warnings(self) -> list[str]:
        """Return the warnings."""
        given, trials = self.given, self.trials
        found = [
            black_box(self.attacks, trials),
            weaker_than_one_step(self.attacks, trials),
        ]
        if given.member is None:  # its attack need not mislead the whole model
            grey = grey_strength(self.attacks, given.x.shape[1:], given.limits)
            found += [
                self._twice_the_steps(),
                above_chance(trials, self.labels[self.judged], grey),
                rising(trials),
            ]
        found.append(None if self.gradients is None else zero_gradients(self.gradients))
        found.append(randomness(given))
        return [text for text in found if text is not None]

    def _twice_the_steps(self) -> str | None:
        """Attack some examples again at the strength that misleads nearest to half."""
        attack = self.attack
        if not attack.is_named or "steps" not in attack.settings or not self.trials:
            return None
        trial = min(self.trials, key=lambda one: abs(np.mean(one.misled[0]) - 0.5))
        count, given = len(self.labels), self.given
        chosen = np.linspace(0, count - 1, min(REPEATED, count)).astype("int64")
        some, labels = given.x[chosen], given.labels[chosen]
        given = given._replace(epsilon=trial.epsilon, x=some, labels=labels)
        more = functools.partial(attack.function, steps=2 * attack.settings["steps"])
        points = run("attack", attack._replace(function=more), given)
        prediction = np.argmax(given.classifier.probabilities(points), axis=1)
        once = trial.misled[0][chosen]
        return twice_the_steps(attack.title, trial.epsilon, once, prediction != labels)


def black_box(attacks: Sequence[Attack], trials: Sequence[Trial]) -> str | None:
    """Return a warning if Square misleads what no attack by gradients does."""
    is_square = np.array([attack.name == "square" for attack in attacks])
    by_gradients = np.array([attack.is_by_gradients for attack in attacks])
    if not np.any(is_square) or not np.any(by_gradients):
        return None
    found = []
    for trial in trials:
        white = np.any(trial.misled[by_gradients], axis=0)
        black = np.any(trial.misled[is_square], axis=0)
        found.append((int(np.sum(black & ~white)), trial.epsilon))
    if not found:
        return None
    (count, epsilon), size = max(found), trials[0].misled.shape[1]
    if tail(count, size, SQUARE_GAIN) >= LEVEL:
        return None
    return (
        f"at strength {epsilon:g} Square misleads {count} of {size} "
        "examples that no attack by gradients misleads, so the gradients may be masked "
        "or these attacks too weak: give them more steps and restarts, attack logits, "
        "and give Square more queries."
    )


def above_chance(
    trials: Sequence[Trial], labels: Array, grey_from: float
) -> str | None:
    """Return a warning if the accuracy is above chance where inputs can be grey."""
    # All grey inputs have the same prediction. So the accuracy can fall at least to the
    # share of the most frequent label.
    trials = [trial for trial in trials if trial.epsilon >= grey_from]
    if not trials or not len(labels):
        return None
    trial = max(trials, key=lambda trial: np.sum(trial.right))
    right = int(np.sum(trial.right))
    chance = float(np.max(np.bincount(labels)) / len(labels))
    if tail(right, len(labels), chance) >= LEVEL:
        return None
    return (
        f"at strength {trial.epsilon:g} the accuracy is "
        f"{right / len(labels):.3f}, although every input can be made grey there, and "
        f"one prediction for all is right for {chance:.3f} at most, so the attack "
        'fails: use attack="strongest", with more steps, restarts and queries.'
    )


def rising(trials: Sequence[Trial]) -> str | None:
    """Return a warning if the accuracy rises with the strength of the attack."""
    right = {trial.epsilon: trial.right for trial in trials}
    pairs = [(low, high) for low in right for high in right if 0.0 < low < high]
    worst = _worst([(right[low], right[high], low, high) for low, high in pairs])
    if worst is None:
        return None
    before, after, low, high = worst
    return (
        f"the accuracy rises from {np.mean(before):.3f} at strength "
        f"{low:g} to {np.mean(after):.3f} at {high:g}, where all inputs of the weaker "
        "attack are allowed as well, so the stronger attack fails: use "
        'attack="strongest", with more steps and restarts.'
    )


def weaker_than_one_step(
    attacks: Sequence[Attack], trials: Sequence[Trial]
) -> str | None:
    """Return a warning if an attack of many steps misleads less than FGSM."""
    one_step = [i for i, attack in enumerate(attacks) if attack.name == "fgsm"]
    iterative = [i for i, attack in enumerate(attacks) if attack.is_iterative]
    worst = _worst(
        [
            (trial.misled[many], trial.misled[one], trial.epsilon, many)
            for trial in trials
            for one in one_step
            for many in iterative
        ]
    )
    if worst is None:
        return None
    by_many, by_one, epsilon, many = worst
    return (
        f"at strength {epsilon:g} one step of FGSM misleads "
        f"{np.sum(by_one)} of {len(by_one)} examples, and {attacks[many].title} "
        f"only {np.sum(by_many)}, so its steps are too few, too short or too long: "
        'give it more steps, or use attack="strongest".'
    )


def twice_the_steps(
    title: str, epsilon: float, once: Array, twice: Array
) -> str | None:
    """Return a warning if twice the steps mislead clearly more, or clearly less."""
    is_stronger = np.sum(twice) > np.sum(once)
    if _worst([(once, twice) if is_stronger else (twice, once)]) is None:
        return None
    found = (
        f"at strength {epsilon:g} {title} misleads "
        f"{np.sum(once)} of {len(once)} examples, and with twice the steps "
        f"{np.sum(twice)}, so "
    )
    if is_stronger:
        return found + "it has too few steps: double them until the number stays."
    return found + (
        "its steps do not build on each other: leave `step_size` at its default, keep "
        'the strongest point, or use attack="strongest".'
    )


def _worst(cases: Sequence[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """Return the case (before, after, ...) of the least probable rise, if it is one."""
    counts = [
        (int(np.sum(~before & after)), int(np.sum(before != after)))
        for before, after, *_ in cases
    ]
    chances = [tail(*count, 0.5) for count in counts]  # gains as likely as losses
    least = min(chances, default=1.0)
    return cases[chances.index(least)] if least < LEVEL else None


def zero_gradients(gradients: Array) -> str | None:
    """Return a warning if examples have a gradient of exactly zero."""
    count, (zeros, _) = len(gradients), objective.faults(gradients)
    if not zeros:
        return None
    return (
        f"{zeros} of {count} examples ({zeros / count:.1%}) have a gradient of "
        "exactly zero, so an attack by gradients does not know where to move them: "
        "attack logits with from_logits=True if a softmax is saturated, and use "
        'attack="square" if the model rounds.'
    )


def randomness(given: Given) -> str | None:
    """Return a warning if a second call of a batch gives other predictions."""
    batch = slice(given.classifier.batch_size)
    first, second = given.clean[batch], given.classifier.redrawn(given.x[batch])
    change = float(np.max(np.abs(second - first)))
    if change <= LARGEST_CHANGE:
        return None
    classes = int(np.sum(np.argmax(first, axis=1) != np.argmax(second, axis=1)))
    return (
        f"predictions are random, and a second call changes the class of "
        f"{classes} of {len(first)} examples and probabilities by up to {change:.2g}, "
        "so the scores are those of one draw: average draws, as "
        "`mh.MCDropout(model, samples)` does with dropout, and attack the average."
    )


def grey_strength(
    attacks: Sequence[Attack], shape: tuple[int, ...], limits: Limits
) -> float:
    """Return the strength from which on an attack can make every input grey."""
    if limits is None:
        return math.inf
    half = 0.5 * (limits[1] - limits[0])
    # The norm of a user's function is not known.
    lengths = {"linf": half, "l2": half * math.prod(shape) ** 0.5, "": math.inf}
    return min(lengths[attack.norm] for attack in attacks)


def tail(count: int, size: int, share: float) -> float:
    """Return the probability of at least `count` successes in `size` trials."""
    if count <= 0 or share >= 1.0:
        return 1.0
    logs = [
        math.lgamma(size + 1.0)
        - math.lgamma(k + 1.0)
        - math.lgamma(size - k + 1.0)
        + k * math.log(share)
        + (size - k) * math.log1p(-share)
        for k in range(count, size + 1)
    ]
    return math.fsum(map(math.exp, logs))
