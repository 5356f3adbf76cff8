"""The compiled step of MINTEE: a ladder of chains, from the hottest to the coldest.

`RingTable` shows the energies that the chains visited, and how they moved.

Shapes: K temperatures, C independent ladders, n examples. A chain axis has length C.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _table
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import ladders
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import of_levels
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.starts import Start

tree = keras.tree

_MOVES = ("accepted", "proposed", "jump_accepted", "jump_proposed")
COUNTS = (*_MOVES, "refresh_accepted", "refresh_proposed", "nonfinite")

# Uniforms of one chain and step. The uniforms of its mini-batch follow.
_ACCEPT, _JUMP, _MEMBER, _RESERVOIR, _REFRESH = range(5)
_OWN_UNIFORMS = 5


class Settings(NamedTuple):
    """The settings of a ladder. Lists have K numbers, the coldest chain's first."""

    batch_sizes: list[int]
    temperatures: list[float]
    levels: list[float]  # H_k, nats above minus the reference's log-likelihood
    starts: list[int]  # the step at which each chain starts
    step_sizes: list[float]  # before their adaptation
    burn_in: int
    capacity: int  # of a ring
    jump_probability: float
    target_acceptance: tuple[float, float]
    keep_all: bool


class LevelState(NamedTuple):
    """The C chains of one temperature."""

    position: Position
    gradient: Position  # of V_k(h_k)/T_k
    energy: Tensor  # h_k, nats above minus the reference's log-likelihood, (C,)
    hotter: Tensor  # h_{k+1} at the same position and order, (C,)
    order: Tensor  # uniforms that determine the order of the data, (rounds, C)
    step_size: Tensor  # (C,)
    window_accepted: Tensor  # local moves in the window of the adaptation, (C,)
    window_proposed: Tensor  # (C,)


class Ring(NamedTuple):
    """Past states of one temperature, by energy. The last slot is never read."""

    position: Position  # (C, K, capacity + 1, ...)
    order: Tensor  # (C, K, capacity + 1, rounds)


# The chains, coldest first; the rings of all chains but the coldest; how many states
# each ring received, int32 (K, C, K).
State = tuple[list[LevelState], list[Ring], Tensor]
# The normals (C, ...) and the uniforms (uniforms, C) of one temperature.
Noise = tuple[list[Tensor], Tensor]


class Ladder:
    """C ladders of K chains, a program for the compiled loop."""

    counts: tuple[str, ...] = COUNTS
    fuse = False  # XLA takes minutes for a ladder on TensorFlow

    def __init__(
        self, target: LogDensity, start: Start, settings: Settings, each: Tensor
    ) -> None:
        self.settings, self._start = settings, start
        self.constants = [*target.constants, each]
        self._shapes = shapes = start.shapes
        self.num_chains = shapes[0][0]
        self.size = len(settings.batch_sizes)
        recorded = self.size if settings.keep_all else 1
        self.record_size = recorded * sum(math.prod(shape) for shape in shapes)
        self._target = target
        self._train_size = target.train_size or 1
        self._rounds = batches.num_rounds(self._train_size)
        self._structure = start.structure
        # The coldest chain is not truncated.
        self._floors = [-1e38, *settings.levels[1:]]

    def check(self, state: State) -> None:
        """Accept every state."""

    def init(self) -> State:
        """Return the state before the first step. All chains start at one position."""
        position = self._start.position
        zeros = ops.zeros((self.num_chains,), "float32")
        order = ops.zeros((self._rounds, self.num_chains), "float32")
        gradient = [ops.zeros_like(x) for x in position]
        here = list(position), gradient, zeros, zeros, order
        chains = [
            LevelState(*here, zeros + step, zeros, zeros)
            for step in self.settings.step_sizes
        ]
        slots = (self.num_chains, self.size, self.settings.capacity + 1)
        rings = [
            Ring(
                [ops.zeros((*slots, *x.shape[1:]), "float32") for x in position],
                ops.zeros((*slots, self._rounds), "float32"),
            )
            for _ in range(self.size - 1)
        ]
        visits = ops.zeros((self.size, self.num_chains, self.size), "int32")
        return chains, rings, visits

    def noise(self, seed: Tensor, number: Tensor) -> Noise:
        """Return the noise of a step.

        It has normals (K, C, ...) and uniforms (K, uniforms, C) of all chains.
        """
        shapes = [(self.size, *shape) for shape in self._shapes]
        uniforms = (self.size, _OWN_UNIFORMS + self._rounds, self.num_chains)
        return _backend.draw(seed, number, shapes, uniforms)

    def step(
        self, state: State, constants: list[Tensor], noise: Noise, number: Tensor
    ) -> tuple[State, list[Tensor], list[Tensor]]:
        """Return the next state, what to record, and counts (K, C)."""
        normals, uniforms = noise
        chains, rings = list(state[0]), list(state[1])
        visits = list(ops.unstack(state[2]))
        counts: list[list[Tensor]] = [[]] * self.size
        for k in reversed(range(self.size)):
            own = ([x[k] for x in normals], uniforms[k])
            source = (rings[k], visits[k + 1]) if k + 1 < self.size else None
            move = functools.partial(
                self._move, k, source=source, noise=own, constants=constants
            )
            zeros = [ops.zeros((self.num_chains,), "float32") for _ in COUNTS]
            # A chain waits until its start.
            chains[k], counts[k] = _backend.when(
                number >= self.settings.starts[k],
                lambda values, move=move: move(values[0], number=number),
                (chains[k], zeros),
            )
            collects = number >= self.settings.starts[k] + self.settings.burn_in
            collects = ops.cast(collects, "bool")
            ring = ladders.ring_index(chains[k].energy, self.settings.levels)
            if k > 0:
                rings[k - 1] = self._keep(
                    rings[k - 1], chains[k], visits[k], ring, collects, uniforms[k]
                )
            came = ops.one_hot(ring, self.size, dtype="int32")
            visits[k] = visits[k] + came * ops.cast(collects, "int32")
        kept = chains if self.settings.keep_all else chains[:1]
        records = [
            ops.concatenate(leaf)
            for leaf in zip(*(c.position for c in kept), strict=True)
        ]
        records.append(ops.concatenate([c.energy for c in kept]))
        sums = [ops.stack(values) for values in zip(*counts, strict=True)]
        return (chains, rings, ops.stack(visits)), records, sums

    def _move(
        self,
        k: int,
        chain: LevelState,
        source: tuple[Ring, Tensor] | None,
        noise: Noise,
        constants: list[Tensor],
        number: Tensor,
    ) -> tuple[LevelState, list[Tensor]]:
        """Return chain k after a step, and counts.

        `source` has the ring of chain k + 1 and its visits; None for the hottest chain.
        """
        settings = self.settings
        normals, uniforms = noise
        first = ops.cast(number == settings.starts[k], "bool")
        first = first & ops.ones((self.num_chains,), "bool")

        # Propose a local move on the same batch, the same position on another batch, or
        # a member of a ring. A batch of all the data needs no refreshing.
        scales = ladders.proposal_scales(chain.step_size)
        point = proposals.langevin(chain.position, chain.gradient, normals, scales)
        order = uniforms[-self._rounds :]
        refreshes = jumps = ops.zeros_like(first)
        if settings.batch_sizes[k] < self._train_size:
            refreshes = uniforms[_REFRESH] < ladders.REFRESH
            order = ops.where(refreshes | first, order, chain.order)
        point = tensors.select(first | refreshes, chain.position, point)
        if source is not None:
            jumps, member, member_order = self._member(chain, source, uniforms)
            jumps = jumps & ~first
            refreshes = refreshes & ~jumps
            point = tensors.select(jumps, member, point)
            order = ops.where(jumps, member_order, order)

        energy, gradient, hotter = self._evaluate(k, point, order, constants)
        gradient = ladders.tempered_gradient(
            gradient, energy, self._floors[k], settings.temperatures[k]
        )

        # Accept or reject it.
        delta = tensors.subtract(point, chain.position)
        log_q_ratio = proposals.langevin_log_ratio(
            delta, chain.gradient, gradient, scales
        )
        log_q_ratio = ops.where(refreshes, 0.0, log_q_ratio)
        log_ratio = ladders.local_log_ratio(
            chain.energy, energy, self._floors[k], settings.temperatures[k], log_q_ratio
        )
        if source is not None:
            jump_log_ratio = ladders.jump_log_ratio(
                chain.energy,
                energy,
                chain.hotter,
                hotter,
                self._floors[k : k + 2],
                settings.temperatures[k : k + 2],
            )
            log_ratio = ops.where(jumps, jump_log_ratio, log_ratio)
        squares = tensors.sum_squares(gradient, like=energy)
        finite = ops.isfinite(energy) & ops.isfinite(squares) & ops.isfinite(log_ratio)
        accepted = (finite & (ops.log(uniforms[_ACCEPT]) < log_ratio)) | first

        is_local = ~jumps & ~first & ~refreshes
        events = [
            accepted & is_local,
            is_local,
            accepted & jumps,
            jumps,
            accepted & refreshes & ~first,
            refreshes & ~first,
            ~finite & ~first,
        ]
        counts = [ops.cast(event, "float32") for event in events]
        adapts = ops.cast(number < settings.starts[k] + settings.burn_in, "float32")
        window = (
            chain.window_accepted + adapts * counts[0],
            chain.window_proposed + adapts * counts[1],
        )
        step_size, ended = ladders.adapted_step_size(
            chain.step_size, *window, settings.target_acceptance
        )
        chain = LevelState(
            tensors.select(accepted, point, chain.position),
            tensors.select(accepted, gradient, chain.gradient),
            ops.where(accepted, energy, chain.energy),
            ops.where(accepted, hotter, chain.hotter),
            ops.where(accepted, order, chain.order),
            step_size,
            *(ops.where(ended, 0.0 * count, count) for count in window),
        )
        return chain, counts

    def _evaluate(
        self, k: int, point: Position, order: Tensor, constants: list[Tensor]
    ) -> tuple[Tensor, Position, Tensor]:
        """Return h_k, its gradient, and h_{k+1} on the same order.

        Energies are nats above minus the reference's log-likelihood, (C,).
        """
        sizes, n = self.settings.batch_sizes, self._train_size
        hotter_size = sizes[k + 1] if k + 1 < self.size else 1
        whole = sizes[k] == n
        indices = batches.draw_batches(order, n, hotter_size if whole else sizes[k])

        def energy(
            position: Position, extra: list[Tensor], constants: list[Tensor]
        ) -> tuple[Tensor, list[Tensor]]:
            position = tree.pack_sequence_as(self._structure, position)
            *data, reference = constants
            each = self._target.log_likelihoods(position, [] if whole else extra, data)
            if whole:
                each = each - reference
                (few,) = _backend.gather([each], extra[0])
            else:
                each = each - _backend.gather([reference], extra[0])[0]
                few = each[:hotter_size]
            log_prior = self._target.log_prior(position)
            # The second energy decides on jumps alone and needs no gradient.
            return -n * ops.mean(each) - log_prior, [-n * ops.mean(few) - log_prior]

        evaluate = _backend.map_chains(energy, constants, True, True)
        value, gradient, (hotter,) = evaluate(point, [indices])
        return value, gradient, hotter

    def _member(
        self, chain: LevelState, source: tuple[Ring, Tensor], uniforms: Tensor
    ) -> tuple[Tensor, Position, Tensor]:
        """Return which chains jump, and a member of the hotter ring for each chain.

        The results are bool (C,), a position (C, ...), and its order (rounds, C).
        """
        ring, visits = source
        levels, capacity = self.settings.levels, self.settings.capacity
        index = ladders.ring_index(chain.hotter, levels)
        count = ops.sum(visits * ops.one_hot(index, self.size, dtype="int32"), axis=1)
        slot = ladders.member_slot(count, capacity, uniforms[_MEMBER])
        numbers = ops.arange(self.num_chains, dtype="int32")
        row = (numbers * self.size + index) * (capacity + 1) + slot

        def pick(x: Tensor) -> Tensor:
            return ops.take(ops.reshape(x, (-1, *x.shape[3:])), row, axis=0)

        jumps = (uniforms[_JUMP] < self.settings.jump_probability) & (count > 0)
        return jumps, [pick(x) for x in ring.position], ops.transpose(pick(ring.order))

    def _keep(
        self,
        store: Ring,
        chain: LevelState,
        visits: Tensor,
        ring: Tensor,
        collects: Tensor,
        uniforms: Tensor,
    ) -> Ring:
        """Return the store with the chains' states, if the reservoir takes them."""
        capacity = self.settings.capacity
        count = ops.sum(visits * ops.one_hot(ring, self.size, dtype="int32"), axis=1)
        slot = ladders.reservoir_slot(count, capacity, uniforms[_RESERVOIR])
        slot = ops.where(collects, slot, capacity)
        numbers = ops.arange(self.num_chains, dtype="int32")
        where = ops.stack([numbers, ring, ops.cast(slot, "int32")], axis=1)
        return Ring(
            [
                ops.scatter_update(old, where, new)
                for old, new in zip(store.position, chain.position, strict=True)
            ],
            ops.scatter_update(store.order, where, ops.transpose(chain.order)),
        )


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

    def _printed(self) -> _table.Printed:
        last = len(self.rows) - 1
        rings = [f"[H{j},H{j + 1})" for j in range(1, last)]
        head = ["chain", "T", "m", "step", "accept", "jump", "<H1", *rings]
        head.append(f">=H{last}")
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
    arrays = list(outcome.arrays or ())
    if not arrays:  # no draw
        rows_of = [*(shape[1:] for shape in state.shapes), ()]
        arrays = [np.empty((kept * chains, 0, *row), "float32") for row in rows_of]
    arrays[-1] = arrays[-1] + np.float64(base)
    infos = [info] * kept
    interrupted = outcome.interrupted
    return of_levels(arrays, infos, state, interrupted, (), RingTable(rows))


def _share(part: Array, whole: Array) -> Array:
    """Return part / whole, NaN where `whole` is 0."""
    whole = np.broadcast_to(np.asarray(whole, "float64"), np.shape(part))
    return np.divide(part, whole, where=whole > 0, out=np.full(np.shape(part), np.nan))
