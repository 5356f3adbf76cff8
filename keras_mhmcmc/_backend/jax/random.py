"""JAX: standard normals and uniforms from (seed, step count).

`jax.random` draws the noise of small tensors, Threefry that of large ones.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax

from keras_mhmcmc._backend import xla

__all__ = ["SEED_DTYPE", "NoiseStream", "draw"]

SEED_DTYPE = "uint32"


def draw(seed, step, shapes, uniforms):
    """Return normals and uniforms of these shapes, from (seed, step) alone."""
    like = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    normals, flat = draw_from((seed, step), like, math.prod(uniforms))
    return normals, flat.reshape(uniforms)


def draw_from(state, tensors, uniforms):
    """Return normals shaped like `tensors`, and uniforms (uniforms,).

    `state` is (seed, step count).
    """
    key = jax.random.key(state[0], impl="threefry2x32")
    key = jax.random.fold_in(key, state[1])
    words = jax.random.key_data(key)
    return xla.normals_like(
        tensors,
        lambda small: _at_once(key, small, uniforms),
        functools.partial(_placed, words),
    )


NoiseStream = functools.partial(xla.NoiseStream, draw_from)


def _at_once(key, tensors, uniforms):
    """Return a vector of normals for each tensor, and uniforms, from one draw."""
    # One flat draw for all weights compiles in a fraction of the time that a draw for
    # each tensor takes. The barrier keeps XLA from repeating the draw in every use.
    sizes = [tensor.size for tensor in tensors]
    dtype = jnp.result_type(jnp.float32, *(tensor.dtype for tensor in tensors))
    count = uniforms + sum(sizes)
    # The count is padded: on a CPU, XLA takes six times as long for an odd number.
    shape = (count + -count % (64 if count >= 64 else 2),)
    integers = jnp.uint64 if dtype == jnp.float64 else jnp.uint32
    flat = lax.optimization_barrier(jax.random.bits(key, shape, integers))
    uniform = _uniforms(flat[:uniforms])
    normals = _normals(flat[uniforms:count])
    return jnp.split(normals, list(itertools.accumulate(sizes))[:-1]), uniform


def _uniforms(bits):
    """Return float32 numbers in [0, 1) from unsigned integers."""
    kept = lax.shift_right_logical(bits, _like(bits, 8 * bits.dtype.itemsize - 24))
    return kept.astype(jnp.float32) / 2.0**24


def _normals(bits):
    """Return normals from unsigned integers: float32 from 32 bits, float64 from 64."""
    width = 8 * bits.dtype.itemsize
    signed, dtype, fraction = jnp.int32, jnp.float32, 24
    if width == 64:
        signed, dtype, fraction = jnp.int64, jnp.float64, 53
    kept = lax.bitcast_convert_type(bits, signed)
    # Keep as many bits as a float's fraction has. Half a step makes the numbers
    # symmetric about 0.
    kept = lax.shift_right_arithmetic(kept, _like(kept, width - fraction))
    centred = (kept.astype(dtype) + 0.5) / 2.0 ** (fraction - 1)
    return math.sqrt(2.0) * lax.erf_inv(centred)


def _like(x, value):
    return jnp.array(value, x.dtype)


def _placed(words, number, tensor):
    """Return float32 normals for the tensor of this number."""
    place = lax.iota(jnp.uint32, tensor.size).reshape(tensor.shape)
    # The first bit sets these blocks apart from the blocks of `jax.random`.
    block = jnp.full_like(place, 2**31 + number)
    bits, _ = _threefry(words, (block, place))
    return _normals(bits)


def _rotate_left(x, bits):
    return (x << jnp.uint32(bits)) | (x >> jnp.uint32(32 - bits))


_threefry = functools.partial(xla.threefry, word=jnp.uint32, rotate_left=_rotate_left)
