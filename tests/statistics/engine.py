"""Runs an optimizer on many independent chains, as one vectorised program.

The optimizer is driven as `mh.ParallelChains` and `mh.PosteriorSamples` drive it:
stacked variables, one loss for each chain, and at each draw `mark_sample`,
`state_values`, `settle` and `sample_info`.
"""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops


class Draws(NamedTuple):
    """What K chains gave at S recorded steps."""

    position: np.ndarray  # (S, K, d)
    log_weight: np.ndarray  # (S, K)
    report: dict  # the optimizer's diagnostics


def run(optimizer, target, start, batches, every):
    """Draws of an optimizer, one after each `every` steps.

    Args:
        optimizer: new, with the arguments that the target asks for.
        target: one of `targets`.
        start: positions (K, d).
        batches: indices (steps, K) of the mini-batch that each step evaluates.
        every: steps between two draws.
    """
    chains = len(start)
    variable = keras.Variable(start[..., None].astype("float32"), name="kernel")
    optimizer.use_chains(chains)
    optimizer.build([variable])

    def step(batch):
        position = ops.convert_to_tensor(variable)[..., 0]
        loss, gradient = target.loss_and_gradient(position, batch)
        optimizer.observe_losses(loss)
        optimizer.apply([gradient[..., None]], [variable])

    advance = _compiled(step, [variable, *optimizer.variables])
    positions, log_weights = [], []
    for first in range(0, len(batches), every):
        if positions:
            # What was kept last waits for its energy, which this step evaluates.
            optimizer.mark_sample()
        advance(batches[first : first + every].astype("int32"))
        if positions:
            log_weights.append(np.array(optimizer.sample_info().log_weight))
        positions.append(_numpy(optimizer.state_values()[0])[..., 0])
        optimizer.settle()
    # The last draw waits for an energy that no step evaluates.
    position = np.array(positions[:-1], "float64")
    return Draws(position, np.array(log_weights), optimizer.diagnostics())


def _numpy(value):
    return np.array(ops.convert_to_numpy(value))


def _compiled(step, variables):
    """`step(batch)` for each row of an array, compiled as the backend compiles."""
    if keras.backend.backend() == "jax":
        return _compiled_by_jax(step, variables)
    if keras.backend.backend() == "tensorflow":
        return _compiled_by_tensorflow(step)

    def advance(batches):
        for batch in batches:
            step(ops.convert_to_tensor(batch))

    return advance


def _compiled_by_jax(step, variables):
    import jax

    def body(values, batch):
        pairs = zip(variables, values, strict=True)
        with keras.StatelessScope(state_mapping=list(pairs)) as scope:
            step(batch)
        return [scope.get_current_value(variable) for variable in variables], None

    # Most of the time would go into making the short program fast.
    scan = jax.jit(
        lambda values, batches: jax.lax.scan(body, values, batches)[0],
        compiler_options={"xla_backend_optimization_level": 0},
    )

    def advance(batches):
        values = scan([variable.value for variable in variables], batches)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    return advance


def _compiled_by_tensorflow(step):
    import tensorflow as tf

    @tf.function
    def advance(batches):
        for batch in batches:
            step(batch)

    return advance
