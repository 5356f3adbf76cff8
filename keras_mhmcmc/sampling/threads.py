"""Chains in threads: XLA runs a loop on one core, so each core runs some of the chains.

Each thread draws the noise of all chains and keeps its own, so that a chain is the same
whatever the number of cores.
"""

import concurrent.futures
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor

tree = keras.tree

# Examples of a step of all chains. With fewer, noise and overhead take as long.
_LEAST = 2000


def count_groups(num_chains: int, examples: int, cores: int) -> int:
    """Return into how many equal groups the chains of a run are divided.

    Args:
        num_chains: of the run, K.
        examples: of a step of a chain.
        cores: that compute.
    """
    if num_chains * examples < _LEAST:
        return 1
    return max(n for n in range(1, cores + 1) if num_chains % n == 0)


def noise_of_group(
    noise: Callable[..., Any], count: int, seed: tuple[Any, Tensor], number: Tensor
) -> tuple[list[Tensor], Any]:
    """Return normals (count, ...) and uniforms (uniforms, count) of a group.

    Args:
        noise: of all chains.
        count: chains of a group.
        seed: and the first chain of the group.
        number: of the step.
    """
    seed, first = seed
    normals, uniforms = noise(seed, number)
    normals = [_part(x, first, count, 0) for x in normals]
    # The uniforms of a kernel without any are an empty list.
    return normals, tree.map_structure(lambda x: _part(x, first, count, 1), uniforms)


def _part(x: Tensor, first: Tensor, count: int, axis: int) -> Tensor:
    start, shape = [0] * len(x.shape), list(x.shape)
    start[axis], shape[axis] = first, count
    return ops.slice(x, start, shape)


class Threads:
    """A compiled loop of a group, which runs all groups side by side.

    Args:
        loop: takes `(seed, first chain)` in place of the seed.
        groups: number of them.
        is_shared: whether all chains have this tensor of the state together, for each.
    """

    def __init__(
        self, loop: Callable[..., Any], groups: int, is_shared: list[bool]
    ) -> None:
        self._loop, self._groups, self._is_shared = loop, groups, is_shared
        self._is_compiled = False

    def __call__(
        self, state: Any, constants: list[Tensor], seed: int, *numbers: int
    ) -> tuple[Any, list[Array], list[Array]]:
        leaves = [ops.convert_to_numpy(x) for x in tree.flatten(state)]
        pairs = list(zip(leaves, self._is_shared, strict=True))
        split = [
            [x] * self._groups if shared else np.split(x, self._groups)
            for x, shared in pairs
        ]
        firsts = np.arange(self._groups) * (len(leaves[0]) // self._groups)

        def run(parts: tuple[Array, ...], first: Any) -> list[list[Array]]:
            part = tree.pack_sequence_as(state, list(parts))
            found = self._loop(part, constants, (seed, int(first)), *numbers)
            return [[ops.convert_to_numpy(x) for x in tree.flatten(f)] for f in found]

        each = zip(*split, strict=True)
        if self._is_compiled:
            with concurrent.futures.ThreadPoolExecutor(self._groups) as pool:
                results = list(pool.map(run, each, firsts))
        else:  # the first one compiles
            results = list(map(run, each, firsts))
            self._is_compiled = True
        states, records, counts = (
            list(zip(*found, strict=True)) for found in zip(*results, strict=True)
        )
        joined = [
            parts[0] if shared else np.concatenate(parts)
            for parts, shared in zip(states, self._is_shared, strict=True)
        ]
        return (
            tree.pack_sequence_as(state, joined),
            [np.concatenate(parts, axis=1) for parts in records],
            [np.concatenate(parts) for parts in counts],
        )
