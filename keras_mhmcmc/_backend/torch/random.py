"""PyTorch: standard normals and uniforms from (seed, step count)."""

import math

import torch
from keras import ops

from keras_mhmcmc._backend.torch.generator import Normals
from keras_mhmcmc._backend.torch.generator import draw_from
from keras_mhmcmc._backend.torch.generator import seed_of

__all__ = ["SEED_DTYPE", "NoiseStream", "draw", "draw_from"]

SEED_DTYPE = "int64"


class NoiseStream:
    """Noise that depends on (seed, step count) alone. `state` holds these two.

    The generator needs both as Python numbers. Reading them from the device would stop
    its queue at each step, so a copy is kept on the host. The copy is read again if
    the version counter of the variable's tensor shows that somebody else wrote to it.
    """

    def __init__(self, state):
        self._state = state
        self._host = None
        self._version = None

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (uniforms,)."""
        value = self._state.value
        if self._host is None or self._version != (value.data_ptr(), value._version):
            self._host = value.tolist()
        seed, count = self._host
        self._host[1] += 1
        with torch.no_grad():
            value[1].add_(1)
        self._version = (value.data_ptr(), value._version)
        if Normals.fits(tensors):
            normals = Normals(seed_of(seed, count), uniforms, tensors)
            return normals, normals.uniforms
        return draw_from((seed, count), tensors, uniforms)


def draw(seed, step, shapes, uniforms):
    """Return normals and uniforms of these shapes, from (seed, step) alone."""
    device = ops.convert_to_tensor(0.0).device
    like = [torch.empty(shape, device=device) for shape in shapes]
    normals, flat = draw_from(
        (seed, step), like or [torch.empty(0, device=device)], math.prod(uniforms)
    )
    return normals[: len(shapes)], flat.view(uniforms)
