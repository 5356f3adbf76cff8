"""Proposals of Metropolis-Hastings: where a move goes, and how likely its way back is.

Paper: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", eq. (5)-(7) and (37). The paper's ascent direction g of the mean
log-likelihood is minus our `gradient`, so that the signs read as in SGD.

Equations, with Z standard normal and Delta = theta' - theta:

    random walk   theta' = theta + s Z
    Langevin      theta' = theta - epsilon grad + s Z
    reversible    theta' = theta - epsilon grad + s Z         with probability 1/2
                  theta' = theta + epsilon grad + s beta Z    with probability 1/2

    s = sqrt(2 epsilon T_noise / N);  the random walk's s is the learning rate itself

The density of a reversible move is a mixture of both directions, and everything in the
ratio of the densities follows from four squared lengths (`SquaredDistances`), grad' the
gradient at theta':

    log q(theta -> theta') = log(exp(-out_forward) + c exp(-out_backward / beta^2))
    log q(theta' -> theta) = log(exp(-back_forward) + c exp(-back_backward / beta^2))

The lengths are near d/2 and the ratio is their difference, so with millions of weights
float32 would lose it. But the lengths of one direction differ by inner products:

    back_forward - out_forward = -epsilon (P + epsilon Q) / (2 s^2)
    back_backward - out_backward = epsilon (P - epsilon Q) / (2 s^2)
    P = 2 Delta.(grad + grad'),  Q = |grad|^2 - |grad'|^2

    log r = log(p_forward exp(out_forward - back_forward)
                + p_backward exp((out_backward - back_backward) / beta^2))

with p_forward and p_backward the chances that the move went in that direction, given
where it ended.

c is the ratio of the normalising constants of the two Gaussians, beta^(-d) for d
weights (`normalized=True`: exact detailed balance), or 1, as in the paper's eq. (37)
and, since beta^(-d) leaves no backward move alive when d is large, in its experiments.

| paper            | name            | shape           | unit                        |
|------------------|-----------------|-----------------|-----------------------------|
| theta, theta'    | `position`      | list of tensors | weights                     |
| -g               | `gradient`      | list of tensors | nats per example and weight |
| epsilon          | `step`          | scalar          | as in SGD                   |
| sqrt(2 epsilon)/n| `noise`         | scalar          | weights                     |
| beta             | `beta`          | scalar          | 1                           |
| Z                | `normals`       | list of tensors | 1                           |
| d                | `dimension`     | int             | weights                     |
"""

from typing import Any
from typing import NamedTuple

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops


class Scales(NamedTuple):
    """What drew a proposal; both directions of its density use these values."""

    step: Any  # epsilon
    noise: Any  # s
    beta: Any  # widening of the backward noise; 1 where there is no backward move


STILL = Scales(step=0.0, noise=0.0, beta=1.0)  # a move that stays where it is


class SquaredDistances(NamedTuple):
    """Squared lengths over 2 s^2 that the density ratio of a move is made of."""

    out_forward: Any  # |Delta + epsilon grad|^2
    out_backward: Any  # |Delta - epsilon grad|^2
    change_forward: Any  # |Delta - epsilon grad'|^2 - out_forward
    change_backward: Any  # |Delta + epsilon grad'|^2 - out_backward


def random_walk(position, normals, scales):
    """The proposed position of a random walk."""
    return tensors.add_scaled(position, scales.noise, normals)


def langevin(position, gradient, normals, scales):
    """The proposed position of a Langevin move."""
    step, noise = -scales.step, scales.noise
    return tensors.add_terms(position, (step, gradient), (noise, normals))


def langevin_log_ratio(delta, gradient, new_gradient, scales, chains=False):
    """log q(theta' -> theta) - log q(theta -> theta') of a Langevin move."""
    lists = delta, gradient, new_gradient
    products = tensors.sum_products(_pairs, *lists, chains=chains)
    change = _change(_products(*products), scales.step)
    return -_inverse_variance(scales.noise) * change


def reversible(position, gradient, normals, uniform, scales):
    """The proposed position of a reversible move, and whether it goes forward."""
    forward = uniform < 0.5
    step = ops.where(forward, -scales.step, scales.step)
    noise = ops.where(forward, scales.noise, scales.noise * scales.beta)
    return tensors.add_terms(position, (step, gradient), (noise, normals)), forward


def squared_distances(delta, gradient, new_gradient, scales, chains=False):
    """The squared lengths of a move, without cancellation in float32."""
    step, noise = scales.step, scales.noise

    def pairs(delta, gradient, new_gradient):
        along = ops.cast(tensors.along_chains(step, delta), delta.dtype)
        out = delta + along * gradient
        return [*_pairs(delta, gradient, new_gradient), (out, out)]

    lists = delta, gradient, new_gradient
    *products, out = tensors.sum_products(pairs, *lists, chains=chains)
    products = _products(*products)
    scale = _inverse_variance(noise)
    return SquaredDistances(
        out_forward=scale * out,
        out_backward=scale * (out - 4.0 * step * products.here),
        change_forward=scale * _change(products, step),
        change_backward=scale * _change(products, -step),
    )


def reversible_log_ratio(distances, beta, dimension, normalized):
    """log q(theta' -> theta) - log q(theta -> theta') of a reversible move.

    `beta` may have one more axis than the distances: the ratio for each of its values.
    """
    log_constant = -dimension * ops.log(beta) if normalized else 0.0
    widening = 1.0 / ops.square(beta)
    log_odds = distances.out_forward - distances.out_backward * widening + log_constant
    return ops.logaddexp(
        ops.log_sigmoid(-log_odds) - distances.change_forward,
        ops.log_sigmoid(log_odds) - distances.change_backward * widening,
    )


def strong_gradient_limit(distances):
    """The beta at which the strong-gradient regime ends, from a forward move.

    Above it, the wide Gaussian of the backward direction explains the forward move
    better than the Gaussian that drew it: out_backward / beta^2 < out_forward. For a
    long gradient it is the bound of Proposition 1, case 1, 2 epsilon |grad| / (s
    sqrt(d)); for a short one it comes down to 1.
    """
    ratio = distances.out_backward / ops.maximum(distances.out_forward, 1e-30)
    return ops.sqrt(ops.maximum(ratio, 1.0))


def strong_gradient_beta(gradient, scales, chains=False):
    """A beta in the middle of the strong-gradient regime: epsilon |grad| / (s sqrt(d)).

    The regime of the paper's Proposition 1, case 1, ends at twice this value.
    """
    length = ops.sqrt(tensors.sum_squares(gradient, chains))
    root = tensors.size(gradient, chains) ** 0.5
    beta = scales.step * length / (ops.maximum(scales.noise, 1e-30) * root)
    return ops.maximum(beta, 1.0)


class _Products(NamedTuple):
    """Inner products of a move."""

    here: Any  # Delta.grad
    there: Any  # Delta.grad'
    difference: Any  # |grad|^2 - |grad'|^2


def _pairs(delta, gradient, new_gradient):
    """The factors of what `_products` needs."""
    return [
        (delta, gradient),
        (delta, new_gradient),
        (gradient, gradient),
        (new_gradient, new_gradient),
    ]


def _products(here, there, squares, new_squares):
    return _Products(here, there, squares - new_squares)


def _change(products, step):
    """|Delta - step grad'|^2 - |Delta + step grad|^2."""
    along = 2.0 * (products.here + products.there)
    return -step * (along + step * products.difference)


def _inverse_variance(noise):
    """1 / (2 s^2); 0 where nothing moves, since s is 0."""
    variance = 2.0 * ops.square(noise)
    return ops.where(variance > 0, 1.0 / ops.maximum(variance, 1e-37), 0.0)
