"""The rule that makes a partition of a pilot's energies, against numpy in float64."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers.parts.contour import Pilot
from tests.support.models import numpy

RNG = np.random.default_rng(0)


def found(energies, steps=50, partitions=100, is_shared=False):
    energies = ops.convert_to_tensor(np.asarray(energies, "float32"))
    return numpy(Pilot(steps, partitions, is_shared).found(energies))


def rule(energies, partitions=100):
    finite = energies[np.isfinite(energies)].astype("float32").astype("float64")
    low = np.quantile(finite, 0.1)
    return low, 4.0 * (finite.max() - low) / (partitions - 2)


@pytest.mark.parametrize("count", [10, 11, 25, 500])
@pytest.mark.parametrize("partitions", [3, 40])
def test_the_rule_is_the_oracles(count, partitions):
    energies = 1000.0 + 50.0 * RNG.gamma(2.0, size=(3, count))
    expected = [rule(row, partitions) for row in energies]
    actual = found(energies, partitions=partitions)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    for row, one in zip(energies, actual, strict=True):
        np.testing.assert_allclose(found(row, partitions=partitions), one, rtol=1e-6)
    together = found(energies, partitions=partitions, is_shared=True)
    np.testing.assert_allclose(together, rule(energies, partitions), rtol=1e-5)


def test_energies_that_are_not_finite_do_not_count():
    energies = RNG.normal(size=(4, 25))
    energies[0, [3, 7, 8]] = np.nan, np.inf, -np.inf
    energies[1, :-1] = np.nan
    energies[2] = np.nan  # a lost chain
    actual = found(energies)
    for k in (0, 3):
        np.testing.assert_allclose(actual[k], rule(energies[k]), rtol=1e-5)
    assert actual[1, 0] == np.float32(energies[1, -1])
    assert np.isfinite(actual).all() and (actual[:, 1] > 0).all()
    together = found(energies, is_shared=True)
    np.testing.assert_allclose(together, rule(energies), rtol=1e-5)


@pytest.mark.parametrize("energy", [0.0, 2.5, -3e6])
def test_float32_tells_the_subregions_of_equal_energies_apart(energy):
    low, gap = found(np.full(25, energy))
    assert low == np.float32(energy)
    assert gap == pytest.approx(1e-6 * max(abs(energy), 1.0))
    assert low + gap > low


def test_only_the_last_half_is_recorded():
    pilot = Pilot(21, 100, is_shared=False)
    slots = pilot.init()
    assert slots.energies.shape == (11,)
    state = type(slots)(
        *(ops.convert_to_tensor(np.full(x.shape, x.value, "float32")) for x in slots)
    )
    energies = RNG.normal(size=30).astype("float32")
    for number, energy in enumerate(energies):
        state = pilot.update(
            state, ops.convert_to_tensor(energy), ops.convert_to_tensor(number)
        )
        gap = numpy(state.partition)[1]
        assert np.isinf(gap) if number < 20 else np.isfinite(gap)
    np.testing.assert_array_equal(numpy(state.energies), energies[10:21])
    np.testing.assert_allclose(
        numpy(state.partition), rule(energies[10:21]), rtol=1e-5, atol=1e-6
    )
