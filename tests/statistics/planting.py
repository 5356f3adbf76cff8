"""How bugs are planted into the package, one at a time: `BUGS` has all of them.

A bug is a function of pytest's `monkeypatch`, which undoes it. It has to be planted
before the optimizer is made, since the step is compiled once. The files
`bugs_of_*.py` enter theirs.
"""

from collections.abc import Callable
from typing import NamedTuple


class Bug(NamedTuple):
    """A planted bug."""

    plant: Callable
    where: str
    # (sampler, target): the first is that of the short form.
    cells: tuple
    kind: str  # such as "sign" or "stale value"
    is_short: bool = False  # whether it is the one of its kind in the short form
    is_subtle: bool = False  # whether it takes a longer run to be caught


BUGS = {}


def bug(name, where, *cells, **options):
    """Enters a bug into the table."""

    def enter(plant):
        BUGS[name] = Bug(plant, where, cells, **options)
        return plant

    return enter


def scaled(tensors, factor):
    return [factor * x for x in tensors]


def wrap(monkeypatch, owner, name, around):
    """Puts `around(real, *args, **options)` in the place of a function."""
    real = getattr(owner, name)

    def wrapped(*args, **options):
        return around(real, *args, **options)

    monkeypatch.setattr(owner, name, wrapped)
