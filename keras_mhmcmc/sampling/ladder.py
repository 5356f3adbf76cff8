"""The compiled step of MINTEE: a ladder of chains, from the hottest to the coldest."""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.algorithms import batches
from keras_mhmcmc.algorithms import equi_energy
from keras_mhmcmc.algorithms import proposals
from keras_mhmcmc.algorithms import tensors

tree = keras.tree

COUNTS = (
    "accepted",
    "proposed",
    "jump_accepted",
    "jump_proposed",
    "refresh_accepted",
    "refresh_proposed",
    "nonfinite",
)

# Uniform draws of one chain and step, besides its mini-batch's.
_ACCEPT, _JUMP, _MEMBER, _RESERVOIR, _REFRESH = range(5)
_OWN_UNIFORMS = 5


class Settings(NamedTuple):
    """What a ladder is made of; lists have one number for each chain, coldest first."""

    batch_sizes: list
    temperatures: list
    levels: list  # H_k, nats above the reference's energy
    starts: list  # the step at which each chain starts
    step_sizes: list  # the first ones
    burn_in: int
    capacity: int  # of a ring
    jump_probability: float
    target_acceptance: tuple
    keep_all: bool


class LevelState(NamedTuple):
    """One temperature's chains, C of them."""

    position: list
    gradient: list  # of V_k(h_k)/T_k
    energy: Any  # h_k, above the reference's
    hotter: Any  # h_{k+1} of the same position and order
    order: Any  # uniforms that the order of the data is made of, (rounds, C)
    step_size: Any
    window_accepted: Any
    window_proposed: Any


class Ring(NamedTuple):
    """Past states of one temperature by energy; the last slot is never read."""

    position: list  # (C, K, capacity + 1, ...)
    order: Any  # (C, K, capacity + 1, rounds)


class Ladder:
    """K chains, each C times, as the compiled loop takes them."""

    def __init__(self, target, structure, shapes, settings):
        self.settings = settings
        self.num_chains = shapes[0][0]
        self.size = len(settings.batch_sizes)
        self._target = target
        self._rounds = batches.num_rounds(target.train_size)
        self._structure = tree.map_structure(lambda _: 0, structure)
        self._shapes = shapes
        # The coldest chain is not truncated.
        self._floors = [-1e38, *settings.levels[1:]]

    def init(self, position):
        """The state before the first step; all chains start at `position`."""
        zeros = ops.zeros((self.num_chains,), "float32")
        order = ops.zeros((self._rounds, self.num_chains), "float32")
        gradient = [ops.zeros_like(x) for x in position]
        chains = [
            LevelState(
                list(position),
                gradient,
                zeros,
                zeros,
                order,
                zeros + step,
                zeros,
                zeros,
            )
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

    def noise(self, seed, number):
        """The draws of a step: normals and uniforms of all chains."""
        shapes = [(self.size, *shape) for shape in self._shapes]
        uniforms = (self.size, _OWN_UNIFORMS + self._rounds, self.num_chains)
        return _backend.draw(seed, number, shapes, uniforms)

    def step(self, state, constants, draws, number):
        """The next state, what to record, and counts."""
        chains, rings, visits = state
        normals, uniforms = draws
        chains, rings, visits = list(chains), list(rings), list(ops.unstack(visits))
        counts = [None] * self.size
        for k in reversed(range(self.size)):
            own = ([x[k] for x in normals], uniforms[k])
            source = None
            if k + 1 < self.size:
                source = (rings[k], visits[k + 1])
            chains[k], counts[k] = self._chain_step(
                k, chains[k], source, own, constants, number
            )
            collects = number >= self.settings.starts[k] + self.settings.burn_in
            collects = ops.cast(collects, "bool")
            ring = equi_energy.ring_index(chains[k].energy, self.settings.levels)
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
        counts = [ops.stack(values) for values in zip(*counts, strict=True)]
        return (chains, rings, ops.stack(visits)), records, counts

    def _chain_step(self, k, chain, source, draws, constants, number):
        """One chain's step, where it has started; else it stays as it is."""
        zeros = [ops.zeros((self.num_chains,), "float32") for _ in COUNTS]

        def move(values):
            return self._move(k, values[0], source, draws, constants, number)

        started = number >= self.settings.starts[k]
        return _backend.when(started, move, (chain, zeros))

    def _move(self, k, chain, source, draws, constants, number):
        settings = self.settings
        normals, uniforms = draws
        first = ops.cast(number == settings.starts[k], "bool")
        first = first & ops.ones((self.num_chains,), "bool")

        # Where to: a local move on the same batch, the same position on another batch,
        # or a ring's member. The batch of all data needs no refreshing.
        scales = equi_energy.proposal_scales(chain.step_size)
        point = proposals.langevin(chain.position, chain.gradient, normals, scales)
        order = uniforms[-self._rounds :]
        refreshes = jumps = ops.zeros_like(first)
        if settings.batch_sizes[k] < self._target.train_size:
            refreshes = uniforms[_REFRESH] < equi_energy.REFRESH
            order = ops.where(refreshes | first, order, chain.order)
        point = tensors.select(first | refreshes, chain.position, point)
        if source is not None:
            jumps, member, member_order = self._member(chain, source, uniforms)
            jumps = jumps & ~first
            refreshes = refreshes & ~jumps
            point = tensors.select(jumps, member, point)
            order = ops.where(jumps, member_order, order)

        energy, gradient, hotter = self._evaluate(k, point, order, constants)
        gradient = equi_energy.tempered_gradient(
            gradient, energy, self._floors[k], settings.temperatures[k]
        )

        # Whether it is accepted.
        delta = tensors.subtract(point, chain.position)
        log_q_ratio = proposals.langevin_log_ratio(
            delta, chain.gradient, gradient, scales
        )
        log_q_ratio = ops.where(refreshes, 0.0, log_q_ratio)
        log_ratio = equi_energy.local_log_ratio(
            chain.energy, energy, self._floors[k], settings.temperatures[k], log_q_ratio
        )
        if source is not None:
            jump_log_ratio = equi_energy.jump_log_ratio(
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
        counts = [
            accepted & is_local,
            is_local,
            accepted & jumps,
            jumps,
            accepted & refreshes & ~first,
            refreshes & ~first,
            ~finite & ~first,
        ]
        counts = [ops.cast(count, "float32") for count in counts]
        adapts = ops.cast(number < settings.starts[k] + settings.burn_in, "float32")
        window = (
            chain.window_accepted + adapts * counts[0],
            chain.window_proposed + adapts * counts[1],
        )
        step_size, ended = equi_energy.adapted_step_size(
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

    def _evaluate(self, k, point, order, constants):
        """h_k, its gradient, and h_{k+1} of the same order, above the reference's."""
        sizes, n = self.settings.batch_sizes, self._target.train_size
        hotter_size = sizes[k + 1] if k + 1 < self.size else 1
        whole = sizes[k] == n
        indices = batches.draw_batches(order, n, hotter_size if whole else sizes[k])

        def energy(position, extra, constants):
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
            # The hotter chain's energy decides on jumps alone.
            return -n * ops.mean(each) - log_prior, [-n * ops.mean(few) - log_prior]

        evaluate = _backend.map_chains(energy, constants, True, True)
        energy, gradient, (hotter,) = evaluate(point, [indices])
        return energy, gradient, hotter

    def _member(self, chain, source, uniforms):
        """Which chains jump, and a member of the hotter chain's ring for each."""
        ring, visits = source
        levels, capacity = self.settings.levels, self.settings.capacity
        index = equi_energy.ring_index(chain.hotter, levels)
        count = ops.sum(visits * ops.one_hot(index, self.size, dtype="int32"), axis=1)
        slot = equi_energy.member_slot(count, capacity, uniforms[_MEMBER])
        numbers = ops.arange(self.num_chains, dtype="int32")
        row = (numbers * self.size + index) * (capacity + 1) + slot

        def pick(x):
            return ops.take(ops.reshape(x, (-1, *x.shape[3:])), row, axis=0)

        jumps = (uniforms[_JUMP] < self.settings.jump_probability) & (count > 0)
        return jumps, [pick(x) for x in ring.position], ops.transpose(pick(ring.order))

    def _keep(self, store, chain, visits, ring, collects, uniforms):
        """The store with the chains' states, where the reservoir takes them."""
        capacity = self.settings.capacity
        count = ops.sum(visits * ops.one_hot(ring, self.size, dtype="int32"), axis=1)
        slot = equi_energy.reservoir_slot(count, capacity, uniforms[_RESERVOIR])
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
