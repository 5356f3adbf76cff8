"""Microcanonical steps beside their float64 oracle, and the search for a step."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import kernels
from keras_mhmcmc.samplers import mclmc
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.sampling import starts
from tests.oracles import microcanonical as oracle

CHAINS, SIZE = 6, 5
SHAPES = ((2, 2), (3,))  # of the two tensors of a position
DIMENSION = 7
PRECISION = np.geomspace(0.2, 3.0, DIMENSION)


def parts(rows):
    """A position of two tensors, from rows of numbers (K, d)."""
    rows = np.asarray(rows, "float32")
    return [
        ops.convert_to_tensor(rows[:, :4].reshape(-1, 2, 2)),
        ops.convert_to_tensor(rows[:, 4:]),
    ]


def rows(position):
    """Rows of numbers (K, d), float64, from a position of two tensors."""
    arrays = [ops.convert_to_numpy(x).astype("float64") for x in position]
    return np.concatenate([x.reshape(len(x), -1) for x in arrays], axis=1)


def vector(values):
    return ops.convert_to_tensor(np.asarray(values, "float32"))


def velocities(rng):
    u = rng.normal(size=(CHAINS, DIMENSION))
    return u / np.linalg.norm(u, axis=1, keepdims=True)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.3, 1.0, 5.0, 80.0, 600.0])
def test_a_kick_equals_the_oracle(delta):
    rng = np.random.default_rng(0)
    u, gradient = velocities(rng), rng.normal(size=(CHAINS, DIMENSION))
    scale = np.exp(rng.normal(size=(CHAINS, DIMENSION)))
    force = scale * gradient
    step = delta * (DIMENSION - 1) / np.linalg.norm(force, axis=1)
    found, change = mclmc.kicked(parts(u), parts(gradient), parts(scale), vector(step))
    found, change = rows(found), ops.convert_to_numpy(change)
    for k in range(CHAINS):
        moved, kinetic = oracle.kick(u[k], force[k], step[k])
        np.testing.assert_allclose(found[k], moved, atol=1e-6)
        np.testing.assert_allclose(change[k], kinetic, rtol=1e-4, atol=1e-7)


def test_kicks_along_the_gradient_and_without_one():
    """Where the velocity has the direction of the force, or its opposite, or none."""
    u = np.eye(DIMENSION)[:3]
    for delta in (0.1, 3.0, 100.0, 1e4):
        gradient = np.zeros((3, DIMENSION))
        gradient[0, 0], gradient[1, 1] = -delta, delta  # ahead, behind, and none
        found, change = mclmc.kicked(
            parts(u), parts(gradient), parts(np.ones_like(u)), vector([6.0] * 3)
        )
        change = ops.convert_to_numpy(change)
        np.testing.assert_allclose(rows(found)[::2], u[::2], atol=1e-6)
        assert abs(np.linalg.norm(rows(found)[1]) - 1.0) < 1e-6
        expected = [6.0 * delta, -6.0 * delta, 0.0]
        np.testing.assert_allclose(change, expected, rtol=1e-5)


@pytest.mark.parametrize("ratio", [1e-6, 0.01, 1.0, 20.0, 1000.0])
def test_a_refresh_equals_the_oracle_and_keeps_the_length(ratio):
    rng = np.random.default_rng(1)
    u, normals = velocities(rng), rng.normal(size=(CHAINS, DIMENSION))
    found = mclmc.refreshed(
        parts(u), parts(normals), vector([2.0 * ratio] * CHAINS), 2.0
    )
    np.testing.assert_allclose(np.linalg.norm(rows(found), axis=1), 1.0, atol=1e-6)
    for k in range(CHAINS):
        expected = normals[k] / np.linalg.norm(normals[k])
        if ratio < 100.0:
            expected = oracle.refresh(u[k], normals[k], 2.0 * ratio, 2.0)
        np.testing.assert_allclose(rows(found)[k], expected, atol=2e-6)


class Given:
    """A normal density of N examples, with given noise."""

    train_size = SIZE
    arrays = ()

    def __init__(self, normals):
        self.noise = parts(normals)

    def energies_and_gradient(self, position):
        first, second = position
        precision = [x[0] for x in parts(PRECISION[None])]
        energy = 0.5 * ops.sum(ops.square(first) * precision[0], axis=(1, 2))
        energy = energy + 0.5 * ops.sum(ops.square(second) * precision[1], axis=1)
        return energy, [first * precision[0] / SIZE, second * precision[1] / SIZE]

    def normals(self, part):
        return self.noise


def first_state(kernel, start):
    return starts.first_state(kernel, parts(start))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_steps_equal_the_oracle(temperature):
    options = dict(decoherence_length=3.0, warm_up=0, temperature=temperature)
    kernel = kernels.mclmc(0.9, **options)
    rng = np.random.default_rng(2)
    x, u = rng.normal(size=(CHAINS, DIMENSION)), np.zeros((CHAINS, DIMENSION))
    state = first_state(kernel, x)
    for _ in range(4):
        normals = rng.normal(size=(CHAINS, DIMENSION))
        state, _, counts = kernel.step(state, Given(normals))
        errors = np.zeros(CHAINS)
        for k in range(CHAINS):
            turned = oracle.refresh(u[k], normals[k], 0.9, 3.0)
            if not u[k].any():  # the first step draws the direction
                turned = normals[k] / np.linalg.norm(normals[k])
            x[k], u[k], errors[k] = oracle.path(
                x[k],
                turned,
                lambda t: t @ (PRECISION * t) / 2 / temperature,
                lambda t: PRECISION * t / temperature,
                0.9,
            )
        np.testing.assert_allclose(rows(state.point), x, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows(state.velocity), u, atol=2e-5)
        found = ops.convert_to_numpy(counts["energy_error"])
        np.testing.assert_allclose(found, errors**2 / DIMENSION, rtol=0.02, atol=1e-9)
        assert ops.convert_to_numpy(counts["nonfinite"]).sum() == 0
    energy = np.sum(PRECISION * x**2, axis=1) / 2
    np.testing.assert_allclose(ops.convert_to_numpy(state.energy), energy, rtol=1e-4)


def test_the_energy_error_falls_with_the_third_power_of_the_step():
    rng = np.random.default_rng(3)
    x, normals = rng.normal(size=(2, 400, DIMENSION))
    x /= np.sqrt(PRECISION)
    found = []
    for step_size in (1.2, 0.6):
        kernel = kernels.mclmc(step_size, warm_up=0)
        *_, counts = kernel.step(first_state(kernel, x), Given(normals))
        found.append(ops.convert_to_numpy(counts["energy_error"]).mean())
    assert 2.0**5 < found[0] / found[1] < 2.0**7


def test_a_velocity_keeps_its_length_over_many_steps():
    kernel = kernels.mclmc(1.0, warm_up=0)
    rng = np.random.default_rng(4)
    state = first_state(kernel, 100.0 * rng.normal(size=(CHAINS, DIMENSION)))
    for _ in range(100):
        normals = rng.normal(size=(CHAINS, DIMENSION))
        state, *_ = kernel.step(state, Given(normals))
        lengths = np.linalg.norm(rows(state.velocity), axis=1)
        np.testing.assert_allclose(lengths, 1.0, atol=1e-6)


class Wall(Given):
    """A density that is not finite beyond 1: energy, or gradient alone."""

    def __init__(self, normals, only_gradient):
        super().__init__(normals)
        self.only_gradient = only_gradient

    def energies_and_gradient(self, position):
        energy, gradient = super().energies_and_gradient(position)
        outside = ops.max(ops.abs(position[1]), axis=1) > 1.0
        if not self.only_gradient:
            energy = ops.where(outside, np.nan, energy)
        poison = ops.where(outside, np.nan, 0.0)
        return energy, [gradient[0], gradient[1] + ops.expand_dims(poison, 1)]


@pytest.mark.parametrize("warm_up", [0, 10])
@pytest.mark.parametrize("only_gradient", [True, False])
def test_a_step_that_is_not_finite_is_undone_and_turns_round(only_gradient, warm_up):
    kernel = kernels.mclmc(1.5, warm_up=warm_up)
    rng = np.random.default_rng(5)
    state = first_state(kernel, 0.2 * rng.normal(size=(40, DIMENSION)))
    total = 0
    for _ in range(5):
        before = rows(state.velocity), rows(state.point)
        step = ops.exp(state.search.log_step)
        normals = rng.normal(size=(40, DIMENSION))
        turned = rows(
            mclmc.refreshed(state.velocity, parts(normals), step, DIMENSION**0.5)
        )
        state, _, counts = kernel.step(state, Wall(normals, only_gradient))
        undone = ops.convert_to_numpy(counts["nonfinite"]) > 0
        total += undone.sum()
        np.testing.assert_array_equal(rows(state.point)[undone], before[1][undone])
        np.testing.assert_allclose(
            rows(state.velocity)[undone], -turned[undone], atol=1e-6
        )
        for leaf in ops.convert_to_numpy(state.energy), *map(rows, [state.gradient]):
            assert np.isfinite(leaf).all()
        assert np.isfinite(ops.convert_to_numpy(state.search.log_step)).all()
    assert 5 < total < 150


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_scales_are_a_power_of_the_deviations(power):
    kernel = kernels.mclmc(warm_up=60, scale_power=power)
    rng = np.random.default_rng(8)
    state = first_state(kernel, rng.normal(size=(CHAINS, DIMENSION)))
    first = ops.convert_to_numpy(state.search.log_step)
    points = []
    for _ in range(60):
        normals = rng.normal(size=(CHAINS, DIMENSION))
        state, _, _ = kernel.step(state, Given(normals))
        points.append(rows(state.point))
    deviations = np.std(points[24:54], axis=0, ddof=1)  # the last window
    np.testing.assert_allclose(rows(state.scale), deviations**power, rtol=1e-4)
    assert np.all(ops.convert_to_numpy(state.search.log_step) != first)


def test_the_search_finds_the_step_of_a_known_error():
    """An error of 2 epsilon^3 Z, whose wanted mean square is 0.01."""
    rng = np.random.default_rng(6)
    exact = (0.01 / 4.0) ** (1 / 6)
    for start in (0.05, 1.0, 100.0):
        search = mclmc.init_search(start)
        search = map_leaves(lambda slot: vector([slot.value] * 200), search)
        for number in range(900):
            step = ops.convert_to_numpy(ops.exp(search.log_step))
            with np.errstate(over="ignore"):
                ratio = (2.0 * step**3 * rng.normal(size=200)) ** 2 / 0.01
            search = mclmc.update_search(
                search, vector(ratio), ops.convert_to_tensor(number >= 500)
            )
        step = ops.convert_to_numpy(ops.exp(search.log_step))
        np.testing.assert_allclose(step, exact, rtol=0.15)
        np.testing.assert_allclose(step.mean(), exact, rtol=0.01)


def test_steps_that_are_not_finite_shorten_the_step():
    search = mclmc.init_search(1.0)
    search = map_leaves(lambda slot: vector([slot.value] * 3), search)
    ratio = vector([np.nan, np.inf, 1e30])
    new = mclmc.update_search(search, ratio, ops.convert_to_tensor(True))
    steps = ops.convert_to_numpy(ops.exp(new.log_step))
    np.testing.assert_allclose(steps, (5.0 / 10004.0) ** (1 / 6), rtol=1e-3)


def wanted_at(number, warm_up):
    """The energy error that a step asks for, over its last value, from its search."""
    kernel = kernels.mclmc(warm_up=warm_up, energy_error=0.1)
    rng = np.random.default_rng(7)
    state = first_state(kernel, rng.normal(size=(CHAINS, DIMENSION)))
    state = state._replace(number=ops.convert_to_tensor(number, "int32"))
    if number > 0:  # a later step takes its gradient from the state
        energy, gradient = Given(np.zeros((1, DIMENSION))).energies_and_gradient(
            state.point
        )
        state = state._replace(energy=energy, gradient=gradient)
    before = ops.convert_to_numpy(state.search.log_step)
    state, _, counts = kernel.step(state, Given(rng.normal(size=(CHAINS, DIMENSION))))
    change = ops.convert_to_numpy(state.search.log_step).astype("float64") - before
    ratio = 1.0 + (mclmc.LEAST_WEIGHT + 1.0) * np.expm1(-6.0 * change)
    return np.median(ops.convert_to_numpy(counts["energy_error"]) / ratio) / 0.1


def test_the_wanted_error_falls_over_the_warm_up():
    for number, expected in [(0, 5.0), (450, 3.0), (890, 1.044), (950, 1.0)]:
        found = wanted_at(number, 1000)
        np.testing.assert_allclose(found, expected, rtol=2e-3)


def guarded_steps(ratios, warm_up=0):
    """Where a chain is after each ratio, its step, and when it was sent back.

    Without a return the chain is at the number of the step, from 1.
    """
    kernel = kernels.mclmc(1.0, warm_up=1)
    state = first_state(kernel, np.zeros((1, DIMENSION)))
    places, steps, returns = [], [], []
    for number, ratio in enumerate(ratios):
        state = state._replace(
            point=parts(np.full((1, DIMENSION), number + 1.0)),
            gradient=parts(np.full((1, DIMENSION), number + 0.5)),
            velocity=parts(np.eye(DIMENSION)[:1]),
            energy=vector([number + 1.0]),
            number=ops.convert_to_tensor(number, "int32"),
        )
        state, sent = mclmc.guarded(state, vector([ratio]), warm_up)
        place = rows(state.point)[0]
        assert (place == place[0]).all()
        assert ops.convert_to_numpy(state.energy)[0] == place[0]
        assert (rows(state.gradient)[0] == place[0] - 0.5).all()
        sent = bool(ops.convert_to_numpy(sent)[0])
        assert np.abs(rows(state.velocity)).sum() == (0.0 if sent else 1.0)
        places.append(place[0])
        steps.append(ops.convert_to_numpy(ops.exp(state.search.log_step))[0])
        returns.append(sent)
    return np.array(places), np.array(steps), np.flatnonzero(returns).tolist()


def test_an_unsafe_step_sends_a_chain_back_with_half_of_the_step():
    block = mclmc.BLOCK
    ratios = np.full(20 + 3 * block, 1.0)
    ratios[5] = 1e9  # in the warm-up: the search takes care of it
    ratios[20 + block + 30] = np.inf
    ratios[20 + block + 60] = 10.0 * block - 60.0  # below the limit together
    ratios[20 + block + 80] = 20.0
    places, steps, returns = guarded_steps(ratios, warm_up=20)
    assert returns == [20 + block + 30, 20 + block + 80]
    np.testing.assert_array_equal(places[returns], 20 + block)
    np.testing.assert_allclose(steps[[0, *returns]], [1.0, 0.5, 0.25], rtol=1e-6)


@pytest.mark.parametrize(("ratio", "sent"), [(9.9, False), (10.2, True)])
def test_the_mean_of_a_block_decides(ratio, sent):
    ratios = [1e-9, *[ratio] * mclmc.BLOCK]
    assert bool(guarded_steps(ratios, warm_up=1)[2]) == sent


def test_a_chain_between_walls_stays_and_a_chain_that_is_stuck_does_not():
    walls = np.tile([0.1, np.nan, 0.1], mclmc.BLOCK)
    assert guarded_steps(walls, warm_up=1)[2] == []
    stuck = np.tile([0.1, np.nan, np.nan], mclmc.BLOCK)
    assert len(guarded_steps(stuck, warm_up=1)[2]) >= 2
