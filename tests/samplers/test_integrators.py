"""The integrators of SGHMC: their steps, and the laws that they have on a Gaussian."""

import functools

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers import sghmc
from tests.oracles import steps
from tests.support.kernel_tools import STEP_SETTINGS
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_a_step_of_baoab_equals_the_oracle(settings, momentum):
    rng = np.random.default_rng(3)
    position, velocity, gradient, normals = (draw(rng) for _ in range(4))
    own = {"momentum": momentum}
    expected = steps.baoab_step(position, velocity, gradient, normals, **settings | own)
    kernel = sghmc.sghmc(1.0, integrator="baoab", **own)
    actual = moved(
        kernel, sghmc.State(position, velocity), gradient, normals, **settings
    )
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


def test_the_multiplier_scales_the_gradient_alone():
    rng = np.random.default_rng(4)
    x, v, g, z = (draw(rng) for _ in range(4))
    settings = dict(learning_rate=0.3, temperature=0.5, train_size=7)
    scaled = [-2.5 * array for array in g]
    expected = steps.baoab_step(x, v, scaled, z, **settings, momentum=0.9)
    kernel = sghmc.sghmc(1.0, integrator="baoab")
    settings["multiplier"] = tensor(-2.5)
    actual = moved(kernel, sghmc.State(x, v), g, z, **settings)
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


def test_the_positions_are_those_of_the_paper():
    """B A O A B with a unit mass, two kicks of half a step, and a double well."""

    def force(x):
        return x - x**3

    rate, momentum, temperature, size = 0.4, 0.7, 0.8, 5
    h = np.sqrt(rate / size)
    damping = np.exp(-(-np.log(momentum) / h) * h)
    rng = np.random.default_rng(1)
    x, p = 0.3, -0.5
    # The velocity in weights per step, before the kick at the first position.
    ours, v = [x], h * (p - 0.5 * h * force(x))
    for noise in rng.normal(size=40):
        (following,), (v,) = steps.baoab_step(
            *([np.array(value)] for value in (ours[-1], v, -force(ours[-1]) / size)),
            [noise],
            rate,
            momentum,
            temperature,
            size,
        )
        ours.append(float(following))
        p += 0.5 * h * force(x)
        x += 0.5 * h * p
        p = damping * p + np.sqrt(temperature * (1 - damping**2)) * noise
        x += 0.5 * h * p
        p += 0.5 * h * force(x)
        assert ours[-1] == pytest.approx(x, abs=1e-12)


# Gaussians. Every step is linear in (x, v), so that a covariance says everything.

N, T, CURVATURE = 100, 0.7, 200.0  # L, in nats


def step_of(integrator, x, v, g, z, *, momentum, **settings):
    """A step of the kernel, on lists of tensors."""
    kernel = sghmc.sghmc(1.0, momentum=momentum, integrator=integrator)
    return tuple(moved(kernel, sghmc.State(x, v), g, z, **settings))


STEPS = {kind: functools.partial(step_of, kind) for kind in ("euler", "baoab")}


def linear_map(integrator, rate, momentum):
    """The package's own step as a matrix on (x, v), and what V and Z add to (x, v)."""

    def step(x, v, noise, z):
        gradient = CURVATURE * x / N + noise
        (x,), (v,) = STEPS[integrator](
            *([tensor([value])] for value in (x, v, gradient, z)),
            learning_rate=rate,
            momentum=momentum,
            temperature=T,
            train_size=N,
        )
        return np.array([float(ops.convert_to_numpy(y)[0]) for y in (x, v)])

    columns = np.stack([step(*row) for row in np.eye(4)], axis=1)
    return columns[:, :2], columns[:, 2], columns[:, 3]


def variance(integrator, rate, momentum, noise):
    """Of the position: the fixed point S = A S A' + Q, solved exactly."""
    matrix, of_gradient, of_noise = linear_map(integrator, rate, momentum)
    drawn = np.outer(of_noise, of_noise) + noise * np.outer(of_gradient, of_gradient)
    return scipy.linalg.solve_discrete_lyapunov(matrix, drawn)[0, 0]


def closed_form(integrator, rate, momentum, noise):
    """That of the docstring of `mh.kernels.sghmc`."""
    pull = rate / N * CURVATURE
    if integrator == "euler":
        heat = T + rate * N * noise / (2 * (1 - momentum))
        return heat / (CURVATURE * (1 - pull / (2 * (1 + momentum))))
    share = (1 + momentum) / (4 * (1 - momentum) * (1 - pull / 4))
    return (T + rate * N * noise * share) / CURVATURE


CASES = [
    (rate, momentum, noise)
    for rate in (0.005, 0.05, 0.5)  # eta L is 0.01 to 1
    for momentum in (0.0, 0.5, 0.9)
    for noise in (0.0, 0.03, 3.0)
]


def assert_closed_form(integrator, case):
    assert variance(integrator, *case) == pytest.approx(
        closed_form(integrator, *case), rel=2e-4
    )


@pytest.mark.parametrize("integrator", STEPS)
def test_the_closed_form_is_the_fixed_point_of_the_step(integrator):
    for case in CASES:
        assert_closed_form(integrator, case)


def test_baoab_is_exact_up_to_its_limit_of_stability():
    exact = T / CURVATURE
    for rate in (0.05, 0.5, 1.5, 1.9):  # eta L up to 3.8
        assert variance("baoab", rate, 0.8, 0.0) == pytest.approx(exact, rel=1e-3)
    assert variance("euler", 0.5, 0.5, 0.0) > 1.4 * exact

    def radius(integrator, rate):
        matrix = linear_map(integrator, rate, 0.8)[0]
        return np.abs(np.linalg.eigvals(matrix)).max()

    # eta L is 3.9 and 4.1 of 4, and 3.5 and 3.7 of 2 (1 + mu).
    assert radius("baoab", 1.95) < 1 < radius("baoab", 2.05)
    assert radius("euler", 1.75) < 1 < radius("euler", 1.85)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("integrator", STEPS)
def test_how_far_a_gradient_moves_the_weights(integrator, momentum):
    """The sum over all later steps, as the docstring of `mh.kernels.sghmc` has it."""
    rate, options = 0.3, dict(momentum=momentum, temperature=0.0, train_size=N)
    zero, one = [tensor([0.0])], [tensor([1.0])]
    step = STEPS[integrator]
    x, v = step(zero, zero, one, zero, learning_rate=rate, **options)
    for _ in range(300):
        x, v = step(x, v, zero, zero, learning_rate=rate, **options)
    whole = rate / (1 - momentum)
    if integrator == "baoab":
        whole *= (1 + momentum) / 2
    assert float(ops.convert_to_numpy(x[0])[0]) == pytest.approx(-whole, rel=1e-5)


def draws_of(integrator, chains=4000):
    """The last positions of chains on a Gaussian of precision 1, at eta L = 1."""
    kernel = mh.kernels.sghmc(1.0, momentum=0.5, temperature=2.0, integrator=integrator)
    draws = mh.sample(
        kernel,
        [0.0, 0.0],
        log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
        num_steps=40,
        every=40,
        num_chains=chains,
        progress=False,
    )
    return draws.position[:, 0].ravel()


def test_draws_of_baoab_have_the_law_at_a_large_step():
    law = scipy.stats.norm(scale=2.0**0.5)
    assert scipy.stats.kstest(draws_of("baoab"), law.cdf).pvalue > 1e-3
    wide = draws_of("euler")
    assert scipy.stats.kstest(wide, law.cdf).pvalue < 1e-8
    assert wide.var() == pytest.approx(2.0 / (1 - 1 / 3), rel=0.08)
