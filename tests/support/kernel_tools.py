"""What the tests of the kernels share: draws, moves and comparisons."""

import numpy as np
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import proposals
from tests.oracles import moves as oracle

SHAPES = [(3,), (2, 4), (), (1, 2, 3, 2)]


def tensor(value, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(value, dtype))


def float32(value):
    """`value` rounded to float32, as float64: what both sides of a test work on."""
    return np.asarray(value, "float32").astype("float64")


def draw(rng, shapes=SHAPES, scale=1.0):
    return [float32(scale * rng.normal(size=shape)) for shape in shapes]


def tensors_of(arrays):
    return [tensor(array) for array in arrays]


def assert_close(actual, expected, rtol=1e-5, atol=2e-6):
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        a = ops.convert_to_numpy(a)
        assert a.shape == np.shape(e)
        np.testing.assert_allclose(a, e, rtol=rtol, atol=atol)


def moved(
    kernel, state, gradient, normals, *, learning_rate, temperature, train_size, **more
):
    """The state after a move of a kernel, from a state of arrays or tensors."""
    state = map_leaves(lambda x: ops.convert_to_tensor(x, "float32"), state)
    evaluation = Evaluation(
        None,
        tensors_of(gradient),
        tensors_of(normals),
        [],
        more.pop("number", 0),
        learning_rate,
        temperature,
        train_size,
        **more,
    )
    current = Current(state.point, evaluation.gradient, None, state)
    return kernel.move(current, evaluation)


STEP_SETTINGS = [
    dict(learning_rate=0.3, temperature=1.0, train_size=7),
    dict(learning_rate=2.0, temperature=0.25, train_size=1),
    dict(learning_rate=0.3, temperature=0.0, train_size=7),
    dict(learning_rate=0.0, temperature=1.0, train_size=7),
]


# Density ratios. A move is drawn by the oracle from the origin, so that its Delta is a
# float32 vector and both sides see the same numbers.


def a_move(d, step, noise, beta, forward, seed, curvature=0.3):
    rng = np.random.default_rng(seed)
    gradient = float32(rng.normal(size=d) + 0.2)
    new_gradient = float32((1 - curvature) * gradient + 0.2 * rng.normal(size=d))
    uniform = 0.25 if forward else 0.75
    end, _ = oracle.reversible(
        np.zeros(d), gradient, rng.normal(size=d), uniform, step, noise, beta
    )
    return gradient, float32(end), new_gradient


def split(vector, d):
    """A vector as a list of tensors of several shapes."""
    if d < 6:
        return [tensor(vector[:1].reshape(())), tensor(vector[1:])]
    return [tensor(vector[:2].reshape(2, 1)), tensor(vector[2:6]), tensor(vector[6:])]


def kernel_ratio(move, step, noise, beta, normalized, forward_probability=0.5):
    gradient, end, new_gradient = move
    d = len(end)
    scales = proposals.Scales(*(tensor(s) for s in (step, noise, beta)))
    lists = [split(x, d) for x in (end, gradient, new_gradient)]
    residuals = proposals.squared_distances(*lists, scales)
    ratio = proposals.reversible_log_ratio(
        residuals, scales.beta, d, normalized, forward_probability
    )
    return float(ratio), float(proposals.langevin_log_ratio(*lists, scales))


def assert_ratio(actual, expected):
    assert abs(actual - expected) <= max(1e-2, 1e-5 * abs(expected))


PROPOSALS = {
    "random walk": mh.proposals.RandomWalk(),
    "Langevin": mh.proposals.Langevin(),
    "Langevin, own noise": mh.proposals.Langevin(noise_temperature=0.01),
    "reversible": mh.proposals.ReversibleLangevin(2.0),
    "reversible, own noise": mh.proposals.ReversibleLangevin(2.0, 0.5, normalized=True),
    "reversible, mostly forward": mh.proposals.ReversibleLangevin(
        2.0, forward_probability=0.9
    ),
}


K = 3
CHAIN_SHAPES = [(K,), (K, 4), (K, 2, 3)]


def chains(rng):
    return draw(rng, CHAIN_SHAPES)


def chain(arrays, k):
    return [tensor(array[k]) for array in arrays]


def assert_chains_equal(together, separate, rtol=1e-6, atol=1e-6):
    """Lists of tensors with a chain axis against one list for each chain."""
    for k, own in enumerate(separate):
        for t, o in zip(together, own, strict=True):
            np.testing.assert_allclose(
                ops.convert_to_numpy(t)[k], ops.convert_to_numpy(o), rtol, atol
            )


def a_state(rng, energy):
    return acceptance.Candidate(
        tensors_of(draw(rng)), tensors_of(draw(rng)), tensor(energy)
    )


def decide(
    old, new, pending, log_q_ratio=0.0, restart=False, uniform=0.5, temperature=1.0
):
    return acceptance.accept_or_reject(
        old,
        new,
        tensor(pending, "int32"),
        tensor(log_q_ratio),
        tensor(restart, "bool"),
        tensor(uniform),
        temperature=temperature,
    )


def assert_same(actual, expected):
    """Bitwise equality of two states."""
    for a, e in zip(
        [*actual.position, *actual.gradient, actual.energy],
        [*expected.position, *expected.gradient, expected.energy],
        strict=True,
    ):
        np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(e))


def two_states(energy=10.0, new_energy=11.0):
    rng = np.random.default_rng(18)
    return a_state(rng, energy), a_state(rng, new_energy)


def flags(info):
    names = ("accepted", "proposed", "finite", "has_state")
    return {name: bool(getattr(info, name)) for name in names}
