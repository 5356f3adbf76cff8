"""Chains in threads: XLA runs a loop on one core, so each core runs some of the chains.

Each thread draws the noise of all chains and keeps its own. So a chain is the same in
groups of all sizes, up to rounding.
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

# Examples of a step of all chains. With fewer, threads cost more than they gain.
_LEAST = 2000
_MOST = 8  # groups: each draws the noise of all chains


def count_groups(num_chains: int, examples: int, cores: int) -> int:
    """Return into how many equal groups the chains of a run are divided.

    Args:
        num_chains: of the run, K.
        examples: of a step of a chain.
        cores: number of cores that this program may use.
    """
    if num_chains * examples < _LEAST:
        return 1
    most = min(cores, _MOST)
    return max(n for n in range(1, most + 1) if num_chains % n == 0)


def step_of_group(step: Callable[..., Any], count: int) -> Callable[..., Any]:
    """Return the step of a group, whose last constant is the number of its first chain.

    Args:
        step: takes the state of a group, constants, and the noise of the group.
        count: chains of a group.
    """

    def run(state: Any, constants: list[Tensor], noise: Any, number: Tensor) -> Any:
        *others, first = constants
        # Not a slice: XLA on TensorFlow would compile it for each first chain.
        rows = first + ops.arange(count, dtype="int32")
        normals, uniforms = noise  # of all chains: (K, ...) and (uniforms, K) or []
        normals = [ops.take(x, rows, axis=0) for x in normals]
        uniforms = tree.map_structure(lambda x: ops.take(x, rows, axis=1), uniforms)
        return step(state, others, (normals, uniforms), number)

    return run


class Threads:
    """A compiled loop of a group, which runs all groups side by side.

    Args:
        loop: compiled, with a step of `step_of_group`.
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
        size = len(leaves[0]) // self._groups
        firsts = [np.asarray(n * size, "int32") for n in range(self._groups)]

        def run(parts: tuple[Array, ...], first: Array) -> list[list[Array]]:
            part = tree.pack_sequence_as(state, list(parts))
            found = self._loop(part, [*constants, first], seed, *numbers)
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
