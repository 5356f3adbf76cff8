"""Posteriors of the last dense layer of a model: a Gaussian one, and exact samples.

Papers: Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and Hennig (2021), "Laplace
redux: effortless Bayesian deep learning", section 2; Kristiadi, Hein and Hennig (2020),
"Being Bayesian, even just a bit, fixes overconfidence in ReLU networks", section 2.3;
Neal (2011), "MCMC using Hamiltonian dynamics".

`head.py` has the energy U(W) of the head, and its letters.

`last_layer_laplace` draws from N(W*, H^-1). H is the Hessian of U, which is its
Gauss-Newton matrix since the head is linear:

    H = sum_n L_n (x) phi_n phi_n^T + diag(tau)

L_n is diag(p) - p p^T for a softmax, p (1 - p) for a sigmoid, and 1 / sigma^2 for
Gaussian noise.

`sample_last_layer` samples exp(-U) in the coordinates V.
"""

import math
from collections.abc import Callable
from typing import Any
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc import kernels
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines.head import Floats
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.evaluation.checks import as_targets
from keras_mhmcmc.evaluation.evaluate import compiled_likelihood
from keras_mhmcmc.priors import Gaussian
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.loop import Plan
from keras_mhmcmc.sampling.run import sample

LARGEST_MATRIX = 6000  # rows; a matrix of float64 then takes 288 MB
_SHOWN = 200  # examples whose predictions are compared between chains
_RECORDED = 200  # draws of all chains, at least, that the diagnostics see
_BATCHES = 5  # of a chain, for the effective sample size
_HMC_WARM_UP, _HMC_STEPS = 300, 400
_LEAST_WARM_UP = 200  # of paths, to find a step
LARGEST_R_HAT, SMALLEST_ESS = 1.1, 50.0
# Of what the runs for several widths tell, what is returned.
_WORST = {
    "acceptance": min,
    "batch_size": max,
    "num_steps": max,
    "r_hat": max,
    "ess": min,
}


def last_layer_laplace(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    prior: Gaussian | Literal["auto"] = "auto",
    noise_std: float | None = None,
    members: int = 30,
    seed: int = 0,
    batch_size: int = 256,
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
            of these two. Defaults to "auto", for a classification alone: the width that
            predicts left-out labels best, by five-fold cross-validation of up to 500
            labels, and on a fifth of more.
        noise_std: standard deviation of the noise of a regression, greater than 0, in
            units of `y`. Defaults to None: that of the `mh.losses.GaussianNLL` that
            the model is compiled with, else a classification. A linear head then gives
            the logits of a softmax, or of a sigmoid if it has one unit.
        members: number of draws, an integer that is at least 1. Defaults to 30.
        seed: integer that makes the draws repeatable, the same on each backend.
            Defaults to 0.
        batch_size: number of examples to compute features of at a time, at least 1.
            Defaults to 256.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `model`. In a
        classification it averages probabilities, also those of logits. All weights but
        those of the head are stored once.

    Raises:
        ValueError: an argument is outside its range, the model does not end in such a
            layer, the prior leaves a direction of the weights free, or the head has
            more than 6000 weights: of all classes, or of one output of a regression.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> x, y = np.eye(2), np.array([0, 2])
    >>> ensemble = last_layer_laplace(model, x, y, prior=mh.priors.Gaussian(1.0))
    >>> ensemble.predict(x, verbose=0).shape
    (2, 3)

    Reference: Daxberger et al. (2021), "Laplace redux: effortless Bayesian deep
    learning", section 2. For a regression: Bishop (2006), "Pattern recognition and
    machine learning", eqs. (3.50) and (3.51).
    """
    if noise_std is not None:
        noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
    members = _validate.integer("members", members, 1)
    seed = _validate.seed(seed)
    heads.check_prior(prior)
    head = heads.head_of(model, x, batch_size, y)
    likelihood = compiled_likelihood(model)
    if noise_std is None and likelihood is not None:
        noise_std = likelihood.noise_std
    rng = np.random.default_rng(seed)
    if noise_std is None:
        # The Hessian does not depend on the labels.
        hint = " For the targets of a regression pass `noise_std`."
        labels = heads.checked_labels(model, head, hint)
        ((tau, _),) = heads.of_prior(head, prior, labels, seed, of_samples=False)
        hessian = hessian_of_classifier(head, tau)
        draws = _draws(head.values.ravel(), hessian, members, rng)
        draws = draws.reshape(members, *head.values.shape)
    else:
        if not isinstance(prior, Gaussian):
            raise ValueError(
                "Argument `prior` must be an `mh.priors.Gaussian` in a regression. "
                f"Received: prior={prior!r}, noise_std={noise_std}"
            )
        if head.link != "linear":
            raise ValueError(
                "Argument `noise_std` must be None for a model that gives "
                "probabilities: it is the noise of a regression. "
                f"Received: noise_std={noise_std!r}, and a head with a {head.link}"
            )
        shape = len(head.features), head.values.shape[1]
        targets = as_targets("y", head.targets, shape)
        tau = head.precisions(prior.bind(head.variables).precisions)
        mean, of_columns = posterior_of_regression(head, tau, targets, noise_std)
        pairs = zip(mean.T, of_columns, strict=True)
        draws = np.stack([_draws(*pair, members, rng) for pair in pairs], axis=2)
    weights = np.ones(members)
    return head.ensemble(model, draws, weights, noise_std is None, chunk)


def posterior_of_regression(
    head: heads.Head, tau: Floats, targets: Floats, noise_std: float
) -> tuple[Floats, list[Floats]]:
    """Return the mean of the weights (F, C), and a precision (F, F) of each column."""
    _check_size(len(tau))
    phi = head.features
    likelihood = phi.T @ phi / noise_std**2
    precisions: list[Floats] = [likelihood + np.diag(column) for column in tau.T]
    _factor(precisions[0])  # refuses a matrix that cannot be inverted
    right = phi.T @ targets / noise_std**2
    columns = [np.linalg.solve(p, right[:, c]) for c, p in enumerate(precisions)]
    return np.stack(columns, axis=1), precisions


def hessian_of_classifier(head: heads.Head, tau: Floats) -> Floats:
    """Return H, shape (F C, F C), with rows in the order of `values.ravel()`."""
    features, classes = head.values.shape
    _check_size(features * classes)
    phi = head.features
    p = heads.probabilities(phi @ head.values)
    hessian: Floats = np.zeros((features, classes, features, classes))
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
            "`Dense` layer before the last one, or use `mh.swag`, or a sampler with "
            f"the other layers frozen. Received: a matrix of {rows} rows"
        )


def sample_last_layer(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    prior: Gaussian | Literal["auto"] = "auto",
    members: int = 200,
    num_chains: int = 4,
    num_steps: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    chunk: int | None = None,
    progress: bool = True,
) -> tuple[Ensemble, dict[str, Any]]:
    """Return an ensemble with exact posterior samples of the last dense layer.

    The sampled distribution is the posterior at temperature 1 of the kernel and the
    bias of the last layer, given all N examples, or a mixture of such posteriors. All
    other weights are those of `model`, which does not change. The model runs in
    inference mode, once for each example: its features are the data of the chains, of
    Hamiltonian Monte Carlo, which start near the mode.

    Args:
        model: a classifier, otherwise as in `mh.last_layer_laplace`.
        x: as in `mh.last_layer_laplace`.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None for a data set.
        prior: `mh.priors.Gaussian` of the kernel and the bias, as in
            `mh.last_layer_laplace`. Defaults to "auto". Up to 500 labels the members
            are then draws under the priors of several widths, with the weights that
            predict left-out labels best, in five-fold cross-validation. With more
            labels, or thousands of weights and hundreds of labels, it is one width,
            chosen as in `mh.last_layer_laplace`.
        members: number of kept draws of all chains, at least 1, rounded up to a
            multiple of `num_chains`, for each width. Defaults to 200.
        num_chains: number of chains, K, at least 1. Defaults to 4.
        num_steps: steps of each chain, of which the first 300 are the warm-up, or half
            of fewer than 600. Defaults to None, 700 or more.
        seed: integer that makes the draws repeatable. Defaults to 0.
        batch_size: as in `mh.last_layer_laplace`. Defaults to 256.
        chunk: as in `mh.Ensemble`.
        progress: whether to show a bar. Defaults to True.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `model`, and a dict of
        diagnostics: `prior_scales` (a dict from a width, of the bias if there is one,
        to its weight), `acceptance`, `batch_size` (examples that a step evaluates),
        `num_steps`, and of the probabilities of 200 training labels the largest `r_hat`
        between halves of chains, and the smallest `ess`. The last two need 10 draws of
        each chain. A warning says if they are poor, and what to change.

    Raises:
        ValueError: an argument is outside its range, the model does not end in a dense
            layer, or the prior is flat for the kernel or the bias.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> y = x.argmax(axis=1)
    >>> ensemble, found = mh.sample_last_layer(
    ...     model, x, y, prior=mh.priors.Gaussian(1.0), progress=False
    ... )
    >>> ensemble.predict(x, verbose=0).shape
    (60, 3)
    >>> found["r_hat"] < 1.1
    True

    Reference: Neal (2011), "MCMC using Hamiltonian dynamics". The weights: Yao,
    Vehtari, Simpson and Gelman (2018), "Using stacking to average Bayesian predictive
    distributions".
    """
    num_chains = _validate.integer("num_chains", num_chains, 1)
    members = _validate.integer("members", members, 1)
    seed = _validate.seed(seed)
    progress = _validate.choice("progress", progress, (True, False))
    _plan(num_steps, math.ceil(members / num_chains), 1)  # may refuse
    heads.check_prior(prior)
    head = heads.head_of(model, x, batch_size, y)
    hint = " For the targets of a regression use `mh.last_layer_laplace`."
    labels = heads.checked_labels(model, head, hint)
    parts = heads.of_prior(head, prior, labels, seed, of_samples=True)
    if any((tau == 0.0).any() for tau, _ in parts):
        raise ValueError(
            "Argument `prior` must have a scale for the kernel and for the bias: with "
            "a flat prior the posterior cannot be normalised. "
            f"Received: prior={prior!r}, for {[v.path for v in head.variables]}"
        )
    told, values, weights, scales = [], [], [], {}
    for tau, weight in parts:
        draws = math.ceil(weight * members / num_chains)  # of a chain
        plan = _plan(num_steps, draws, math.ceil(_RECORDED / (draws * num_chains)))
        posterior = heads.whitened(head, tau, labels)
        run = _chains(posterior, labels, plan, num_chains, seed, progress)
        if len(run) < plan.num_draws:
            raise KeyboardInterrupt("The chains of the last layer were interrupted")
        told.append(_diagnostics(run, posterior, labels, plan))
        # The first one of every few.
        chosen = np.asarray(run.position[:, :: plan.num_draws // draws], "float64")
        values.append(posterior.weights(chosen).reshape(-1, *head.values.shape))
        weights.append(np.full(len(values[-1]), weight / len(values[-1])))
        scales[float(tau[-1, 0] ** -0.5)] = weight
    found: dict[str, Any] = {
        key: worst(each[key] for each in told if key in each)
        for key, worst in _WORST.items()
        if any(key in each for each in told)
    }
    found["prior_scales"] = scales
    members_of_all = np.concatenate(values), np.concatenate(weights)
    return head.ensemble(model, *members_of_all, True, chunk), found


def _chains(
    posterior: heads.WhitenedHead,
    labels: npt.NDArray[np.int_],
    plan: Plan,
    num_chains: int,
    seed: int,
    progress: bool,
) -> Draws:
    """Return a run in the coordinates V of a posterior, from near its mode."""
    shape = (num_chains, *posterior.mode.shape)
    start = np.random.default_rng(seed).standard_normal(shape)
    arrays = posterior.features, posterior.logits, start
    features, logits, start = (array.astype("float32") for array in arrays)
    # A short warm-up ends at a step that accepts nothing: better the step as it is. The
    # default of 0.1 is far below the width 1 of these coordinates.
    warm_up = _warm_up(plan.num_steps)
    return sample(
        kernels.hmc(step_size=0.3, warm_up=warm_up if warm_up >= _LEAST_WARM_UP else 0),
        start,
        log_likelihood=_log_likelihood(shape[-1]),
        log_prior=_log_prior(posterior),
        data=(features, logits, labels.astype("int32")),
        num_chains=num_chains,
        seed=seed,
        progress=progress,
        **plan._asdict(),
    )


def _plan(num_steps: int | None, draws: int, between: int) -> Plan:
    """Return how long to run and what to record: up to `between` draws for a member."""
    steps = _HMC_WARM_UP + max(_HMC_STEPS, draws)
    if num_steps is not None:
        steps = _validate.integer("num_steps", num_steps, 1)
    every = (steps - _warm_up(steps)) // draws
    if every < 1:
        raise ValueError(
            "Argument `num_steps` must leave a step after the warm-up for each draw of "
            "a chain: raise it, or ask for fewer `members`. Received: "
            f"num_steps={steps}, {_warm_up(steps)} of them the warm-up, {draws} draws "
            "of each chain"
        )
    between = min(between, every)
    every //= between
    return Plan(steps, steps - draws * between * every, every)


def _warm_up(steps: int) -> int:
    return min(_HMC_WARM_UP, steps // 2)


def _log_likelihood(classes: int) -> Callable[..., Tensor]:
    def of_class(position: Tensor, batch: Any) -> Tensor:
        features, logits, labels = batch
        logits = logits + ops.matmul(features, position)
        if classes == 1:
            signs = ops.cast(1 - 2 * labels, logits.dtype)
            return -ops.softplus(signs * logits[:, 0])
        chosen = ops.one_hot(labels, classes, dtype=logits.dtype)
        return ops.sum(chosen * ops.log_softmax(logits, axis=-1), axis=-1)

    return of_class


def _log_prior(posterior: heads.WhitenedHead) -> Callable[..., Tensor]:
    """Return log N(W; 0, 1/tau) as a function of V, less its value at the mode."""
    scale = np.sqrt(posterior.tau[:, :1])
    matrix = (scale * np.linalg.inv(posterior.factor.T)).astype("float32")
    double = (2.0 * scale * posterior.mode).astype("float32")

    def of_position(position: Tensor) -> Tensor:
        move = ops.matmul(matrix, position)
        # (a + m)^2 - m^2 without cancellation.
        return -0.5 * ops.sum(move * ops.add(move, ops.convert_to_tensor(double)))

    return of_position


def _diagnostics(
    run: Draws, posterior: heads.WhitenedHead, labels: Array, plan: Plan
) -> dict[str, float]:
    """Return what `sample_last_layer` returns, with a warning if it is poor."""
    position = np.asarray(run.position, "float64")  # (K, draws, F, C)
    psi = posterior.features[:_SHOWN]
    p = heads.probabilities(posterior.logits[:_SHOWN] + psi @ position)
    if p.shape[-1] > 1:
        p = np.take_along_axis(p, labels[:_SHOWN, None][None, None], axis=-1)
    acceptance = float(np.mean(run.info["acceptance"]))
    found = {"acceptance": acceptance, "batch_size": float(len(labels))}
    found["num_steps"] = float(plan.num_steps)
    if position.shape[1] >= 2 * _BATCHES:
        found["r_hat"], found["ess"] = r_hat, ess = convergence(p[..., 0])
        if r_hat > LARGEST_R_HAT or ess < SMALLEST_ESS:
            warn(
                "The chains of the last layer have not converged: of the probabilities "
                f"of the training labels, the largest R-hat is {r_hat:.3f} and the "
                f"smallest effective sample size {ess:.0f}, at an acceptance of "
                f"{acceptance:.2f}. Raise `num_steps`, now {plan.num_steps}."
            )
    return found


def convergence(values: Floats) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size of columns.

    R-hat compares the halves of chains, and the size is that of means of batches. The
    estimates of ArviZ are more precise, but need more than NumPy.
    """
    chains, draws, columns = values.shape  # at least 2 `_BATCHES` draws

    def parts(count: int) -> Floats:
        length = draws // count
        kept = values[:, draws - count * length :]
        return kept.reshape(chains * count, length, columns)

    halves, batches = parts(2), parts(_BATCHES)
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    moving = within > 0.0
    if not moving.any():
        return math.inf, 1.0
    length = halves.shape[1]
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    total = (length - 1) / length * within + between
    r_hat = np.sqrt(total[moving] / within[moving])
    of_means = batches.mean(axis=1).var(axis=0, ddof=1)[moving] / len(batches)
    ess = np.minimum(total[moving] / of_means, chains * draws)
    return float(r_hat.max()), float(ess.min())
