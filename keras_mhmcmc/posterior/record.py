"""What is known of kept samples and their run, and `manifest.json`, which lists it."""

import json
from typing import Any
from typing import NamedTuple
from typing import Self

import keras
import numpy as np

from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.fit.sampler import Sampler

# What may differ between the chains of one posterior: their law is the same.
_OF_A_CHAIN = {"learning_rate", "name", "seed", "warm_up"}


class Run(NamedTuple):
    """The sampler of a run. An entry is None if it is unknown or does not apply."""

    seed: int | None = None  # of the sampler's noise
    sampler: str | None = None  # the name of its class
    arguments: dict[str, Any] | None = None  # of the sampler, as JSON has them
    chains: int | None = None  # of an `mh.ParallelChains`; None: a single chain


def run_of(model: keras.Model) -> Run:
    """Return what there is to say about a run of `model`."""
    chains = model.num_chains if isinstance(model, StackedModel) else None
    optimizer = model.optimizer
    if not isinstance(optimizer, Sampler):
        return Run(chains=chains)
    name, arguments = type(optimizer).__name__, optimizer.recorded_arguments()
    return Run(optimizer.noise_seed(), name, arguments, chains)


def differences(run: Run, other: Run) -> list[str]:
    """Return what makes two runs sample different laws, as "name=value, not value".

    Runs that say nothing about their sampler differ in nothing.
    """
    if run.arguments is None or other.arguments is None:
        return []
    if run.sampler != other.sampler:
        return [f"sampler={run.sampler!r}, not {other.sampler!r}"]
    names = sorted((run.arguments.keys() | other.arguments.keys()) - _OF_A_CHAIN)
    return [
        f"{name}={run.arguments.get(name)!r}, not {other.arguments.get(name)!r}"
        for name in names
        if run.arguments.get(name) != other.arguments.get(name)
    ]


class Record(NamedTuple):
    """What is known about a kept sample besides its weights."""

    iteration: int  # of the optimizer
    log_weight: float | list[float]  # a list has one entry for each chain
    energy: float | list[float] | None = None  # U in nats; None: unknown
    log_rate: float = 0.0  # the learning rate's contribution to `log_weight`
    is_final: bool = True  # False: energy and weight are still those of an older point
    excess: list[float] | None = None  # of each chain, as `SampleWatch.excess` says

    def described_by(self, sampler: Sampler, log_weight_of_lost: Any = -np.inf) -> Self:
        """Return the record with the energy and weight that `sampler` now has.

        They are those of the sample that was marked last. Lost chains have no energy.
        """
        info, is_lost = sampler.sample_info(), sampler.lost_chains()
        log_weight = np.asarray(self.log_rate)
        if sampler.algorithm.traits.has_weights:
            log_weight = np.asarray(info.log_weight) + log_weight
        if is_lost.any():
            log_weight = np.where(is_lost, log_weight_of_lost, log_weight)
        return self._replace(
            log_weight=log_weight.tolist(),
            energy=np.where(is_lost, np.nan, info.energy).tolist(),
            is_final=info.is_final,
        )

    def revised_by(self, sampler: Sampler) -> Self:
        """Return the record with the sample's own energy and weight, now known.

        A chain that was lost after the sample keeps the weight that it had, unless its
        loss was not finite at the sample itself.
        """
        is_useless = sampler.sample_info().is_useless
        kept = np.where(is_useless, -np.inf, np.asarray(self.log_weight))
        return self.described_by(sampler, kept)


FORMAT = 1
MANIFEST = "manifest.json"

# [name, shape, dtype] of each weight of a model, as JSON has it.
Signature = list[list[str | list[int]]]


class Manifest(NamedTuple):
    """The samples of a folder, oldest first, and the weights that each of them has."""

    signature: Signature
    records: list[Record]
    run: Run = Run()

    def content(self) -> dict[str, Any]:
        """Return what JSON can hold, and `parsed` takes."""
        return {
            "format": FORMAT,
            "run": self.run._asdict(),
            "weights": self.signature,
            "samples": [{"file": file_of(r), **r._asdict()} for r in self.records],
        }


def file_of(record: Record) -> str:
    """Return the name of the file that holds a sample."""
    return f"sample-{record.iteration:010d}.h5"


def read_manifest(path: PathLike) -> Manifest:
    """Return the manifest in a file, or raise a `ValueError` that names it."""
    try:
        with open(path, encoding="utf-8") as file:
            return parsed(json.load(file))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(
            f"The manifest {path!r} cannot be read: {reason}. Restore it from a copy, "
            "or choose a new directory."
        ) from error


def parsed(content: Any) -> Manifest:
    """Return the manifest with this content. Entries that are not ours are ignored."""
    if content["format"] > FORMAT:
        raise ValueError(
            f"it has format {content['format']}, newer than {FORMAT}; update "
            "keras_mhmcmc"
        )
    signature = [
        [name, list(shape), dtype] for name, shape, dtype in content["weights"]
    ]
    records = [_record(sample) for sample in content["samples"]]
    found = [record.iteration for record in records]
    if found != sorted(set(found)):
        raise ValueError("its samples are not in ascending order of their iterations")
    return Manifest(signature, records, _ours(Run, content.get("run", {})))


def _record(sample: dict[str, Any]) -> Record:
    record: Record = _ours(Record, sample)
    # Any other name might lead out of the folder, or to a file of another kind.
    if sample["file"] != file_of(record):
        raise ValueError(f"{sample['file']!r} is not the file {file_of(record)!r}")
    if not np.less(np.array(record.log_weight, float), np.inf).all():
        raise ValueError(f"{file_of(record)!r} has the weight {record.log_weight}")
    return record


def _ours(kind: Any, entries: dict[str, Any]) -> Any:
    """Return a named tuple of its entries. A `TypeError` names one that is missing."""
    return kind(**{name: entries[name] for name in kind._fields if name in entries})
