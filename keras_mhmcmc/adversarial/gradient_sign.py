"""Adversarial examples by the fast gradient sign method.

Paper: Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing adversarial
examples", section 4. An attack changes each input by at most `epsilon`, in the
direction that raises the loss of its label most to first order:

    x_adv = clip(x + epsilon sign(grad_x -log p(y | x)))

A model may be an ensemble that averages probabilities; then p is the mean, and the
attack is on the ensemble as a whole.
"""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.adversarial import inputs
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation.classifier import as_classifier


def fgsm(
    model,
    x,
    epsilon,
    *,
    y=None,
    member=None,
    from_logits=False,
    clip=(0.0, 1.0),
    batch_size=256,
):
    """Adversarial examples by the fast gradient sign method.

    Computes clip(x + epsilon sign(grad_x -log p(y | x))), with the model in inference
    mode. The sign is right even where a float32 p(y | x) rounds to 1. Where it is lost
    (probabilities of exactly 0), an example stays as it is and a warning says so;
    logits have no such limit.

    Args:
        model: built `keras.Model` from `x` to class probabilities of shape (N, C), or
            to the probability of class 1 of two, of shape (N, 1); or an
            `mh.Classifier` of one, which is compiled once for many calls.
        x: inputs, finite, N examples along the first axis.
        epsilon: largest change of an input, in units of `x`, at least 0.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None: the model's own predictions, so that the attack knows no label.
        member: index of the member of an `mh.Ensemble` or `mh.MCDropout` whose loss
            the attack raises. None: that of the averaged probability.
        from_logits: whether the model outputs logits in place of probabilities.
        clip: smallest and largest valid input, a pair in increasing order. `x` must
            lie between them. None: no limits.
        batch_size: number of examples attacked at a time, at least 1.

    Returns:
        A float32 NumPy array shaped like `x`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are no
            probabilities.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.0, 0.0]]), np.zeros(2)])
    >>> fgsm(model, np.array([[0.75, 0.25]]), epsilon=0.5)
    array([[0.25, 0.25]], dtype=float32)

    Reference: Goodfellow, Shlens and Szegedy (2015), section 4.
    """
    epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
    x, clip = inputs.inputs_and_limits(x, clip)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    member = classifier.check_member(member)
    labels = inputs.attacked_labels(classifier, x, y)
    if epsilon == 0.0:
        return x.copy()
    return objective.move(x, epsilon, signs(classifier, x, labels, member), clip)


def signs(classifier, x, labels, member=None):
    """Sign of the gradient of the labels' loss, a float32 array shaped like `x`."""
    function = classifier.compiled(objective.ascent, member is not None)

    def gradient(x, labels, values):
        return function(x, labels, objective.index(member), values)[0]

    gradients = classifier.map(gradient, x, labels.astype("int32"))
    broken = int(np.sum(~np.isfinite(gradients)))
    lost = int(np.sum(~np.any(gradients.reshape(len(x), -1), axis=1)))
    objective.check_gradients(classifier, len(x), lost, broken)
    return np.sign(gradients)
