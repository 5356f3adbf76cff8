"""`RingTable`: the energies that the chains of MINTEE visited, and how they moved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _table
from keras_mhmcmc._types import Array
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.ladder import Ladder

if TYPE_CHECKING:
    import pandas

tree = keras.tree


class RingTable(_table.PrintedTable):
    """A table with a row for each chain of `mh.equi_energy`, the coldest first.

    `print` shows the table. Independent ladders share a row.

    Args:
        rows: list of dicts. `chain` is the number of the chain, k. `temperature`,
            `batch_size`, `step_size` and `level`, H_k in nats, are its settings.
            `acceptance` is the share of accepted local moves, `jump_acceptance` the
            share of accepted jumps; NaN if none was proposed. `ring 0`, `ring 1` and so
            on are the shares of its states after the burn-in with an energy below H_1,
            in [H_1, H_2) and so on.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

    @property
    def shares(self) -> Array:
        """Share of each chain's states in each ring, shape (K, K)."""
        rings = range(len(self.rows))
        return np.array([[row[f"ring {j}"] for j in rings] for row in self.rows])

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table as a `pandas.DataFrame`.

        Raises:
            ImportError: pandas is not installed.
        """
        return _table.data_frame(self.rows)

    def _printed(self) -> _table.Printed:
        last = len(self.rows) - 1
        rings = [f"[H{j},H{j + 1})" for j in range(1, last)]
        head = [
            "chain",
            "T",
            "m",
            "step",
            "accept",
            "jump",
            "<H1",
            *rings,
            f">=H{last}",
        ]
        lines = [head]
        for row, shares in zip(self.rows, self.shares, strict=True):
            lines.append(
                [
                    str(row["chain"]).rjust(len(head[0])),
                    f"{row['temperature']:.2f}",
                    str(row["batch_size"]),
                    f"{row['step_size']:.3g}",
                    f"{row['acceptance']:.2f}",
                    f"{row['jump_acceptance']:.2f}",
                    *(f"{100 * share:.1f}%" for share in shares),
                ]
            )
        return _table.Printed(lines)


def collected(
    outcome: loop.Outcome,
    ladder: Ladder,
    state: ChainState,
    levels: Sequence[float],
    base: float,
) -> Draws:
    """Return the `Draws` of a run."""
    settings, chains = ladder.settings, ladder.num_chains
    states, _, visits = outcome.state
    counts = {
        name: np.zeros((chains, ladder.size)) + np.transpose(value)
        for name, value in outcome.counts.items()
    }
    info = {
        "acceptance": _share(counts["accepted"], counts["proposed"]),
        "jump_acceptance": _share(counts["jump_accepted"], counts["jump_proposed"]),
        "refresh_acceptance": _share(
            counts["refresh_accepted"], counts["refresh_proposed"]
        ),
        "nonfinite": counts["nonfinite"],
        "step_sizes": np.stack(
            [ops.convert_to_numpy(chain.step_size) for chain in states], axis=1
        ),
        "temperatures": np.array(settings.temperatures),
        "batch_sizes": np.array(settings.batch_sizes),
        "energy_levels": np.array(levels),
    }
    totals = {name: value.sum(axis=0) for name, value in counts.items()}
    visits = ops.convert_to_numpy(visits).sum(axis=1)
    shares = _share(visits, visits.sum(axis=1, keepdims=True))
    acceptance = _share(totals["accepted"], totals["proposed"])
    jumps = _share(totals["jump_accepted"], totals["jump_proposed"])
    rows = [
        {
            "chain": k,
            "temperature": settings.temperatures[k],
            "batch_size": settings.batch_sizes[k],
            "level": levels[k],
            "step_size": float(info["step_sizes"][:, k].mean()),
            "acceptance": float(acceptance[k]),
            "jump_acceptance": float(jumps[k]),
            **{f"ring {j}": float(share) for j, share in enumerate(shares[k])},
        }
        for k in range(ladder.size)
    ]
    kept = ladder.size if settings.keep_all else 1
    arrays = outcome.arrays
    if arrays is None:  # no draw
        rows_of = [*(shape[1:] for shape in state.shapes), ()]
        arrays = [np.empty((kept * chains, 0, *row), "float32") for row in rows_of]
    draws = []
    for k in range(kept):
        *position, energy = [x[k * chains : (k + 1) * chains] for x in arrays]
        draws.append(
            Draws(
                tree.pack_sequence_as(state.structure, position),
                None,
                {"energy": energy + np.float64(base), **info},
                state,
                outcome.interrupted,
                rings=RingTable(rows),
            )
        )
    if settings.keep_all:
        draws[0].levels = tuple(draws)
    return draws[0]


def _share(part: Array, whole: Array) -> Array:
    """Return part / whole, NaN where `whole` is 0."""
    whole = np.broadcast_to(np.asarray(whole, "float64"), np.shape(part))
    return np.divide(part, whole, where=whole > 0, out=np.full(np.shape(part), np.nan))
