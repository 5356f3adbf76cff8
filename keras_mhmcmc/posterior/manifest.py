"""`manifest.json`, the list of a folder's samples: its contents and their checks."""

import json
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import PathLike
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Run

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


def read(path: PathLike) -> Manifest:
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
    if (version := _entry(content, "format")) > FORMAT:
        raise ValueError(
            f"it has format {version}, newer than {FORMAT}; update keras_mhmcmc"
        )
    records = []
    for sample in _entry(content, "samples"):
        records.append(record := Record(*_entries(Record, sample)))
        # Any other name might lead out of the folder, or to a file of another kind.
        name, file = file_of(record), sample["file"]
        _check(file == name, "'file'", repr(name), file)
        # A single weight may stand for the weights of all chains.
        is_alike = np.shape(record.log_weight) in ((), _chains(record))
        _check(is_alike, "'log_weight'", "for as many chains as 'energy'", sample)
    numbers = [record.iteration for record in records]
    is_ascending = numbers == sorted(set(numbers))
    _check(is_ascending, "'samples'", "in ascending order of 'iteration'", numbers)
    chains = set(map(_chains, records))
    _check(len(chains) < 2, "'energy'", "for the same chains in all samples", chains)
    run = Run(*_entries(Run, content.get("run", {})))
    return Manifest(_entry(content, "weights"), records, run)


def _entries(kind: type[Record] | type[Run], owner: Any) -> list[Any]:
    """Return the fields of a record or a run. Older manifests lack some of them."""
    _check(isinstance(owner, dict), "each sample, and 'run',", "an object", owner)
    given = kind._field_defaults | owner
    unknown = [n for n, default in kind._field_defaults.items() if default is None]
    return [
        None if name in unknown and given[name] is None else _entry(given, name)
        for name in kind._fields
    ]


def _entry(owner: dict[str, Any], name: str) -> Any:
    wanted, is_right = _ENTRIES[name]
    _check(is_right(owner[name]), repr(name), wanted, owner[name])
    return owner[name]


def _check(is_right: bool, name: str, wanted: str, found: object) -> None:
    if not is_right:
        raise ValueError(f"{name} must be {wanted}. Received: {str(found)[:200]}")


def _chains(record: Record) -> tuple[int, ...]:
    return () if record.energy is None else np.shape(record.energy)


def _is_integer(value: object, low: int) -> bool:
    return type(value) is int and low <= value <= _LARGEST


def _are_numbers(value: Any) -> bool:
    """Return whether it is a number, or a list with one for each chain."""
    values = value if isinstance(value, list) else [value]
    are_right = [type(x) is float or _is_integer(x, -_LARGEST) for x in values]
    return len(values) > 0 and all(are_right)


def _are_logs(value: Any) -> bool:
    return _are_numbers(value) and bool(np.all(np.less(value, np.inf)))


def _is_weight(value: Any) -> bool:
    if not isinstance(value, list) or list(map(type, value)) != [str, list, str]:
        return False
    return all(_is_integer(size, 0) for size in value[1])


# What each entry must be, in words and as a check.
_ENTRIES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "format": ("an integer from 1", lambda x: _is_integer(x, 1)),
    "weights": (
        "a list of [name, shape, type]",
        lambda x: isinstance(x, list) and all(map(_is_weight, x)),
    ),
    "samples": ("a list", lambda x: isinstance(x, list)),
    "iteration": ("an integer from 1", lambda x: _is_integer(x, 1)),
    "log_weight": ("a number below infinity, or a list of them", _are_logs),
    "energy": ("a number, or a list of them", _are_numbers),
    "log_rate": ("a number below infinity", lambda x: np.ndim(x) == 0 and _are_logs(x)),
    "is_final": ("true or false", lambda x: isinstance(x, bool)),
    "excess": ("a list of numbers", lambda x: isinstance(x, list) and _are_numbers(x)),
    "seed": ("an integer from 0", lambda x: _is_integer(x, 0)),
    "sampler": ("a name", lambda x: isinstance(x, str)),
    "arguments": ("an object", lambda x: isinstance(x, dict)),
    "chains": ("an integer from 1", lambda x: _is_integer(x, 1)),
}
