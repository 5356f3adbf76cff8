"""Networks of many tensors: sums are right, and a step's program does not explode."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import tensors
from tests.support.kernel_tools import tensor


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
