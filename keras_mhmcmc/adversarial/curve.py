"""`robustness_curve`: models against attacks of growing strength."""

import time

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.adversarial import inputs
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial.gradient_sign import signs
from keras_mhmcmc.adversarial.projected_gradient import pgd
from keras_mhmcmc.adversarial.table import CONFIDENCE
from keras_mhmcmc.adversarial.table import RobustnessTable
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.classifier import as_classifiers

ATTACKS = ("fgsm", "pgd")


def robustness_curve(
    models,
    x,
    y,
    epsilons,
    *,
    attack="fgsm",
    true_label=False,
    member=None,
    abstain_below=None,
    from_logits=False,
    clip=(0.0, 1.0),
    batch_size=256,
    verbose=0,
    **options,
):
    """Quality of models under attacks of growing strength.

    Each model meets the adversarial examples that the attack makes against itself, at
    each strength. The scores compare its predictions for these with the labels.

    Args:
        models: dict from names to models, as in `fgsm`: ensembles, `mh.MCDropout`
            and `mh.Classifier`, too.
        x: inputs, finite, N examples along the first axis.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
        epsilons: largest changes of an input, in units of `x`, each at least 0. 0 gives
            the scores of the clean inputs.
        attack: "fgsm", "pgd", or a function of your own, which is called as
            `attack(classifier, x, epsilon, y=labels, clip=clip)` with an
            `mh.Classifier` and returns inputs shaped like `x`.
        true_label: whether an attack raises the loss of `y`. By default it is that of
            the model's own prediction for the clean input, which moves an example that
            is classified wrongly away from its wrong class.
        member: index of the member of every model whose loss the attack raises, while
            the model as a whole is scored: what an attacker achieves who has one
            sample. None: the loss of the averaged probability.
        abstain_below: a confidence between 0 and 1. A model abstains from examples
            whose most probable class has less; the table then has the share of these,
            and the accuracy of the others. None: it always answers.
        from_logits: whether the models output logits; a bool or a dict from the names.
        clip: smallest and largest valid input, a pair in increasing order. `x` must
            lie between them. None: no limits.
        batch_size: number of examples attacked at a time, at least 1.
        verbose: 1 shows a progress bar with the time left, which counts models times
            strengths; 2 prints a line for each model when it is done; 0 nothing.
        options: arguments of `pgd`, such as `steps`, with `attack="pgd"` alone.

    Returns:
        A `RobustnessTable`; print it, or take its `column`, `rows` or `to_pandas()`.

    Raises:
        ValueError: an argument is outside its range, or a model's outputs are no
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((1,)), layer])
    >>> model.set_weights([np.array([[-1.0, 1.0]]), np.array([0.5, -0.5])])
    >>> x = np.array([[0.125], [0.375], [0.625], [0.875]])
    >>> print(robustness_curve({"small": model}, x, [0, 0, 1, 1], [0.0, 0.25, 0.5]))
    FGSM on each model's own predictions, by strength epsilon
    accuracy      0   0.25    0.5
    small    1.0000 0.5000 0.0000

    Reference: Goodfellow, Shlens and Szegedy (2015), section 4; Madry et al. (2018).
    """
    x, clip = inputs.inputs_and_limits(x, clip)
    if np.ndim(epsilons) != 1 or len(epsilons) == 0:
        raise ValueError(
            "Argument `epsilons` must be a sequence of at least one number. "
            f"Received: epsilons={_validate.shown(epsilons)}"
        )
    interval = _validate.NOT_NEGATIVE
    epsilons = [_validate.number("epsilons", value, interval) for value in epsilons]
    classifiers = as_classifiers(models, from_logits, batch_size)
    is_name = isinstance(attack, str) and attack in ATTACKS
    if not callable(attack) and not is_name:
        raise ValueError(
            "Argument `attack` must be 'fgsm', 'pgd' or a function. "
            f"Received: attack={_validate.shown(attack)}"
        )
    _check_options(attack, options)
    if member is not None and callable(attack):
        raise ValueError(
            "Argument `member` must be None for an attack of your own, which chooses "
            f"what it attacks. Received: member={member!r}"
        )
    _validate.instance("true_label", true_label, bool, "True or False")
    if abstain_below is not None:
        abstain_below = _validate.number("abstain_below", abstain_below, CONFIDENCE)
    _validate.choice("verbose", verbose, (0, 1, 2))
    member_of = {name: c.check_member(member) for name, c in classifiers.items()}
    bar = None
    if verbose == 1:
        bar = keras.utils.Progbar(len(classifiers) * len(epsilons), unit_name="attack")
    rows = []
    for name, classifier in classifiers.items():
        begin = time.perf_counter()
        clean = classifier.probabilities(x)
        labels = as_labels("y", y, *clean.shape)
        attacked = labels if true_label else np.argmax(clean, axis=1)
        if max(epsilons) > 0.0:
            given = (classifier, x, attacked, clip, member_of[name], options)
            make = _attacker(attack, *given)
        for epsilon in epsilons:
            probabilities = clean
            if epsilon > 0.0:
                probabilities = classifier.probabilities(make(epsilon))
            scores = _scores(probabilities, labels, abstain_below)
            rows.append({"model": name, "epsilon": epsilon, **scores})
            if bar is not None:
                bar.add(1)
        if verbose == 2:
            seconds = time.perf_counter() - begin
            print(f"{name}: {len(epsilons)} epsilons, {len(x)} inputs, {seconds:.1f} s")
    title, details = _names(attack, options)
    whose = "the true labels" if true_label else "each model's own predictions"
    if member is not None:
        whose += f" by its member {member}"
    caption = f"{title}{details} on {whose}, by strength epsilon"
    return RobustnessTable(rows, title, caption, abstain_below)


def _check_options(attack, options):
    """Raises unless the attack takes these options."""
    if options and attack != "pgd":
        raise ValueError(
            f"Arguments {_listed(options)} must be left away unless "
            f'attack="pgd", which takes them. Received: attack={attack!r}'
        )
    unknown = [name for name in options if name not in pgd.__kwdefaults__]
    if unknown:
        raise ValueError(
            f"Arguments {_listed(unknown)} must be left away: the options are "
            f"{_listed(pgd.__kwdefaults__)}. Received: {sorted(options)}"
        )


def _listed(names):
    return ", ".join(f"`{name}`" for name in names)


def _attacker(attack, classifier, x, labels, clip, member, options):
    """A function from strengths above 0 to adversarial inputs."""
    if attack == "fgsm":
        directions = signs(classifier, x, labels, member)  # once for all strengths
        return lambda epsilon: objective.move(x, epsilon, directions, clip)
    if attack == "pgd":
        return lambda epsilon: pgd(
            classifier, x, epsilon, y=labels, clip=clip, member=member, **options
        )
    return lambda epsilon: _checked_result(
        attack(classifier, x, epsilon, y=labels, clip=clip), x.shape
    )


def _checked_result(result, shape):
    """What an attack of the user's own returned, or a `ValueError` that names it."""
    subject = "Argument `attack`"
    result = _validate.array(f"{subject}, what it returns,", result, "float32")
    if result.shape != shape or not np.isfinite(result).all():
        raise ValueError(
            f"{subject} must be a function that returns finite inputs of the shape of "
            f"`x`, {shape}. Received: a function that returns the shape {result.shape},"
            f" with {np.sum(~np.isfinite(result))} values that are not finite"
        )
    return result


def _scores(probabilities, labels, abstain_below):
    entropy = metrics.predictive_entropy(probabilities)
    scores = {
        "accuracy": metrics.accuracy(probabilities, labels),
        "nll": metrics.nll(probabilities, labels),
        "entropy": float(np.mean(entropy)),
    }
    if abstain_below is not None:
        kept = np.max(probabilities, axis=1) >= abstain_below
        scores["abstained"] = float(np.mean(~kept))
        scores["kept_accuracy"] = (
            metrics.accuracy(probabilities[kept], labels[kept])
            if np.any(kept)
            else float("nan")
        )
    return scores


def _names(attack, options):
    """The attack's name, and what else there is to say of it."""
    if attack == "fgsm":
        return "FGSM", ""
    if attack == "pgd":
        options = pgd.__kwdefaults__ | options
        start = "a random" if options["random_start"] else "the clean"
        return "PGD", f" of {options['steps']} steps from {start} input"
    return getattr(attack, "__name__", "the given attack"), ""
