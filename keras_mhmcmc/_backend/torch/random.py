"""PyTorch: standard normals and uniforms from (seed, step count).

On a CPU, numpy's SFC64 makes the bits, and PyTorch's inverse error function makes
normals from them, in pieces that stay in the cache. With `torch.randn` steps in `fit`
took 17 to 24% longer (perceptron 784-600-10, one thread), and its generator keeps 32 of
a seed's 63 bits: noise would repeat after some tens of thousands of steps. Small draws,
and all float64 draws, come from numpy's ziggurat method.
"""

import functools
import math
import threading
from collections.abc import Sequence

import numpy as np
import torch
from keras import ops

__all__ = ["NoiseStream", "draw"]


# On a CPU: the fewest normals of one seed that are made from bits, and the fewest that
# are made in pieces where they are added.
_SEVERAL = 2**10
_MANY = 2**14
# How many numbers are made at a time. An even number: 64 bits make two numbers.
_PIECE = 2**17
_ROOT = math.sqrt(2.0)


class SeedsOnHost:
    """A copy of the rows (seed, step count) of chains, as Python numbers.

    Reading them would stop the queue of a device at each step. They are read again if
    the version counter of the tensor shows that somebody else wrote to it.
    """

    def __init__(self):
        self._rows = self._version = None

    def of_step(self, whole, part):
        """Return the seeds of this step, of the rows of `whole` in `part`; count it."""
        if self._version != (whole.data_ptr(), whole._version):
            self._rows = whole.reshape(-1, 2).tolist()
        first = (part.data_ptr() - whole.data_ptr()) // (2 * part.element_size())
        rows = self._rows[first : first + part.numel() // 2]
        seeds = [seed_of(*row) for row in rows]
        for row in rows:
            row[1] += 1
        with torch.no_grad():
            part[..., 1].add_(1)
        self._version = (whole.data_ptr(), whole._version)
        return seeds


def draw_from(seed, tensors, uniforms):
    """Return normals shaped like `tensors`, and uniforms (uniforms,), of a seed."""
    size = sum(tensor.numel() for tensor in tensors)
    rows, uniform = rows_of([seed], size, uniforms, tensors[0])
    return shaped(rows, tensors, has_chains=False), uniform[0]


def rows_of(seeds, normals, uniforms, like):
    """Return normals (seeds, normals), float64 if `like` is, and float32 uniforms."""
    if like.device.type == "cpu":
        return _on_host(seeds, normals, uniforms, like)
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    generator = _generator(like.device)
    options = {"generator": generator, "device": like.device}
    normal, uniform = [], []
    for seed in seeds:
        generator.manual_seed(seed)  # a GPU uses all of its bits
        uniform.append(torch.rand(uniforms, **options))
        normal.append(torch.randn(normals, dtype=dtype, **options))
    return _stack(normal), _stack(uniform)


@functools.lru_cache(maxsize=64)
def _generator(device):
    return torch.Generator(device=device)


def _on_host(seeds, normals, uniforms, like):
    is_double = like.dtype == torch.float64
    of_bits = normals >= _SEVERAL and not is_double
    numbers = np.empty((len(seeds), normals), np.float64 if is_double else np.float32)
    uniform = np.empty((len(seeds), uniforms), np.float32)
    for seed, row, flat in zip(seeds, numbers, uniform, strict=True):
        source = _HOST.source.restart(seed)
        source.fill_uniforms(flat)
        if of_bits:
            for piece in torch.from_numpy(row).split(_PIECE):
                source.make_normals_(piece)
        else:
            source.generator.standard_normal(out=row, dtype=row.dtype)
    numbers = torch.from_numpy(numbers)
    return numbers.mul_(_ROOT) if of_bits else numbers, torch.from_numpy(uniform)


class _Source:
    """A source of noise. After `restart(seed)`, equal calls give equal numbers."""

    def __init__(self):
        self._bits = np.random.SFC64(0)
        self.generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def restart(self, seed):
        """Start from all bits of a seed, in a sixth of the time of a new generator."""
        self._state["state"]["state"][:] = seed, seed, seed, 1
        self._bits.state = self._state
        self._bits.random_raw(12, output=False)
        return self

    def fill_uniforms(self, array):
        """Fill a float32 numpy array with numbers in [0, 1)."""
        self.generator.random(out=array, dtype=np.float32)

    def make_normals_(self, numbers):
        """Write normals divided by the root of 2 over a float32 tensor."""
        words = self._bits.random_raw((len(numbers) + 1) // 2)
        make_normals_of_bits_(words.view(np.int32)[: len(numbers)], numbers)


def make_normals_of_bits_(bits, numbers):
    """Write normals divided by the root of 2 over `numbers`, made from int32 `bits`."""
    # float32 rounds integers next to 2^31 up to 2^31. This factor keeps the largest
    # number below 1 all the same, and the largest normal is 5.4.
    largest = 1.0 - 2.0**-24
    torch.mul(torch.from_numpy(bits), largest * 2.0**-31, out=numbers)
    numbers.erfinv_()


class _Host(threading.local):
    """The source of each thread, which every draw restarts."""

    def __init__(self):
        self.source = _Source()


_HOST = _Host()


class Normals(Sequence):
    """The standard normals that `rows_of` gives for a seed, shaped like `tensors`.

    `add_to_` makes them piece by piece, without the memory of a copy of the weights.
    """

    def __init__(self, seed, uniforms, tensors):
        self._seed = seed
        self._like = tensors
        self._made = None
        self.uniforms = torch.empty(uniforms, dtype=torch.float32)
        self._source = self._started()

    @staticmethod
    def fits(tensors):
        """Return whether normals like `tensors` are made in pieces: many, on a CPU."""
        like = tensors[0]
        is_float32 = like.device.type == "cpu" and like.dtype != torch.float64
        return is_float32 and sum(x.numel() for x in tensors) >= _MANY

    def __len__(self):
        return len(self._like)

    def __getitem__(self, index):
        if self._made is None:
            size = sum(x.numel() for x in self._like)
            rows, _ = rows_of([self._seed], size, len(self.uniforms), self._like[0])
            self._made = shaped(rows, self._like, has_chains=False)
        return self._made[index]

    def add_to_(self, tensors, scale):
        """Add `scale` times the normals to tensors, in place."""
        pieces, rest = self._pieces(), torch.empty(0)
        for x in tensors:
            flat = x.reshape(-1)
            left = flat
            while len(left):
                rest = rest if len(rest) else next(pieces)
                count = min(len(left), len(rest))
                left[:count].add_(rest[:count], alpha=_ROOT * scale)
                left, rest = left[count:], rest[count:]
            if not x.is_contiguous():
                x.copy_(flat.reshape(x.shape))

    def _started(self):
        """Return a source of these normals. It has made the uniforms before them."""
        source = _Source().restart(self._seed)
        source.fill_uniforms(self.uniforms.numpy())
        return source

    def _pieces(self):
        source, self._source = self._source or self._started(), None
        left = sum(x.numel() for x in self._like)
        memory = torch.empty(min(left, _PIECE))
        while left:
            piece = memory[:left]
            source.make_normals_(piece)
            yield piece
            left -= len(piece)


def _stack(rows):
    return rows[0][None] if len(rows) == 1 else torch.stack(rows)


def shaped(rows, tensors, has_chains):
    """Return rows of normals, one for each chain, as tensors like `tensors`."""
    sizes = [tensor[0].numel() if has_chains else tensor.numel() for tensor in tensors]
    parts = rows.split(sizes, dim=1)
    return [
        part.reshape(tensor.shape).to(tensor.dtype)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def seed_of(seed, count):
    """Return a 63-bit seed (splitmix64), so that neighbours share no noise."""
    value = (seed * 0x9E3779B97F4A7C15 + (count + 1) * 0xD1B54A32D192ED03) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> shift)) * factor % 2**64
    return (value ^ (value >> 31)) % 2**63


class NoiseStream:
    def __init__(self, state):
        self._state, self._seeds = state, SeedsOnHost()

    def draw(self, tensors, uniforms):
        value = self._state.value
        (seed,) = self._seeds.of_step(value, value)
        if Normals.fits(tensors):
            normals = Normals(seed, uniforms, tensors)
            return normals, normals.uniforms
        return draw_from(seed, tensors, uniforms)


def draw(seed, step, shapes, uniforms):
    device = ops.convert_to_tensor(0.0).device
    like = [torch.empty(shape, device=device) for shape in shapes]
    normals, flat = draw_from(
        seed_of(seed, step),
        like or [torch.empty(0, device=device)],
        math.prod(uniforms),
    )
    return normals[: len(shapes)], flat.view(uniforms)
