"""A temperature for each layer, by the spread of its gradient.

Paper: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation", appendix D.2, which says that
layers have temperatures according to the standard deviations of their gradients, and
not how. Here the noise of a layer is proportional to that deviation, so that all layers
have the same ratio of drift to noise, and the noisiest layer has the temperature T:

    s_l =  std(grad_l) at the first step, and then
    s_l <- s_l + 0.01 (std(grad_l) - s_l)             (`spreads`, (..., layers))
    T_l =  T (s_l / max s)^2, which scales the `normals` of layer l by s_l / max s

Each variable is a layer. std is the standard deviation over the entries of one tensor
(not over mini-batches), and the absolute value for a tensor with one weight. Spreads
are in nats per example and weight, and (...) is () for one chain and (K,) for K chains.

Target: none that is known in closed form. If every T_l is T, it is exp(-U/T).
"""

from collections.abc import Sequence

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

_RATE = 0.01


NO_GRADIENT = -1.0  # the spread before the first gradient


def update_spreads(spreads: Tensor, gradient: Position) -> Tensor:
    """Return s_l after one more gradient, shape (..., layers)."""
    has_chains = len(spreads.shape) > 1
    new = ops.stack([_deviation(g, has_chains) for g in gradient], axis=-1)
    new = ops.cast(new, spreads.dtype)
    return ops.where(spreads < 0.0, new, spreads + _RATE * (new - spreads))


def scaled(normals: Sequence[Tensor], spreads: Tensor) -> Position:
    """Return the noise of each layer times sqrt(T_l / T)."""
    # All gradients may be 0, at a plateau: then there is no noise either.
    largest = ops.maximum(ops.max(spreads, axis=-1, keepdims=True), 1e-30)
    scales = ops.unstack(spreads / largest, len(normals), axis=-1)
    return [
        z * ops.cast(tensors.along_chains(scale, z), z.dtype)
        for z, scale in zip(normals, scales, strict=True)
    ]


def _deviation(gradient: Tensor, has_chains: bool) -> Tensor:
    rows = ops.reshape(gradient, (gradient.shape[0] if has_chains else 1, -1))
    # One weight has no deviation, and would never get noise.
    spread = ops.std(rows, axis=1) if rows.shape[1] > 1 else ops.abs(rows[:, 0])
    return spread if has_chains else spread[0]
