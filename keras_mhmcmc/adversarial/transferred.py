"""`transfer`: what attacks that are made on some models do to others."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.adversarial import curve
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.transfer_table import TransferTable
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifiers import Models
from keras_mhmcmc.evaluation.classifiers import as_classifiers
from keras_mhmcmc.evaluation.classifiers import named


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
        x: finite inputs, shape (N, ...), or a data set of pairs (x, y) that `fit` takes
            and that ends. It is read into memory.
        y: true labels, integers of shape (N,) or (N, 1), or one-hot rows of shape
            (N, C). None for a data set.
        epsilon: strength of the attack, the largest change of an input, in units of
            `x`, at least 0.
        attack: name or function as in `robustness_curve`. Defaults to "pgd".
        from_logits: whether the models output logits instead of probabilities, a bool
            or a dict from all names of `sources` and `targets` to bools. Defaults to
            False.
        clip: smallest and largest valid input, an increasing pair. `x` must lie
            between them. Defaults to (0, 1); None sets no limits.
        batch_size: number of examples attacked at a time, at least 1. Defaults to 256.
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
