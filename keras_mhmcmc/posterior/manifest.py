"""`manifest.json`, the list of a folder's samples: its contents and their checks."""

import json
import re
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import PathLike
from keras_mhmcmc.posterior.run import Run
from keras_mhmcmc.posterior.store import Record

# Entries that came later, such as checksums, may be missing: their format is the same.
FORMAT = 1
NAME = "manifest.json"
_LARGEST = 2**63 - 1

# [name, shape, dtype] of each weight of a model, as JSON has it.
Signature = list[list[str | list[int]]]


class Manifest(NamedTuple):
    """The samples of a folder, oldest first, and the weights that each of them has."""

    signature: Signature
    records: list[Record]
    run: Run = Run()
    base_sha256: str | None = None  # of the file with what the samples share


def file_of(record: Record) -> str:
    """Return the name of the file that holds a sample."""
    return f"sample-{record.iteration:010d}.h5"


def text_of(manifest: Manifest) -> str:
    """Return the manifest as JSON."""
    content = {
        "format": FORMAT,
        "run": manifest.run._asdict(),
        "base_sha256": manifest.base_sha256,
        "weights": manifest.signature,
        "samples": [
            {"file": file_of(record), **record._asdict()} for record in manifest.records
        ],
    }
    return json.dumps(content, indent=1)


def read(path: PathLike) -> Manifest:
    """Read and check the manifest in a file.

    Raises:
        ValueError: the file is not a manifest, or a newer version wrote it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return _parsed(json.load(file))
    except (KeyError, ValueError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ValueError(
            f"The manifest {path!r} cannot be read: {reason}. Restore it from a copy, "
            "or choose a new directory."
        ) from error


def parsed(text: str) -> Manifest:
    """Return the manifest that `text_of` wrote."""
    return _parsed(json.loads(text))


def _parsed(content: Any) -> Manifest:
    """Check the content of a manifest, as `json.load` returns it."""
    _check(isinstance(content, dict), "it", "an object", content)
    version = content["format"]
    _check(_is_count(version), "'format'", "an integer from 1", version)
    if version > FORMAT:
        raise ValueError(
            f"it has format {version}, newer than {FORMAT}; update keras_mhmcmc"
        )
    weights, samples = content["weights"], content["samples"]
    _check(isinstance(weights, list), "'weights'", "a list", weights)
    for weight in weights:
        _check(_is_signature(weight), "'weights'", "[name, shape, type] each", weight)
    _check(isinstance(samples, list), "'samples'", "a list", samples)
    records = [_record(entry) for entry in samples]
    for one, other in zip(records, records[1:], strict=False):
        iterations = [one.iteration, other.iteration]
        _check(
            one.iteration < other.iteration,
            "'samples'",
            "in ascending order of 'iteration'",
            iterations,
        )
        shapes = [_shape(one.energy), _shape(other.energy)]
        _check(
            shapes[0] == shapes[1],
            "'energy'",
            "for the same number of chains in all samples",
            shapes,
        )
    sha256 = _sha256("'base_sha256'", content.get("base_sha256"))
    return Manifest(weights, records, _run(content.get("run", {})), sha256)


def _run(entry: Any) -> Run:
    """Check what is said about the run. Older manifests say nothing."""
    _check(isinstance(entry, dict), "'run'", "an object", entry)
    run = Run(**{name: entry.get(name) for name in Run._fields})
    is_seed = run.seed is None or (type(run.seed) is int and 0 <= run.seed <= _LARGEST)
    _check(is_seed, "'seed'", "an integer from 0, or null", run.seed)
    _check(run.chains is None or _is_count(run.chains), "'chains'", "a count", entry)
    is_name = run.sampler is None or isinstance(run.sampler, str)
    _check(is_name, "'sampler'", "a name, or null", run.sampler)
    is_object = run.arguments is None or isinstance(run.arguments, dict)
    _check(is_object, "'arguments'", "an object, or null", run.arguments)
    return run


def _record(entry: Any) -> Record:
    _check(isinstance(entry, dict), "each of 'samples'", "an object", entry)
    _check(_is_count(entry["iteration"]), "'iteration'", "an integer from 1", entry)
    log_weight = _numbers("'log_weight'", entry["log_weight"])
    energy = entry.get("energy")
    if energy is not None:
        energy = _numbers("'energy'", energy)
    # A single weight may stand for the weights of all chains.
    is_alike = _shape(log_weight) in ((), _shape(energy))
    _check(is_alike, "'log_weight'", "for as many chains as 'energy'", entry)
    log_rate = _number("'log_rate'", entry.get("log_rate", 0.0))
    for name, value in (("'log_weight'", log_weight), ("'log_rate'", log_rate)):
        _check((np.array(value) < np.inf).all(), name, "less than infinity", entry)
    is_final = entry.get("is_final", True)
    _check(isinstance(is_final, bool), "'is_final'", "true or false", entry)
    sha256 = _sha256("'sha256'", entry.get("sha256"))
    excess = entry.get("excess")
    if excess is not None:
        _check(isinstance(excess, list), "'excess'", "a list, or null", excess)
        excess = [_number("'excess'", x) for x in excess]
    record = Record(
        entry["iteration"], log_weight, energy, log_rate, is_final, sha256, excess
    )
    # Any other name might lead out of the folder, or to a file of another kind.
    _check(entry["file"] == file_of(record), "'file'", repr(file_of(record)), entry)
    return record


def _shape(value: float | list[float] | None) -> tuple[int, ...]:
    """Return (chains,) for a list, and () for what stands for all chains."""
    return (len(value),) if isinstance(value, list) else ()


def _check(is_right: bool | np.bool_, name: str, wanted: str, found: object) -> None:
    if not is_right:
        raise ValueError(f"{name} must be {wanted}. Received: {str(found)[:200]}")


def _is_count(value: object) -> bool:
    return type(value) is int and 1 <= value <= _LARGEST


def _sha256(name: str, value: Any) -> str | None:
    """Check a checksum. Older manifests have none."""
    is_text = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    _check(value is None or is_text, name, "64 hexadecimal digits, or null", value)
    return value if is_text else None


def _number(name: str, value: Any) -> float:
    _check(type(value) in (int, float), name, "a number", value)
    return float(value)


def _numbers(name: str, value: Any) -> float | list[float]:
    """Return a number, or a list with one number for each chain."""
    if not isinstance(value, list):
        return _number(name, value)
    _check(len(value) > 0, name, "a number, or a list of numbers", value)
    return [_number(name, x) for x in value]


def _is_signature(weight: object) -> bool:
    if not isinstance(weight, list) or len(weight) != 3:
        return False
    name, shape, dtype = weight
    return (
        isinstance(name, str)
        and isinstance(shape, list)
        and all(type(size) is int and size >= 0 for size in shape)
        and isinstance(dtype, str)
    )
