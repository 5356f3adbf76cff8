"""Log ratios against float64, from one weight to ten million."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from tests.oracles import moves as oracle
from tests.support.kernel_tools import tensor

STEP, SIZE, BETA = 0.2, 60_000.0, 3.0
TEN_MILLION = pytest.param(10**7, marks=pytest.mark.slow)


def move(d, noise_temperature, forward):
    """A move of d weights in float32 whose gradient changed by a third."""
    rng = np.random.default_rng(d)
    noise = np.float32(np.sqrt(2.0 * STEP * noise_temperature / SIZE))
    start = 0.05 * rng.normal(size=d)
    gradient = 1e-3 * rng.normal(size=d)
    sign, width = (-1.0, 1.0) if forward else (1.0, BETA)
    end = start + sign * STEP * gradient + width * noise * rng.normal(size=d)
    new_gradient = 0.7 * gradient + 3e-4 * rng.normal(size=d)
    delta = end.astype("float32") - start.astype("float32")
    return delta, gradient.astype("float32"), new_gradient.astype("float32"), noise


def lists(arrays):
    return [
        [tensor(part) for part in np.array_split(a, 3) if len(part)] for a in arrays
    ]


def close(actual, expected):
    """To 1e-2 nats, or 1e-5 of the ratio."""
    error = abs(float(ops.convert_to_numpy(actual)) - expected)
    assert error < max(1e-2, 1e-5 * abs(expected)), (actual, expected)


@pytest.mark.parametrize("forward", [True, False])
# The paper's noise temperature for networks, 1/N, and that of MALA at c_n = 100.
@pytest.mark.parametrize("noise_temperature", [1.0 / SIZE, 600.0])
@pytest.mark.parametrize("d", [1, 2, 1000, 10**5, TEN_MILLION])
def test_log_ratios_are_those_of_float64(d, noise_temperature, forward):
    delta, gradient, new_gradient, noise = move(d, noise_temperature, forward)
    step, noise = np.float32(STEP), np.float32(noise)
    scales = proposals.Scales(*map(tensor, (step, noise, np.float32(BETA))))
    inputs = lists([delta, gradient, new_gradient])
    start = np.zeros(d)
    wide = [a.astype("float64") for a in (gradient, delta, new_gradient)]
    here, end, there = wide
    settings = float(step), float(noise)

    expected = oracle.langevin_log_ratio(start, here, end, there, *settings)
    close(proposals.langevin_log_ratio(*inputs, scales), expected)
    residuals = proposals.squared_distances(*inputs, scales)
    for normalized in (True, False):
        expected = oracle.reversible_log_ratio(
            start, here, end, there, *settings, BETA, normalized
        )
        ratio = proposals.reversible_log_ratio(
            residuals, scales.beta, d, normalized, 0.5
        )
        close(ratio, expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("chains", [0, 1, 3])
def test_large_numbers_are_finite_and_others_are_not(chains, compiled):
    like = np.zeros(chains, "float32") if chains else 0.0

    def ask(xs):
        # Products in the program, which an optimizer of graphs may move.
        return tensors.all_finite([2.0 * x * tensor(0.5) for x in xs], like)

    # More of them than are added up at a time.
    rng = np.random.default_rng(0)
    shapes = [(max(chains, 1), 90_000), (max(chains, 1), 2, 3), (max(chains, 1), 4)]
    for scale, value in ((1.0, 1.0), (1e25, 1.5e38), (1.0, np.inf), (1e25, np.nan)):
        arrays = [scale * rng.normal(size=shape).astype("float32") for shape in shapes]
        arrays[1][-1, 1, 2] = value
        if not chains:
            arrays = [array[0] for array in arrays]
        function = _backend.compile_function(ask) if compiled else ask
        answer = ops.convert_to_numpy(function([tensor(array) for array in arrays]))
        expected = np.isfinite(value)
        if chains:
            expected = np.array([True] * (chains - 1) + [expected])
        assert answer.dtype == bool
        np.testing.assert_array_equal(answer, expected)
