"""MINTEE: a ladder of truncated, tempered mini-batch chains with equi-energy jumps.

Papers: Li and Wong (2017), "Mini-batch tempered MCMC", section 5.2, appendix D and
algorithm 2; Kou, Zhou and Wong (2006), "Equi-energy sampler with applications in
statistical inference and statistical mechanics".

Target: chain k = 0..K-1 has the temperature T_k, 1 = T_0 < ... < T_{K-1}, the batch
size m_k, n = m_0 > ... > m_{K-1}, and the energy level H_k. Position and order together
have the density

    pi_k(theta, I) = exp(-V_k(h_k(theta, I)) / T_k) nu(I),   V_k(h) = max(h, H_k)

with nu uniform, and h_k the energy estimated from the first m_k examples of I, a random
order of all of the data. Chain 0 takes all of the data, and samples exp(-h) exactly. It
is not truncated, as in the paper, where H_0 <= inf h.

Ladder, with alpha = 0.995 and c = 10 in the paper:

    m_k = gamma m_{k+1},   T_k = n / m_k^alpha for k > 0,   H_{k+1} = H_k + c T_k

Local move: a Langevin proposal with z standard normal and g = grad log pi_k, which is 0
where the energy is truncated. (The paper prints eps^2 z, a misprint.)

    theta' = theta + eps_k^2 / 2 g + eps_k z
    log r = (V_k(h) - V_k(h')) / T_k + log q(theta' -> theta) - log q(theta -> theta')

If m_k < n, a local move keeps the order I, where the paper draws a new batch. A share
`REFRESH` of the steps without a jump proposes a new order at the same theta instead,
and log r has no q. If m_k = n, a local move draws a new order, which changes no energy.

Jump: (theta', I') is a uniform member of ring j of chain k + 1, where j is the ring of
h_{k+1}(theta, I), the energy of the chain's own state at the batch size of chain k + 1,
H_j <= h_{k+1}(theta, I) < H_{j+1}. (The paper finds the ring by h_k.)

    log r = (V_k(h_k) - V_k(h_k')) / T_k
            - (V_{k+1}(h_{k+1}) - V_{k+1}(h_{k+1}')) / T_{k+1}

A ring keeps the order I' itself. So each energy has the batch of its own chain, where
the paper uses one energy for both temperatures, and the jump is exact on (theta, I).

Energies are differences from a reference, whose energy on all of the data is h_ref:

    h_k(theta, I) = h_ref + n / m_k sum (l_i(ref) - l_i(theta))
                    + log prior(ref) - log prior(theta)

with the sum over the first m_k examples of I.

Steps: after each window of proposals in the burn-in, eps_k is divided by 1.25 if the
acceptance was below the target range, and multiplied by 1.25 if it was above. After the
burn-in eps_k is fixed: the target of a chain that goes on adapting is not known.

| paper              | name                | shape           | unit            |
|--------------------|---------------------|-----------------|-----------------|
| I, ours            | `order`             | (rounds, C)     | 1               |
| h v H_k, here V_k  | `truncated`         | (C,)            | nats            |
| gamma              | `growth`            | float           | 1               |
| c                  | `spacing`           | float           | nats            |
| K                  | `size`              | int             | count           |
| C, ours            | `num_chains`        | int             | count           |
| p_ee               | `jump_probability`  | float           | 1               |
| D_j, I(theta) = j  | `ring_index`        | (C,)            | index           |
| -g                 | `tempered_gradient` | list of tensors | nats per weight |
| eps_k              | `step_size`         | (C,)            | weights         |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.mhbt import mint_temperature
from keras_mhmcmc.samplers.parts import batches
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

WINDOW = 50  # proposals between two changes of a step size
FACTOR = 1.25
TARGET_ACCEPTANCE = 0.2, 0.5  # lowest and highest share of accepted local moves
REFRESH = 0.3  # share of the steps without a jump that propose a new batch

_MOVES = ("accepted", "proposed", "jump_accepted", "jump_proposed")
COUNTS = (*_MOVES, "refresh_accepted", "refresh_proposed", "nonfinite")

# Uniforms of one chain and step. The uniforms of its mini-batch follow.
_ACCEPT, _JUMP, _MEMBER, _RESERVOIR, _REFRESH = range(5)
_OWN_UNIFORMS = 5


class LevelState(NamedTuple):
    """The C chains of one temperature."""

    position: base.Position
    gradient: base.Position  # of V_k(h_k)/T_k
    energy: Tensor  # h_k, nats above minus the reference's log-likelihood, (C,)
    hotter: Tensor  # h_{k+1} at the same position and order, (C,)
    order: Tensor  # uniforms that determine the order of the data, (rounds, C)
    step_size: Tensor  # (C,)
    window_accepted: Tensor  # local moves in the window of the adaptation, (C,)
    window_proposed: Tensor  # (C,)


class Ring(NamedTuple):
    """Past states of one temperature, by energy. The last slot is never read."""

    position: base.Position  # (C, K, capacity + 1, ...)
    order: Tensor  # (C, K, capacity + 1, rounds)


class State(NamedTuple):
    """The chains of all temperatures, coldest first."""

    chains: list[LevelState]
    rings: list[Ring]  # of all chains but the coldest
    visits: Tensor  # how many states each ring received, int32, (K, C, K)


@dataclasses.dataclass(frozen=True, eq=False)
class EquiEnergy(base.Kernel):
    """MINTEE: ladders of K chains. Lists have K numbers, the coldest chain's first."""

    batch_sizes: list[int]
    alpha: float
    step_size: float  # of the coldest chain, before its adaptation
    jump_probability: float
    burn_in: int
    ring_steps: int
    ring_capacity: int
    # What `bound` sets: H_k, nats above minus the reference's log-likelihood, and the
    # log-likelihood of each example at the reference, (n,).
    levels: list[float] = dataclasses.field(default_factory=list, init=False)
    reference: Array = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        base.check(self, alpha=base.UP_TO_ONE, step_size=base.POSITIVE)
        base.check(self, jump_probability=base.SHARE)
        base.check(self, burn_in=0, ring_steps=1, ring_capacity=1)

    @property
    def size(self) -> int:
        return len(self.batch_sizes)

    @property
    def temperatures(self) -> list[float]:
        return ladder(self.batch_sizes[0], self.batch_sizes, self.alpha)

    @property
    def starts(self) -> list[int]:
        """The step at which each chain starts."""
        wait = self.burn_in + self.ring_steps
        return [k * wait for k in reversed(range(self.size))]

    @property
    def rounds(self) -> int:
        """Number of uniforms that determine an order of the data."""
        return batches.num_rounds(self.batch_sizes[0])

    @property
    def floors(self) -> list[float]:
        """The levels at which energies are truncated: the coldest chain's are not."""
        return [-1e38, *self.levels[1:]]

    @property
    def traits(self) -> base.Traits:
        uniforms = _OWN_UNIFORMS + self.rounds
        return base.Traits(num_uniforms=uniforms, counts=COUNTS, levels=self.size)

    @property
    def arrays(self) -> list[Array]:
        return [self.reference]

    def init(self, position: base.Position) -> State:
        """Return the state before the first step. All chains start at one position."""
        num_chains = position[0].shape[0]
        zeros = base.Slot("zeros")
        order = base.Slot("order", (self.rounds, num_chains), is_shared=True)
        here = position, base.slots_like(position, "gradient"), zeros, zeros, order
        chains = [
            LevelState(*here, base.Slot("step_size", value=step), zeros, zeros)
            for step in (self.step_size * t**0.5 for t in self.temperatures)
        ]
        rows = num_chains, self.size, self.ring_capacity + 1

        def stored(*shape: int) -> base.Slot:
            return base.Slot("ring", (*rows, *shape), is_shared=True)

        ring = Ring([stored(*x.shape[1:]) for x in position], stored(self.rounds))
        visits = base.Slot("visits", (self.size, *rows[:2]), "int32", is_shared=True)
        return State(chains, [ring] * (self.size - 1), visits)

    def point(self, state: State) -> base.Position:
        return state.chains[0].position

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, list[Tensor], dict[str, Tensor]]:
        (normals, uniforms), number = density.noise, density.number
        chains, rings = list(state.chains), list(state.rings)
        visits = list(ops.unstack(state.visits, self.size))
        counts: list[list[Tensor]] = [[]] * self.size
        for k in reversed(range(self.size)):
            own = ([x[k] for x in normals], uniforms[k])
            source = (rings[k], visits[k + 1]) if k + 1 < self.size else None
            others = source, own, density
            zeros = [ops.zeros_like(uniforms[k][0]) for _ in COUNTS]
            # A chain waits until its start.
            chains[k], counts[k] = tensors.when(
                number >= self.starts[k],
                lambda values, k=k, others=others: self._move(k, values[0], *others),
                (chains[k], zeros),
            )
            collects = ops.cast(number >= self.starts[k] + self.burn_in, "bool")
            ring = ring_index(chains[k].energy, self.levels)
            if k > 0:
                rings[k - 1] = self._keep(
                    rings[k - 1], chains[k], visits[k], ring, collects, uniforms[k]
                )
            came = ops.one_hot(ring, self.size, dtype="int32")
            visits[k] = visits[k] + came * ops.cast(collects, "int32")
        positions = zip(*(chain.position for chain in chains), strict=True)
        record = [ops.concatenate(leaf) for leaf in positions]
        record.append(ops.concatenate([chain.energy for chain in chains]))
        sums = [ops.stack(values) for values in zip(*counts, strict=True)]
        state = State(chains, rings, ops.stack(visits))
        return state, record, dict(zip(COUNTS, sums, strict=True))

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        shares = {
            f"{kind}acceptance": base.share(
                counts[f"{kind}accepted"].T, counts[f"{kind}proposed"].T
            )
            for kind in ("", "jump_", "refresh_")
        }
        return shares | {
            "nonfinite": counts["nonfinite"].T,
            "step_sizes": np.stack([x.step_size for x in state.chains], axis=1),
            "temperatures": np.array(self.temperatures),
            "batch_sizes": np.array(self.batch_sizes),
        }

    def _move(
        self,
        k: int,
        chain: LevelState,
        source: tuple[Ring, Tensor] | None,
        noise: tuple[base.Position, Tensor],
        density: base.Density,
    ) -> tuple[LevelState, list[Tensor]]:
        """Return chain k after a step, and counts.

        `source` has the ring of chain k + 1 and its visits; None for the hottest chain.
        """
        normals, uniforms = noise
        number, whole = density.number, self.batch_sizes[k] == density.train_size
        first = ops.cast(number == self.starts[k], "bool")
        first = first & ops.ones_like(chain.energy, "bool")

        # Propose a local move on the same batch, the same position on another batch, or
        # a member of a ring. A batch of all the data needs no refreshing.
        step = chain.step_size
        scales = proposals.Scales(0.5 * ops.square(step), step, 1.0)
        point = proposals.langevin(chain.position, chain.gradient, normals, scales)
        order = uniforms[-self.rounds :]
        refreshes = jumps = ops.zeros_like(first)
        if not whole:
            refreshes = uniforms[_REFRESH] < REFRESH
            order = ops.where(refreshes | first, order, chain.order)
        point = tensors.select(first | refreshes, chain.position, point)
        if source is not None:
            jumps, member, member_order = self._member(chain, source, uniforms)
            jumps = jumps & ~first
            refreshes = refreshes & ~jumps
            point = tensors.select(jumps, member, point)
            order = ops.where(jumps, member_order, order)

        sizes = self.batch_sizes[k : k + 2]
        energy, gradient, hotter = density.energies_above(point, order, sizes)
        law = self.floors[k], self.temperatures[k]
        gradient = tempered_gradient(gradient, energy, *law)

        # Accept or reject it.
        delta = tensors.subtract(point, chain.position)
        log_q_ratio = proposals.langevin_log_ratio(
            delta, chain.gradient, gradient, scales
        )
        log_q_ratio = ops.where(refreshes, 0.0, log_q_ratio)
        log_ratio = local_log_ratio(chain.energy, energy, *law, log_q_ratio)
        if source is not None:
            energies = chain.energy, energy, chain.hotter, hotter
            laws = self.floors[k : k + 2], self.temperatures[k : k + 2]
            log_ratio = ops.where(jumps, jump_log_ratio(*energies, *laws), log_ratio)
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
        adapts = ops.cast(number < self.starts[k] + self.burn_in, "float32")
        window = (
            chain.window_accepted + adapts * counts[0],
            chain.window_proposed + adapts * counts[1],
        )
        step_size, ended = adapted_step_size(chain.step_size, *window)
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

    def _member(
        self, chain: LevelState, source: tuple[Ring, Tensor], uniforms: Tensor
    ) -> tuple[Tensor, base.Position, Tensor]:
        """Return which chains jump, and a member of the hotter ring for each chain.

        The results are bool (C,), a position (C, ...), and its order (rounds, C).
        """
        (ring, visits), capacity = source, self.ring_capacity
        index = ring_index(chain.hotter, self.levels)
        count = ops.sum(visits * ops.one_hot(index, self.size, dtype="int32"), axis=1)
        slot = member_slot(count, capacity, uniforms[_MEMBER])
        numbers = ops.arange(index.shape[0], dtype="int32")
        row = (numbers * self.size + index) * (capacity + 1) + slot

        def pick(x: Tensor) -> Tensor:
            return ops.take(ops.reshape(x, (-1, *x.shape[3:])), row, axis=0)

        jumps = (uniforms[_JUMP] < self.jump_probability) & (count > 0)
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
        capacity = self.ring_capacity
        count = ops.sum(visits * ops.one_hot(ring, self.size, dtype="int32"), axis=1)
        slot = reservoir_slot(count, capacity, uniforms[_RESERVOIR])
        slot = ops.where(collects, slot, capacity)
        numbers = ops.arange(ring.shape[0], dtype="int32")
        where = ops.stack([numbers, ring, ops.cast(slot, "int32")], axis=1)
        return Ring(
            [
                ops.scatter_update(old, where, new)
                for old, new in zip(store.position, chain.position, strict=True)
            ],
            ops.scatter_update(store.order, where, ops.transpose(chain.order)),
        )


def ladder(train_size: int, batch_sizes: Sequence[int], alpha: float) -> list[float]:
    return [
        1.0 if size == train_size else mint_temperature(alpha, train_size, size)
        for size in batch_sizes
    ]


def default_levels(
    lowest: float, temperatures: Sequence[float], spacing: float = 10.0
) -> list[float]:
    levels = [lowest]
    for temperature in temperatures[:-1]:
        levels.append(levels[-1] + spacing * temperature)
    return levels


def truncated(energy: Tensor, level: float) -> Tensor:
    return ops.maximum(energy, level)


def tempered_gradient(
    gradient: base.Position, energy: Tensor, level: float, temperature: float
) -> base.Position:
    scale = ops.where(energy > level, 1.0 / temperature, 0.0)
    return tensors.add_scaled([ops.zeros_like(g) for g in gradient], scale, gradient)


def local_log_ratio(
    energy: Tensor,
    new_energy: Tensor,
    level: float,
    temperature: float,
    log_q_ratio: Tensor,
) -> Tensor:
    change = truncated(energy, level) - truncated(new_energy, level)
    return change / temperature + log_q_ratio


def jump_log_ratio(
    energy: Tensor,
    new_energy: Tensor,
    hotter: Tensor,
    new_hotter: Tensor,
    levels: Sequence[float],
    temperatures: Sequence[float],
) -> Tensor:
    """Return log r of a jump, (C,), from h_k of both states and h_{k+1} of both.

    `levels` and `temperatures` are those of chain k and of chain k + 1.
    """
    here = truncated(energy, levels[0]) - truncated(new_energy, levels[0])
    there = truncated(hotter, levels[1]) - truncated(new_hotter, levels[1])
    return here / temperatures[0] - there / temperatures[1]


def ring_index(energy: Tensor, levels: Sequence[float]) -> Tensor:
    """Return j of the ring [H_j, H_{j+1}) of each energy, int32; 0 below H_1."""
    inner = ops.convert_to_tensor(levels[1:], "float32")
    above = ops.expand_dims(energy, -1) >= inner
    return ops.sum(ops.cast(above, "int32"), axis=-1)


def member_slot(count: Tensor, capacity: int, uniform: Tensor) -> Tensor:
    """Return the slot of a uniform member of a ring that received `count` states."""
    held = ops.cast(ops.minimum(count, capacity), "float32")
    slot = ops.cast(uniform * held, "int32")
    # A uniform number next to 1 may round up.
    return ops.minimum(slot, ops.maximum(ops.minimum(count, capacity) - 1, 0))


def reservoir_slot(count: Tensor, capacity: int, uniform: Tensor) -> Tensor:
    """Return the slot for one more state of a ring that received `count`; the last:
    none.

    A full ring holds a uniform sample of all states that it received (Vitter (1985),
    "Random sampling with a reservoir", algorithm R).
    """
    total = ops.cast(count + 1, "float32")
    chosen = ops.minimum(ops.cast(uniform * total, "int32"), capacity)
    return ops.where(count < capacity, count, chosen)


def adapted_step_size(
    step_size: Tensor, accepted: Tensor, proposed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the next step size (C,), and whether a window ended, bool (C,)."""
    low, high = TARGET_ACCEPTANCE
    ended = proposed >= WINDOW
    share = accepted / ops.maximum(proposed, 1.0)
    change = ops.where(share < low, -1.0, ops.where(share > high, 1.0, 0.0))
    factor = ops.exp(math.log(FACTOR) * ops.where(ended, change, 0.0))
    return step_size * factor, ended
