"""What a `BayesianEnsemble` tried, what it chose, and what that gained."""

from dataclasses import dataclass
from dataclasses import field
from typing import Any

from keras_mhmcmc import _table

_NAMES = ("phase", "setting", "networks", "nll", "gain", "error", "steps", "seconds")


@dataclass(repr=False)
class Report(_table.PrintedTable):
    """One row for each set of networks that the held-out examples have scored.

    `rows` is a list of dicts. "nll" is the mean negative log-likelihood of the mixture
    on the held-out examples, in nats. "gain" is how far it is below that of the trained
    members, and "error" the standard error of this difference.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **row: Any) -> dict[str, Any]:
        """Add a row, and return it; columns that it lacks are empty."""
        self.rows.append({name: row.get(name) for name in _NAMES})
        return self.rows[-1]

    def _printed(self) -> _table.Printed:
        lines: list[tuple[str, ...]] = [_NAMES]
        for row in self.rows:
            cells = [row["phase"], row["setting"] or "", str(row["networks"] or "")]
            cells += [_table.number(row[name]) for name in ("nll", "gain", "error")]
            seconds = row["seconds"]
            cells += [str(row["steps"] or ""), f"{seconds or 0.0:.1f}"]
            lines.append(tuple(cells))
        above = "Nats of held-out examples; lower is better"
        return _table.Printed(lines, (0,), above, self.notes)
