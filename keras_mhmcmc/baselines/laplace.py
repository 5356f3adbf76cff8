"""`last_layer_laplace`: a Gaussian posterior of the last dense layer.

Papers: Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), "Laplace
redux: effortless Bayesian deep learning", section 2; Kristiadi, Hein and Hennig (2020),
"Being Bayesian, even just a bit, fixes overconfidence in ReLU networks", section 2.3.

With the features phi of an example, the head's weights W, shape (F, C), and the prior
N(0, 1/tau) of each, the energy of the head is

    U(W) = -sum_n log p(y_n | W^T phi_n) + sum tau W^2 / 2

Its Hessian, which is its Gauss-Newton matrix since the head is linear, is

    H = sum_n L_n (x) phi_n phi_n^T + diag(tau)

L_n is diag(p) - p p^T for a softmax, p (1 - p) for a sigmoid, and 1 / sigma^2 for
Gaussian noise. The posterior is N(W*, H^-1).
"""

from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines.head import Floats
from keras_mhmcmc.baselines.head import Head
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.of_samples import ensemble_of
from keras_mhmcmc.evaluation.regression import compiled_noise
from keras_mhmcmc.priors import Gaussian

_HINT = " For the targets of a regression pass `noise_std`."

LARGEST_MATRIX = 6000  # rows; a matrix of float64 then takes 288 MB


def last_layer_laplace(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    prior: Gaussian,
    noise_std: float | None = None,
    members: int = 30,
    seed: int = 0,
    batch_size: int = 256,
    activation: ActivationLike = None,
    chunk: int | None = None,
) -> Ensemble:
    """Return an ensemble whose last dense layer is drawn from its Laplace posterior.

    All other weights are those of `model`, which does not change. It runs in inference
    mode: the features of an example are the same in all members.

    In a regression, the posterior of the head is exact: it is that of Bayesian linear
    regression on the features, whatever the trained weights of the head. In a
    classification, the Gaussian lies at the trained weights, and its covariance is the
    inverse of the Hessian there. Train with the same prior (a weight decay of
    1 / (N scale^2) in a mean loss), so that the weights are at its mode.

    Args:
        model: built `keras.Model` that ends in a `keras.layers.Dense`, with a linear
            activation, a softmax, or a sigmoid of one unit, also as a layer after it.
        x: training inputs with N examples along the first axis, or a structure of such
            arrays. Or a data set that `fit` takes, of pairs (x, y), that ends. All of
            them: the posterior is that of these N examples.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C); in
            a regression targets of shape (N, C), or (N,) for one output. None for a
            data set.
        prior: `mh.priors.Gaussian` of the kernel and the bias. Patterns match the paths
            of these two.
        noise_std: standard deviation of the noise of a regression, greater than 0, in
            units of `y`. Defaults to None: that of the `mh.losses.GaussianNLL` that
            the model is compiled with, else a classification. A linear head then gives
            the logits of a softmax, or of a sigmoid if it has one unit.
        members: number of draws, an integer that is at least 1. Defaults to 30.
        seed: integer that makes the draws repeatable, the same on each backend.
            Defaults to 0.
        batch_size: number of examples to compute features of at a time, at least 1.
            Defaults to 256.
        activation: function that turns the model's outputs into the quantity to
            average, as in `keras.activations.get`. Defaults to None: the softmax or
            sigmoid of logits in a classification, the identity otherwise.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `model`. All weights
        but those of the head are stored once.

    Raises:
        ValueError: an argument is outside its range, the model does not end in such a
            layer, the prior leaves a direction of the weights free, or the head has too
            many weights: more than 6000 in a classification (of all classes), or in a
            regression for one output.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> x, y = np.eye(2), np.array([0, 2])
    >>> ensemble = last_layer_laplace(model, x, y, prior=mh.priors.Gaussian(1.0))
    >>> ensemble.predict(x, verbose=0).shape
    (2, 3)
    >>> bool(np.allclose(ensemble.predict(x, verbose=0).sum(axis=1), 1.0))
    True

    Reference: Daxberger et al. (2021), section 2; Kristiadi et al. (2020), section 2.3.
    For a regression: Bishop (2006), "Pattern recognition and machine learning",
    eqs. (3.50) and (3.51).
    """
    if noise_std is not None:
        noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
    members = _validate.integer("members", members, 1)
    seed = _validate.seed(seed)
    head, tau = heads.head_and_precisions(model, x, y, prior, batch_size)
    if noise_std is None:
        noise_std = compiled_noise(model)
    rng = np.random.default_rng(seed)
    if noise_std is None:
        # The Hessian does not depend on the labels.
        heads.check_loss(model, head, _HINT)
        heads.checked_labels(head, _HINT)
        hessian = hessian_of_classifier(head, tau)
        draws = _draws(head.values.ravel(), hessian, members, rng)
        draws = draws.reshape(members, *head.values.shape)
        activation = head.to_probabilities if activation is None else activation
    else:
        targets = _checked_targets(head, noise_std)
        mean, precisions = posterior_of_regression(head, tau, targets, noise_std)
        pairs = zip(mean.T, precisions, strict=True)
        draws = np.stack([_draws(*pair, members, rng) for pair in pairs], axis=2)
    return ensemble_of(
        model, head.stacked(model, draws), np.ones(members), activation, chunk
    )


def posterior_of_regression(
    head: Head, tau: Floats, targets: Floats, noise_std: float
) -> tuple[Floats, list[Floats]]:
    """Return the mean of the weights (F, C), and the precision (F, F) of each column.

    Args:
        head: the head.
        tau: precision of the prior of each weight, shape (F, C).
        targets: shape (N, C).
        noise_std: standard deviation of the noise.
    """
    _check_size(len(tau))
    phi = head.features
    likelihood = phi.T @ phi / noise_std**2
    precisions: list[Floats] = [likelihood + np.diag(column) for column in tau.T]
    _factor(precisions[0])  # refuses a matrix that cannot be inverted
    right = phi.T @ targets / noise_std**2
    columns = [
        np.linalg.solve(precision, right[:, c])
        for c, precision in enumerate(precisions)
    ]
    return np.stack(columns, axis=1), precisions


def hessian_of_classifier(head: Head, tau: Floats) -> Floats:
    """Return the Hessian of the head's energy at its weights, shape (F C, F C).

    Its rows are in the order of `values.ravel()`.
    """
    features, classes = head.values.shape
    _check_size(features * classes)
    phi, logits = head.features, head.features @ head.values
    hessian: Floats = np.zeros((features, classes, features, classes))
    if classes == 1:
        p = heads.sigmoid(logits[:, 0])
        hessian[:, 0, :, 0] = (phi * (p * (1.0 - p))[:, None]).T @ phi
    else:
        p = heads.softmax(logits)
        for c in range(classes):
            for d in range(c, classes):
                curvature = p[:, c] * (float(c == d) - p[:, d])
                block = (phi * curvature[:, None]).T @ phi
                hessian[:, c, :, d] = hessian[:, d, :, c] = block
    rows = features * classes
    return hessian.reshape(rows, rows) + np.diag(tau.ravel())


def _draws(
    mean: Floats, precision: Floats, members: int, rng: np.random.Generator
) -> Floats:
    """Return draws from N(mean, precision^-1), shape (members, weights)."""
    noise = rng.standard_normal((len(mean), members))
    # With precision = R R^T, the covariance of R^-T z is its inverse.
    return mean + np.linalg.solve(_factor(precision).T, noise).T


def _factor(precision: Floats) -> Floats:
    """Return the Cholesky factor of a precision, or raise a `ValueError`."""
    try:
        return np.linalg.cholesky(precision).astype("float64")
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "Argument `prior` must determine all directions of the head's weights that "
            "the data leave free. Use a smaller scale, and a scale for the kernel and "
            "for the bias: without a pattern the prior is flat. "
            f"Received: a precision matrix of {len(precision)} rows that is not "
            "positive definite"
        ) from error


def _check_size(rows: int) -> None:
    if rows > LARGEST_MATRIX:
        raise ValueError(
            "Argument `model` must have a last layer whose posterior has a matrix of "
            f"at most {LARGEST_MATRIX} rows, one for each weight. Put a narrower "
            "`Dense` layer before the last one, or use `mh.SWAG`, or a sampler with "
            f"the other layers frozen. Received: a matrix of {rows} rows"
        )


def _checked_targets(head: Head, noise_std: float) -> Floats:
    """Return the targets of a regression, shape (N, C), or raise a `ValueError`."""
    if head.link != "linear":
        raise ValueError(
            "Argument `noise_std` must be None for a model that gives probabilities: "
            "it is the noise of a regression. "
            f"Received: noise_std={noise_std!r}, and a head with a {head.link}"
        )
    shape = (len(head.features), head.values.shape[1])
    targets = _validate.array("Argument `y`", head.targets)
    if targets.shape == shape[:1] and shape[1] == 1:
        targets = targets[:, None]
    if targets.shape != shape or not np.isfinite(targets).all():
        raise ValueError(
            f"Argument `y` must be finite and have the shape {shape}: one target for "
            f"each example and output. Received: shape {targets.shape}, "
            f"{np.sum(~np.isfinite(targets))} values that are NaN or infinite"
        )
    return targets
