"""Algebra of positions: exact sums, overwritten memory, networks of many tensors."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
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


DONATED = [(4, 3), (3,), ()]


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in DONATED]


def lists_of(seed):
    return [ops.convert_to_tensor(array) for array in arrays(seed)]


def variables(seed):
    return [keras.Variable(array) for array in arrays(seed)]


def values(xs):
    return [np.array(ops.convert_to_numpy(x)) for x in xs]


def assert_equal(xs, ys):
    for x, y in zip(values(xs), values(ys), strict=True):
        np.testing.assert_array_equal(x, y)


TERMS = [
    (-0.5, lists_of(1)),
    (ops.convert_to_tensor(2.0), lists_of(2)),
    (0.25, lists_of(3)),
]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sum_in_the_memory_of_variables_is_the_same_sum(count):
    own = variables(0)
    expected = tensors.add_terms(lists_of(0), *TERMS[:count])
    sums = tensors.add_terms(_backend.donated(own, _backend.read(own)), *TERMS[:count])
    assert_equal(sums, expected)
    _backend.write(own, sums)
    assert_equal(own, expected)


def test_a_sum_that_starts_elsewhere_leaves_that_as_it_was():
    own, others = variables(0), variables(4)
    start = _backend.donated(own, _backend.read(others))
    sums = tensors.add_terms(start, *TERMS)
    _backend.write(own, sums)
    assert_equal(own, tensors.add_terms(lists_of(4), *TERMS))
    assert_equal(others, lists_of(4))


def test_a_term_may_be_what_is_overwritten():
    own = variables(0)
    start = _backend.donated(own, _backend.read(own))
    sums = tensors.add_terms(start, (-0.25, start), (1.0, lists_of(1)))
    assert_equal(
        sums, tensors.add_terms(lists_of(0), (-0.25, lists_of(0)), (1.0, lists_of(1)))
    )


def test_what_is_not_donated_is_not_overwritten():
    own = variables(0)
    tensors.add_terms(_backend.read(own), *TERMS)
    tensors.add_scaled(_backend.read(own), *TERMS[0])
    assert_equal(own, lists_of(0))


def test_a_result_is_not_overwritten_by_the_next_sum():
    own = variables(0)
    first = tensors.add_scaled(_backend.donated(own, _backend.read(own)), *TERMS[0])
    kept = values(first)
    tensors.add_scaled(first, *TERMS[1])
    assert_equal(first, kept)


@pytest.mark.parametrize("count", [1, 8, 9, 60])
def test_sums_over_tensors_are_those_of_float64(count):
    rng = np.random.default_rng(count)
    shapes = [(3, 2), (5,), ()] * count
    x, y = (
        [rng.normal(size=shape).astype("float32") for shape in shapes[:count]]
        for _ in range(2)
    )

    def flat(arrays):
        return np.concatenate([np.ravel(a) for a in arrays]).astype("float64")

    lists = [tensor(a) for a in x], [tensor(a) for a in y]
    expected = flat(x) @ flat(y)
    actual = ops.convert_to_numpy(tensors.dot(*lists, like=0.0))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)

    def pairs(a, b):
        return [(a, b), (a - b, a + b)]

    expected = expected, flat(x) @ flat(x) - flat(y) @ flat(y)
    actual = [
        ops.convert_to_numpy(v) for v in tensors.sum_products(pairs, *lists, like=0.0)
    ]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def additions(count):
    """Additions in the program of a step for this many tensors."""
    import jax

    langevin = mh.proposals.Langevin()
    optimizer = mh.MHBT(0.1, train_size=100, batch_size=10, proposal=langevin, seed=0)
    variables = [keras.Variable(np.ones((4, i + 1), "float32")) for i in range(count)]
    optimizer.build(variables)

    def step(values, state, gradients, loss):
        optimizer._observer.keep(loss)
        return optimizer.stateless_apply(state, gradients, values)

    values = [v.value for v in variables]
    state = [v.value for v in optimizer.variables]
    program = jax.jit(step).lower(values, state, values, np.float32(1.0)).compile()
    return len(re.findall(r" add\(", program.as_text()))


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="reads JAX's program")
def test_a_program_grows_in_proportion_to_the_tensors():
    # XLA copies what is cheap into all that uses it, such as a sum over tensors: then
    # twice the tensors have four times the additions, and 65 compile for a minute.
    assert additions(24) < 2.5 * additions(12)
