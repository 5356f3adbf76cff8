"""`strongest`: the worst of several attacks, of each example."""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import named_attacks
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.named_attacks import Attack
from keras_mhmcmc.evaluation.checks import Limits
from keras_mhmcmc.evaluation.classifier import Classifier


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
        y: true labels, integers of shape (N,) or (N, 1), or one-hot rows of shape
            (N, C). None for a data set.
        epsilon: largest change of an input, in units of `x`, at least 0.
        attacks: sequence of at least one attack. "fgsm", "pgd", "apgd" and "square"
            are the functions of these names with their defaults, and "apgd_margin" is
            `apgd` with the margin loss. A function is called as
            `attack(classifier, x, epsilon, y=labels, clip=clip)` with an
            `mh.Classifier`, and returns inputs with the shape of `x`. For other
            settings pass `functools.partial(mh.adversarial.apgd, loss="dlr")`.
        seed: integer in [0, 2**31) that makes the random numbers of the named attacks
            repeatable. Defaults to 0.
        member: index of the member of an `mh.Ensemble` or `mh.MCDropout` that the
            attacks mislead. All attacks must then be names. Defaults to None: the mean
            probability.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`.
        batch_size: as in `fgsm`.

    Returns:
        The adversarial examples, a float32 array with the shape of `x`.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or it has no gradient for an attack that needs one.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    >>> strongest(model, np.array([[0.75, 0.5]]), [0], 0.25, attacks=["fgsm", "pgd"])
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Croce and Hein (2020), section 6, who combine other attacks.
    """
    attacks = checked_attacks(attacks, member)
    seed = _validate.seed(seed)
    shared = from_logits, clip, batch_size
    given = objective.given(model, x, epsilon, y, member, *shared, needs_targets=True)
    if given.epsilon == 0.0:
        return given.x.copy()
    classifier, x, epsilon, labels, _, limits, member = given
    rest = limits, member, attacks, seed
    return strongest_and_each(classifier, x, epsilon, labels, *rest)[0]


def strongest_and_each(
    classifier: Classifier,
    x: Array,
    epsilon: float,
    labels: Array,
    limits: Limits,
    member: int | None,
    attacks: Sequence[Attack],
    seed: int,
) -> tuple[Array, Array]:
    """Return the result of `strongest`, and which examples each attack misleads.

    The second array of booleans has the shape (attacks, N).
    """
    judge = classifier.compiled(objective.scores, member is not None)

    def score(
        moved: Tensor, labels: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        loss, fooled = judge(moved, labels, objective.index(member), values)
        return loss, fooled

    best = x.copy()
    best_loss = np.full(len(x), -np.inf)
    is_fooled = np.zeros(len(x), bool)
    each = []
    for attack in attacks:
        known = named_attacks.options_of(attack) if isinstance(attack, str) else {}
        options = {"seed": seed} if "seed" in known else {}
        given = (classifier, x, epsilon, labels, limits, member, options)
        moved = named_attacks.run("attacks", attack, *given)
        loss, fooled = classifier.map(score, moved, labels.astype("int32"))
        better = ~is_fooled & (fooled | (loss > best_loss))
        best[better], best_loss[better] = moved[better], loss[better]
        is_fooled |= fooled
        each.append(fooled)
    return best, np.array(each)


def checked_attacks(attacks: Sequence[Attack], member: int | None) -> list[Attack]:
    """Return the attacks as a list, or raise a `ValueError`."""
    if not isinstance(attacks, list | tuple) or not attacks:
        raise ValueError(
            "Argument `attacks` must be a list or tuple of at least one attack, such "
            f'as ("apgd", "square"). Received: attacks={_validate.shown(attacks)}'
        )
    for attack in attacks:
        named_attacks.check("attacks", attack)
    functions = [attack for attack in attacks if not isinstance(attack, str)]
    if member is not None and functions:
        raise ValueError(
            "Argument `member` must be None if `attacks` has a function, which chooses "
            f"what it attacks. Received: member={member!r}"
        )
    norms = {named_attacks.known(attack, {}).norm for attack in attacks} - {""}
    if len(norms) > 1:
        raise ValueError(
            "Argument `attacks` must have attacks of one norm: `epsilon` is a length "
            "in this norm. Take 'linf' for all, or 'l2' for all. Received: norms "
            f"{', '.join(sorted(norms))}"
        )
    return list(attacks)
