"""Adversarial examples by the fast gradient sign method.

Paper: Goodfellow, Shlens and Szegedy (2015), "Explaining and harnessing adversarial
examples", section 4. To first order, the attack moves each input in the direction that
raises the loss of the label most. For an ensemble, p is the mean probability:

    x_adv = clip(x + epsilon sign(grad_x -log p(y | x)))
"""

from collections.abc import Sequence

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation.classifier import Classifier


def fgsm(
    model: keras.Model | Classifier,
    x: DataLike,
    epsilon: float,
    *,
    y: npt.ArrayLike | None = None,
    member: int | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Array:
    """Attack a model with the fast gradient sign method.

    The result is clip(x + epsilon sign(grad_x -log p(y | x))), with the model in
    inference mode. With a softmax the sign is right even if p(y | x) rounds to 1 in
    float32. If a probability is exactly 0, or a sigmoid of one column is exactly 1, the
    sign is lost: the example stays unchanged, and a warning tells how many there are.
    Logits do not have this limit.

    Args:
        model: built `keras.Model` that maps `x` to class probabilities, shape (N, C),
            or to the probability of class 1 of two, shape (N, 1). For many calls pass
            an `mh.Classifier` of the model, which is compiled once.
        x: finite inputs, shape (N, ...), or a data set that `fit` takes and that ends.
            It is read into memory.
        epsilon: largest change of an input, in units of `x`, at least 0.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            Defaults to None: the labels of a data set that has some, or else the
            model's own predictions.
        member: index of the member of an `mh.Ensemble` or `mh.MCDropout` that the
            attack misleads. Defaults to None: the mean probability.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        clip: smallest and largest valid input, an increasing pair. `x` must lie
            between them. Defaults to (0, 1); None sets no limits.
        batch_size: number of examples attacked at a time, at least 1. Defaults to 256.

    Returns:
        The adversarial examples, a float32 array with the shape of `x`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are not
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
    given = objective.given(model, x, epsilon, y, member, from_logits, clip, batch_size)
    if given.epsilon == 0.0:
        return given.x.copy()
    directions = signs(given.classifier, given.x, given.labels, given.member)
    return objective.move(given.x, given.epsilon, directions, given.limits)


def signs(
    classifier: Classifier,
    x: Array,
    labels: Array,
    member: int | None = None,
    gradients: Array | None = None,
) -> Array:
    """Return the sign of the loss' gradient (N, ...), which may be known."""
    if gradients is None:
        gradients = gradients_of(classifier, x, labels, member)
    broken = int(np.sum(~np.isfinite(gradients)))
    lost = int(np.sum(~np.any(gradients.reshape(len(x), -1), axis=1)))
    objective.check_gradients(classifier, x, labels, lost, broken)
    return np.sign(gradients)


def gradients_of(
    classifier: Classifier, x: Array, labels: Array, member: int | None = None
) -> Array:
    """Return the loss' gradient, a float32 array with the shape of `x`, unchecked."""
    function = classifier.compiled(objective.ascent, member is not None)

    def gradient(x: Tensor, labels: Tensor, values: Sequence[Tensor]) -> Tensor:
        return function(x, labels, objective.index(member), values)[0]

    gradients: Array = classifier.map(gradient, x, labels.astype("int32"))
    return gradients
