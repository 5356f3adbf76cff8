"""PyTorch: standard normals and uniforms from (seed, step count)."""

import math

import torch
from keras import ops

from keras_mhmcmc._backend.torch.generator import Normals
from keras_mhmcmc._backend.torch.generator import SeedsOnHost
from keras_mhmcmc._backend.torch.generator import draw_from
from keras_mhmcmc._backend.torch.generator import seed_of

__all__ = ["NoiseStream", "draw"]


class NoiseStream:
    """Noise that depends on (seed, step count) alone. `state` holds these two."""

    def __init__(self, state):
        self._state, self._seeds = state, SeedsOnHost()

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (uniforms,)."""
        value = self._state.value
        (seed,) = self._seeds.of_step(value, value)
        if Normals.fits(tensors):
            normals = Normals(seed, uniforms, tensors)
            return normals, normals.uniforms
        return draw_from(seed, tensors, uniforms)


def draw(seed, step, shapes, uniforms):
    """Return normals and uniforms of these shapes, from (seed, step) alone."""
    device = ops.convert_to_tensor(0.0).device
    like = [torch.empty(shape, device=device) for shape in shapes]
    normals, flat = draw_from(
        seed_of(seed, step),
        like or [torch.empty(0, device=device)],
        math.prod(uniforms),
    )
    return normals[: len(shapes)], flat.view(uniforms)
