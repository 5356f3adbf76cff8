"""Schedules against their definitions."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import schedules
from tests.oracles import schedules as oracle

# class, arguments, oracle
SCHEDULES = {
    "power": (
        schedules.PowerDecay,
        dict(initial=0.3, offset=2.5, power=0.55),
        oracle.power_decay,
    ),
    "power 0": (
        schedules.PowerDecay,
        dict(initial=0.3, offset=1.0, power=0.0),
        oracle.power_decay,
    ),
    "cosine": (
        schedules.CyclicalCosine,
        dict(initial=0.3, cycle_steps=40),
        oracle.cyclical_cosine,
    ),
    "cosine 1": (
        schedules.CyclicalCosine,
        dict(initial=0.3, cycle_steps=1),
        oracle.cyclical_cosine,
    ),
    "geometric": (
        schedules.GeometricCycle,
        dict(initial=0.3, cycle_steps=50, decay=0.9, decay_steps=5, growth=2.0),
        oracle.geometric_cycle,
    ),
    "geometric, periods that do not divide": (
        schedules.GeometricCycle,
        dict(initial=0.3, cycle_steps=17, decay=0.8, decay_steps=3, growth=1.5),
        oracle.geometric_cycle,
    ),
    "geometric, constant": (
        schedules.GeometricCycle,
        dict(initial=0.3, cycle_steps=1, decay=1.0, decay_steps=1, growth=1.0),
        oracle.geometric_cycle,
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_has_the_values_of_its_definition(name):
    make, arguments, expected = SCHEDULES[name]
    schedule = make(**arguments)
    iterations = [*range(120), 999, 1000]
    values = [float(schedule(k)) for k in iterations]
    np.testing.assert_allclose(
        values, [expected(k, **arguments) for k in iterations], rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_takes_the_optimizers_counter(name):
    make, arguments, expected = SCHEDULES[name]
    schedule = make(**arguments)
    for k in (0, 1, 53, 1003):
        counter = keras.Variable(k, dtype="int", trainable=False)
        for step in (counter, ops.convert_to_tensor(k, "int32"), np.int64(k)):
            value = float(schedule(step))
            assert value == pytest.approx(expected(k, **arguments), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_survives_serialisation(name):
    make, arguments, _ = SCHEDULES[name]
    schedule = make(**arguments)
    assert schedule.get_config() == arguments
    stored = keras.saving.serialize_keras_object(schedule)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is make
    assert restored.get_config() == arguments
    assert float(restored(7)) == float(schedule(7))


def test_a_cosine_starts_each_cycle_at_its_initial_value_and_nears_zero():
    schedule = schedules.CyclicalCosine(0.2, cycle_steps=1000)
    for start in (0, 1000, 10**6):
        assert float(schedule(start)) == pytest.approx(0.2)
        assert float(schedule(start + 500)) == pytest.approx(0.1, rel=1e-5)
        assert 0.0 <= float(schedule(start + 999)) < 1e-6


def test_a_geometric_cycle_falls_before_it_rises():
    rate = schedules.GeometricCycle(
        0.2, cycle_steps=50, decay=0.9, decay_steps=5, growth=2.0
    )
    assert float(rate(4)) == pytest.approx(0.2)
    assert float(rate(5)) == pytest.approx(0.18)
    assert float(rate(49)) == pytest.approx(0.2 * 0.9**9, rel=1e-5)
    assert float(rate(50)) == pytest.approx(0.2 * 0.9**10 * 2, rel=1e-5)


def test_a_geometric_cycle_keeps_its_value_after_many_cycles():
    # Falls and rises that cancel: neither power alone is a float32 after 13 cycles.
    rate = schedules.GeometricCycle(
        0.2, cycle_steps=10, decay=0.5, decay_steps=1, growth=1024.0
    )
    for cycle in (12, 14, 200):
        assert float(rate(10 * cycle)) == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_optimizer_follows_the_schedule(name):
    make, arguments, expected = SCHEDULES[name]
    optimizer = keras.optimizers.SGD(make(**arguments))
    optimizer.iterations.assign(23)
    rate = float(ops.convert_to_numpy(optimizer.learning_rate))
    assert rate == pytest.approx(expected(23, **arguments), rel=1e-5, abs=1e-7)
