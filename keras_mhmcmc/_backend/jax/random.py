"""JAX: standard normals and uniforms from (seed, step count).

What is small is drawn at once, by `jax.random`. That makes the bits of all numbers in a
loop over arrays, four times the size of the weights. A large tensor's normals are a
function of the place of a number instead, which XLA makes where it adds them, in one
pass over the weights and without any memory.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax

from keras_mhmcmc._backend.threefry import threefry

__all__ = ["SEED_DTYPE", "NoiseStream", "draw", "draw_from"]

SEED_DTYPE = "uint32"

# Numbers of a tensor from which on it is drawn alone: each is a program of its own.
_LARGE = 2**16


class NoiseStream:
    """Draws that depend on (seed, step count) alone; `state` holds these two."""

    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        """Standard normals shaped like `tensors`, and a vector of `uniforms`."""
        state = self._state.value
        self._state.assign(state + jnp.array([0, 1], state.dtype))
        return draw_from(state, tensors, uniforms)


def draw(seed, step, shapes, uniforms):
    """Normals of these shapes, and uniforms, that depend on (seed, step) alone."""
    like = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    normals, flat = draw_from((seed, step), like, math.prod(uniforms))
    return normals, flat.reshape(uniforms)


def draw_from(state, tensors, uniforms):
    """Standard normals shaped like `tensors`, and uniforms, from (seed, step count)."""
    key = jax.random.key(state[0], impl="threefry2x32")
    key = jax.random.fold_in(key, state[1])
    small = [tensor for tensor in tensors if not _is_large(tensor)]
    parts, uniform = _at_once(key, small, uniforms)
    parts = iter(parts)
    words = jax.random.key_data(key)
    normals = [
        _placed(words, number, tensor) if _is_large(tensor) else next(parts)
        for number, tensor in enumerate(tensors)
    ]
    return [
        normal.reshape(tensor.shape).astype(tensor.dtype)
        for normal, tensor in zip(normals, tensors, strict=True)
    ], uniform


def _is_large(tensor):
    return _LARGE <= tensor.size < 2**32 and tensor.dtype != jnp.float64


def _at_once(key, tensors, uniforms):
    """Normals as vectors, and uniforms."""
    # One flat draw for all weights compiles in a fraction of the time that one for
    # each takes; the barrier keeps XLA from repeating it in every use.
    sizes = [tensor.size for tensor in tensors]
    dtype = jnp.result_type(jnp.float32, *(tensor.dtype for tensor in tensors))
    count = uniforms + sum(sizes)
    # Padded, since XLA takes six times as long for an odd number on a CPU.
    shape = (count + -count % (64 if count >= 64 else 2),)
    integers = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    flat = lax.optimization_barrier(jax.random.bits(key, shape, integers))
    uniform = _uniforms(flat[:uniforms])
    normals = _normals(flat[uniforms:count])
    return jnp.split(normals, list(itertools.accumulate(sizes))[:-1]), uniform


def _uniforms(bits):
    """Numbers in [0, 1), float32, from unsigned integers."""
    kept = lax.shift_right_logical(bits, _like(bits, 8 * bits.dtype.itemsize - 24))
    return kept.astype(jnp.float32) / 2.0**24


def _normals(bits):
    """Standard normals from unsigned integers: float32 of 32 bits, float64 of 64."""
    width = 8 * bits.dtype.itemsize
    signed, dtype, fraction = jnp.int32, jnp.float32, 24
    if width == 64:
        signed, dtype, fraction = jnp.int64, jnp.float64, 53
    kept = lax.bitcast_convert_type(bits, signed)
    # As many bits as a fraction has, and half a step, which makes it symmetric.
    kept = lax.shift_right_arithmetic(kept, _like(kept, width - fraction))
    centred = (kept.astype(dtype) + 0.5) / 2.0 ** (fraction - 1)
    return math.sqrt(2.0) * lax.erf_inv(centred)


def _like(x, value):
    return jnp.array(value, x.dtype)


def _placed(words, number, tensor):
    """Normals for the tensor of this number, float32."""
    place = lax.iota(jnp.uint32, tensor.size).reshape(tensor.shape)
    # The first bit sets these blocks apart from those that `jax.random` makes.
    block = jnp.full_like(place, 2**31 + number)
    bits, _ = _threefry(words, (block, place))
    return _normals(bits)


def _rotate_left(x, bits):
    return (x << jnp.uint32(bits)) | (x >> jnp.uint32(32 - bits))


_threefry = functools.partial(threefry, word=jnp.uint32, rotate_left=_rotate_left)
