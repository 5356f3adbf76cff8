"""Build the kernels for `mh.sample` that draw their data as their test needs it."""

from typing import Any

from keras_mhmcmc.algorithms.amagold import Amagold
from keras_mhmcmc.algorithms.poisson_mh import PoissonMH
from keras_mhmcmc.algorithms.smh import SMH
from keras_mhmcmc.algorithms.taylor import Expansion
from keras_mhmcmc.algorithms.tuna import Tuna


def tuna(
    learning_rate: float,
    *,
    bounds: Any,
    chi: float | None = None,
    proposal: str = "random_walk",
    gradient_batch_size: int | None = None,
    temperature: float = 1.0,
    block_size: int = 128,
) -> Tuna:
    """Return TunaMH, exact Metropolis-Hastings on mini-batches, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a bound for each example: the log-likelihood of example i changes by
    at most c_i times the distance between two positions. `mh.bounds` has the bounds of
    common models. A bound that does not hold ends the run with an error.

    The accept-reject test evaluates about chi C^2 M^2 + C M examples, with C the sum of
    c_i / T and M the length of the proposed move. With a larger `chi` it decides more
    like a test on all of the data: it evaluates more examples, and accepts more often.
    `draws.info` has the mean `batch_size` of each chain.

    In `examples/benchmarks/tuna.py` the chain moves less far for each evaluated example
    than a random walk with a test on all of the data. So if all of the data fit into
    memory, compare with `mh.kernels.hmc`. For a logistic regression on many rows try
    `mh.kernels.smh`.

    A proposal is a random walk, or a Langevin move with the gradient of a mini-batch
    (Tuna-SGLD): theta + epsilon^2/2 g + epsilon Z, with Z normal. The gradient g of
    -U/T is estimated from `gradient_batch_size` examples, drawn anew for each step. The
    density of the reverse move uses the same examples, so the kernel stays exact. A
    noisy gradient makes acceptance rare: epsilon times the length of its noise should
    be below 1. The examples of the gradient count in `batch_size`, once for both
    positions. Begin Langevin chains near the mode: far from it the moves are long.

    Args:
        learning_rate: epsilon, the standard deviation of the random walk, or of the
            noise of a Langevin move, in units of the position, greater than 0.
        bounds: c_i of each example, nats per unit of distance, an array (N,) of numbers
            of at least 0. The distance is the Euclidean one over all tensors.
        chi: chi, in examples per square of a nat, greater than 0. None gives the chi
            with chi C M = 3 for a move of typical length, sqrt(d) times the learning
            rate in d dimensions. Then a step evaluates about 4 C M examples.
        proposal: "random_walk" or "langevin". Defaults to "random_walk".
        gradient_batch_size: examples of the gradient of a Langevin move, from 1 to N.
            None takes all of the data. It must be None for a random walk.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 128.

    Raises:
        ValueError: an argument is outside its range, or `gradient_batch_size` is given
            with a random walk. `mh.sample` raises it if `bounds` or
            `gradient_batch_size` do not fit the data.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> from keras import ops
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = (x[:, 0] > 0).astype("float32")
    >>> def log_likelihood(theta, batch):
    ...     x, y = batch
    ...     return -ops.softplus((1 - 2 * y) * ops.matmul(x, theta))
    >>> draws = mh.sample(
    ...     mh.kernels.tuna(0.05, bounds=mh.bounds.logistic_regression(x)),
    ...     np.zeros(3),
    ...     log_likelihood=log_likelihood,
    ...     log_prior=lambda theta: -0.5 * ops.sum(ops.square(theta)),
    ...     data=(x, y),
    ...     num_steps=200,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (1, 200, 3)

    Reference: Zhang, Cooper and De Sa (2020), "Asymptotically optimal exact minibatch
    Metropolis-Hastings", algorithm 2; for Langevin moves, Yuan and Wang (2024), "Markov
    chain Monte Carlo without evaluating the target: an auxiliary variable approach".
    """
    return Tuna(
        learning_rate,
        bounds,
        chi,
        temperature,
        block_size,
        proposal,
        gradient_batch_size,
    )


def poisson(
    learning_rate: float,
    *,
    lower: Any,
    upper: Any,
    poisson_rate: float | None = None,
    proposal: str = "random_walk",
    temperature: float = 1.0,
    block_size: int = 128,
) -> PoissonMH:
    """Return PoissonMH, exact Metropolis-Hastings on mini-batches, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a lower and an upper bound of each log-likelihood, wherever the prior
    is positive. A bound that does not hold ends the run with an error.

    Each step evaluates about `poisson_rate` + L examples, with L the sum of
    (upper - lower) / T. This is fewer than N only if the bounds are tight or T is
    large. `mh.kernels.tuna` needs fewer where likelihoods are smooth.

    A proposal is a random walk, or follows a gradient g. The batch is drawn before the
    proposal, and g is the gradient of the joint log density of position and batch. A
    Langevin move (Poisson-MALA) is theta + epsilon^2/2 g + epsilon Z, with Z normal. A
    Barker move (Poisson-Barker) is a random walk epsilon Z, whose coordinate j points
    along g_j with probability 1 / (1 + exp(-epsilon |Z_j g_j|)). It is never longer
    than the random walk. (It has only the probability in common with
    `mh.kernels.barker`.) Both moves evaluate each example with its gradient at two
    positions, and once more without. `draws.info` counts each example once.

    Args:
        learning_rate: epsilon, the standard deviation of the random walk, of the noise
            of a Langevin move, or of a Barker move's coordinates, in units of the
            position, greater than 0.
        lower: lower bound of each example's log-likelihood, nats, an array (N,).
        upper: upper bound of each example's log-likelihood, nats, an array (N,).
        poisson_rate: lambda, the expected number of examples that are drawn in addition
            to L, greater than 0. A larger rate accepts more proposals. None gives L.
        proposal: "random_walk", "barker" or "langevin". Defaults to "random_walk".
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 128.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> bounds = dict(lower=-np.ones(50), upper=np.zeros(50))
    >>> kernel = mh.kernels.poisson(0.1, **bounds)
    >>> kernel = mh.kernels.poisson(0.2, **bounds, proposal="barker")

    Reference: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
    convergence rate guarantees"; Zhang, Cooper and De Sa (2020), "Asymptotically
    optimal exact minibatch Metropolis-Hastings"; for moves along a gradient, Yuan and
    Wang (2024), "Markov chain Monte Carlo without evaluating the target: an auxiliary
    variable approach".
    """
    return PoissonMH(
        learning_rate, lower, upper, poisson_rate, temperature, block_size, proposal
    )


def smh(
    expansion: Expansion,
    *,
    step_size: float = 0.5,
    proposal: str = "crank_nicolson",
    max_examples: float | None = None,
    temperature: float = 1.0,
    block_size: int = 16,
) -> SMH:
    """Return SMH, scalable Metropolis-Hastings on few examples, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a Taylor expansion of each example's log-likelihood about a point
    near the mode, and a bound of its remainder. `mh.expansions` makes them for common
    models, with one pass over the data for each step of Newton's method. A bound that
    does not hold ends the run with an error.

    A proposal is made from the Gaussian of the expansion, about its `reference`. The
    accept-reject test evaluates only examples whose polynomial may be too rough. With
    order 2 their number falls as 1/sqrt(N) for large N, and with order 1 it stays the
    same. Begin the chains at `expansion.reference`: far from it a step uses all of the
    data. `draws.info` has the mean `batch_size` of each chain.

    Args:
        expansion: of the log-likelihoods, such as
            `mh.expansions.logistic_regression(x, y)` of the same data.
        step_size: beta, in standard deviations of the Gaussian, in (0, 1] for
            Crank-Nicolson proposals, greater than 0 for a random walk. With 1 a
            Crank-Nicolson proposal is an independent draw from the Gaussian. Smaller
            steps accept more and need fewer examples. Defaults to 0.5.
        proposal: "crank_nicolson", which leaves the Gaussian unchanged, or
            "random_walk". Defaults to "crank_nicolson".
        max_examples: largest expected batch, greater than 0. A step that expects a
            larger one evaluates all of the data instead. None gives N.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 16.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> from keras import ops
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = (x[:, 0] > 0).astype("float32")
    >>> def log_likelihood(theta, batch):
    ...     x, y = batch
    ...     return -ops.softplus((1 - 2 * y) * ops.matmul(x, theta))
    >>> expansion = mh.expansions.logistic_regression(x, y)
    >>> draws = mh.sample(
    ...     mh.kernels.smh(expansion),
    ...     expansion.reference,
    ...     log_likelihood=log_likelihood,
    ...     log_prior=lambda theta: -0.5 * ops.sum(ops.square(theta)),
    ...     data=(x, y),
    ...     num_steps=200,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (1, 200, 3)

    Reference: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019),
    "Scalable Metropolis-Hastings for exact Bayesian inference with large datasets".
    """
    return SMH(expansion, step_size, proposal, max_examples, temperature, block_size)


def amagold(
    learning_rate: float,
    *,
    momentum: float = 0.9,
    steps_per_test: int = 10,
    temperature: float = 1.0,
) -> Amagold:
    """Return AMAGOLD, SGHMC with a test on all of the data, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) exactly at a fixed step. The energy U in nats is minus
    the log density. A step of the chain is a path of `steps_per_test` gradients on
    mini-batches, and one evaluation of all of the data. `learning_rate` and `momentum`
    mean what they mean in `mh.kernels.sghmc`, up to terms of the size of the step.

    Args:
        learning_rate: step, as in `mh.SGHMC`, greater than 0.
        momentum: share of the velocity that each gradient step keeps, in [0, 1).
            Defaults to 0.9.
        steps_per_test: gradient steps of a path. Longer paths cost fewer passes over
            the data, and are accepted less often. At least 1. Defaults to 10.
        temperature: T, greater than 0. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.amagold(0.01, steps_per_test=20)

    Reference: Zhang, Cooper and De Sa (2020), "AMAGOLD: amortized Metropolis adjustment
    for efficient stochastic gradient MCMC", algorithm 1.
    """
    return Amagold(learning_rate, momentum, steps_per_test, temperature)
