"""TensorFlow: many chains of one model on one device."""

import tensorflow as tf

from keras_mhmcmc._backend.keras_internals import TrainerHooks
from keras_mhmcmc._backend.keras_internals import writable_optimizer
from keras_mhmcmc._backend.tensorflow.core import _examples_of
from keras_mhmcmc._backend.tensorflow.random import draw_from
from keras_mhmcmc._backend.xla import counted

__all__ = [
    "ChainTrainer",
    "ChainsNoise",
    "chain_gradients",
    "chain_outputs",
    "over_chains",
    "writable_optimizer",
]


class ChainsNoise:
    """The noise of several chains. `state` has a row (seed, step count) for each."""

    def __init__(self, state):
        self._state = state

    def draw(self, tensors, uniforms):
        """Return normals shaped like `tensors`, and uniforms (chains, uniforms)."""
        state = counted(self._state)
        if state.shape[0] == 1:
            normals, uniform = draw_from(state[0], [x[0] for x in tensors], uniforms)
            return [normal[None] for normal in normals], uniform[None]
        specs = [tf.TensorSpec(x.shape[1:], x.dtype) for x in tensors]
        return tf.map_fn(
            lambda row: draw_from(row, specs, uniforms),
            state,
            fn_output_signature=(specs, tf.TensorSpec((uniforms,), tf.float32)),
        )


def over_chains(step, chains, shared, data, chunk):
    """Run `step` for `chunk` chains at a time, and return the new values."""
    count = chains[0].shape[0]
    if chunk > 1 or count == 1:
        return step(chains, shared, data)

    def body(index, rows, _):
        single = [x[index][None] for x in chains]
        single, new_shared = step(single, shared, data)
        # Do not write to `chains`: while rows of a tensor are read, a write copies all
        # of the tensor.
        rows = [
            written.write(index, tf.cast(y[0], x.dtype))
            for written, x, y in zip(rows, chains, single, strict=True)
        ]
        return index + 1, rows, new_shared

    rows = [tf.TensorArray(x.dtype, count, element_shape=x.shape[1:]) for x in chains]
    _, rows, shared = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (tf.constant(0), rows, list(shared)),
        maximum_iterations=count,
    )
    return [written.stack() for written in rows], shared


def chain_gradients(function, trainable, rest):
    """Return the losses, gradients and auxiliary outputs of all chains."""

    def single(values):
        trainable, rest = values
        with tf.GradientTape() as tape:
            tape.watch(trainable)
            loss, auxiliary = function(trainable, rest)
        gradient = tape.gradient(loss, trainable, unconnected_gradients="zero")
        return loss, [tf.convert_to_tensor(g) for g in gradient], auxiliary

    return chain_outputs(single, (list(trainable), rest))


def chain_outputs(function, values):
    """Return `function(values)` of each chain, vectorised if there are several."""
    if tf.nest.flatten(values)[0].shape[0] == 1:
        outputs = function(tf.nest.map_structure(lambda x: x[0], values))
        return tf.nest.map_structure(lambda x: tf.expand_dims(x, 0), outputs)
    return tf.vectorized_map(function, values, fallback_to_while_loop=True)


class ChainTrainer(TrainerHooks):
    """The step functions that Keras' trainer calls, around `_run_step`."""

    def fit(self, *args, **options):
        """Train all chains, or say that a step failed because it is vectorised."""
        try:
            return super().fit(*args, **options)
        except tf.errors.OpError as error:
            if "/pfor/" not in error.message:  # the name of what is vectorised
                raise
            raise ValueError(
                'Argument `strategy` must be "loop" for this model, which has a layer '
                "that cannot be vectorised. Received: "
                f'strategy="{self.strategy}", and the error '
                f"{error.message.strip().splitlines()[-1][:200]}"
            ) from error

    def train_step(self, data):
        """Train all chains by one step."""
        return self._step(data, True)

    def test_step(self, data):
        """Evaluate all chains on one batch."""
        return self._step(data, False)

    def _step(self, data, training):
        variables = self._step_variables(training)
        values = [tf.convert_to_tensor(variable.value) for variable in variables]
        logs, new = self._run_step(values, data, training)
        count = _examples_of(data)
        if count is not None:
            new = [tf.where(count > 0, *pair) for pair in zip(new, values, strict=True)]
        for variable, value in zip(variables, new, strict=True):
            variable.assign(value)
        return logs
