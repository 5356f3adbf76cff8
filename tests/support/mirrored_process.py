"""Trains models on two simulated devices of TensorFlow, or on one; prints as JSON."""

import contextlib
import json
import sys
import warnings

import keras
import numpy as np
import tensorflow as tf

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import SAMPLERS


def normalized(is_synchronized):
    """A classifier whose statistics are those of the whole batch."""
    first = [keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(7, kernel_initializer=first[0]),
            keras.layers.BatchNormalization(synchronized=is_synchronized),
            keras.layers.Activation("tanh"),
            keras.layers.Dense(3, "softmax", kernel_initializer=first[1]),
        ]
    )


def copies(variable):
    """The values of a variable on each device."""
    return [value.numpy() for value in getattr(variable.value, "values", ())]


class Bits(keras.callbacks.Callback):
    """Compares the devices after each step: what is written later is equal again."""

    def on_train_begin(self, logs=None):
        self.equal = True

    def on_train_batch_end(self, batch, logs=None):
        optimizer = self.model.optimizer
        found = [
            copies(v) for v in [*optimizer.variables, *self.model.trainable_variables]
        ]
        self.devices = sorted({len(values) for values in found})
        self.equal &= all(np.array_equal(*values) for values in found if values)


def run(sampler, strategy, seed, is_normalized, epochs):
    """A chain, its samples, its warnings and whether all devices have the same bits."""
    scope = strategy.scope() if strategy else contextlib.nullcontext()
    with scope, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = normalized(strategy is not None) if is_normalized else sequential()
        model = compiled(SAMPLERS[sampler].make(seed=seed), model)
        posterior = mh.PosteriorSamples(burn_in=2, every=2)
        bits = Bits()
        fit(model, epochs=epochs, callbacks=[bits, posterior])
    optimizer = model.optimizer
    return {
        "weights": weights(model).tolist(),
        "samples": [w.tolist() for w in posterior.ensemble(model).get_weights()],
        "energies": np.ravel(posterior.energies).tolist(),
        "iterations": int(numpy(optimizer.iterations)),
        "diagnostics": optimizer.diagnostics(),
        "devices": bits.devices,
        "equal": bits.equal,
        "warnings": [str(warning.message) for warning in caught],
    }


def chain(strategy, sampler, seed=3, is_normalized=False, epochs=2):
    """The chain on two devices and on one."""
    arguments = (seed, is_normalized, epochs)
    return [run(sampler, strategy, *arguments), run(sampler, None, *arguments)]


def two(strategy, sampler, epochs):
    """The chain on two devices alone."""
    return run(sampler, strategy, 3, False, epochs)


def refused(strategy, what):
    """The error of something that is not made for the strategy."""
    try:
        with strategy.scope():
            model = sequential()
            if what == "chains":
                mh.ParallelChains(model, 2)
        fit(compiled(SAMPLERS["sgld"].make(seed=3), model))  # outside of the scope
    except ValueError as error:
        return str(error)
    raise AssertionError("no error")


def with_own_loss(gradients, loss, changes):
    """A planted fault: each replica has the loss of its own examples."""
    return RIGHT(gradients, None, changes)[0], loss


def with_own_gradients(gradients, loss, changes):
    """A planted fault: each replica has the gradients of its own examples."""
    return gradients, RIGHT([], loss, changes)[1]


RIGHT = _backend.over_replicas
FAULTS = {"loss": with_own_loss, "gradients": with_own_gradients}


def done(strategy, task, fault=None, **arguments):
    """What a task returns, with a planted fault."""
    _backend.over_replicas = FAULTS.get(fault, RIGHT)
    return globals()[task](strategy, **arguments)


def main(tasks):
    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    print(json.dumps([done(strategy, **task) for task in tasks]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
