"""PyTorch: draws that depend on a seed and the number of a step."""

import math

import torch
from keras import ops

from keras_mhmcmc._backend.torch.generator import Normals
from keras_mhmcmc._backend.torch.generator import draw_from
from keras_mhmcmc._backend.torch.generator import seed_of

__all__ = ["SEED_DTYPE", "NoiseStream", "draw", "draw_from"]

SEED_DTYPE = "int64"


class NoiseStream:
    """Draws that depend on (seed, step count) alone; `state` holds these two.

    The generator needs both as Python numbers, and reading them from the device would
    stop the queue at each step. So a copy is kept on the host, and read anew when the
    version counter of the variable's tensor says that somebody else wrote it.
    """

    def __init__(self, state):
        self._state = state
        self._host = None
        self._version = None

    def draw(self, tensors, uniforms):
        """Standard normals shaped like `tensors`, and a vector of `uniforms`."""
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
    """Normals of these shapes, and uniforms, that depend on (seed, step) alone."""
    device = ops.convert_to_tensor(0.0).device
    like = [torch.empty(shape, device=device) for shape in shapes]
    normals, flat = draw_from((seed, step), like, math.prod(uniforms))
    return normals, flat.view(uniforms)
