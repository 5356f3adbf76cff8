"""`transfer`: what attacks that are made on some models do to others, as a table."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.adversarial import curve
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import Models
from keras_mhmcmc.evaluation.classifier import as_classifiers
from keras_mhmcmc.evaluation.classifier import named

if TYPE_CHECKING:
    import pandas


_LABELS = ("source", "target")
_SCORES = ("accuracy", "nll", "clean_accuracy")


class TransferTable(_table.PrintedTable):
    """Scores of targets for attacks on sources, with a row for each pair.

    | column | holds |
    |---|---|
    | `source` | name of the model on which the attack was made |
    | `target` | name of the model that is scored |
    | `accuracy` | share of correct predictions of the target under the attack |
    | `nll` | mean negative log-likelihood of the labels, in nats |
    | `clean_accuracy` | accuracy of the target for the clean inputs |

    `print` shows the accuracies as a matrix: a line for each source, a column for each
    target, and a first line for the clean inputs.

    Args:
        rows: list of at least one dict with these keys, one for each pair of a source
            and a target, source by source.
        attack: name of the attack, such as "PGD". Defaults to "PGD".
        caption: a description of the attack, the first line of the printed table.

    Raises:
        ValueError: an argument has another type, or pairs are missing.
    """

    def __init__(
        self, rows: Sequence[_table.Row], attack: str = "PGD", caption: str = ""
    ) -> None:
        self.rows = _table.checked_rows(rows, _SCORES, _LABELS)
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
        """Return a column as a matrix.

        Args:
            name: name of the column, such as "nll". Defaults to "accuracy".

        Returns:
            An array of shape (sources, targets), in the order of `sources` and
            `targets`.

        Raises:
            ValueError: there is no such column of numbers.
        """
        _validate.choice("name", name, [k for k in self.rows[0] if k not in _LABELS])
        values = np.array([row[name] for row in self.rows])
        return values.reshape(len(self.sources), len(self.targets))

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def _printed(self) -> _table.Printed:
        heads = ["clean", *(f"on {source}" for source in self.sources)]
        scores = [self.matrix("clean_accuracy")[0], *self.matrix()]
        lines = [["attack", *map(str, self.targets)]]
        for head, values in zip(heads, scores, strict=True):
            lines.append([head, *map(_table.number, values)])
        return _table.Printed(lines, above=self.caption)


def transfer(
    sources: Models,
    targets: Models,
    x: DataLike,
    y: npt.ArrayLike | None,
    epsilon: float,
    *,
    attack: curve.Attack = "pgd",
    from_logits: bool | Mapping[str, bool] = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
    **options: Any,
) -> TransferTable:
    """Score models under attacks that are made on other models.

    The attack raises the loss of the true labels of each source. All targets then
    predict the same attacked inputs. This is an attacker who does not have the target:
    such as one who has a single network, while an ensemble is in use.

    Args:
        sources: the models that are attacked, as in `mh.evaluate`: one, a list, or a
            dict from names to models: built `keras.Model`s as in `fgsm`, such as an
            `mh.Ensemble`, or `mh.Classifier`s.
        targets: the models that are scored, likewise. A model may be in both.
        x: as in `strongest`.
        y: as in `strongest`.
        epsilon: strength of the attack, as in `fgsm`.
        attack: name or function as in `robustness_curve`. Defaults to "pgd".
        from_logits: whether the models output logits instead of probabilities, a bool
            or a dict from all names of `sources` and `targets` to bools. Defaults to
            False.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.
        options: arguments of the named attack, as in `robustness_curve`.

    Returns:
        A `TransferTable`. Print it, or use its `matrix`, `rows` or `to_pandas()`.

    Raises:
        ValueError: an argument is outside its range, a model's outputs are not
            probabilities, or a source has no gradient for an attack that needs one.

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
    curve.check_attack(attack, options)
    sources, targets = named(sources, "sources"), named(targets, "targets")
    flags = _flags(sources, targets, from_logits)
    made = [
        as_classifiers(models, flag, batch_size, argument)
        for models, flag, argument in zip(
            (sources, targets), flags, ("sources", "targets"), strict=True
        )
    ]
    title, details = curve.names_of(attack, options)
    rows = []
    clean = {name: target.probabilities(x) for name, target in made[1].items()}
    labels = {name: as_labels("y", y, *p.shape) for name, p in clean.items()}
    for source, classifier in made[0].items():
        shape = classifier.probabilities(x).shape
        moved = x
        if epsilon > 0.0:
            own = as_labels("y", y, *shape)
            make = curve.attacker(attack, classifier, x, own, limits, None, options)
            moved = make(epsilon).points
        for target, scored in made[1].items():
            probabilities = scored.probabilities(moved)
            rows.append(
                {
                    "source": source,
                    "target": target,
                    "accuracy": metrics.accuracy(probabilities, labels[target]),
                    "nll": metrics.nll(probabilities, labels[target]),
                    "clean_accuracy": metrics.accuracy(clean[target], labels[target]),
                }
            )
    caption = f"{title}{details} of strength {epsilon:g} on the true labels"
    if isinstance(attack, str):
        caption = caption[0].upper() + caption[1:]
    return TransferTable(rows, title, caption)


def _flags(
    sources: Mapping[str, Any],
    targets: Mapping[str, Any],
    from_logits: bool | Mapping[str, bool],
) -> list[bool | Mapping[str, bool]]:
    """Return `from_logits` of the sources and of the targets."""
    if not isinstance(from_logits, Mapping):
        return [from_logits, from_logits]
    names = list(dict.fromkeys([*sources, *targets]))
    if from_logits.keys() != set(names):
        raise ValueError(
            "Argument `from_logits` must be True, False, or a dict with the names of "
            f"`sources` and `targets`, {names}. Received: from_logits="
            f"{_validate.shown(from_logits)}"
        )
    return [{name: from_logits[name] for name in group} for group in (sources, targets)]
