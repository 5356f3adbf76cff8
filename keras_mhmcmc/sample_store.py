"""Where kept samples live: in memory, or one file each in a directory."""

import contextlib
import json
import os
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc.optimizers.sampler import Sampler

FORMAT = 1
_MANIFEST = "manifest.json"


class Record(NamedTuple):
    """What is known of a kept sample besides its weights."""

    iteration: int
    log_weight: float | list  # a list has one for each chain
    energy: float | list | None = None  # U, nats; None: not known


class MemoryStore:
    """Samples as lists of arrays, one for each of `model.weights`."""

    def __init__(self):
        self.records = []
        self._arrays = []

    def open(self, model, iterations):
        """Drops samples from after `iterations`, which are about to be drawn again."""
        while self.records and self.records[-1].iteration > iterations:
            self.records.pop()
            self._arrays.pop()

    def append(self, record, model):
        """Keeps the weights that `model` holds now."""
        self._arrays.append(host_copies(model.weights))
        self.records.append(record)

    def revise_last(self, record):
        """Replaces what is known of the newest sample."""
        self.records[-1] = record

    def flush(self):
        """Has nothing to write."""

    def drop_first(self):
        """Forgets the oldest sample."""
        del self.records[0], self._arrays[0]

    def read(self, model):
        """All samples: for each of `model.weights` one array (samples, ...)."""
        shapes = [variable.shape for variable in model.weights]
        if shapes != [array.shape for array in self._arrays[0]]:
            raise ValueError(
                "Argument `model` must be the model that was sampled, or one of the "
                f"same architecture. Received: a model with weights of shapes {shapes}"
            )
        return [np.stack(values) for values in zip(*self._arrays, strict=True)]


class DirectoryStore:
    """Samples as Keras `.weights.h5` files, listed in `manifest.json`.

    Every file is written under a temporary name, flushed to the disk and renamed, the
    sample before the manifest that lists it: whenever the process dies, the manifest
    lists whole samples only.
    """

    def __init__(self, directory):
        self.directory = os.fspath(directory)
        self._signature = None
        self._files = []
        self.records = []
        if os.path.exists(self._path(_MANIFEST)):
            self._read_manifest()

    def open(self, model, iterations):
        """Readies the directory for samples of `model`, going on at `iterations`."""
        os.makedirs(self.directory, exist_ok=True)
        signature = _signature(model)
        if self._signature is not None:
            self._check_same_model(signature)
        if self.records and iterations == 0:
            raise ValueError(
                "Argument `directory` must be empty for a new run, or the optimizer "
                "must have been loaded from where the run stopped. Received: "
                f"directory={self.directory!r}, which holds {len(self.records)} "
                f"samples up to iteration {self.records[-1].iteration}, and an "
                "optimizer at iteration 0."
            )
        self._signature = signature
        later = [f for f, r in self._listed() if r.iteration > iterations]
        self._files = [f for f, r in self._listed() if r.iteration <= iterations]
        self.records = [r for r in self.records if r.iteration <= iterations]
        self._write_manifest()
        self._remove(later)

    def append(self, record, model):
        """Keeps the weights that `model` holds now."""
        name = f"sample-{record.iteration:010d}.weights.h5"
        temporary = self._path(f"unfinished-{name}")
        skipped = _without_compiled_state(model)
        keras.saving.save_weights(model, temporary, objects_to_skip=skipped)
        _flush(temporary)
        os.replace(temporary, self._path(name))
        self._files.append(name)
        self.records.append(record)
        self._write_manifest()

    def revise_last(self, record):
        """Replaces what is known of the newest sample; the next write has it."""
        self.records[-1] = record

    def flush(self):
        """Writes what is known of the samples."""
        self._write_manifest()

    def drop_first(self):
        """Forgets the oldest sample, the manifest first."""
        oldest = self._files.pop(0)
        del self.records[0]
        self._write_manifest()
        self._remove([oldest])

    def read(self, model):
        """All samples: for each of `model.weights` one array (samples, ...)."""
        self._check_same_model(_signature(model))
        skipped = _without_compiled_state(model)
        before = host_copies(model.weights)
        arrays = []
        try:
            for name in self._files:
                path = self._path(name)
                if not os.path.exists(path):
                    raise ValueError(
                        f"The sample file {path!r} is listed in the manifest and is "
                        "not there. Restore it, or remove its entry from "
                        f"{self._path(_MANIFEST)!r}."
                    )
                keras.saving.load_weights(model, path, objects_to_skip=skipped)
                arrays.append(host_copies(model.weights))
        finally:
            for variable, value in zip(model.weights, before, strict=True):
                variable.assign(value)
        return [np.stack(values) for values in zip(*arrays, strict=True)]

    def _path(self, name):
        return os.path.join(self.directory, name)

    def _listed(self):
        return list(zip(self._files, self.records, strict=True))

    def _check_same_model(self, signature):
        if signature != self._signature:
            raise ValueError(
                "Argument `directory` holds samples of another model: its weights have "
                "other names, shapes or types. Choose a new directory, or the model "
                f"that was sampled. Received: directory={self.directory!r}, with "
                f"samples of {self._signature}, and a model with {signature}"
            )

    def _read_manifest(self):
        path = self._path(_MANIFEST)
        try:
            with open(path, encoding="utf-8") as file:
                manifest = json.load(file)
            if manifest["format"] > FORMAT:
                raise ValueError(
                    f"it has format {manifest['format']}, newer than {FORMAT}; update "
                    "keras_mhmcmc"
                )
            for entry in manifest["samples"]:
                name = entry["file"]
                if os.path.basename(name) != name or not name.endswith(".weights.h5"):
                    raise ValueError(f"it lists {name!r}, which is no sample file here")
                record = Record(
                    int(entry["iteration"]),
                    _numbers(entry["log_weight"]),
                    _numbers(entry.get("energy")),
                )
                self._files.append(name)
                self.records.append(record)
            self._signature = [list(weight) for weight in manifest["weights"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"The manifest {path!r} cannot be read: {error}. Restore it from a "
                "copy, or choose a new directory."
            ) from error

    def _write_manifest(self):
        manifest = {
            "format": FORMAT,
            "weights": self._signature,
            "samples": [
                {"file": name, **record._asdict()} for name, record in self._listed()
            ],
        }
        temporary = self._path(f"unfinished-{_MANIFEST}")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
        _flush(temporary)
        os.replace(temporary, self._path(_MANIFEST))

    def _remove(self, names):
        for name in names:
            os.remove(self._path(name))


def _numbers(value):
    """A number of a manifest, or a list of them; None stands for itself."""
    if value is None:
        return None
    return [float(x) for x in value] if isinstance(value, list) else float(value)


def host_copies(values):
    """Copies of tensors or variables as numpy arrays that nothing else writes to."""
    return [np.array(ops.convert_to_numpy(value)) for value in values]


@contextlib.contextmanager
def state_in(model):
    """`model` with the current state of its chain, and not a pending proposal."""
    variables = model.trainable_variables
    pending = host_copies(variables)
    if isinstance(model.optimizer, Sampler):
        _assign(variables, host_copies(model.optimizer.state_values()))
    try:
        yield
    finally:
        _assign(variables, pending)


def _assign(variables, values):
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _signature(model):
    """Names, shapes and types of a model's weights, without automatic counters."""
    return [[v.name, list(v.shape), v.dtype] for v in model.weights]


def _without_compiled_state(model):
    """What a sample leaves out: the optimizer's slots and the metrics' counts."""
    return [model.optimizer, *model.metrics] if model.compiled else []


def _flush(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
