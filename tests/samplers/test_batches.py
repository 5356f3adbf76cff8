"""Mini-batches of many chains: sets of m out of n, all alike likely."""

import numpy as np
import pytest
import scipy.stats
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import batches

SIZES = [(1, 1), (2, 1), (7, 7), (10, 3), (97, 20), (1000, 50), (59999, 8)]


def draw(train_size, batch_size, chains, replacement=False, seed=0):
    uniforms = np.random.default_rng(seed).random(
        (batches.num_rounds(train_size), chains)
    )

    def function(uniforms):
        return batches.draw_batches(uniforms, train_size, batch_size, replacement)

    tensor = ops.convert_to_tensor(uniforms.astype("float32"))
    return ops.convert_to_numpy(_backend.compile_function(function)(tensor))


def oracle(uniforms, train_size, batch_size):
    """The network of one chain in Python's integers."""
    rows, columns = batches.grid(train_size)
    keys = [int(np.float32(u) * 2**24) for u in uniforms]

    def mix(x):
        x &= 0xFFFFFFFF
        x ^= x >> 16
        x = x * 0x85EBCA6B & 0xFFFFFFFF
        x ^= x >> 13
        x = x * 0xC2B2AE35 & 0xFFFFFFFF
        return x ^ (x >> 16)

    def permute(j):
        left, right = divmod(j, columns)
        for r in range(0, len(keys), 2):
            left = (left + ((mix(right + keys[r]) >> 16) * rows >> 16)) % rows
            step = (mix(left + keys[r + 1]) >> 16) * columns >> 16
            right = (right + step) % columns
        return left * columns + right

    indices = []
    for j in range(batch_size):
        j = permute(j)
        while j >= train_size:
            j = permute(j)
        indices.append(j)
    return indices


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_a_batch_is_that_of_the_network_in_exact_integers(n, m):
    rounds = batches.num_rounds(n)
    uniforms = np.random.default_rng(0).random((rounds, 3)).astype("float32")
    actual = draw(n, m, chains=3)
    assert actual.shape == (3, m)
    for k in range(3):
        assert actual[k].tolist() == oracle(uniforms[:, k], n, m)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(("n", "m"), [(3, 2), (5, 2), (10, 3), (64, 5), (97, 20)])
def test_every_example_and_every_pair_is_as_likely(n, m, replacement):
    indices = draw(n, m, 50000, replacement)
    # The first example of each batch is uniform, and so is its pair with the second.
    counts = np.bincount(indices[:, 0], minlength=n)
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    pairs = np.bincount(indices[:, 0] * n + indices[:, 1], minlength=n * n)
    if not replacement:
        pairs = np.delete(pairs, np.arange(n) * (n + 1))
    assert scipy.stats.chisquare(pairs).pvalue > 1e-4


def test_chains_draw_batches_of_their_own():
    indices = draw(1000, 100, chains=50)
    common = [
        len(set(a) & set(b)) for a, b in zip(indices[:-1], indices[1:], strict=True)
    ]
    # Hypergeometric: 10 in the mean, variance 10 * 0.9 * 0.9.
    assert np.mean(common) == pytest.approx(10, abs=4 * (8.1 / 49) ** 0.5)


@pytest.mark.parametrize("n", [*range(1, 60), 997, 60000, 99991, 2**30])
def test_the_grid_holds_all_examples_and_little_more(n):
    rows, columns = batches.grid(n)
    assert n <= rows * columns <= n + 2 * n**0.5 + 1
    assert max(rows, columns) <= 2**16
