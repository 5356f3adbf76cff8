"""Steps of the kernels with growing batches, beside their float64 oracles."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import kernels
from keras_mhmcmc.samplers import barker
from keras_mhmcmc.samplers import growing
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.sampling import starts
from tests.oracles import growing as oracle
from tests.samplers.test_transitions import BOUNDS
from tests.samplers.test_transitions import CHAINS
from tests.samplers.test_transitions import SIZE
from tests.samplers.test_transitions import _plain_loops  # noqa: F401
from tests.samplers.test_transitions import log_likelihoods
from tests.support.given_density import Given
from tests.support.kernel_tools import tensor

ROUNDS = batches.num_rounds(SIZE)


class Noise(Given):
    """The density of the other kernels, with uniforms enough for a permutation."""

    def __init__(self, kernel, seed):
        super().__init__(kernel, seed)
        shape = (1, ROUNDS + 3, CHAINS, 1)
        rng = np.random.default_rng(seed + 99)
        self.blocks = (rng.integers(2**24, size=shape) / 2.0**24).astype("float32")


class Step:
    """One step from seeded positions, and what an oracle needs of each chain."""

    def __init__(self, kernel, seed, learning_rate):
        rng = np.random.default_rng(seed + 50)
        start = rng.normal(size=(CHAINS, 2)).astype("float32")
        self.own = kernel.num_uniforms
        self.kernel = kernel.bind_data_size(SIZE, None)
        state = starts.first_state(self.kernel, [ops.convert_to_tensor(start)])
        self.density = Noise(self.kernel, seed)
        state, _, counts = self.kernel.step(state, self.density)
        self.state = map_leaves(ops.convert_to_numpy, state)
        self.counts = {k: ops.convert_to_numpy(v) for k, v in counts.items()}
        self.start = start.astype("float64")
        self.proposal = self.start + learning_rate * self.density.steps[0]
        uniforms = self.density.blocks[0, :, :, 0]
        self.uniforms = uniforms[: self.own].astype("float64")
        keys = ops.convert_to_tensor(uniforms[self.own : self.own + ROUNDS])
        self.order = ops.convert_to_numpy(batches.draw_batches(keys, SIZE, SIZE))

    def __iter__(self):
        """Number of a chain, differences of its log-likelihoods, and of its priors."""
        for k, (old, new) in enumerate(zip(self.start, self.proposal, strict=True)):
            prior = (old @ old - new @ new) / 2
            yield k, log_likelihoods(new) - log_likelihoods(old), prior

    def check(self, chain, wins, count):
        assert self.counts["accepted"][chain] == wins
        assert self.counts["examples"][chain] == count
        expected = (self.proposal if wins else self.start)[chain]
        found = self.state.point[0][chain]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def threshold(uniform, prior, temperature):
    return (temperature * np.log(uniform) - prior) / SIZE


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block_size", [4, 10, 64])
def test_barker_step_equals_the_oracle(block_size, seed, temperature):
    settings = dict(temperature=temperature, block_size=block_size)
    step = Step(kernels.barker(0.3, **settings), seed, 0.3)
    table = barker.correction_table()
    settings["block_size"] = min(block_size, SIZE)
    for chain, differences, prior in step:
        *normals, place = step.uniforms[:, chain]
        value, count = oracle.barker(
            differences, step.order[chain], prior, normals, settings
        )
        half = len(barker.PROBABILITIES) - 1
        value += barker.SPACING * (np.searchsorted(table, place, "right") - half)
        assert abs(value) > 1e-4, "the seed is undecided"
        step.check(chain, value > 0, count)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("epsilon", "block_size"), [(0.0, 10), (0.01, 4), (0.3, 4), (0.3, 64)]
)
def test_austerity_step_equals_the_oracle(epsilon, block_size, seed, temperature):
    kernel = kernels.austerity(
        0.3, epsilon=epsilon, temperature=temperature, block_size=block_size
    )
    step = Step(kernel, seed, 0.3)
    for chain, differences, prior in step:
        value, count = oracle.austerity(
            differences,
            step.order[chain],
            threshold(step.uniforms[0, chain], prior, temperature),
            epsilon,
            min(block_size, SIZE),
        )
        assert abs(value) > 1e-6, "the seed is undecided"
        step.check(chain, value > 0, count)
        assert epsilon > 0 or count == SIZE


@pytest.mark.parametrize("temperature", [1.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("delta", "block_size"), [(1e-6, 3), (0.1, 3), (0.99, 3), (0.1, 64)]
)
def test_confidence_step_equals_the_oracle(delta, block_size, seed, temperature):
    kernel = kernels.confidence(
        0.3,
        bounds=BOUNDS,
        delta=delta,
        temperature=temperature,
        block_size=block_size,
    )
    step = Step(kernel, seed, 0.3)
    for chain, differences, prior in step:
        distance = np.linalg.norm(step.proposal[chain] - step.start[chain])
        value, count = oracle.confidence(
            differences,
            step.order[chain],
            threshold(step.uniforms[0, chain], prior, temperature),
            BOUNDS.max() * distance,
            delta,
            min(block_size, SIZE),
        )
        assert abs(value) > 1e-6, "the seed is undecided"
        step.check(chain, value > 0, count)


# In the steps above the term of the range decides. Here each term does in its turn.
TERMS = {"range": 3.0, "variance": 1e-4}  # the largest bound


def width_of(differences, reach, delta, look):
    """w_j of a batch at its look number 1, 2, ..., in float64."""
    level, count = np.log(3 * 2 * look**2 / delta), len(differences)
    deviation = differences.std(ddof=1)
    return deviation * np.sqrt(2 * level / count) + 6 * reach * level / count


def assert_width(term, delta, look):
    """The bound decides just outside of the width, and not just inside."""
    rng = np.random.default_rng(look)
    count, distance, shares = 8 * 2 ** (look - 1), 0.2, np.array([0.99, 1.01])
    differences = rng.normal(0.3, 0.5, size=count)
    bounds = np.append(np.full(99, 1e-5), TERMS[term])
    kernel = kernels.confidence(0.3, bounds=bounds, delta=delta, block_size=8)
    kernel = kernel.bind_data_size(100, None)
    width = width_of(differences, TERMS[term] * distance, delta, look)

    class Density:
        arrays = [ops.convert_to_tensor(array) for array in kernel.arrays]
        train_size = 100

    ones = np.ones(4)
    prior = -100 * (differences.mean() + width * np.append(shares, -shares))
    move = growing.Move(tensor(prior), tensor(distance * ones), [tensor(ones)])
    batch = growing.Batch(
        tensor(count * ones),
        tensor(0.2 * ones),
        tensor(np.sum(differences - 0.2) * ones),
        tensor(np.sum((differences - 0.2) ** 2) * ones),
        None,
    )
    block = tensor(2 ** (look - 1) - 1, "int32")
    found = ops.convert_to_numpy(kernel.is_decided(batch, move, block, Density()))
    np.testing.assert_array_equal(found, [False, True, False, True])
    if look > 2:  # between the looks nothing is decided
        found = kernel.is_decided(batch, move, block - 1, Density())
        assert not ops.convert_to_numpy(found).any()


@pytest.mark.parametrize("look", [1, 2, 3])
@pytest.mark.parametrize("delta", [0.01, 0.5])
@pytest.mark.parametrize("term", TERMS)
def test_the_concentration_bound_is_as_wide_as_that_of_float64(term, delta, look):
    assert_width(term, delta, look)


def test_oracles_see_batches_of_several_sizes():
    """The steps above end at one block, at several, and at all of the data."""
    for kernel in (
        kernels.barker(0.3, block_size=4),
        kernels.austerity(0.3, epsilon=0.3, temperature=2.5, block_size=4),
        kernels.confidence(
            0.3, bounds=BOUNDS, delta=0.99, temperature=100.0, block_size=3
        ),
    ):
        found = np.concatenate(
            [Step(kernel, seed, 0.3).counts["examples"] for seed in range(3)]
        )
        assert len(np.unique(found)) >= 3, found
