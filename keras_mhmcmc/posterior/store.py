"""Where kept samples live: in memory, or one file each in a directory.

A store keeps what training changes once for each sample, and the rest once: weights of
frozen layers are most of a pretrained model.
"""

import contextlib
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc.optimizers.sampler import Sampler


class Record(NamedTuple):
    """What is known of a kept sample besides its weights."""

    iteration: int
    log_weight: float | list  # a list has one for each chain
    energy: float | list | None = None  # U, nats; None: not known
    log_rate: float = 0.0  # the part of `log_weight` that a learning rate gives
    is_final: bool = True  # or energy and weight are those of the point before it

    def described_by(self, sampler):
        """This with what `sampler` knows of the sample that was marked last.

        Chains that were lost have the weight 0 and no energy.
        """
        return self._described(sampler, -np.inf)

    def revised_by(self, sampler):
        """This with its own energy and weight, which are known now.

        A chain that was lost since then keeps the weight that it had.
        """
        return self._described(sampler, np.asarray(self.log_weight))

    def _described(self, sampler, log_weight_of_lost):
        info, is_lost = sampler.sample_info(), sampler.lost_chains()
        log_weight = np.asarray(self.log_rate)
        if sampler.has_weights:
            log_weight = np.asarray(info.log_weight) + log_weight
        if is_lost.any():
            log_weight = np.where(is_lost, log_weight_of_lost, log_weight)
        return self._replace(
            log_weight=log_weight.tolist(),
            energy=np.where(is_lost, np.nan, info.energy).tolist(),
            is_final=info.is_final,
        )


class MemoryStore:
    """Samples as lists of arrays, one for each of `model.weights`."""

    def __init__(self):
        self.records = []
        self._base = None
        self._arrays = []

    def open(self, model, iterations):
        """Drops samples from after `iterations`, which are about to be drawn again."""
        while self.records and self.records[-1].iteration > iterations:
            self.records.pop()
            self._arrays.pop()

    def append(self, record, model):
        """Keeps the weights that `model` holds now."""
        if self._base is None:  # a model may be built in its first step
            self._base = base_of(model)
        if self._arrays:
            self._check_same_model(model)
        changed = changes(self._base, model)
        self._arrays.append([changed.get(i, b) for i, b in enumerate(self._base)])
        self.records.append(record)

    def revise_last(self, record):
        """Replaces what is known of the newest sample."""
        self.records[-1] = record

    def write(self):
        """Has nothing to write."""

    def flush(self):
        """Has nothing to give back."""

    def drop_first(self):
        """Forgets the oldest sample."""
        del self.records[0], self._arrays[0]

    def read(self, model):
        """All samples: for each of `model.weights` one array (samples, ...)."""
        self._check_same_model(model)
        return stacked(self._arrays)

    def _check_same_model(self, model):
        shapes = [tuple(variable.shape) for variable in model.weights]
        if shapes != [array.shape for array in self._arrays[0]]:
            raise ValueError(
                "Argument `model` must be the model that was sampled, or one of the "
                f"same architecture. Received: a model with weights of shapes {shapes}"
            )


def base_of(model):
    """For each of `model.weights` a copy if training leaves it as it is, else None.

    Moving statistics are not trainable, but change; `changes` finds them.
    """
    trainable = {id(variable) for variable in model.trainable_weights}
    return [
        None if id(variable) in trainable else host_copies([variable])[0]
        for variable in model.weights
    ]


def changes(base, model):
    """The weights of `model` that differ from `base`, by their positions."""
    changed = {}
    for index, variable in enumerate(model.weights):
        value = ops.convert_to_numpy(variable)
        if base[index] is None or not np.array_equal(base[index], value):
            changed[index] = np.array(value)
    return changed


def stacked(samples):
    """For each weight one array (samples, ...) of the values in `samples`.

    Where all samples hold the same array, it is a view of that one.
    """
    return [
        np.broadcast_to(values[0], (len(values), *values[0].shape))
        if all(value is values[0] for value in values)
        else np.stack(values)
        for values in zip(*samples, strict=True)
    ]


def host_copies(values):
    """Copies of tensors or variables as numpy arrays that nothing else writes to."""
    return [np.array(ops.convert_to_numpy(value)) for value in values]


@contextlib.contextmanager
def state_in(model):
    """`model` with the current state of its chain, and not a pending proposal."""
    if not isinstance(model.optimizer, Sampler):
        yield
        return
    # Not those of the model, which may have been frozen since they were sampled.
    variables = model.optimizer.sampled_variables
    pending = host_copies(variables)
    _assign(variables, host_copies(model.optimizer.state_values()))
    try:
        yield
    finally:
        _assign(variables, pending)


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
