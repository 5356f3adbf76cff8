"""`sample_last_layer`: exact samples of the last dense layer of a classifier."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc import kernels
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines import whitened_head
from keras_mhmcmc.baselines.head import Floats
from keras_mhmcmc.baselines.whitened_head import WhitenedHead
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.of_samples import ensemble_of
from keras_mhmcmc.priors import Gaussian
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.loop import Plan
from keras_mhmcmc.sampling.run import sample

_HINT = " For the targets of a regression use `mh.last_layer_laplace`."
_SHOWN = 200  # examples whose predictions are compared between chains
_RECORDED = 200  # draws of all chains, at least, that the diagnostics see
_BATCHES = 5  # of a chain, for the effective sample size
_HMC_WARM_UP, _HMC_STEPS = 300, 400
_LEAST_WARM_UP = 200  # of paths, to find a step
LARGEST_R_HAT, SMALLEST_ESS = 1.1, 50.0


def sample_last_layer(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    prior: Gaussian,
    members: int = 200,
    num_chains: int = 4,
    num_steps: int | None = None,
    burn_in: int | None = None,
    seed: int = 0,
    batch_size: int = 256,
    activation: ActivationLike = None,
    chunk: int | None = None,
    progress: bool = True,
) -> tuple[Ensemble, dict[str, float]]:
    """Return an ensemble with exact posterior samples of the last dense layer.

    The sampled distribution is the posterior at temperature 1 of the kernel and the
    bias of the last layer, given all N examples. All other weights are those of
    `model`, which does not change. The model runs in inference mode, once for each
    example: its features are the data of the chains.

    Hamiltonian Monte Carlo on all features leaves the posterior unchanged. The chains
    start near its mode, in coordinates in which it is about as wide in all directions.

    Args:
        model: built `keras.Model`, a classifier that ends in a `keras.layers.Dense`
            with a softmax, a sigmoid of one unit, or logits, also as a layer after it.
        x: training inputs with N examples along the first axis, or a structure of such
            arrays. Or a data set that `fit` takes, of pairs (x, y), that ends.
        y: labels, integers of shape (N,) or (N, 1), or one-hot rows of shape (N, C).
            None for a data set.
        prior: `mh.priors.Gaussian` of the kernel and the bias. Patterns match the paths
            of these two.
        members: number of kept draws of all chains, at least 1, rounded up to a
            multiple of `num_chains`. Defaults to 200.
        num_chains: number of chains, K, at least 1. Defaults to 4.
        num_steps: steps of each chain. Defaults to None, 700 or more.
        burn_in: number of first steps that are not kept. Defaults to None: 300, the
            warm-up. At most as many as leave a step for each draw.
        seed: integer that makes the draws repeatable. Defaults to 0.
        batch_size: number of examples to compute features of at a time, at least 1.
            Defaults to 256.
        activation: function that turns the model's outputs into the quantity to
            average, as in `keras.activations.get`. Defaults to None: the softmax or
            sigmoid of logits.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.
        progress: whether to show a bar. Defaults to True.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `model`, and a dict of
        diagnostics: `acceptance`, `batch_size` (examples that a step evaluates),
        `num_steps`, and of the probabilities of 200 training labels the largest `r_hat`
        between halves of chains, and the smallest `ess`. The last two need 10 draws of
        each chain. They see more draws than there are members, if `members` is below
        200. A warning says if they are poor, and what to change.

    Raises:
        ValueError: an argument is outside its range, the model does not end in such a
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

    Reference: Neal (2011), "MCMC using Hamiltonian dynamics".
    """
    num_chains = _validate.integer("num_chains", num_chains, 1)
    draws = math.ceil(_validate.integer("members", members, 1) / num_chains)
    seed = _validate.seed(seed)
    _validate.choice("progress", progress, (True, False))
    head, tau = heads.head_and_precisions(model, x, y, prior, batch_size)
    heads.check_loss(model, head, _HINT)
    labels = heads.checked_labels(head, _HINT)
    if not np.all(tau > 0.0):
        raise ValueError(
            "Argument `prior` must have a scale for the kernel and for the bias: with "
            "a flat prior the posterior cannot be normalised. "
            f"Received: prior={prior!r}, for {[v.path for v in head.variables]}"
        )
    posterior = whitened_head.whitened(head, tau, labels)
    between = math.ceil(_RECORDED / (draws * num_chains))
    plan, kernel = _plan(num_steps, burn_in, draws, between)
    run = _run(posterior, labels, kernel, plan, num_chains, seed, bool(progress))
    if len(run) == 0:
        raise KeyboardInterrupt("The run ended before the first draw after the burn-in")
    found = _diagnostics(run, posterior, labels, plan)
    _warn_if_poor(found)
    # The first one of every few, also of a run that was interrupted.
    stride = (plan.num_steps - plan.burn_in) // (plan.every * draws)
    chosen = run.position[:, ::stride]
    values = posterior.weights(np.asarray(chosen, "float64"))
    stacked = head.stacked(model, values.reshape(-1, *head.values.shape))
    activation = head.to_probabilities if activation is None else activation
    weights = np.ones(len(stacked[0]))
    return ensemble_of(model, stacked, weights, activation, chunk), found


def _plan(
    num_steps: int | None, burn_in: int | None, draws: int, between: int
) -> tuple[Plan, Any]:
    """Return how long to run and what to record, and the kernel.

    Each chain gives `draws` members, and records `between` draws for each of them, or
    fewer in a short run.
    """
    steps, default_burn_in = _HMC_WARM_UP + max(_HMC_STEPS, draws), _HMC_WARM_UP
    if num_steps is not None:
        steps = _validate.integer("num_steps", num_steps, 1)
        default_burn_in = min(default_burn_in, steps // 2)
    burn_in = default_burn_in if burn_in is None else burn_in
    burn_in = _validate.integer("burn_in", burn_in, 0)
    every = (steps - burn_in) // draws
    if every < 1:
        raise ValueError(
            "Argument `num_steps` must be at least `burn_in` plus one step for each "
            "draw of a chain: raise it, or ask for fewer `members`. Received: "
            f"num_steps={steps}, burn_in={burn_in}, {draws} draws of each chain"
        )
    between = min(between, every)
    every //= between
    plan = Plan(steps, steps - draws * between * every, every)
    # The default of 0.1 is far below the width 1 of these coordinates. A short warm-up
    # ends at a step that accepts nothing: better the step as it is.
    warm_up = burn_in if burn_in >= _LEAST_WARM_UP else 0
    return plan, kernels.hmc(step_size=0.3, warm_up=warm_up)


def _run(
    posterior: WhitenedHead,
    labels: Array,
    kernel: Any,
    plan: Plan,
    num_chains: int,
    seed: int,
    progress: bool,
) -> Draws:
    """Return the draws of V."""
    shape = (num_chains, *posterior.mode.shape)
    start = np.random.default_rng(seed).standard_normal(shape)
    data = (
        posterior.features.astype("float32"),
        posterior.logits.astype("float32"),
        labels.astype("int32"),
    )
    return sample(
        kernel,
        start.astype("float32"),
        log_likelihood=_log_likelihood(shape[-1]),
        log_prior=_log_prior(posterior),
        data=data,
        seed=seed,
        num_chains=num_chains,
        progress=progress,
        num_steps=plan.num_steps,
        burn_in=plan.burn_in,
        every=plan.every,
    )


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


def _log_prior(posterior: WhitenedHead) -> Callable[..., Tensor]:
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
    run: Draws, posterior: WhitenedHead, labels: Array, plan: Plan
) -> dict[str, float]:
    """Return what the docstring of `sample_last_layer` lists."""
    position = np.asarray(run.position, "float64")  # (K, draws, F, C)
    psi = posterior.features[:_SHOWN]
    p = whitened_head.probabilities(posterior.logits[:_SHOWN] + psi @ position)
    if p.shape[-1] > 1:
        p = np.take_along_axis(p, labels[:_SHOWN, None][None, None], axis=-1)
    found = {
        "acceptance": float(np.mean(run.info["acceptance"])),
        "batch_size": float(len(labels)),
        "num_steps": float(plan.num_steps),
    }
    if position.shape[1] >= 2 * _BATCHES:
        found["r_hat"], found["ess"] = convergence(p[..., 0])
    return found


def convergence(values: Floats) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size of columns.

    R-hat compares the halves of all chains. The effective sample size comes from the
    variance of the means of batches, `_BATCHES` for each chain. Both need NumPy alone;
    `mh.diagnostics.summary` is more precise, and needs ArviZ.

    Args:
        values: shape (chains, draws, columns), at least 2 `_BATCHES` draws.
    """
    chains, draws, columns = values.shape

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


def _warn_if_poor(found: dict[str, float]) -> None:
    """Warn with the numbers, and say what to change."""
    if "ess" in found and (
        found["r_hat"] > LARGEST_R_HAT or found["ess"] < SMALLEST_ESS
    ):
        warn(
            "The chains of the last layer have not converged: of the probabilities of "
            f"the training labels, the largest R-hat is {found['r_hat']:.3f} and the "
            f"smallest effective sample size {found['ess']:.0f}. The acceptance was "
            f"{found['acceptance']:.2f}. Raise `num_steps` (it was "
            f"{found['num_steps']:.0f})."
        )
