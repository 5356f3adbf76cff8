"""Scores of models under attacks of growing strength, and reasons to doubt them.

The doubts are those of Carlini et al. (2019), "On evaluating adversarial robustness",
section 4, and of the flags of AutoAttack (Croce and Hein, 2020). Chance does not warn:
a binomial test decides at `LEVEL` what is above a limit. If attacks are on the model's
own predictions, some of them correct a wrong prediction. Accuracies are then those of
the examples that the model classifies correctly without an attack.
"""

import functools
import math
import time
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from typing import NamedTuple

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.adversarial import gradient_attacks
from keras_mhmcmc.adversarial import named_attacks
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.named_attacks import Attack
from keras_mhmcmc.adversarial.objective import Given
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.classifier import Models
from keras_mhmcmc.evaluation.classifier import as_classifiers
from keras_mhmcmc.evaluation.classifier import named
from keras_mhmcmc.evaluation.classifier import of_each

if TYPE_CHECKING:
    import pandas

LEVEL = 0.01  # of the tests
SQUARE_GAIN = 0.002  # AutoAttack's tolerance for what only Square misleads
SMALL_SHARE = 1 / 255  # of the range of the inputs, for a largest strength
BYTES = 100.0  # a range that only inputs such as pixels in [0, 255] have
LARGEST_CHANGE = 1e-3  # of a probability between two calls, by rounding
REPEATED = 256  # at most so many examples are attacked again, with twice the steps
CONFIDENCE = _validate.Interval(0.0, 1.0, low_open=True)
TableAttack = named_attacks.AttackLike | Literal["strongest"]


def robustness_curve(
    models: Models,
    x: DataLike,
    y: npt.ArrayLike | None,
    epsilons: Sequence[float],
    *,
    attack: TableAttack = "fgsm",
    true_label: bool = True,
    member: int | None = None,
    abstain_below: float | None = None,
    from_logits: bool | Mapping[str, bool] = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
    verbose: Literal[0, 1, 2] = 0,
    **options: Any,
) -> "RobustnessTable":
    """Score models under attacks of growing strength.

    Each model is attacked by itself. Under the table stand warnings, if there is a
    reason to doubt that the attack is strong enough.

    Args:
        models: classifiers, as in `mh.evaluate`.
        x: as in `strongest`.
        y: true labels, as in `strongest`.
        epsilons: strengths of the attack, each as in `fgsm`. 0 scores the clean inputs.
        attack: "fgsm", "pgd", "apgd", "apgd_margin", "square" or a function, as in
            `strongest`, or "strongest". Defaults to "fgsm".
        true_label: whether the attack raises the loss of `y`. If False, it raises the
            loss of the model's own prediction for the clean input, and so corrects some
            wrong predictions. Defaults to True.
        member: index of the member of every model whose loss the attack raises: what an
            attacker achieves with one posterior sample. The scores are those of the
            whole model. Defaults to None: the loss of the mean probability.
        abstain_below: confidence between 0 and 1, the probability of the most probable
            class, below which a model abstains. The table then also has the share of
            abstentions and the accuracy of the others. Defaults to None: never.
        from_logits: as in `mh.evaluate`. Defaults to False.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.
        verbose: 1 shows a progress bar that counts models times strengths, 2 prints a
            line for each model. Defaults to 0.
        options: arguments of the named attack, such as `steps` of "pgd" or `attacks` of
            "strongest". "fgsm" and functions take none.

    Raises:
        ValueError: an argument is outside its range, a model's outputs are not
            probabilities, or a model has no gradient for an attack that needs one.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> model.set_weights([np.array([[-1.0, 1.0]]), np.array([0.5, -0.5])])
    >>> x = np.array([[0.125], [0.375], [0.625], [0.875]])
    >>> print(robustness_curve({"small": model}, x, [0, 0, 1, 1], [0.0, 0.25, 0.5]))
    FGSM on the true labels, by strength epsilon
    accuracy      0   0.25    0.5
    small    1.0000 0.5000 0.0000

    Reference: for the warnings, Carlini et al. (2019), "On evaluating adversarial
    robustness", section 4, and AutoAttack (Croce and Hein, 2020).
    """
    x, y, limits = objective.examples(x, y, clip, needs_targets=True)
    is_row = isinstance(epsilons, (list, tuple)) or np.ndim(epsilons) == 1
    if not is_row or len(epsilons) == 0:
        raise ValueError(
            "Argument `epsilons` must be a sequence of at least one number. "
            f"Received: epsilons={_validate.shown(epsilons)}"
        )
    interval = _validate.NOT_NEGATIVE
    strengths = [_validate.number("epsilons", value, interval) for value in epsilons]
    classifiers = as_classifiers(models, from_logits, batch_size)
    chosen = named_attacks.known("attack", attack, options, member)
    _validate.instance("true_label", true_label, bool, "True or False")
    if abstain_below is not None:
        abstain_below = _validate.number("abstain_below", abstain_below, CONFIDENCE)
    _validate.choice("verbose", verbose, (0, 1, 2))
    for classifier in classifiers.values():
        classifier.check_member(member)
        if not callable(attack):  # a user's function may move words
            objective.refuse_integers(classifier)
    count, shown = len(classifiers) * len(strengths), int(verbose == 1)
    bar = keras.utils.Progbar(count, verbose=shown, unit_name="attack")
    rows: list[dict[str, Any]] = []
    warnings = of_units(max(strengths), limits)
    for name, classifier in classifiers.items():
        begin = time.perf_counter()
        given = objective.given_of(classifier, x, y, 0.0, limits, member)
        labels = given.labels
        if not true_label:
            own = np.argmax(given.clean, axis=1).astype("int32")
            given = given._replace(labels=own)
        watch = Watch(chosen, given, labels) if max(strengths) > 0.0 else None
        for epsilon in strengths:
            probabilities = given.clean
            if watch is not None and epsilon > 0.0:
                stronger = given._replace(epsilon=epsilon)
                moved, misled = attacked(chosen, stronger, watch.gradients)
                probabilities = classifier.probabilities(moved)
                watch.add(epsilon, probabilities, misled)
            scores = _scores(probabilities, labels, abstain_below)
            rows.append({"model": name, "epsilon": epsilon, **scores})
            bar.add(1)
        if watch is not None:
            warnings += [f"{name}: {text}" for text in watch.warnings()]
        if verbose == 2:
            seconds = time.perf_counter() - begin
            sizes = f"{len(strengths)} epsilons, {len(x)} inputs"
            print(f"{name}: {sizes}, {seconds:.1f} s")
    whose = "the true labels" if true_label else "each model's own predictions"
    if member is not None:
        whose += f" by its member {member}"
    caption = f"{chosen.details} on {whose}, by strength epsilon"
    return RobustnessTable(rows, chosen.title, caption, abstain_below, warnings)


def transfer(
    sources: Models,
    targets: Models,
    x: DataLike,
    y: npt.ArrayLike | None,
    epsilon: float,
    *,
    attack: TableAttack = "pgd",
    from_logits: bool | Mapping[str, bool] = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
    **options: Any,
) -> "TransferTable":
    """Score models under attacks that are made on other models.

    The attack raises the loss of the true labels of each source. All targets then
    predict the same attacked inputs. So does an attacker who does not have the target,
    but a single network, while an ensemble is in use.

    Args:
        sources: the models that are attacked, as in `robustness_curve`.
        targets: the models that are scored, likewise. A model may be in both.
        x: as in `strongest`.
        y: as in `strongest`.
        epsilon: strength of the attack, as in `fgsm`.
        attack: name or function as in `robustness_curve`. Defaults to "pgd".
        from_logits: whether the models output logits, a bool or a dict from all names
            of `sources` and `targets` to bools. Defaults to False.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.
        options: arguments of the named attack, as in `robustness_curve`.

    Raises:
        ValueError: as in `robustness_curve`.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> def threshold(value):
    ...     layer = keras.layers.Dense(1, activation="sigmoid")
    ...     model = keras.Sequential([keras.Input((1,)), layer])
    ...     model.set_weights([np.array([[8.0]]), np.array([-8.0 * value])])
    ...     return model
    >>> models = {"low": threshold(0.4), "high": threshold(0.6)}
    >>> x = np.array([[0.125], [0.375], [0.625], [0.875]])
    >>> print(transfer(models, models, x, [0, 0, 1, 1], 0.25))
    PGD of 20 steps from a random input of strength 0.25 on the true labels
    attack     low   high
    clean   1.0000 1.0000
    on low  0.5000 0.5000
    on high 0.5000 0.5000

    Reference: Papernot, McDaniel and Goodfellow (2016), "Transferability in machine
    learning", section 3.
    """
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    x, y, limits = objective.examples(x, y, clip, needs_targets=True)
    chosen = named_attacks.known("attack", attack, options)
    sources, targets = named(sources, "sources"), named(targets, "targets")
    both = "sources` and `targets"
    flags = of_each(
        "from_logits", from_logits, {**sources, **targets}, "True, False", both
    )
    attacked_ones, scored_ones = (
        as_classifiers(group, {name: flags[name] for name in group}, batch_size, whose)
        for whose, group in (("sources", sources), ("targets", targets))
    )
    rows = []
    clean = {name: target.probabilities(x) for name, target in scored_ones.items()}
    labels = {name: checks.as_labels("y", y, *p.shape) for name, p in clean.items()}
    for source, classifier in attacked_ones.items():
        moved = x
        if epsilon > 0.0:
            given = objective.given_of(classifier, x, y, epsilon, limits, None)
            moved, _ = attacked(chosen, given)
        for target, scored in scored_ones.items():
            scores = _scores(scored.probabilities(moved), labels[target], None)
            before = metrics.accuracy(clean[target], labels[target])
            row = {"source": source, "target": target, **scores}
            del row["entropy"]
            rows.append(row | {"clean_accuracy": before})
    caption = f"{chosen.details} of strength {epsilon:g} on the true labels"
    return TransferTable(rows, chosen.title, caption)


def attacked(
    attack: Attack, given: Given, gradients: Array | None = None
) -> tuple[Array, Array | None]:
    """Return adversarial inputs, and what each of several attacks misleads (., N)."""
    if attack.parts:
        return named_attacks.strongest_and_each(given, attack.parts)
    if attack.is_named and attack.name == "fgsm":
        fixed = gradient_attacks.signs(given, gradients), given.limits
        return objective.move(given.x, given.epsilon, *fixed), None
    return named_attacks.run("attack", attack, given), None


def _scores(
    probabilities: Array, labels: Array, abstain_below: float | None
) -> dict[str, float]:
    scores = {
        "accuracy": metrics.accuracy(probabilities, labels),
        "nll": metrics.nll(probabilities, labels),
        "entropy": float(np.mean(metrics.predictive_entropy(probabilities))),
    }
    if abstain_below is not None:
        kept = np.max(probabilities, axis=1) >= abstain_below
        scores["abstained"] = float(np.mean(~kept))
        right = np.argmax(probabilities, axis=1) == labels
        scores["kept_accuracy"] = float(right[kept].mean()) if any(kept) else math.nan
    return scores


class RobustnessTable(_table.PrintedTable):
    """Scores of models under attack, with a row for each model and strength.

    | column | holds |
    |---|---|
    | `model` | the model's name |
    | `epsilon` | strength of the attack, in units of the input |
    | `accuracy` | share of correct predictions |
    | `nll` | mean negative log-likelihood of the labels, in nats |
    | `entropy` | mean predictive entropy, in nats |
    | `abstained` | share of examples whose confidence is below the threshold |
    | `kept_accuracy` | accuracy of the other examples, NaN if there are none |

    The last two columns exist only with abstention.

    Args:
        rows: list of at least one dict with these keys. All models have the same
            strengths, in the same order.
        attack: name of the attack, such as "PGD". Defaults to "FGSM".
        caption: a description of the attack, the first line of the printed table.
        abstain_below: threshold of the confidence, between 0 and 1, or None.
        warnings: sentences with reasons to doubt the scores. They are the attribute
            `warnings`, a tuple. Defaults to none.

    Raises:
        ValueError: an argument has another type, or the models differ in their
            strengths.
    """

    def __init__(
        self,
        rows: Sequence[_table.Row],
        attack: str = "FGSM",
        caption: str = "",
        abstain_below: float | None = None,
        warnings: Sequence[str] = (),
    ) -> None:
        names = ["epsilon", "accuracy", "nll", "entropy"]
        if abstain_below is not None:
            abstain_below = _validate.number("abstain_below", abstain_below, CONFIDENCE)
            names += ["abstained", "kept_accuracy"]
        self.rows = _table.checked_rows(rows, names)
        self.attack = _validate.instance("attack", attack, str, "the attack's name")
        self.caption = _validate.instance("caption", caption, str, "a string")
        self.abstain_below = abstain_below
        hint = "a list or tuple of strings"
        _validate.instance("warnings", warnings, (list, tuple), hint)
        for text in warnings:
            _validate.instance("warnings", text, str, hint)
        self.warnings = tuple(warnings)
        self._models = list(dict.fromkeys(row["model"] for row in self.rows))
        strengths = {tuple(self.column(name, "epsilon")) for name in self._models}
        if len(strengths) > 1:
            raise ValueError(
                "Argument `rows` must have the same strengths for each model, in the "
                f"same order. Received: {sorted(strengths)}"
            )

    def column(self, model: str, name: str) -> Array:
        """Return a model's values of a column, such as "nll", one for each strength.

        A `ValueError` tells if there is no such model or column.
        """
        _validate.choice("model", model, self._models)
        _validate.choice("name", name, tuple(self.rows[0]))
        return np.array([row[name] for row in self.rows if row["model"] == model])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`, with the warnings in its `attrs`."""
        frame = super().to_pandas()
        frame.attrs["warnings"] = list(self.warnings)
        return frame

    def _printed(self) -> _table.Printed:
        titles = {"accuracy": "accuracy"}
        if self.abstain_below is not None:
            titles["abstained"] = f"confidence < {self.abstain_below:g}"
            titles["kept_accuracy"] = "accuracy if not"
        below = [f"Warning: {text}" for text in self.warnings]
        shown = self.column(self._models[0], "epsilon"), self._models, self.column
        return _table.by_model(titles, *shown, self.caption, below)


class TransferTable(_table.PrintedTable):
    """Scores of targets for attacks on sources, with a row for each pair.

    | column | holds |
    |---|---|
    | `source` | name of the model on which the attack was made |
    | `target` | name of the model that is scored |
    | `accuracy` | share of correct predictions of the target under the attack |
    | `nll` | mean negative log-likelihood of the labels, in nats |
    | `clean_accuracy` | accuracy of the target for the clean inputs |

    `transfer` makes it. `print` shows the accuracies as a matrix: a line for each
    source, a column for each target, and a first line for the clean inputs.
    """

    def __init__(
        self, rows: Sequence[_table.Row], attack: str = "PGD", caption: str = ""
    ) -> None:
        names = "accuracy", "nll", "clean_accuracy"
        self.rows = _table.checked_rows(rows, names, ("source", "target"))
        self.attack = _validate.instance("attack", attack, str, "the attack's name")
        self.caption = _validate.instance("caption", caption, str, "a string")
        self.sources = list(dict.fromkeys(row["source"] for row in self.rows))
        self.targets = list(dict.fromkeys(row["target"] for row in self.rows))
        pairs = [(row["source"], row["target"]) for row in self.rows]
        if pairs != [(s, t) for s in self.sources for t in self.targets]:
            raise ValueError(
                "Argument `rows` must have one dict for each pair of a source and a "
                f"target, source by source. Received: the pairs {pairs}"
            )

    def matrix(self, name: str = "accuracy") -> Array:
        """Return a column of numbers as a matrix, shape (sources, targets).

        A `ValueError` tells if there is no such column.
        """
        numbers = [key for key in self.rows[0] if key not in ("source", "target")]
        _validate.choice("name", name, numbers)
        values = np.array([row[name] for row in self.rows])
        return values.reshape(len(self.sources), len(self.targets))

    def _printed(self) -> _table.Printed:
        heads = ["clean", *(f"on {source}" for source in self.sources)]
        scores = [self.matrix("clean_accuracy")[0], *self.matrix()]
        lines = [["attack", *map(str, self.targets)]]
        for head, values in zip(heads, scores, strict=True):
            lines.append([head, *map(_table.number, values)])
        return _table.Printed(lines, above=self.caption)


def of_units(largest: float, limits: checks.Limits) -> list[str]:
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
        self.gradients = gradient_attacks.gradients_of(given) if is_known else None
        # The points of PGD, if it keeps the strongest, include that of FGSM.
        self.with_one_step = (
            attack.is_iterative
            and attack.norm == "linf"
            and attack.settings.get("keep_strongest") is not True
            and given.member is None
        )
        if self.with_one_step:
            self.attacks.append(named_attacks.known("attack", "fgsm", {}))
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
            moved = objective.move(given.x, epsilon, signs, given.limits)
            other = np.argmax(given.classifier.probabilities(moved), axis=1)
            misled = np.stack([*misled, other != given.labels])
        right = (prediction == self.labels)[self.judged]
        self.trials.append(Trial(epsilon, right, misled))

    def warnings(self) -> list[str]:
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
        if not attack.is_named or "steps" not in attack.settings:
            return None
        trial = min(self.trials, key=lambda one: abs(np.mean(one.misled[0]) - 0.5))
        count, given = len(self.labels), self.given
        chosen = np.linspace(0, count - 1, min(REPEATED, count)).astype("int64")
        some, labels = given.x[chosen], given.labels[chosen]
        given = given._replace(epsilon=trial.epsilon, x=some, labels=labels)
        more = functools.partial(attack.function, steps=2 * attack.settings["steps"])
        points = named_attacks.run("attack", attack._replace(function=more), given)
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
    for trial in trials:  # at least one
        white = np.any(trial.misled[by_gradients], axis=0)
        black = np.any(trial.misled[is_square], axis=0)
        found.append((int(np.sum(black & ~white)), trial.epsilon))
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
    attacks: Sequence[Attack], shape: tuple[int, ...], limits: checks.Limits
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
    from scipy import special  # takes a tenth of a second

    return float(special.bdtrc(count - 1, size, share))
