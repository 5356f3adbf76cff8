"""Initial values of the variables of a sampler: constants and seeds."""

import math
import random
from collections.abc import Callable

import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Tensor


def constant(values: ArrayLike) -> Callable[[tuple[int, ...], str], Tensor]:
    """Return an initializer with these values, repeated for each chain if needed."""

    def initialize(shape: tuple[int, ...], dtype: str) -> Tensor:
        repeats = max(math.prod(shape) // np.size(values), 1)
        tiled = np.tile(np.ravel(values), repeats).reshape(shape)
        return ops.convert_to_tensor(tiled, dtype=dtype)

    return initialize


def seeds_along_chains(seed: int, num_chains: int) -> list[int]:
    """Return `seed` for the first chain, and random seeds for the others."""
    others = np.random.default_rng(seed).integers(0, 2**31, num_chains - 1)
    return [seed, *map(int, others)]


def fresh_seed() -> int:
    """Return a random seed."""
    # `keras.utils.set_random_seed` makes Python's generator repeatable.
    return random.randint(1, 10**9)


def common_seed(seed: int, is_given: bool) -> int:
    """Return the seed of the first process, for all that run a chain together.

    Args:
        seed: of this process.
        is_given: whether the user chose it.

    Raises:
        ValueError: the user gave the processes different seeds.
    """
    seeds = _backend.of_processes(seed)
    if is_given and len(set(seeds)) > 1:
        raise ValueError(
            "Argument `seed` must be the same in all processes, which make one chain "
            "together. For independent chains start the processes without "
            f"`keras.distribution.initialize`. Received: seed={seeds}"
        )
    return seeds[0]
