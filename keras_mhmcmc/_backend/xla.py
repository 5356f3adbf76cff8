"""What JAX and TensorFlow share: the plan of the noise, cores, and a sum of rows.

The noise of all small tensors is drawn at once, with three or four times their memory.
A large tensor needs none: each normal is a function of its place in the tensor, which
XLA computes where it adds the noise.
"""

import functools
import math
import os

import keras
from keras import ops

# A tensor of at least this many numbers is drawn alone. Each such draw is a program of
# its own, so smaller tensors are drawn together. With every tensor drawn alone, steps
# took the same time, and compiling took longer: on ResNet20 the first step of SGLD took
# 7.8 seconds instead of 4.4 on JAX, and 6.0 instead of 2.8 on TensorFlow.
_LARGE = 2**16
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
_PARITY = 0x1BD11BDA


class NoiseStream:
    """Noise that depends on (seed, step count) alone. `state` holds these two."""

    def __init__(self, draw_from, state):
        self._draw_from, self._state = draw_from, state

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (uniforms,)."""
        return self._draw_from(counted(self._state), tensors, uniforms)


@functools.cache  # compiled loops are made for this number
def count_cores():
    """Return the number of processor cores that this program may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def counted(variable):
    """Return (seed, step count) of this step, or rows of them, and count it."""
    state = ops.copy(variable.value)
    variable.assign(state + ops.convert_to_tensor([0, 1], state.dtype))
    return state


def normals_like(tensors, at_once, placed):
    """Return normals shaped like `tensors`, and uniforms.

    `at_once` makes those of all small tensors, `placed(number, x)` of a large one.
    """
    parts, uniform = at_once([x for x in tensors if not _is_large(x)])
    parts = iter(parts)
    normals = [
        placed(number, x) if _is_large(x) else next(parts)
        for number, x in enumerate(tensors)
    ]
    return [
        ops.cast(ops.reshape(normal, tuple(x.shape)), x.dtype)
        for normal, x in zip(normals, tensors, strict=True)
    ], uniform


def _is_large(x):
    is_double = keras.backend.standardize_dtype(x.dtype) == "float64"
    return _LARGE <= math.prod(x.shape) < 2**31 and not is_double


def threefry(key, counter, word, rotate_left):
    """Return two words for a key of two words and a counter of two words, uint32.

    Threefry-2x32-20: Salmon et al. (2011), section 3.3. `word` makes uint32 of an
    integer.
    """
    keys = *key, key[0] ^ key[1] ^ word(_PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ rotate_left(y, bits)
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + word(group + 1)
    return x, y


def total(rows):
    """Return the sums over rows of scalars, float32."""
    # Without a loop for many rows, XLA would repeat the additions in everything that
    # uses their sum: a step of a network of 65 tensors then compiled for a minute.
    if len(rows) <= 8:
        sums = [sum(column[1:], column[0]) for column in zip(*rows, strict=True)]
        return [ops.cast(each, "float32") for each in sums]
    stacked = ops.stack([ops.stack(row) for row in rows])
    sums = ops.fori_loop(1, len(rows), lambda i, sums: sums + stacked[i], stacked[0])
    return ops.unstack(ops.cast(sums, "float32"), len(rows[0]))
