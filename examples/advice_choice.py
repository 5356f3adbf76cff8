"""What the methods of `advice.py` choose from, and which setting each one takes."""

import itertools
import json
import math
from pathlib import Path
from typing import NamedTuple

from advice_problems import PROBLEMS

SEED = 1000  # of the runs that choose; those that are scored have 0, 1, ...


def grid(**values):
    """All combinations, as dicts."""
    return [
        dict(zip(values, row, strict=True))
        for row in itertools.product(*values.values())
    ]


class Method(NamedTuple):
    """The settings to choose from; which prediction counts; how many networks."""

    settings: list
    is_ensemble: bool = True
    runs: int = 1
    kin: str | None = None  # the method whose runs serve for the choice


TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)
PRIORS = (1.0, 2.0)
METHODS = {
    "SGD": Method(grid(rate=(0.01, 0.03, 0.1), decay=(0.0, 1e-3)), False),
    "SGD, mean": Method([], kin="SGD"),
    "Adam": Method(grid(rate=(3e-4, 1e-3, 3e-3, 1e-2), decay=(0.0, 0.1)), False),
    "4 Adam": Method([], runs=4, kin="Adam"),
    "SGHMC": Method(grid(rate=(0.03, 0.1), temperature=TEMPERATURES, prior=PRIORS)),
    "PSGLD": Method(
        grid(rate=(0.001, 0.005), temperature=TEMPERATURES[1:], prior=(1.0, 2.0))
    ),
    "CSGHMC": Method(
        grid(rate=(0.03, 0.1), temperature=(0.3, 0.1, 0.03), prior=(1.0,))
    ),
    "RSGLD": Method(grid(rate=(0.1, 0.2, 0.5))),
    "CMINT": Method(grid(rate=(0.2, 0.4))),
    "SGHMC-SA": Method(grid(rate=(0.03, 0.1), temperature=(1.0, 0.1), spike=(1e-2,))),
}
NOISE = (0.05, 0.1, 0.2)  # of a regression's targets, in their standard deviations


def settings_of(problem, method):
    """The settings to choose from. A regression has the size of the noise as well."""
    found = METHODS[METHODS[method].kin or method].settings
    if PROBLEMS[problem].kind == "images" or method == "SGHMC-SA":
        return found
    return [{**setting, "noise": noise} for setting in found for noise in NOISE]


def counted_nll(method, row):
    """The score that chooses. A run that diverged has none."""
    scores = row.get("ensemble" if METHODS[method].is_ensemble else "last")
    nll = math.inf if scores is None else scores["nll"]
    return nll if math.isfinite(nll) else math.inf


class Rows:
    """The rows of the file, and how to get one that is missing."""

    def __init__(self, path):
        self._path = Path(path)
        text = self._path.read_text() if self._path.exists() else ""
        self._rows = {}
        for line in text.splitlines():
            row = json.loads(line)
            self._rows[self._key(row)] = row

    @staticmethod
    def _key(row):
        names = ("problem", "method", "setting", "seed")
        return json.dumps([row[name] for name in names], sort_keys=True)

    def find(self, problem, method, setting, seed):
        """The row, or None."""
        row = {"problem": problem, "method": method, "setting": setting, "seed": seed}
        return self._rows.get(self._key(row))

    def add(self, row):
        """Write a row."""
        self._rows[self._key(row)] = row
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def choose(rows, problem, method):
    """The setting with the lowest NLL on the held-out data, or None if one lacks."""
    kin = METHODS[method].kin or method
    if METHODS[method].runs > 1:
        method = kin  # an ensemble of several takes the settings of one
    best = None
    for setting in settings_of(problem, kin):
        row = rows.find(problem, kin, setting, SEED)
        if row is None:
            return None
        if best is None or counted_nll(method, row) < counted_nll(method, best):
            best = row
    return best["setting"]
