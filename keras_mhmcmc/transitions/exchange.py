"""The kernel of replica exchange: one kernel at several temperatures, and swaps."""

import dataclasses
from typing import Any

import numpy as np
from keras import ops

from keras_mhmcmc.algorithms import exchange
from keras_mhmcmc.schedules import Schedule
from keras_mhmcmc.transitions.kernel import Current
from keras_mhmcmc.transitions.kernel import Kernel
from keras_mhmcmc.transitions.kernel import Record
from keras_mhmcmc.transitions.kernel import at_step


class OfReplicas(Schedule):
    """A value for each of R replicas with K chains, as one of R K chains."""

    def __init__(self, values, num_chains):
        super().__init__()
        self.values = values
        self.num_chains = num_chains

    def __call__(self, step):
        values = [ops.cast(at_step(value, step), "float32") for value in self.values]
        return ops.repeat(ops.stack(values), self.num_chains)

    def get_config(self):
        return {"values": self.values, "num_chains": self.num_chains}


@dataclasses.dataclass(frozen=True)
class ReplicaExchange(Kernel):
    """`kernel` on R K chains, the coldest replica's K first, with swaps in its steps.

    A swap exchanges positions with their energies and gradients, after the evaluation
    and before the move, so that each replica moves on at its own temperature. The
    kernel's memory, SGHMC's velocity or pSGLD's second moment, stays where it is: under
    the law that is sampled, a velocity does not depend on the position.
    """

    kernel: Kernel  # already at the replicas' temperatures
    temperatures: tuple
    num_chains: int  # K
    every: int | None  # steps between swaps; None: at random
    probability: float | None
    energy_variance: Any  # a number, or None: of each batch
    keep_all: bool

    @property
    def uses_gradient(self):
        return self.kernel.uses_gradient

    @property
    def uses_energy_variance(self):
        return self.energy_variance is None

    @property
    def num_uniforms(self):
        return self.kernel.num_uniforms + 1

    @property
    def count_names(self):
        return (*self.kernel.count_names, "swap_accepted", "swap_proposed")

    def energy_unit(self, number):
        unit = self.kernel.energy_unit(number)
        if unit is None and self.energy_variance == 0.0:
            colder, hotter = np.array([self.temperatures[:-1], self.temperatures[1:]])
            return float(np.min(1.0 / (1.0 / colder - 1.0 / hotter)))
        # Elsewhere the noise of mini-batches is larger, and corrected for.
        return unit

    def init(self, position):
        return self.kernel.init(position)

    def point(self, state):
        return self.kernel.point(state)

    def advance(self, state, step):
        inner = step._replace(uniforms=step.uniforms[:-1])
        current, counts = self.kernel.decide(state, inner)
        variance = self.energy_variance
        if variance is None:
            variance = step.energy_variance
        variance = ops.zeros_like(current.energy) + variance

        uniforms = self._by_replica(step.uniforms[-1])
        tried = self._tried(step.number, uniforms)
        accepted = exchange.decide_swaps(
            self._by_replica(current.energy),
            self._by_replica(variance),
            self.temperatures,
            tried,
            uniforms[:-1],
        )

        def swap(x):
            swapped = exchange.swap(self._by_replica(x), accepted)
            return ops.reshape(swapped, x.shape)

        current = Current(
            [swap(x) for x in current.position],
            [swap(x) for x in current.gradient],
            swap(current.energy),
            current.memory,
        )
        counts |= {
            "swap_accepted": self._of_pairs(accepted),
            "swap_proposed": self._of_pairs(tried),
        }
        return self.kernel.move(current, inner), self._record(current, counts)

    def _tried(self, number, uniforms):
        """Which neighbours try to swap at this step, bool (R - 1, K)."""
        replicas = len(self.temperatures)
        if self.every is None:
            # The last row of uniforms decides on no pair.
            due, turn = uniforms[-1:] < self.probability, number
        else:
            due, turn = (number + 1) % self.every == 0, number // self.every
        due = ops.cast(due, "bool")
        pairs = exchange.pairs_of_turn(replicas, turn)
        return due & ops.broadcast_to(pairs, (replicas - 1, self.num_chains))

    def _by_replica(self, x):
        shape = (len(self.temperatures), self.num_chains, *x.shape[1:])
        return ops.reshape(x, shape)

    def _of_pairs(self, counted):
        """Counts of pairs, as of their colder replicas; 0 for the hottest."""
        rows = ops.concatenate([counted, ops.zeros_like(counted[:1])])
        return ops.cast(ops.reshape(rows, (-1,)), "float32")

    def _record(self, current, counts):
        kept = current.energy.shape[0] if self.keep_all else self.num_chains
        energy = current.energy[:kept]
        position = [x[:kept] for x in current.position]
        return Record(position, energy, counts)
