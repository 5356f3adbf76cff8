"""AMAGOLD as an optimizer: its path against float64."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers import amagold
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.parts import tensors
from tests.oracles import minibatch as oracle
from tests.support.models import numpy

SETTINGS = dict(learning_rate=0.3, momentum=0.6, temperature=1.3, train_size=50)
SIZE = 6


def tensor(value):
    return ops.convert_to_tensor(np.asarray(value, "float32"))


class Quadratic:
    """U = |theta|^2 times 25, with the noise of mini-batches that do not repeat."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def gradient(self, theta):
        return 50.0 * theta + 8.0 * self.rng.normal(size=SIZE)

    def energy(self, theta):
        return 25.0 * float(theta @ theta)


def of_step(algorithm, gradient, normals, number):
    size = SETTINGS["train_size"]
    return Evaluation(
        None,
        [tensor(gradient / size)],
        [tensor(normals)],
        [tensor(0.5)],
        number,
        tensor(SETTINGS["learning_rate"]),
        algorithm.temperature,
        size,
    )


def end_of(state):
    return tensors.add_scaled(state.point, -0.5, state.velocity)


def started(theta, velocity, energy):
    values = dict(energy=energy, work=7.0, rate=SETTINGS["learning_rate"])
    return amagold.PathState(
        point=[tensor(theta)],
        velocity=[tensor(velocity)],
        position=[tensor(theta)],
        start_velocity=[tensor(velocity)],
        stage=ops.convert_to_tensor(amagold.SETTLED, dtype="int32"),
        **{name: tensor(value) for name, value in values.items()},
    )


def errors_of_a_path(steps, seed, begins):
    """Largest differences of end, velocity, energy and log r from the oracle's."""
    rng = np.random.default_rng(seed)
    theta, velocity = rng.normal(size=(2, SIZE)) * 0.2
    normals = rng.normal(size=(steps, SIZE))
    uniform = rng.uniform()
    # The optimizer's path.
    target, algorithm = Quadratic(seed), None
    algorithm = amagold.AmagoldPath(None, SETTINGS["temperature"], SETTINGS["momentum"])
    state = started(theta, velocity, target.energy(theta))
    if begins == "between steps":
        state = algorithm.begin(state, tensor(SETTINGS["learning_rate"]), 0)
    else:  # in a step, whose gradient and noise go nowhere
        wild = of_step(algorithm, np.full(SIZE, 1e3), np.ones(SIZE), 0)
        state = algorithm.move(algorithm.decide(state, wild)[0], wild)
    for number, z in enumerate(normals):
        point = numpy(state.point[0]).astype("float64")
        evaluation = of_step(algorithm, target.gradient(point), z, number)
        state = algorithm.move(algorithm.decide(state, evaluation)[0], evaluation)
    end = end_of(state)
    energy = tensor(target.energy(numpy(end[0]).astype("float64")))
    state, counts = algorithm.judge(state, end, energy, tensor(uniform))
    # The oracle's.
    target = Quadratic(seed)
    expected, new, rho = oracle.amagold_path(
        theta, velocity, target.gradient, normals, SETTINGS
    )
    energies = target.energy(theta), target.energy(expected)
    log_ratio = (energies[0] - energies[1] + rho) / SETTINGS["temperature"]
    wins = np.log(uniform) < log_ratio
    probability = float(numpy(counts["probability"]))
    assert int(numpy(state.stage)) == amagold.SETTLED
    return max(
        np.abs(numpy(end[0]) - expected).max(),
        np.abs(numpy(state.position[0]) - (expected if wins else theta)).max(),
        np.abs(numpy(state.velocity[0]) - (new if wins else -velocity)).max(),
        abs(float(numpy(state.energy)) - energies[int(wins)]),
        abs(probability - min(1.0, np.exp(log_ratio))),
    )


BEGINS = ["between steps", "in a step"]


@pytest.mark.parametrize("begins", BEGINS)
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("seed", range(6))
def test_a_path_and_its_test_equal_the_oracle(steps, seed, begins):
    assert errors_of_a_path(steps, seed, begins) < 2e-4


def test_the_first_path_has_a_fresh_velocity_and_no_test():
    algorithm = amagold.AmagoldPath(OF_OPTIMIZER, 1.3, 0.6)
    theta = np.ones(200_000)
    zeros = started(theta, 0.0 * theta, 0.0)._replace(
        stage=ops.convert_to_tensor(amagold.NOTHING, dtype="int32")
    )
    normals = np.random.default_rng(0).normal(size=len(theta))
    evaluation = of_step(algorithm, 0.0 * theta, normals, 0)
    state = algorithm.move(algorithm.decide(zeros, evaluation)[0], evaluation)
    assert int(numpy(state.stage)) == amagold.FREE
    variance = SETTINGS["learning_rate"] * 1.3 / SETTINGS["train_size"]
    np.testing.assert_allclose(numpy(state.velocity[0]).var(), variance, rtol=0.02)
    np.testing.assert_allclose(
        numpy(state.point[0]) - 1.0, numpy(state.velocity[0]) / 2, atol=1e-6
    )
    # However high the energy is, unless it is not finite.
    for energy, stage in [(1e9, amagold.SETTLED), (np.nan, amagold.NOTHING)]:
        after, counts = algorithm.judge(
            state, end_of(state), tensor(energy), tensor(0.99)
        )
        assert int(numpy(after.stage)) == stage
        assert not numpy(counts["proposed"])
        assert numpy(counts["nonfinite"]) == np.isnan(energy)


def errors_of_the_next_path(rate):
    """Largest differences of a path that begins at another learning rate."""
    rng = np.random.default_rng(1)
    theta, velocity = rng.normal(size=(2, SIZE))
    algorithm = amagold.AmagoldPath(OF_OPTIMIZER, 1.3, 0.6, warm_up=10)
    state = started(theta, velocity, 2.0)
    state = algorithm.begin(state, tensor(rate), 10)
    # The stationary variance of v is epsilon T / N.
    expected = velocity * np.sqrt(rate / SETTINGS["learning_rate"])
    assert int(numpy(state.stage)) == amagold.PATH
    return max(
        np.abs(numpy(state.velocity[0]) - expected).max(),
        np.abs(numpy(state.start_velocity[0]) - expected).max(),
        np.abs(numpy(state.point[0]) - theta - expected / 2).max(),
        np.abs(numpy(state.position[0]) - theta).max(),
        abs(float(numpy(state.rate)) - rate),
        abs(float(numpy(state.work))),
        abs(float(numpy(state.energy)) - 2.0),
    )


RATES = [0.075, 0.3, 0.6]


@pytest.mark.parametrize("rate", RATES)
def test_a_path_at_another_rate_has_a_velocity_of_that_rate(rate):
    assert errors_of_the_next_path(rate) < 1e-6
