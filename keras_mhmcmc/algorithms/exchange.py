"""Replica exchange: neighbouring temperatures swap their positions.

Papers: Deng, Feng, Gao, Liang and Lin (2020), "Non-convex learning via replica exchange
stochastic gradient MCMC", eq. (5)-(8); Ceperley and Dewing (1999), "The penalty method
for random walks with uncertain energies", eq. (9).

Law: replica r of R samples exp(-U(theta)/T_r), T_1 < ... < T_R; a swap leaves the
product of these laws as it is.

Equations, for a cold and a hot replica and d = 1/T_cold - 1/T_hot > 0:

    log r = d (U_cold - U_hot) - d^2 (v_cold + v_hot) / 2
    swap (theta_cold, theta_hot) if log u < log r, u uniform on (0, 1)

A swap is likely where the hot replica has found the lower energy. v is the variance of
one energy estimate at its position; with v_cold = v_hot = sigma^2 the second term is
the paper's d^2 sigma^2 (its F = 1). It makes exp(log r) unbiased: the noise of log r
has the variance c = d^2 (v_cold + v_hot), and the mean of exp(noise) is exp(c / 2). For
Gaussian noise that is drawn anew at each swap it does more: with x the log ratio of the
true energies, E min(1, r) = Phi((x - c/2) / sqrt(c)) + exp(x) Phi(-(x + c/2) / sqrt(c))
is exp(x) times the same expression at -x, so that detailed balance is exact.

Where an energy belongs to the state, as in Metropolis-Hastings on mini-batches, the law
is that of position and batch together, exp(-U_I(theta)/T), pairs (theta, I) are
swapped, and v = 0 is exact.

The variance of U_I for a batch of m out of N examples, from the batch itself:

    v = N^2 s^2 / m (1 - m/N),   s^2 the sample variance of log p(x_i|theta), i in I

without the last factor for a batch with replacement.

| paper        | name          | shape             | unit    |
|--------------|---------------|-------------------|---------|
| U            | `energy`      | (R, K), or (K,)   | nats    |
| T            | `temperature` | scalar            | 1       |
| sigma^2, v   | `variance`    | as `energy`       | nats^2  |
| u            | `uniforms`    | (R - 1, K)        | 1       |
"""

import math

from keras import ops


def swap_log_ratio(
    energy_cold, energy_hot, cold, hot, variance_cold=0.0, variance_hot=0.0
):
    """log r of a swap between the temperatures `cold` < `hot`."""
    difference = 1.0 / cold - 1.0 / hot
    penalty = 0.5 * difference**2 * (variance_cold + variance_hot)
    return difference * (energy_cold - energy_hot) - penalty


def decide_swaps(energy, variance, temperatures, tried, uniforms):
    """Which neighbours swap, bool (R - 1, K); `tried` says which ones try.

    No replica may be in two pairs that are tried together.
    """
    accepted = []
    for r in range(len(temperatures) - 1):
        log_ratio = swap_log_ratio(
            energy[r],
            energy[r + 1],
            temperatures[r],
            temperatures[r + 1],
            variance[r],
            variance[r + 1],
        )
        log_ratio = ops.where(ops.isfinite(log_ratio), log_ratio, -math.inf)
        accepted.append(tried[r] & (ops.log(uniforms[r]) < log_ratio))
    return ops.stack(accepted)


def pairs_of_turn(replicas, turn):
    """Which neighbours try to swap at a turn, bool (R - 1, 1): even pairs, then odd.

    Two replicas are one pair, which tries at each turn.
    """
    pairs = ops.reshape(ops.arange(replicas - 1, dtype="int32"), (-1, 1))
    if replicas == 2:
        return pairs == 0
    return pairs % 2 == turn % 2


def swap(x, accepted):
    """x, shape (R, K, ...), with the neighbours exchanged that swap."""
    none = ops.zeros_like(accepted[:1])
    rank = (1,) * (len(x.shape) - 2)
    takes_above = ops.concatenate([accepted, none])
    takes_below = ops.concatenate([none, accepted])
    shape = tuple(takes_above.shape) + rank
    above = ops.concatenate([x[1:], x[-1:]])
    below = ops.concatenate([x[:1], x[:-1]])
    x = ops.where(ops.reshape(takes_above, shape), above, x)
    return ops.where(ops.reshape(takes_below, shape), below, x)


def energy_variance(log_likelihoods, train_size, replacement):
    """v of one batch, from its examples' log-likelihoods, shape (m,)."""
    size = log_likelihoods.shape[0]
    centred = log_likelihoods - ops.mean(log_likelihoods)
    sample_variance = ops.sum(ops.square(centred)) / (size - 1)
    left = 1.0 if replacement else 1.0 - size / train_size
    return train_size**2 * left / size * sample_variance
