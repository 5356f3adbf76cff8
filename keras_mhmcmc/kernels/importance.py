"""Importance weights: their effective number, and resampling.

Papers: Kong, Liu and Wong (1994), "Sequential imputations and Bayesian missing data
problems", for the effective sample size; Kitagawa (1996), "Monte Carlo filter and
smoother for non-Gaussian nonlinear state space models", for systematic resampling.

Equations, with w_i the weights of S draws:

    ESS = (sum w_i)^2 / sum w_i^2
    W_i = sum_{l <= i} w_l / sum w
    draw j of n is the i with W_{i-1} <= (j + U)/n < W_i

Systematic resampling takes each draw n w_i / sum w times, rounded up or down.

| paper | name          | shape | unit                    |
|-------|---------------|-------|-------------------------|
| log w | `log_weights` | (S,)  | nats, up to a constant  |
| U     | `uniform`     | ()    | 1, in [0, 1)            |
| n     | `num_draws`   | int   | draws                   |
"""

from keras import ops


def normalized(log_weights):
    """The weights, with sum 1."""
    log_weights = ops.convert_to_tensor(log_weights)
    weights = ops.exp(log_weights - ops.max(log_weights))
    return weights / ops.sum(weights)


def effective_sample_size(log_weights):
    """How many equally weighted draws these are worth: 1 to S."""
    return 1.0 / ops.sum(ops.square(normalized(log_weights)))


def systematic(log_weights, uniform, num_draws):
    """Indices of `num_draws` draws with equal weights, in order, shape (num_draws,)."""
    ends = ops.cumsum(normalized(log_weights))
    places = (ops.arange(num_draws, dtype=ends.dtype) + uniform) / num_draws
    # The last end may be rounded to less than 1.
    last = log_weights.shape[0] - 1
    return ops.minimum(ops.searchsorted(ends, places, side="right"), last)
