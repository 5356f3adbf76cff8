"""JAX: standard normals and uniforms from (seed, step count).

What is small is drawn at once, by `jax.random`. That makes the bits of all numbers in a
loop over arrays, four times the size of the weights. A large tensor's normals are a
function of the place of a number instead, which XLA makes where it adds them, in one
pass over the weights and without any memory.
"""

import itertools
import math

import jax
import jax.numpy as jnp
from jax import lax

# Numbers of a tensor from which on it is drawn alone: each is a program of its own.
_LARGE = 2**16


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
    bits, _ = threefry(*words, block, place)
    return _normals(bits)


def threefry(key0, key1, x, y):
    """Threefry-2x32-20: Salmon et al. (2011), section 3.3."""
    keys = key0, key1, key0 ^ key1 ^ jnp.uint32(0x1BD11BDA)
    rotations = (13, 15, 26, 6), (17, 29, 16, 24)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for bits in rotations[group % 2]:
            x = x + y
            y = x ^ ((y << jnp.uint32(bits)) | (y >> jnp.uint32(32 - bits)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + jnp.uint32(group + 1)
    return x, y
