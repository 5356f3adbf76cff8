"""PyTorch: standard normals and uniforms from seeds.

Drawing is most of what SGLD adds to a step of SGD on a CPU. Where there are many
numbers they are made in pieces that stay in the cache: numpy's SFC64 makes the bits,
and PyTorch's inverse error function, with all threads, normals of them. For half a
million, added up, 0.9 ms on 2 cores where `randn` and a sum take 1.3 by vector
instructions (AVX2), and `randn` alone 4.8 without them.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

# Numbers of one seed from which on they are made in pieces, on a CPU.
_MANY = 2**14
# Numbers that are made at a time; even, since 64 bits make two.
_PIECE = 2**17
_ROOT = math.sqrt(2.0)


def draw_from(state, tensors, uniforms):
    """Standard normals shaped like `tensors`, and uniforms, from (seed, step count)."""
    size = sum(tensor.numel() for tensor in tensors)
    rows, uniform = rows_of([seed_of(*state)], size, uniforms, tensors[0])
    return shaped(rows, tensors, has_chains=False), uniform[0]


def rows_of(seeds, normals, uniforms, like):
    """(len(seeds), normals) normals and (len(seeds), uniforms) float32 uniforms.

    Where `like` is, and in float64 if it is.
    """
    if _has_pieces(normals, like):
        return _in_pieces(seeds, normals, uniforms)
    return _at_once(seeds, normals, uniforms, like)


def _has_pieces(normals, like):
    is_host = like.device.type == "cpu" and like.dtype != torch.float64
    return is_host and normals >= _MANY


def _at_once(seeds, normals, uniforms, like):
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    generator = _generator(like.device)
    options = {"generator": generator, "device": like.device}
    normal, uniform = [], []
    for seed in seeds:
        generator.manual_seed(seed)
        uniform.append(torch.rand(uniforms, **options))
        normal.append(torch.randn(normals, dtype=dtype, **options))
    return _stack(normal), _stack(uniform)


@functools.lru_cache(maxsize=64)
def _generator(device):
    return torch.Generator(device=device)


def _in_pieces(seeds, normals, uniforms):
    numbers = torch.empty((len(seeds), normals + normals % 2))
    uniform = torch.empty((len(seeds), uniforms))
    for seed, row, flat in zip(seeds, numbers, uniform, strict=True):
        source = _Source(seed)
        flat.copy_(source.uniforms(uniforms))
        for piece in row.split(_PIECE):
            source.make_normals_(piece)
    numbers.mul_(_ROOT)
    return numbers[:, :normals], uniform


class _Source:
    """The numbers of a seed, the same for the same calls."""

    def __init__(self, seed):
        self._generator = np.random.SFC64(seed)

    def _bits(self, count):
        words = self._generator.random_raw((count + 1) // 2)
        return torch.from_numpy(words.view(np.int32)[:count])

    def uniforms(self, count):
        """Numbers in [0, 1)."""
        return self._bits(count).bitwise_and_(2**24 - 1) * 2.0**-24

    def make_normals_(self, numbers):
        """Normals divided by the root of 2, in place of the given numbers."""
        # Below 1, where integers next to 2^31 are rounded up to that: 5.4 for a normal.
        largest = 1.0 - 2.0**-24
        torch.mul(self._bits(len(numbers)), largest * 2.0**-31, out=numbers)
        numbers.erfinv_()


class Normals(Sequence):
    """Standard normals shaped like `tensors`, the ones that `rows_of` gives for a seed.

    Where they are to be added to something they are made piece by piece: all of them
    at once take the memory of another copy of the weights, and its time.
    """

    def __init__(self, seed, uniforms, tensors):
        self._seed = seed
        self._num_uniforms = uniforms
        self._like = tensors
        self._size = sum(x.numel() for x in tensors)
        self._made = None
        self._source = _Source(seed)
        self.uniforms = self._source.uniforms(uniforms)

    @staticmethod
    def fits(tensors):
        """Whether `rows_of` makes normals like these in pieces."""
        return _has_pieces(sum(x.numel() for x in tensors), tensors[0])

    def __len__(self):
        return len(self._like)

    def __getitem__(self, index):
        if self._made is None:
            rows, _ = _in_pieces([self._seed], self._size, self._num_uniforms)
            self._made = shaped(rows, self._like, has_chains=False)
        return self._made[index]

    def add_to_(self, tensors, scale):
        """Adds `scale` times the normals to tensors, in place."""
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

    def _pieces(self):
        source, self._source = self._source, None
        if source is None:  # somebody wanted them before
            source = _Source(self._seed)
            source.uniforms(self._num_uniforms)
        left = self._size + self._size % 2
        memory = torch.empty(min(left, _PIECE))
        while left:
            piece = memory[:left]
            source.make_normals_(piece)
            yield piece
            left -= len(piece)


def _stack(rows):
    return rows[0][None] if len(rows) == 1 else torch.stack(rows)


def shaped(rows, tensors, has_chains):
    """Rows of normals as tensors like `tensors`, a row for each chain of them."""
    sizes = [tensor[0].numel() if has_chains else tensor.numel() for tensor in tensors]
    parts = rows.split(sizes, dim=1)
    return [
        part.reshape(tensor.shape).to(tensor.dtype)
        for part, tensor in zip(parts, tensors, strict=True)
    ]


def seed_of(seed, count):
    """A 63-bit seed (splitmix64): neighbours share no draws."""
    value = (seed * 0x9E3779B97F4A7C15 + (count + 1) * 0xD1B54A32D192ED03) % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> shift)) * factor % 2**64
    return (value ^ (value >> 31)) % 2**63
