"""Spike-and-slab priors whose latent variables are learned by stochastic approximation.

Paper: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation", eq. (3) to (17); published as
"An adaptive empirical Bayesian method for sparse deep learning".

Law: the weights beta have the posterior of their prior N(0, sigma^2 / kappa) given the
latent variables rho, kappa, sigma and delta; those move to the fixed point of the EM
step that eq. (13) to (16) are, averaged over that posterior.

Equations, with the sums over the p weights of one group, and N examples:

    (13)  rho   = a / (a + b),  a = delta N(beta; 0, sigma^2 v1),
                                b = (1 - delta) N(beta; 0, sigma^2 v0)
    (14)  kappa = (1 - rho) / v0 + rho / v1
    (15)  sigma = sqrt((RSS + sum kappa beta^2 + nu lambda) / (N + p + nu))   regression
          sigma = sqrt((sum kappa beta^2 + nu lambda) / (p + nu + 2))     classification
    (16)  delta = (sum rho + a - 1) / (a + b + p - 2)
    (17)  each  <- (1 - omega) old + omega new
    (11)  U     = U of the data + sum kappa beta^2 / (2 sigma^2)

Eq. (13) takes the averaged sigma and delta of the step before. What follows from it in
the same step, eq. (14) to (16), takes its rho, and not the averaged one: eq. (17) is an
average of one EM step, and not of averages. In regression sigma is the noise as well:
there is one for all groups, RSS is the residual sum of squares, and the energy of the
data is RSS / (2 sigma^2).

Kept is 1 - rho, the probability q of the spike. kappa is affine in it, so that its
average is kappa of the average and needs no copy of its own; and where q is tiny,
q / v0 is exact, while 1 - rho would have lost its digits.

| paper     | name         | shape                | unit                            |
|-----------|--------------|----------------------|---------------------------------|
| beta      | `position`   | list of tensors      | weights                         |
| 1 - rho   | `spike`      | list of tensors      | 1                               |
| kappa     | -            | tensor               | 1 / v0                          |
| sigma     | `sigma`      | (..., groups)        | weights, or targets: regression |
| delta     | `delta`      | (..., groups)        | 1                               |
| v0, v1    | `v0`, `v1`   | float                | (weights / sigma)^2             |
| a, b      | `a`, `b`     | float                | weights                         |
| nu        | `nu`         | float                | 1                               |
| lambda    | `lam`        | float                | sigma^2                         |
| RSS       | `rss`        | (...)                | targets^2                       |
| omega     | `step_size`  | scalar               | 1                               |
| N         | `train_size` | int                  | examples                        |

(...) is () for one chain and (K,) for K chains, whose tensors have a leading axis K.
"""

import math
from typing import Any
from typing import NamedTuple

from keras import ops

from keras_mhmcmc.kernels import tensors


class SpikeSlab(NamedTuple):
    """The numbers of the prior that stay as they are."""

    v0: float
    v1: float
    a: float
    b: float
    nu: float
    lam: float
    groups: tuple  # the group of each tensor, counted from 0


class Latents(NamedTuple):
    """The latent variables."""

    spike: list
    sigma: Any
    delta: Any


def spike_probability(x, sigma, delta, prior):
    """1 - rho of eq. (13) for one tensor, from the logarithm of the odds.

    a / (a + b) itself is 0/0 where a weight is large.
    """
    # A share of exactly 0 or 1 would never be left again.
    delta = ops.clip(delta, 1e-30, 1.0 - 1e-7)
    constant = ops.log(delta) - ops.log1p(-delta) + 0.5 * math.log(prior.v0 / prior.v1)
    slope = 0.5 * _gap(prior) / ops.square(sigma)
    squares = ops.square(ops.cast(x, sigma.dtype))
    constant, slope = (tensors.along_chains(value, x) for value in (constant, slope))
    return ops.sigmoid(-slope * squares - constant)


def expected(position, latents, prior, *, train_size, rss=None):
    """The latent variables of one EM step at this position, eq. (13) to (16).

    With `rss` they are those of a regression.
    """
    chains = _has_chains(latents)
    spike = [
        spike_probability(x, latents.sigma[..., g], latents.delta[..., g], prior)
        for x, g in zip(position, prior.groups, strict=True)
    ]
    squares = _scaled_squares(position, spike, prior, chains)
    squares = _by_group(squares, prior.groups)
    spikes = _by_group([tensors.total(q, chains) for q in spike], prior.groups)
    sizes = [float(tensors.size([x], chains)) for x in position]
    size = ops.convert_to_tensor(_sums(sizes, prior.groups), latents.sigma.dtype)

    if rss is None:
        total, count = squares, size + prior.nu + 2.0
    else:
        total = ops.sum(squares, axis=-1, keepdims=True) + rss[..., None]
        total = ops.broadcast_to(total, squares.shape)
        count = ops.sum(size) + train_size + prior.nu
    sigma = ops.sqrt((total + prior.nu * prior.lam) / count)
    delta = (size - spikes + (prior.a - 1.0)) / (prior.a + prior.b + size - 2.0)
    return Latents(spike, sigma, delta)


def averaged(latents, new, step_size):
    """Eq. (17): a step of size omega from the latent variables to the new ones."""
    change = tensors.subtract(new.spike, latents.spike)
    return Latents(
        tensors.add_scaled(latents.spike, step_size, change),
        latents.sigma + step_size * (new.sigma - latents.sigma),
        latents.delta + step_size * (new.delta - latents.delta),
    )


def of_residuals(gradient, energy, latents):
    """Gradient and energy of RSS / (2 sigma^2), from those of a squared error."""
    scale = 0.5 / ops.square(latents.sigma[..., 0])
    gradient = [g * ops.cast(tensors.along_chains(scale, g), g.dtype) for g in gradient]
    return gradient, scale * energy


def energy(position, latents, prior):
    """sum kappa beta^2 / (2 sigma^2), the prior's part of U, in nats."""
    chains = _has_chains(latents)
    squares = _scaled_squares(position, latents.spike, prior, chains)
    variances = [ops.square(latents.sigma[..., g]) for g in prior.groups]
    return sum(u / (2.0 * s) for u, s in zip(squares, variances, strict=True))


def gradient(position, latents, prior, train_size):
    """kappa beta / (sigma^2 N), the gradient of the prior's part of U/N."""
    gradients = []
    for x, q, g in zip(position, latents.spike, prior.groups, strict=True):
        scale = 1.0 / (train_size * ops.square(latents.sigma[..., g]))
        slope = tensors.along_chains(scale * _gap(prior), x)
        constant = tensors.along_chains(scale / prior.v1, x)
        gradients.append(ops.cast(slope * q + constant, x.dtype) * x)
    return gradients


def _gap(prior):
    """1/v0 - 1/v1, so that kappa is (1 - rho) times it, plus 1/v1."""
    return 1.0 / prior.v0 - 1.0 / prior.v1


def _has_chains(latents):
    return len(latents.sigma.shape) > 1


def _scaled_squares(position, spike, prior, chains):
    """sum kappa beta^2 of each tensor."""
    return [
        _gap(prior) * tensors.dot_squares(q, x, chains)
        + tensors.sum_squares([x], chains) / prior.v1
        for x, q in zip(position, spike, strict=True)
    ]


def _by_group(values, groups):
    """The sums of (...) over the tensors of each group, (..., groups)."""
    return ops.stack(_sums(values, groups), axis=-1)


def _sums(values, groups):
    sums = [0.0] * (max(groups) + 1)
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums[group] + value
    return sums
