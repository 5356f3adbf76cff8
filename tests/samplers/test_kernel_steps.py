"""Each step and proposal equals its float64 oracle, with the same draws."""

import numpy as np
import pytest

from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers import ivon
from keras_mhmcmc.samplers import psgld
from keras_mhmcmc.samplers import sghmc
from keras_mhmcmc.samplers import sgld
from keras_mhmcmc.samplers import sgmclmc
from keras_mhmcmc.samplers import sgnht
from keras_mhmcmc.samplers.parts import proposals
from tests.oracles import moves as oracle
from tests.oracles import steps
from tests.support.kernel_tools import STEP_SETTINGS
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import float32
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor
from tests.support.kernel_tools import tensors_of


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_sgld_step_equals_the_oracle(settings, as_tensor):
    rng = np.random.default_rng(1)
    position, gradient, normals = (draw(rng) for _ in range(3))
    expected = steps.sgld_step(position, gradient, normals, **settings)
    if as_tensor:
        settings = settings | {"learning_rate": tensor(settings["learning_rate"])}
    actual = moved(sgld.sgld(1.0), sgld.State(position), gradient, normals, **settings)
    assert_close(actual.point, expected)


@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_psgld_step_equals_the_oracle(settings):
    rng = np.random.default_rng(2)
    position, gradient, normals = (draw(rng) for _ in range(3))
    moment = [np.abs(v) for v in draw(rng)]
    own = {"decay": 0.7, "epsilon": 0.1}
    expected = steps.psgld_step(position, moment, gradient, normals, **settings | own)
    state = psgld.State(position, moment)
    actual = moved(psgld.psgld(1.0, **own), state, gradient, normals, **settings)
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


@pytest.mark.parametrize("number", [0, 3, 8])  # of 5 steps of warm-up
@pytest.mark.parametrize("settings", STEP_SETTINGS[:2] + STEP_SETTINGS[3:])
def test_sgmclmc_step_equals_the_oracle(settings, number):
    rng = np.random.default_rng(6)
    parts = [draw(rng) for _ in range(6)]
    parts[2] = [0.1 * v**4 for v in parts[2]]  # some of it below the floor
    position, velocity, noise, gradient, before, normals = parts
    flat = [np.concatenate([v.ravel() for v in part])[None] for part in parts]
    own = {"warm_up": 5, "added_noise": 0.2}
    expected = steps.sgmclmc_step(*flat, number, **settings | own)
    state = sgmclmc.State(position, velocity, before, noise, np.array(1.0))
    kernel = sgmclmc.sgmclmc(1.0, **own)
    actual = moved(kernel, state, gradient, normals, number=number, **settings)
    for found, right in zip((actual[0], actual[1], actual[3]), expected, strict=True):
        ends = np.cumsum([v.size for v in position])[:-1]
        pairs = zip(np.split(right[0], ends), position, strict=True)
        assert_close(found, [part.reshape(like.shape) for part, like in pairs])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_sghmc_step_equals_the_oracle(settings, momentum):
    rng = np.random.default_rng(3)
    position, velocity, gradient, normals = (draw(rng) for _ in range(4))
    own = {"momentum": momentum}
    expected = steps.sghmc_step(position, velocity, gradient, normals, **settings | own)
    state = sghmc.State(position, velocity)
    actual = moved(sghmc.sghmc(1.0, **own), state, gradient, normals, **settings)
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])


@pytest.mark.parametrize("thermostat", [-0.3, 0.1, 0.95])
@pytest.mark.parametrize("settings", STEP_SETTINGS)
def test_sgnht_step_equals_the_oracle(settings, thermostat):
    rng = np.random.default_rng(6)
    position, velocity, gradient, normals = (draw(rng) for _ in range(4))
    # A velocity of about the temperature moves the thermostat but little.
    velocity = [0.3 * v for v in velocity]
    given = (gradient, normals)
    own = {"friction": 0.2, "rate": 0.02}
    expected = steps.sgnht_step(
        position, velocity, thermostat, *given, **settings | own
    )
    state = sgnht.State(position, velocity, thermostat)
    kernel = sgnht.sgnht(1.0, momentum=0.8, thermostat_rate=0.02)
    actual = moved(kernel, state, *given, **settings)
    assert_close(actual[0], expected[0])
    assert_close(actual[1], expected[1])
    assert_close(actual[2:], expected[2:])
    is_hot = settings["learning_rate"] * settings["temperature"] > 0.0
    assert (abs(expected[2] - thermostat) > 1e-4) == is_hot


@pytest.mark.parametrize("radius", [None, 0.4])
@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("settings", [s for s in STEP_SETTINGS if s["temperature"]])
def test_ivon_step_equals_the_oracle(settings, scale, radius):
    rng = np.random.default_rng(8)
    position, noise, momentum, gradient, normals = (draw(rng) for _ in range(5))
    hessian = [float32(0.1 + np.abs(v)) for v in draw(rng)]
    precision = 0.0 if scale is None else scale**-2
    delta = precision / settings["train_size"]
    own = dict(hessian_init=1.5, beta_1=0.8, beta_2=0.9)
    expected = [
        steps.ivon_step(
            x - e,
            e,
            g,
            h,
            slope - delta * x,
            z,
            0,
            delta=delta,
            clip_radius=np.inf if radius is None else radius,
            **own,
            **settings,
        )
        for x, e, g, h, slope, z in zip(
            position, noise, momentum, hessian, gradient, normals, strict=True
        )
    ]
    kernel = ivon.ivon(1.0, clip_radius=radius, **own)
    kernel = base.bound(kernel, precisions=[precision] * len(position))
    state = ivon.State(position, noise, momentum, hessian)
    actual = moved(kernel, state, gradient, normals, **settings)
    mean, noise, momentum, hessian = zip(*expected, strict=True)
    points = [m + e for m, e in zip(mean, noise, strict=True)]
    for one, other in zip(actual, (points, noise, momentum, hessian), strict=True):
        assert_close(one, other)


# Proposals.


@pytest.mark.parametrize("uniform", [0.0, 0.49999, 0.5, 0.99999])
def test_proposed_positions_equal_the_oracle(uniform):
    rng = np.random.default_rng(5)
    position, gradient, normals = (draw(rng) for _ in range(3))
    step, noise, beta = 0.3, 0.2, 3.0
    scales = proposals.Scales(tensor(step), tensor(noise), tensor(beta))
    there = [tensors_of(position), tensors_of(gradient), tensors_of(normals)]
    triples = list(zip(position, gradient, normals, strict=True))

    walked, _ = proposals.RandomWalk().propose(*there, tensor(uniform), scales)
    assert_close(walked, [oracle.random_walk(x, z, noise) for x, _, z in triples])

    moved = proposals.langevin(*there, scales)
    assert_close(moved, [oracle.langevin(x, g, z, step, noise) for x, g, z in triples])

    move = proposals.ReversibleLangevin(beta)
    moved, forward = move.propose(*there, tensor(uniform), scales)
    expected = [
        oracle.reversible(x, g, z, uniform, step, noise, beta) for x, g, z in triples
    ]
    assert_close(moved, [x for x, _ in expected])
    assert bool(forward) == expected[0][1] == (uniform < 0.5)
