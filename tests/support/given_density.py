"""A density whose noise is given, and a step of a kernel on it."""

import numpy as np
from keras import ops

from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.sampling import starts

CHAINS, SIZE, BLOCK = 4, 23, 16
RNG = np.random.default_rng(7)
X = RNG.normal(size=(SIZE, 2))
SIGN = np.where(RNG.random(SIZE) < 0.5, 1.0, -1.0)
BOUNDS = np.sqrt(np.sum(X**2, axis=1))


def log_likelihoods(theta):
    """Of all examples at one position, (N,)."""
    return -np.logaddexp(0.0, SIGN * (X @ theta))


def slopes(theta):
    """Gradients of the log-likelihoods of all examples, (N, 2)."""
    probability = 1 / (1 + np.exp(-SIGN * (X @ theta)))
    return -(probability * SIGN)[:, None] * X


def gradient_of(theta, chosen):
    """Of U on some examples, as if they were all."""
    return theta - len(X) * slopes(theta)[chosen].mean(axis=0)


class Given:
    """A density whose noise is given, for a normal prior and the data above."""

    train_size = SIZE

    def __init__(self, kernel, seed):
        rng = np.random.default_rng(seed)
        shape = (40, 5, CHAINS, BLOCK)
        self.blocks = (rng.integers(2**24, size=shape) / 2.0**24).astype("float32")
        self.steps = rng.normal(size=(9, CHAINS, 2)).astype("float32")
        self.arrays = [ops.convert_to_tensor(array) for array in kernel.arrays]

    def log_likelihoods(self, positions, index):
        index = ops.convert_to_numpy(index)
        found = []
        for position in positions:
            rows = map(log_likelihoods, ops.convert_to_numpy(position[0]))
            rows = [row[i] for row, i in zip(rows, index, strict=True)]
            found.append(ops.convert_to_tensor(np.array(rows, "float32")))
        return found

    def log_prior(self, position):
        return -0.5 * ops.sum(ops.square(position[0]), axis=1)

    def energies(self, position):
        rows = ops.convert_to_numpy(position[0]).astype("float64")
        values = [-log_likelihoods(t).sum() + t @ t / 2 for t in rows]
        return ops.convert_to_tensor(np.array(values, "float32"))

    def gradient(self, position, batch_size, part):
        rows = ops.convert_to_numpy(position[0]).astype("float64")
        part = int(ops.convert_to_numpy(part))
        gradients = [gradient_of(t, self.batch(part, k)) for k, t in enumerate(rows)]
        return [ops.convert_to_tensor(np.array(gradients, "float32") / SIZE)]

    def weighted_gradient(self, position, index, weights):
        rows = ops.convert_to_numpy(position[0]).astype("float64")
        index, weights = map(ops.convert_to_numpy, (index, weights))
        found = [
            slopes(t)[i].T @ w for t, i, w in zip(rows, index, weights, strict=True)
        ]
        return [ops.convert_to_tensor(np.array(found, "float32"))]

    def prior_gradient(self, position):
        return [-position[0]]

    def batch(self, part, chain):
        return np.random.default_rng([part, chain]).choice(SIZE, 6, replace=False)

    def uniforms(self, count, size, part):
        part = int(ops.convert_to_numpy(part))
        return ops.convert_to_tensor(self.blocks[part, :count, :, :size])

    def normals(self, part):
        part = int(ops.convert_to_numpy(part))
        return [ops.convert_to_tensor(self.steps[part])]


def plain_loops(monkeypatch):
    """Run loops step by step: the density above computes with numpy."""

    def loop_while(condition, body, values, at_most=None):
        rounds = 0
        while bool(ops.convert_to_numpy(condition(*values))):
            values = body(*values)
            rounds += 1
            assert at_most is None or rounds <= at_most
        return values

    monkeypatch.setattr("keras_mhmcmc.samplers.parts.tensors.loop_while", loop_while)
    cond = lambda condition, yes, no: yes() if bool(condition) else no()  # noqa: E731
    monkeypatch.setattr("keras_mhmcmc.samplers.parts.tensors.cond", cond)


def run(kernel, seed, uniform=None):
    """One step from seeded positions: positions before and after, density, counts.

    Args:
        kernel: whose step is taken.
        seed: of the positions and the noise.
        uniform: of the decision of each chain, (CHAINS,); None: of the seed.
    """
    start = np.random.default_rng(seed + 50).normal(size=(CHAINS, 2)).astype("float32")
    state = starts.first_state(kernel, [ops.convert_to_tensor(start)])
    density = Given(kernel, seed)
    if uniform is not None:
        density.blocks[0, 0, :, 0] = uniform
    state, _, counts = kernel.step(state, density)
    counts = {k: ops.convert_to_numpy(v) for k, v in counts.items()}
    return (
        start.astype("float64"),
        density,
        map_leaves(ops.convert_to_numpy, state),
        counts,
    )


def assert_step(start, proposal, log_ratio, density, chain, state, counts):
    """The chain has gone where its log r and its uniform send it."""
    uniform = float(density.blocks[0, 0, chain, 0])
    assert abs(np.log(uniform) - log_ratio) > 1e-3, "the seed is undecided"
    wins = np.log(uniform) < log_ratio
    assert counts["accepted"][chain] == wins
    expected = proposal if wins else start
    np.testing.assert_allclose(state.point[0][chain], expected, rtol=1e-5, atol=1e-6)
