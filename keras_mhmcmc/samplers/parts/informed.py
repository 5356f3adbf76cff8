"""Proposals that follow a gradient, and how likely their way back is.

Papers: Roberts and Tweedie (1996), "Exponential convergence of Langevin distributions
and their discrete approximations", for the Langevin proposal (MALA); Livingstone and
Zanella (2022), "The Barker proposal: combining robustness and efficiency in
gradient-based MCMC", for Barker's; Yuan and Wang (2024), "Markov chain Monte Carlo
without evaluating the target: an auxiliary variable approach", for both beside tests on
mini-batches.

g is a gradient at theta and g' the gradient of the same function at theta'. The
function may be any that the move does not change, such as the log density on a batch
that is drawn before the proposal. Z is standard normal, and Delta = theta' - theta.

    (1) Langevin   theta' = theta + epsilon^2/2 g + epsilon Z
                   log q(theta' -> theta) - log q(theta -> theta')
                       = -(Delta + epsilon^2/4 (g' - g)) . (g + g') / 2
    (2) Barker     theta'_j = theta_j + b_j epsilon Z_j, with b_j = 1 with probability
                   1 / (1 + exp(-epsilon Z_j g_j)), else -1
                   log q(theta' -> theta) - log q(theta -> theta')
                       = sum_j log(1 + exp(-Delta_j g_j)) - log(1 + exp(Delta_j g'_j))

In (1) two squared distances of about d/2 would cancel in float32. The product has
their difference alone. In (2) the signs are independent for each weight, and a long
gradient makes no long move.

| paper    | name                       | shape           | unit          |
|----------|----------------------------|-----------------|---------------|
| theta    | `point`                    | list of tensors | weights       |
| Delta    | `delta`                    | list of tensors | weights       |
| g, g'    | `gradient`, `new_gradient` | list of tensors | nats / weight |
| epsilon  | `scale`                    | float           | weights       |
| b_j = 1  | `up`                       | tensor          | 1             |
"""

from collections.abc import Sequence

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


def langevin(
    point: Position, gradient: Position, normals: Sequence[Tensor], scale: float
) -> Position:
    """Return the proposal (1)."""
    drift = 0.5 * scale * scale
    return tensors.add_terms(point, (drift, gradient), (scale, normals))


def langevin_log_ratio(
    delta: Position,
    gradient: Position,
    new_gradient: Position,
    scale: float,
    like: Tensor,
) -> Tensor:
    """Return log q(theta' -> theta) - log q(theta -> theta') of (1), as `like` is."""
    change = tensors.subtract(new_gradient, gradient)
    both = tensors.add_scaled(gradient, 1.0, new_gradient)
    middle = tensors.add_scaled(delta, 0.25 * scale * scale, change)
    return -0.5 * tensors.dot(middle, both, like=like)


def barker(
    point: Position,
    gradient: Position,
    normals: Sequence[Tensor],
    uniforms: Sequence[Tensor],
    scale: float,
) -> Position:
    """Return the proposal (2); `uniforms` are shaped like the position."""
    signed = []
    for g, z, u in zip(gradient, normals, uniforms, strict=True):
        up = u < ops.sigmoid(scale * z * g)
        signed.append(ops.where(up, z, -z))
    return tensors.add_scaled(point, scale, signed)


def barker_log_ratio(
    delta: Position, gradient: Position, new_gradient: Position, like: Tensor
) -> Tensor:
    """Return log q(theta' -> theta) - log q(theta -> theta') of (2), as `like` is."""
    terms = [
        ops.softplus(-x * g) - ops.softplus(x * new)
        for x, g, new in zip(delta, gradient, new_gradient, strict=True)
    ]
    return tensors.dot(terms, [ops.ones_like(x) for x in terms], like=like)
