"""One process of a group of PyTorch: moves chains, with a wrapper or alone."""

import hashlib
import json
import sys
import warnings

import keras
import numpy as np
import torch
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from tests.support.models import data
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import SAMPLERS
from tests.support.samplers import TRAIN_SIZE


def step(model, call, optimizer, x, y):
    """One step of the custom loop that the documentation shows."""
    model.zero_grad()
    loss_fn = keras.losses.SparseCategoricalCrossentropy()
    output = call(torch.as_tensor(x), training=True)
    loss = optimizer.scale_loss(loss_fn(torch.as_tensor(y), output))
    loss.backward()
    gradients = [v.value.grad for v in model.trainable_variables]
    with torch.no_grad():
        optimizer.apply(gradients, model.trainable_variables)


WRAPPERS = {
    "data": DistributedDataParallel,
    "shards": fully_shard,
    "none": lambda model: model,
}


def chain(rank, world, sampler, seed, steps, wrapper="data", looks=()):
    """The chain of a sampler, whose batches are divided by the processes.

    Args:
        seed: one for all processes, or a list.
        looks: steps before which all processes settle and propose.
    """
    model = sequential(seed=1 + 10 * rank)  # the wrapper copies those of the first
    seed = seed[rank] if isinstance(seed, list) else seed
    optimizer = SAMPLERS[sampler].make(seed=seed)
    call = WRAPPERS[wrapper if world > 1 else "none"](model)
    x, y = data()
    rng = np.random.default_rng(5)
    for number in range(steps):
        if number in looks:
            optimizer.settle()
            optimizer.propose()
        batch = rng.permutation(TRAIN_SIZE)[:BATCH_SIZE][rank::world]
        step(model, call, optimizer, x[batch], y[batch])
    optimizer.settle()
    state = [*model.trainable_variables, *optimizer.variables]
    content = b"".join(numpy(variable).tobytes() for variable in state)
    return {
        "hash": hashlib.sha256(content).hexdigest(),
        "weights": weights(model).tolist(),
        "diagnostics": optimizer.diagnostics(),
        "seed": optimizer.noise_seed(),
    }


def independent(rank, world, **arguments):
    """A chain of its own in each process, with the whole batch."""
    with mh.independent_processes():
        return chain(0, 1, **arguments)


def refused(rank, world, **arguments):
    """The error of a chain."""
    try:
        chain(rank, world, **arguments)
    except ValueError as error:
        return str(error)
    raise AssertionError("no error")


def chains(rank, world):
    """The error of `ParallelChains`, and the size of independent ones."""
    with mh.independent_processes():
        size = mh.ParallelChains(sequential(), 2).num_chains
    try:
        mh.ParallelChains(sequential(), 2)
    except ValueError as error:
        return [str(error), size]
    raise AssertionError("no error")


class Wrapped(keras.Sequential):
    """A model whose `fit` uses the wrapper, as one of Keras itself would."""

    def train_step(self, batch):
        x, y = batch
        self.zero_grad()
        loss = self.compute_loss(x, y, self.calls[0](x, training=True))
        _backend.record_loss(self, loss, len(x))
        self.optimizer.scale_loss(loss).backward()
        gradients = [v.value.grad for v in self.trainable_variables]
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def fit(rank, world, sampler, seed):
    """Samples and warnings of `fit`."""
    model = Wrapped(sequential().layers)
    model.compile(SAMPLERS[sampler].make(seed=seed), "sparse_categorical_crossentropy")
    model.calls = (DistributedDataParallel(model),) if world > 1 else (model,)
    posterior = mh.PosteriorSamples(burn_in=6, every=4)
    x, y = data()
    x, y = x[rank::world], y[rank::world]
    batch_size = BATCH_SIZE // world
    options = {"batch_size": batch_size, "epochs": 4, "verbose": 0, "shuffle": False}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, callbacks=[posterior], **options)
    return {
        "warnings": [str(warning.message) for warning in caught],
        "samples": [w.tolist() for w in posterior.ensemble(model).get_weights()],
        "energies": np.ravel(posterior.energies).tolist(),
    }


def without_sum(gradients, loss, changes):
    """A planted fault: each process has the loss of its own examples."""
    return gradients, loss


def without_check(gradients, variables, seeds):
    """A planted fault: nothing is copied from the first process, or compared."""


FAULTS = {"over_replicas": without_sum, "check_processes": without_check}


def run(rank, world, task, fault=None, **arguments):
    """What a task returns, with a planted fault."""
    if fault is None:
        return globals()[task](rank, world, **arguments)
    right = getattr(_backend, fault)
    setattr(_backend, fault, FAULTS[fault])
    try:
        return globals()[task](rank, world, **arguments)
    finally:
        setattr(_backend, fault, right)


def main(rank, place, tasks):
    group = torch.distributed
    group.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    print(json.dumps([run(rank, 2, **task) for task in tasks]))
    group.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
