"""What the variables of a sampler hold first: constants and seeds."""

import math
import random

import numpy as np
from keras import ops


def constant(values):
    """An initializer that gives these values, to each chain the same if need be."""

    def initialize(shape, dtype):
        repeats = max(math.prod(shape) // np.size(values), 1)
        tiled = np.tile(np.ravel(values), repeats).reshape(shape)
        return ops.convert_to_tensor(tiled, dtype=dtype)

    return initialize


def seeds_along_chains(seed, num_chains):
    """`seed` for the first chain, and draws of one generator for the others."""
    others = np.random.default_rng(seed).integers(0, 2**31, num_chains - 1)
    return [seed, *map(int, others)]


def fresh_seed():
    """A seed for whoever gave none."""
    # Python's generator, which `keras.utils.set_random_seed` makes repeatable.
    return random.randint(1, 10**9)
