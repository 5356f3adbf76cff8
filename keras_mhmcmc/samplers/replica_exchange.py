"""Replica exchange: a kernel at several temperatures, which swap their positions.

Papers: Deng, Feng, Gao, Liang and Lin (2020), "Non-convex learning via replica exchange
stochastic gradient MCMC", eq. (5)-(8); Ceperley and Dewing (1999), "The penalty method
for random walks with uncertain energies", eq. (9).

Target: replica r of R samples exp(-U(theta)/T_r), T_1 < ... < T_R. A swap leaves the
product of these distributions as it is.

Equations, for a cold and a hot replica and d = 1/T_cold - 1/T_hot > 0:

    log r = d (U_cold - U_hot) - d^2 (v_cold + v_hot) / 2
    swap (theta_cold, theta_hot) if log u < log r, u uniform on [0, 1)

v is the variance of one energy estimate at its position; with v_cold = v_hot = sigma^2
the second term is the paper's d^2 sigma^2 (its F = 1). It makes r unbiased: log r has
noise of variance c = d^2 (v_cold + v_hot), and the mean of exp(noise) is exp(c / 2). If
Gaussian noise is drawn anew at each swap, detailed balance is exact: with x the log
ratio of true energies, E min(1, r) = Phi((x - c/2) / sqrt(c)) + exp(x)
Phi(-(x + c/2) / sqrt(c)) is exp(x) times the same expression at -x.

Where an energy belongs to the state, as in Metropolis-Hastings on mini-batches, the
target is that of position and batch together, exp(-U_I(theta)/T), pairs (theta, I) are
swapped, and v = 0 is exact.

The variance of U_I for a batch of m out of N examples, from the batch itself, is

    v = N^2 s^2 / m (1 - m/N),   s^2 the sample variance of log p(x_i|theta), i in I

without the last factor for a batch with replacement.

| paper        | name              | shape           | unit     |
|--------------|-------------------|-----------------|----------|
| tau, here T  | `temperatures`    | (R,)            | 1        |
| sigma^2, v   | `variance`        | as `energy`     | nats^2   |
| 2, here R    | `replicas`        | int             | count    |
| K, ours      | `num_chains`      | int             | count    |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.schedules import Schedule


class OfReplicas(Schedule):
    """A value for each of R replicas with K chains, as one of R K chains."""

    def __init__(self, values: Sequence[base.Rate], num_chains: int) -> None:
        super().__init__()
        self.values = values
        self.num_chains = num_chains

    def __call__(self, step: Tensor) -> Tensor:
        values = [
            ops.cast(base.at_step(value, step), "float32") for value in self.values
        ]
        return ops.repeat(ops.stack(values), self.num_chains)

    def get_config(self) -> dict[str, Any]:
        return {"values": self.values, "num_chains": self.num_chains}


@dataclasses.dataclass(frozen=True)
class ReplicaExchange(base.Algorithm):
    """An algorithm on R K chains, the coldest replica's K first, with swaps.

    A swap exchanges positions with their energies and gradients, after the evaluation
    and before the move, so that each replica moves on at its own temperature. SGNHT's
    thermostat and pSGLD's second moment stay where they are. So does a velocity, less
    the part that comes from the position: see `sghmc`.
    """

    kernel: base.Algorithm  # bound to the data, at the replicas' temperatures
    temperatures: tuple[float, ...]  # increasing
    num_chains: int  # K
    every: int  # steps between swaps
    energy_variance: float | None  # of each estimate, nats^2; None: of each batch

    @property
    def learning_rate(self) -> base.Rate:  # type: ignore[override]
        return self.kernel.learning_rate

    @property
    def temperature(self) -> base.Rate | None:  # type: ignore[override]
        return self.kernel.temperature

    @property
    def traits(self) -> base.Traits:
        traits = self.kernel.traits
        return traits._replace(
            uses_energy=True,
            uses_energy_variance=self.energy_variance is None,
            num_uniforms=traits.num_uniforms + 1,
            counts=(*traits.counts, "swap_accepted", "swap_proposed"),
            fused_examples=0,
            couples_chains=True,
        )

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        kernel = self.kernel.bind_weights(weights, has_chains)
        return dataclasses.replace(self, kernel=kernel)

    def energy_unit(self, number: int, dimension: int) -> float | None:
        unit = self.kernel.energy_unit(number, dimension)
        if unit is None and self.energy_variance == 0.0:
            colder, hotter = np.array([self.temperatures[:-1], self.temperatures[1:]])
            return float(np.min(1.0 / (1.0 / colder - 1.0 / hotter)))
        # Elsewhere the noise of mini-batches is larger, and corrected for.
        return unit

    def init(self, position: base.Position) -> Any:
        return self.kernel.init(position)

    def point(self, state: Any) -> base.Position:
        return self.kernel.point(state)

    def decide(
        self, state: Any, evaluation: base.Evaluation
    ) -> tuple[base.Current, base.Info]:
        current, info = self.kernel.decide(state, evaluation)
        variance = self.energy_variance
        if variance is None:
            variance = evaluation.energy_variance
        variance = ops.zeros_like(current.energy) + variance

        uniforms = self._by_replica(evaluation.uniforms[-1])
        tried = self._tried(evaluation.number)
        accepted = decide_swaps(
            self._by_replica(current.energy),
            self._by_replica(variance),
            self.temperatures,
            tried,
            uniforms[:-1],
        )

        def exchange(x: Tensor) -> Tensor:
            return ops.reshape(swap(self._by_replica(x), accepted), x.shape)

        before = current
        current = before._replace(
            position=[exchange(x) for x in before.position],
            gradient=[exchange(x) for x in before.gradient],
            energy=exchange(before.energy),
        )
        auxiliary = self.kernel.auxiliary_at(current, before, evaluation)
        current = current._replace(auxiliary=auxiliary)
        counts = info.counts | {
            "swap_accepted": self._of_pairs(accepted),
            "swap_proposed": self._of_pairs(tried),
        }
        return current, info._replace(counts=counts)

    def move(self, current: base.Current, evaluation: base.Evaluation) -> Any:
        return self.kernel.move(current, evaluation)

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        return self.kernel.summary(state, counts)

    def swaps(self, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of swaps of each pair, (K, R - 1), and the temperatures."""
        shape = len(self.temperatures), self.num_chains
        pairs = ("swap_accepted", "swap_proposed")
        swapped, tried = (counts[name].reshape(shape)[:-1].T for name in pairs)
        shares = base.share(swapped, tried)  # NaN: the pair never tried
        return {"swap_acceptance": shares, "temperatures": np.array(self.temperatures)}

    def _tried(self, number: Tensor) -> Tensor:
        """Return which neighbours try to swap at this step, bool (R - 1, K)."""
        replicas = len(self.temperatures)
        due = ops.cast((number + 1) % self.every == 0, "bool")
        pairs = pairs_of_turn(replicas, number // self.every)
        return due & ops.broadcast_to(pairs, (replicas - 1, self.num_chains))

    def _by_replica(self, x: Tensor) -> Tensor:
        shape = (len(self.temperatures), self.num_chains, *x.shape[1:])
        return ops.reshape(x, shape)

    def _of_pairs(self, counted: Tensor) -> Tensor:
        """Return counts of pairs as those of their colder replicas, 0 for the last."""
        rows = ops.concatenate([counted, ops.zeros_like(counted[:1])])
        return ops.cast(ops.reshape(rows, (-1,)), "float32")


def swap_log_ratio(
    energy_cold: Tensor,
    energy_hot: Tensor,
    cold: float,
    hot: float,
    variance_cold: Tensor = 0.0,
    variance_hot: Tensor = 0.0,
) -> Tensor:
    difference = 1.0 / cold - 1.0 / hot
    penalty = 0.5 * difference**2 * (variance_cold + variance_hot)
    return difference * (energy_cold - energy_hot) - penalty


def decide_swaps(
    energy: Tensor,
    variance: Tensor,
    temperatures: Sequence[float],
    tried: Tensor,
    uniforms: Tensor,
) -> Tensor:
    """Return which of the neighbours in `tried` swap, bool (R - 1, K).

    No replica may be in two pairs that are tried together.
    """
    accepted = []
    for r in range(len(temperatures) - 1):
        both = energy[r], energy[r + 1], temperatures[r], temperatures[r + 1]
        log_ratio = swap_log_ratio(*both, variance[r], variance[r + 1])
        log_ratio = ops.where(ops.isfinite(log_ratio), log_ratio, -math.inf)
        accepted.append(tried[r] & (ops.log(uniforms[r]) < log_ratio))
    return ops.stack(accepted)


def pairs_of_turn(replicas: int, turn: Tensor) -> Tensor:
    pairs = ops.reshape(ops.arange(replicas - 1, dtype="int32"), (-1, 1))
    if replicas == 2:
        return pairs == 0
    return pairs % 2 == turn % 2


def swap(x: Tensor, accepted: Tensor) -> Tensor:
    """Return x, shape (R, K, ...), after the neighbours in `accepted` swapped."""
    none = ops.zeros_like(accepted[:1])
    rank = (1,) * (len(x.shape) - 2)
    takes_above = ops.concatenate([accepted, none])
    takes_below = ops.concatenate([none, accepted])
    shape = tuple(takes_above.shape) + rank
    above = ops.concatenate([x[1:], x[-1:]])
    below = ops.concatenate([x[:1], x[:-1]])
    x = ops.where(ops.reshape(takes_above, shape), above, x)
    return ops.where(ops.reshape(takes_below, shape), below, x)


def energy_variance(
    log_likelihoods: Tensor, train_size: int, replacement: bool
) -> Tensor:
    """Return v of one batch, from its examples' log-likelihoods, shape (m,)."""
    size = log_likelihoods.shape[0]
    centred = log_likelihoods - ops.mean(log_likelihoods)
    sample_variance = ops.sum(ops.square(centred)) / (size - 1)
    left = 1.0 if replacement else 1.0 - size / train_size
    return train_size**2 * left / size * sample_variance
