"""Spike-and-slab priors whose latent variables are learned by stochastic approximation.

Paper: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation", eq. (3) to (17); published as
"An adaptive empirical Bayesian method for sparse deep learning".

Law: the weights beta have the posterior of their prior N(0, sigma^2 / kappa) given the
latent variables rho, kappa, sigma and delta; those move to a fixed point of the EM
step that eq. (13) to (16) are, averaged over that posterior. rho there is a mean-field
quantity, and not the posterior probability of the slab; where there are several fixed
points, the start decides.

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

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops


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


def update_latents(position, latents, prior, *, step_size, train_size, rss=None):
    """The latent variables after one more position, eq. (13) to (17).

    With `rss` they are those of a regression. Returns them, and sum kappa beta^2 of
    each tensor with the kappa that they give, for `energy`.
    """
    chains = len(latents.sigma.shape) > 1
    slopes, constants = _odds_of_spike(latents, prior)
    spike, fresh, weighted, slabs, sizes = [], [], [], [], []
    for x, q, g in zip(position, latents.spike, prior.groups, strict=True):
        (new,), (of_fresh, of_new, total, share) = _pass_over_weights(
            x, q, slopes[..., g], constants[..., g], step_size, chains
        )
        spike.append(new)
        fresh.append(_gap(prior) * of_fresh + total / prior.v1)
        weighted.append(_gap(prior) * of_new + total / prior.v1)
        sizes.append(float(tensors.size([x], chains)))
        slabs.append(sizes[-1] - share)

    fresh, slabs = _by_group(fresh, prior.groups), _by_group(slabs, prior.groups)
    size = _sums(sizes, prior.groups)
    size = ops.convert_to_tensor(size, latents.sigma.dtype)
    if rss is None:
        count = size + prior.nu + 2.0
    else:
        total = ops.sum(fresh, axis=-1, keepdims=True) + ops.expand_dims(rss, -1)
        fresh = ops.broadcast_to(total, fresh.shape)
        count = ops.sum(size) + train_size + prior.nu
    sigma = ((fresh + prior.nu * prior.lam) / count) ** 0.5
    delta = (slabs + (prior.a - 1.0)) / (prior.a + prior.b + size - 2.0)
    sigma = latents.sigma + step_size * (sigma - latents.sigma)
    delta = latents.delta + step_size * (delta - latents.delta)
    return Latents(spike, sigma, delta), weighted


def _odds_of_spike(latents, prior):
    """Eq. (13) as log((1 - rho) / rho) = slope beta^2 + constant: both, of each group.

    a / (a + b) itself is 0/0 where a weight is large.
    """
    # A share of exactly 0 or 1 would never be left again.
    delta = ops.clip(latents.delta, 1e-30, 1.0 - 1e-7)
    constant = ops.log1p(-delta) - ops.log(delta) - 0.5 * math.log(prior.v0 / prior.v1)
    return -0.5 * _gap(prior) / latents.sigma**2, constant


def _pass_over_weights(x, q, slope, constant, step_size, chains):
    """The averaged 1 - rho of one tensor, and the sums that the rest follows from.

    Those of (1 - rho) beta^2 with the fresh and with the averaged rho, of beta^2, and
    of the fresh 1 - rho.
    """
    slope, constant = (tensors.along_chains(value, x) for value in (slope, constant))

    def elementwise(x, q):
        x = ops.cast(x, q.dtype)
        square = x * x
        fresh = tensors.sigmoid_of_affine(square, slope, constant)
        new = tensors.between(q, fresh, step_size)
        pairs = [(fresh, square), (new, square), (square, None), (fresh, None)]
        return [new], pairs

    return tensors.map_and_sum(elementwise, x, q, chains=chains)


def of_residuals(gradient, energy, latents):
    """Gradient and energy of RSS / (2 sigma^2), from those of a squared error."""
    scale = 0.5 / ops.square(latents.sigma[..., 0])
    gradient = [g * ops.cast(tensors.along_chains(scale, g), g.dtype) for g in gradient]
    return gradient, scale * energy


def energy(weighted, latents, prior):
    """sum kappa beta^2 / (2 sigma^2), the prior's part of U, in nats."""
    variances = [latents.sigma[..., g] ** 2 for g in prior.groups]
    return sum(u / (2.0 * s) for u, s in zip(weighted, variances, strict=True))


def add_gradient(position, gradient, spike, sigma, prior, train_size):
    """`gradient` of U/N of one tensor, plus that of its prior, kappa beta/(sigma^2 N).

    `sigma` is that of its group.
    """
    scale = 1.0 / (train_size * sigma**2)
    slope = tensors.along_chains(scale * _gap(prior), position)
    constant = tensors.along_chains(scale / prior.v1, position)

    def elementwise(u, x, q):
        factor = tensors.affine(q, slope, constant)
        return [tensors.add_product(u, ops.cast(factor, x.dtype), x)], []

    chains = len(sigma.shape) > 0
    (total,), _ = tensors.map_and_sum(
        elementwise, gradient, position, spike, chains=chains
    )
    return total


def _gap(prior):
    """1/v0 - 1/v1, so that kappa is (1 - rho) times it, plus 1/v1."""
    return 1.0 / prior.v0 - 1.0 / prior.v1


def _by_group(values, groups):
    """The sums of (...) over the tensors of each group, (..., groups)."""
    return ops.stack(_sums(values, groups), axis=-1)


def _sums(values, groups):
    sums = [0.0] * (max(groups) + 1)
    for value, group in zip(values, groups, strict=True):
        sums[group] = sums[group] + value
    return sums
