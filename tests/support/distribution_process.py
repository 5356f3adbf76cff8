"""Trains one model on eight simulated devices of JAX, in three ways; prints as JSON."""

import json
import sys

import jax
import keras

from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import weights
from tests.support.samplers import SAMPLERS


def wide():
    """A classifier whose hidden layer can be divided by the devices."""
    layers = [keras.Input((FEATURES,))]
    for name, units, activation in (("hidden", 16, "tanh"), ("last", 3, "softmax")):
        first = keras.initializers.GlorotUniform(seed=units)
        layers.append(
            keras.layers.Dense(units, activation, kernel_initializer=first, name=name)
        )
    return keras.Sequential(layers)


def data_parallel():
    """The batch is divided by eight."""
    return keras.distribution.DataParallel()


def model_parallel():
    """The batch is divided by two, and the hidden layer by four."""
    mesh = keras.distribution.DeviceMesh((2, 4), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden.*kernel.*"] = (None, "model")
    layout[".*last.*kernel.*"] = ("model", None)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def run(name, distribution):
    """Weights, counts, and over how many devices the first kernel is spread."""
    keras.utils.clear_session()
    keras.distribution.set_distribution(distribution)
    model = compiled(SAMPLERS[name].make(seed=3), wide())
    fit(model, epochs=3)
    kernel = model.trainable_variables[0].value
    optimizer = model.optimizer
    slots = [v.value for v in optimizer.variables if v.shape == kernel.shape]
    shards = [
        [shard.data.shape[1] for shard in array.addressable_shards]
        for array in [kernel, *slots]
    ]
    keras.distribution.set_distribution(None)
    return {
        "weights": weights(model).tolist(),
        "diagnostics": optimizer.diagnostics(),
        "tally": numpy(optimizer._counts).tolist() if name in ("rsgld", "mint") else [],
        "columns": shards,
    }


def main():
    assert jax.device_count() == 8
    ways = {"one": None, "data": data_parallel, "model": model_parallel}
    runs = {
        name: {way: run(name, make and make()) for way, make in ways.items()}
        for name in sys.argv[1:]
    }
    print(json.dumps(runs))


if __name__ == "__main__":
    main()
