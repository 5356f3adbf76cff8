"""TensorFlow: XLA compiles steps of mini-batches once, for all numbers of a step."""

import re

import keras
import pytest

from keras_mhmcmc import _backend

pytestmark = pytest.mark.skipif(
    keras.config.backend() != "tensorflow", reason="XLA on TensorFlow"
)
CHAINS, SIZE, BATCH = 3, 40, 5


def value(position, index, constants):
    (x,) = _backend.gather(constants, index[0])
    return keras.ops.sum(keras.ops.sum(x * position[0], axis=1))


def arguments_in_xla(map_chains):
    """How many arguments of a loop of steps are left in the compiled program."""
    import tensorflow as tf

    def run(position, x, start):
        evaluate = map_chains(value, [x], True)

        def body(number, position):
            places = tf.range(BATCH)[None] * (start + number)
            index = (places + tf.range(CHAINS)[:, None]) % SIZE
            _, gradient = evaluate([position], [index])
            return number + 1, position - 0.1 * gradient[0]

        return tf.while_loop(lambda number, _: number < 4, body, (0, position))

    compiled = tf.function(run, jit_compile=True, autograph=False)
    arguments = tf.ones((CHAINS, 2)), tf.ones((SIZE, 2)), tf.constant(7)
    text = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")
    entry = re.search(r"^ENTRY .*?^}", text, re.DOTALL | re.MULTILINE)[0]
    return len(re.findall(r" parameter\(\d+\)", entry))


def test_data_and_step_are_arguments():
    assert arguments_in_xla(_backend.map_chains) == 3
