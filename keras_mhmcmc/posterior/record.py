"""What is known of kept samples and their run, and `manifest.json`, which lists it."""

import json
from collections.abc import Sequence
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
_LARGEST = 2**63 - 1

# [name, shape, dtype] of each weight of a model, as JSON has it.
Signature = list[list[str | list[int]]]

# Examples of all entries. A tuple has several of them. An integer is the lowest one,
# and 0.0 is any number. A list has one example for all its entries, or one for each.
_NUMBERS = (0.0, [0.0])
_FORMS: dict[str, Any] = {
    "format": 1,
    "weights": [["kernel", [0], "float32"]],
    "samples": [{}],
    "run": {},
    "file": "sample-0000000001.h5",
    "iteration": 1,
    "log_weight": _NUMBERS,
    "energy": (None, *_NUMBERS),
    "log_rate": 0.0,
    "is_final": True,
    "excess": (None, [0.0]),
    "seed": (None, 0),
    "sampler": (None, "SGLD"),
    "arguments": (None, {}),
    "chains": (None, 1),
}


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
    except (KeyError, ValueError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(
            f"The manifest {path!r} cannot be read: {reason}. Restore it from a copy, "
            "or choose a new directory."
        ) from error


def parsed(content: Any) -> Manifest:
    """Return the manifest with this content. Entries that are not ours are ignored."""
    _check(isinstance(content, dict), "it", "an object", content)
    names = ["format", "weights", "samples", "run"]
    version, signature, samples, run = _entries(names, {"run": {}} | content)
    if version > FORMAT:
        raise ValueError(
            f"it has format {version}, newer than {FORMAT}; update keras_mhmcmc"
        )
    records = []
    for sample in samples:
        given = Record._field_defaults | sample
        records.append(record := Record(*_entries(Record._fields, given)))
        # Any other name might lead out of the folder, or to a file of another kind.
        name = file_of(record)
        _check(sample["file"] == name, "'file'", repr(name), sample)
        # A single weight may stand for the weights of all chains.
        is_alike = np.shape(record.log_weight) in ((), _chains(record))
        _check(is_alike, "'log_weight'", "for as many chains as 'energy'", sample)
        is_log = np.less([*np.ravel(record.log_weight), record.log_rate], np.inf).all()
        _check(is_log, "'log_weight' and 'log_rate'", "less than infinity", sample)
    found = [record.iteration for record in records]
    is_ascending = found == sorted(set(found))
    _check(is_ascending, "'samples'", "in ascending order of 'iteration'", found)
    chains = set(map(_chains, records))
    is_same = len(chains) < 2 and (0,) not in chains
    _check(is_same, "'energy'", "for the same chains in all samples", chains)
    run = Run(*_entries(Run._fields, Run._field_defaults | run))
    return Manifest(signature, records, run)


def _entries(names: Sequence[str], owner: dict[str, Any]) -> list[Any]:
    for name in names:
        form = _FORMS[name]
        wanted = " or ".join(map(repr, form if isinstance(form, tuple) else [form]))
        _check(_fits(owner[name], form), repr(name), f"like {wanted}", owner[name])
    return [owner[name] for name in names]


def _check(is_right: bool | np.bool_, name: str, wanted: str, found: object) -> None:
    if not is_right:
        raise ValueError(f"{name} must be {wanted}. Received: {repr(found)[:200]}")


def _fits(value: Any, form: Any) -> bool:
    """Return whether a value has the form of an example in `_FORMS`."""
    if isinstance(form, tuple):
        return any(_fits(value, one) for one in form)
    if isinstance(form, list):
        if not isinstance(value, list):
            return False
        forms = form * len(value) if len(form) == 1 else form
        return len(value) == len(forms) and all(map(_fits, value, forms))
    if type(form) is int:
        return type(value) is int and form <= value <= _LARGEST
    return isinstance(value, type(form)) or (form == 0.0 and _fits(value, -_LARGEST))


def _chains(record: Record) -> tuple[int, ...]:
    return () if record.energy is None else np.shape(record.energy)
