"""What each process of `host_processes` does, and what it reports."""

import hashlib
import random

import keras
import numpy as np

import keras_mhmcmc as mh
from tests.support.distribution_process import wide
from tests.support.models import compiled
from tests.support.models import data
from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import SAMPLERS


def rows_of(rank, parts):
    """The data of one process, its part of each mini-batch, and the size of a part."""
    size = BATCH_SIZE // parts

    def cut(values):
        batches = values.reshape(-1, parts, size, *values.shape[1:])
        return batches[:, rank].reshape(-1, *values.shape[1:])

    return *(cut(values) for values in data()), size


def trained(name, folder, distribution=None, given=lambda: rows_of(0, 1)):
    """Fit a model twice, with samples in memory and in a folder; report them."""
    keras.distribution.set_distribution(distribution)
    model = compiled(SAMPLERS[name].make(seed=3), wide())
    in_memory = mh.PosteriorSamples(burn_in=3, every=2)
    logs = {}
    for epochs in (2, 1):  # the second one continues in the folder
        in_files = mh.PosteriorSamples(directory=folder)
        callbacks = [in_memory, in_files]
        history = model.fit(
            *given(), epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks
        )
        logs |= history.history
    # `keras.utils.clear_session` would remove the distribution without a word.
    assert keras.distribution.distribution() is distribution
    kernel = model.trainable_variables[0].value
    kept = mh.PosteriorSamples.load(folder)
    samples = in_memory._store.read(model)
    return {
        "samples": vector(samples).tolist(),
        "files": vector(kept._store.read(model)).tolist(),
        "energies": in_memory.energies.tolist(),
        "iterations": kept.iterations.tolist(),
        "logs": logs,
        "hash": hashlib.sha256(vector(samples).tobytes()).hexdigest(),
        "columns": [shard.data.shape[1] for shard in kernel.addressable_shards],
        "is_addressable": bool(kernel.is_fully_addressable),
        "is_replicated": bool(kernel.is_fully_replicated),
    }


def vector(arrays):
    """All numbers of some arrays."""
    return np.concatenate([np.ravel(array) for array in arrays])


def message_of(action):
    """The type and the text of the error that `action()` raises."""
    try:
        action()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def data_parallel(name, rank, count, folder):
    """Each process has its part of every mini-batch."""
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    return trained(name, folder / name, distribution, lambda: rows_of(rank, count))


def global_data(name, rank, count, folder):
    """Each process is given all of the data, of which Keras takes a part."""
    import tensorflow as tf

    def dataset():
        return [tf.data.Dataset.from_tensor_slices(data()).batch(BATCH_SIZE)]

    distribution = keras.distribution.DataParallel()
    return trained(name, folder / name, distribution, dataset)


def model_parallel(name, rank, count, folder):
    """The hidden layer is divided by the four devices of both processes."""
    mesh = keras.distribution.DeviceMesh((1, 4), ["batch", "model"])
    layout = keras.distribution.LayoutMap(mesh)
    layout[".*hidden.*kernel.*"] = (None, "model")
    layout[".*last.*kernel.*"] = ("model", None)
    distribution = keras.distribution.ModelParallel(
        layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
    )
    return trained(name, folder / name, distribution)


def refusals(name, rank, count, folder):
    """Errors that reach both processes; the folder holds the samples of a run."""

    def fit(seed, *callbacks):
        optimizer = SAMPLERS[name].make(seed=seed)
        x, y, size = rows_of(rank, count)
        compiled(optimizer, wide()).fit(x, y, size, callbacks=callbacks, verbose=0)

    random.seed(rank)
    unseeded = SAMPLERS[name].make(seed=None)
    keras.distribution.set_distribution(None)
    found = {
        "no distribution": message_of(lambda: fit(3)),
        "chains": message_of(lambda: mh.ParallelChains(wide(), 2)),
    }
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    unseeded.build(wide().trainable_variables)
    old = mh.PosteriorSamples(directory=folder / name)
    return found | {
        "seed": unseeded.noise_seed(),
        "two seeds": message_of(lambda: fit(3 + rank)),
        "an old folder": message_of(lambda: fit(3, old)),
    }


TASKS = {
    "data": data_parallel,
    "global": global_data,
    "model": model_parallel,
    "refusals": refusals,
}
