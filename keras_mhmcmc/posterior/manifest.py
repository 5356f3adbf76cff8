"""`manifest.json`, the list of a folder's samples: what it may hold, nothing else."""

import json
from typing import NamedTuple

import numpy as np

from keras_mhmcmc.posterior.store import Record

FORMAT = 1
NAME = "manifest.json"
_LARGEST = 2**63 - 1


class Manifest(NamedTuple):
    """Samples in the order in which they were kept, and the weights that each has."""

    signature: list  # of each weight its name, shape and type
    records: list


def file_of(record):
    """Name of the file that holds a sample."""
    return f"sample-{record.iteration:010d}.h5"


def text_of(manifest):
    """The manifest as JSON."""
    content = {
        "format": FORMAT,
        "weights": manifest.signature,
        "samples": [
            {"file": file_of(record), **record._asdict()} for record in manifest.records
        ],
    }
    return json.dumps(content, indent=1)


def read(path):
    """The manifest in a file.

    Raises:
        ValueError: the file is none, or one of a newer version.
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


def _parsed(content):
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
            one.iteration < other.iteration, "'samples'", "in their order", iterations
        )
        shapes = [np.shape(one.energy), np.shape(other.energy)]
        _check(shapes[0] == shapes[1], "'energy'", "of as many chains each", shapes)
    return Manifest(weights, records)


def _record(entry):
    _check(isinstance(entry, dict), "each of 'samples'", "an object", entry)
    _check(_is_count(entry["iteration"]), "'iteration'", "an integer from 1", entry)
    energy = entry.get("energy")
    record = Record(
        entry["iteration"],
        _floats("'log_weight'", entry["log_weight"]),
        None if energy is None else _floats("'energy'", energy),
        _floats("'log_rate'", entry.get("log_rate", 0.0)),
        entry.get("is_final", True),
    )
    # One weight may stand for those of all chains.
    is_alike = np.shape(record.log_weight) in ((), np.shape(record.energy))
    _check(is_alike, "'log_weight'", "of as many chains as 'energy'", entry)
    # No other name: none can lead out of the folder, or to a file of another kind.
    _check(entry["file"] == file_of(record), "'file'", repr(file_of(record)), entry)
    for name in ("log_weight", "log_rate"):
        is_weight = (np.array(getattr(record, name)) < np.inf).all()
        _check(is_weight, repr(name), "below infinity", entry)
    _check(isinstance(record.log_rate, float), "'log_rate'", "a number", entry)
    _check(isinstance(record.is_final, bool), "'is_final'", "true or false", entry)
    return record


def _check(is_right, name, wanted, found):
    if not is_right:
        raise ValueError(f"{name} must be {wanted}, and not {str(found)[:200]}")


def _is_count(value):
    return type(value) is int and 1 <= value <= _LARGEST


def _floats(name, value):
    """A number, or a list with one for each chain."""
    numbers = value if isinstance(value, list) else [value]
    is_right = len(numbers) > 0 and all(type(x) in (int, float) for x in numbers)
    _check(is_right, name, "a number, or a list of numbers", value)
    floats = [float(x) for x in numbers]
    return floats if isinstance(value, list) else floats[0]


def _is_signature(weight):
    if not isinstance(weight, list) or len(weight) != 3:
        return False
    name, shape, dtype = weight
    return (
        isinstance(name, str)
        and isinstance(shape, list)
        and all(type(size) is int and size >= 0 for size in shape)
        and isinstance(dtype, str)
    )
