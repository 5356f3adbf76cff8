"""`LearningRateTable`: what short runs at several learning rates showed."""

from collections.abc import Sequence

import numpy as np

from keras_mhmcmc import _table

# Verdicts.
PASSES = "passes"
TOO_SLOW = "too slow"
FALLS_TOO_LITTLE = "falls too little"
DOES_NOT_FALL = "does not fall"
REJECTS = "moves rejected"
NOT_FINITE = "not finite"

_HEADS = {
    "learning_rate": "learning rate",
    "start": "start",
    "end": "end",
    "acceptance": "accepted",
    "verdict": "verdict",
}
_LARGEST_PLAIN = 1e5  # a larger number is printed with an exponent


class LearningRateTable(_table.ColumnTable):
    """Short runs at several learning rates, with a row for each, the lowest first.

    | column | holds |
    |---|---|
    | `learning_rate` | the rate |
    | `start` | energy per example of the first weights |
    | `end` | mean energy per example of the judged steps |
    | `acceptance` | share of accepted forward moves, NaN if none can be rejected |
    | `verdict` | "passes", or why the rate does not pass |

    The energy per example is the mean loss. A sampler adds minus the log prior over
    `train_size`, up to a constant. A Metropolis-Hastings sampler reports the states of
    its chain. The verdicts are "passes", "too slow" (below the best rate, the energy
    fell less than half as far), "falls too little" (the same above the best rate),
    "does not fall", "moves rejected" and "not finite".

    Args:
        rows: list of at least one dict with these keys, in the order of the rates.
        optimizer: name of the optimizer.
        measure: what `start` and `end` are, "loss" or "energy per example".
    """

    def __init__(
        self, rows: Sequence[_table.Row], optimizer: str, measure: str
    ) -> None:
        self.rows = list(rows)
        self.optimizer = optimizer
        self.measure = measure

    @property
    def rate(self) -> float | None:
        """The suggestion: the largest rate that passes. None if no rate passes."""
        rates = self.column("learning_rate")[self.column("verdict") == PASSES]
        return float(rates.max()) if rates.size else None

    @property
    def advice(self) -> str:
        """What to do, in a sentence or two."""
        verdicts = self.column("verdict")
        if self.rate is not None:
            advice = f"Begin at {self.rate:g} or below, the largest rate that passes."
            if self.rate == self.rows[-1]["learning_rate"]:
                advice += " No larger one was tried: add larger `rates`."
            return advice
        if REJECTS in verdicts:
            remedy = "Add smaller `rates`, or raise the temperature."
        elif DOES_NOT_FALL in verdicts:
            remedy = (
                "Raise `steps`, add other `rates`, or begin with weights that are not "
                "trained yet."
            )
        else:
            remedy = "Add smaller `rates`, and look for such values in the data."
        found = ", ".join(dict.fromkeys(verdicts))
        return f"No rate passes ({found}). {remedy}"

    def _printed(self) -> _table.Printed:
        rejects = not np.isnan(self.column("acceptance")).all()
        names = [name for name in _HEADS if rejects or name != "acceptance"]
        lines = [[_HEADS[name] for name in names]]
        rates = [f"{row['learning_rate']:g}" for row in self.rows]
        width = max(map(len, [*rates, lines[0][0]]))
        for row, rate in zip(self.rows, rates, strict=True):
            cells = [_shown(row[name]) for name in names[1:-1]]
            lines.append([rate.rjust(width), *cells, row["verdict"]])
        caption = f"{self.optimizer}, {self.measure} before and after a short run"
        return _table.Printed(lines, above=caption, below=[self.advice])


def _shown(value: float) -> str:
    return f"{value:.2e}" if abs(value) >= _LARGEST_PLAIN else _table.number(value)
