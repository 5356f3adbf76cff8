"""What a sampler's law is compared with: expectations, and their standard errors.

`exact`: the target itself, for chains that accept or reject and start in it.
`moments`: of SGLD and SGHMC on a linear gradient, the exact first two moments of the
recursion at each recorded step, from the start on: its finite step, its momentum that
starts at 0 and the noise of its mini-batches are all in them.
`simulated`: the recursion as its paper writes it, in float64 numpy, with many more
chains. `test_recursions` shows that with smaller steps it comes to the target.

`mode`: of an optimizer that samples nothing, see `modes`.

The first three take an optimizer, of which they read the arguments and nothing else.
"""

from typing import NamedTuple

import numpy as np

from tests.statistics import literal


class Plan(NamedTuple):
    """How many chains run for how long; a draw is recorded after each `every` steps."""

    chains: int
    steps: int
    every: int

    @property
    def draws(self):
        """The recorded draws: the last one would never be evaluated."""
        return self.steps // self.every - 1


class Reference(NamedTuple):
    """Expectations of the functions of a target, and their standard errors."""

    values: np.ndarray  # (J,), NaN where it is not known
    errors: np.ndarray


def exact(optimizer, target, plan):
    """The target's own expectations."""
    values = target.expectations()
    return Reference(values, np.zeros_like(values))


def moments(optimizer, target, plan):
    """Of a linear recursion in x, v and 1, with mu = 0 for SGLD.

    "euler": v' = mu v - epsilon grad(U_I/N) + s Z, and x' = x + v'. "baoab", with the
    kicked velocity u = v - epsilon grad(U_I/N): v' = mu u + s Z, x' = x + (u + v') / 2.
    """
    config = optimizer.get_config()
    d, n = target.dimension, target.train_size
    rate, momentum = config["learning_rate"], config.get("momentum", 0.0)
    variance = 2.0 * rate * (1.0 - momentum) * config["temperature"] / n
    hessians, constants = target.affine()
    hessians = hessians + target.prior_precision / n * np.eye(d)
    # Shares of the old velocity, of the kick and of s Z: in x', and in v'.
    shares = (momentum, 1.0, 1.0), (momentum, 1.0, 1.0)
    if config.get("integrator") == "baoab":
        variance *= (1.0 + momentum) / 2.0
        drift = (1.0 + momentum) / 2.0
        shares = (drift, drift, 0.5), (momentum, momentum, 1.0)
    # The step as a matrix on (x, v, 1), of each batch.
    step = np.zeros((len(hessians), 2 * d + 1, 2 * d + 1))
    for rows, (kept, kicked, _) in zip(
        (slice(0, d), slice(d, 2 * d)), shares, strict=True
    ):
        step[:, rows, :d] = -kicked * rate * hessians
        step[:, rows, d : 2 * d] = kept * np.eye(d)
        step[:, rows, -1] = kicked * rate * constants
    step[:, :d, :d] += np.eye(d)
    step[:, -1, -1] = 1.0
    noise = np.zeros((2 * d + 1, 2 * d + 1))
    drawn = np.array([share for *_, share in shares])
    noise[:-1, :-1] = variance * np.kron(np.outer(drawn, drawn), np.eye(d))

    mean, covariance = target.mean_and_covariance()
    start = np.concatenate([mean, np.zeros(d), [1.0]])
    second = np.outer(start, start)
    second[:d, :d] += covariance
    total = np.zeros_like(second)
    for number in range(1, plan.draws * plan.every + 1):
        second = np.mean(step @ second @ step.transpose(0, 2, 1), axis=0) + noise
        if number % plan.every == 0:
            total += second / plan.draws
    mean = total[:d, -1]
    covariance = total[:d, :d] - np.outer(mean, mean)
    values = target.expectations_of_moments(mean, covariance)
    return Reference(values, np.zeros_like(values))


def simulated(optimizer, target, plan, chains=3000, seed=4321):
    """The paper's recursion, with many chains."""
    rng = np.random.default_rng(seed)
    position, batch = literal.start(optimizer, target, rng, chains)
    if not literal.accepts(optimizer):
        batch = None
    states = literal.steps(optimizer, target, position, batch, rng, plan.every)
    values, weights = [], []
    for number in range(plan.draws * plan.every + 1):
        position, log_weight = next(states)
        if number and number % plan.every == 0:
            values.append(target.functions(position))
            weights.append(log_weight)
    return Reference(*estimate(np.array(values), np.array(weights)))


def estimate(values, log_weights):
    """Weighted means of values (S, K, J) and their errors, from K independent chains.

    The error of the ratio of two means over chains, so that neither the correlation of
    a chain's draws nor that of its weights has to be known.
    """
    weights = np.exp(log_weights - log_weights.max())
    sums = np.einsum("sk,skj->kj", weights, values)
    totals = weights.sum(axis=0)
    means = sums.sum(axis=0) / totals.sum()
    residuals = sums - totals[:, None] * means
    chains = len(totals)
    spread = np.sqrt((residuals**2).sum(axis=0) * chains / (chains - 1))
    return means, spread / totals.sum()
