"""Contour stochastic gradient MCMC: a flattened energy, and importance weights.

Papers: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin dynamics
algorithm for simulations of multi-modal distributions", eq. (5) to (10), (15), (57) and
appendix D.1; Deng, Liang, Hao, Lin and Liang (2022), "Interacting contour stochastic
gradient Langevin dynamics", for the field with exponent 1 and the shared density.

Target: the chain samples exp(-U(x)/T) / Psi(U(x))^zeta. Psi interpolates the masses
theta(i) of the energy's m subregions. With the importance weights Psi(U(x))^zeta, draws
have the distribution exp(-U(x)/T), if the factor never reaches its limit, up to the
biases of a finite step, of gradient noise, and of a theta that still changes.

Equations, with J the subregion of the point x that was just evaluated:

    (5)  Psi(U)   =  theta(J) exp(slope (U - u_J)),   u_i = u_1 + (i - 1) du
         or          theta((J+1) ^ m) exp(slope (U - u_J))           ("forward")
    (6)  slope    =  (log theta(J) - log theta((J-1) v 1)) / du
         or          (log theta((J+1) ^ m) - log theta(J)) / du      (D.1, "forward")
         factor   =  1 + zeta T slope
    (8)  J        =  1 where U <= u_1,  i where u_{i-1} < U <= u_i,  m where U > u_{m-1}
    (9)  x        <- x - epsilon factor grad(U/N) + sqrt(2 epsilon T / N) Z
    (10) theta(i) <- theta(i) + omega (theta(J)^p + omega rho 1{i >= J})
                                      (1{i = J} - theta(i))

D.1 prints J ^ m for (J+1) ^ m. For CSGHMC the factor enters the step of `sghmc.py`. Eq.
(10) has p = zeta, and eq. (15) p = 1, both with rho = 0. Eq. (57) adds rho, and theta
is then divided by its sum at each step. If chains share theta (ICSGLD), eq. (10) adds
the mean over the chains with finite energies. Eq. (10) for x_k runs first, then eq. (9)
from x_k, with the new theta: one evaluation of x_k. The fixed point with p = zeta tends
to the mass of each subregion under exp(-U/T) as du falls to 0, and the one with p = 1
to a multiple of mass^(1/zeta).

The last subregion has no upper end. There the factor is 1, so Psi is constant:
theta(m-1), or theta(m) with the forward difference. Eq. (10) then has theta(m-1)^p for
J = m as well. `docs/papers.md` says why, and why the weights are not the paper's
theta(J)^zeta. At the limit of the factor, `max_multiplier`, they are approximate.

The state holds log theta: theta of a subregion that is never visited decays without
end, and float32 would round it to 0. The code counts subregions from 0.

The pilot. The paper sets partitions by hand (section 4, appendix D.5). Here step k < P,
counted from 0, is a step of the base: du is infinite, the factor is 1, theta stays, and
the weight of a draw is not defined. The energies of the second half give the partition.
With U_(1) <= ... <= U_(n) the finite energies in order:

    u_1  =  the 10% quantile of U_(1), ..., U_(n), by linear interpolation
    du   =  4 (U_(n) - u_1) / (m - 2), at least 1e-6 max(|u_1|, |U_(n)|, 1)

The weight of a draw is (Psi(U)/du)^zeta: weights of chains with different partitions
can be compared.

| paper            | name             | shape           | unit                        |
|------------------|------------------|-----------------|-----------------------------|
| J                | `index`          | (...), int32    | 1, from 0                   |
| log theta        | `log_masses`     | (..., m)        | nats                        |
| factor           | `multiplier`     | (...)           | 1                           |
| omega            | `step_size`      | scalar          | 1                           |

(...) is () for one chain and (K,) for K chains. If they share theta, log theta is (m,).
"""

import math
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

FEWEST = 10  # energies that give a partition
LOW_SHARE = 0.1  # of the energies, which the first subregion holds
_REACH = 4.0  # from u_1 to the last subregion, relative to the highest energy
_FINEST = 1e-6  # smallest width, relative to the energies
_UNKNOWN = np.array([0.0, math.inf])  # one subregion holds all energies


class Contour(NamedTuple):
    """The fixed numbers of a contour sampler, and a partition."""

    energy_min: float | Tensor  # u_1, nats; a tensor, () or (K,), if a pilot found it
    energy_gap: float | Tensor  # du, nats
    partitions: int  # m
    zeta: float
    exponent: float  # p
    rho: float
    is_forward: bool  # whether the factor looks at the next subregion
    max_multiplier: float | None  # ours, the limit of the factor
    weight_power: float  # zeta of the weights


class Place(NamedTuple):
    energy: Tensor
    index: Tensor  # J, from 0; 0 if the energy is not finite
    finite: Tensor  # bool


def locate(energy: Tensor, contour: Contour) -> Place:
    finite = ops.isfinite(energy)
    above = ops.ceil((energy - contour.energy_min) / contour.energy_gap)
    above = ops.clip(ops.where(finite, above, 0.0), 0, contour.partitions - 1)
    return Place(energy, ops.cast(above, "int32"), finite)


def update_log_masses(
    log_masses: Tensor, place: Place, step_size: Tensor, contour: Contour
) -> Tensor:
    index, finite = place.index, place.finite
    visited = tensors.pick(log_masses, index)
    weighing = tensors.pick(log_masses, _weighing(index, contour))
    low, high, log_high = _rates(weighing, step_size, contour)
    gained = ops.logaddexp(visited + ops.log1p(-high), log_high)
    gained = ops.where(finite, gained, visited)
    decay = ops.log1p(-ops.where(finite, low, ops.zeros_like(low)))
    bins, index = _bins(contour, index), ops.expand_dims(index, -1)
    kept = log_masses + ops.expand_dims(decay, -1)
    if contour.rho > 0.0:
        above = ops.log1p(-ops.where(finite, high, ops.zeros_like(high)))
        kept = ops.where(bins > index, log_masses + ops.expand_dims(above, -1), kept)
    return ops.where(bins == index, ops.expand_dims(gained, -1), kept)


def update_shared_log_masses(
    log_masses: Tensor, place: Place, step_size: Tensor, contour: Contour
) -> Tensor:
    index, finite = place.index, place.finite[:, None]
    count = ops.maximum(ops.sum(ops.cast(finite, "float32")), 1.0)
    weighing = ops.take(log_masses, _weighing(index, contour))
    low, high, log_high = _rates(weighing, step_size, contour)
    bins, index = _bins(contour, index), index[:, None]
    taken = ops.where(bins >= index, high[:, None], low[:, None])
    taken = ops.where(finite, taken, ops.zeros_like(taken))
    kept = log_masses + ops.log1p(-ops.sum(taken, axis=0) / count)
    given = ops.where((bins == index) & finite, log_high[:, None], _LOG_OF_NOTHING)
    gained = ops.logsumexp(given, axis=0) - ops.log(count)
    return ops.logaddexp(kept, gained)


def normalized(log_masses: Tensor) -> Tensor:
    total = ops.sum(ops.exp(log_masses), axis=-1, keepdims=True)
    return log_masses - ops.log(total)


def visited(visits: Tensor, place: Place, contour: Contour) -> Tensor:
    hits = ops.expand_dims(place.index, -1) == _bins(contour, place.index)
    hits = ops.logical_and(hits, ops.expand_dims(place.finite, -1))
    return visits + ops.cast(hits, "int32")


def visits_of(energy: Array, contour: Contour) -> Array:
    """Return the number of draws in each subregion, int64, (chain, partitions).

    `energy` is that of the draws, nats, (chain, draw).
    """
    count, num_chains = contour.partitions, len(energy)
    # The chains last: each may have a partition of its own.
    place = locate(ops.convert_to_tensor(energy.T, "float32"), contour)
    index, finite = map(ops.convert_to_numpy, (place.index, place.finite))
    index = index + count * np.arange(num_chains)
    visits = np.bincount(index[finite], minlength=num_chains * count)
    return visits.reshape(num_chains, count)


def multiplier_and_log_weight(
    log_masses: Tensor, place: Place, temperature: Tensor, contour: Contour
) -> tuple[Tensor, Tensor]:
    """Return the factor of the gradient of U, and the log weight of the point.

    A factor below 0 drives the chain uphill. A point with an energy that is not finite
    has a finite factor and the weight 0.
    """
    end, slope = _segment(log_masses, place.index, temperature, contour)
    factor = 1.0 + contour.zeta * temperature * slope
    upper = contour.energy_min + contour.energy_gap * ops.cast(place.index, "float32")
    log_psi = end + slope * (place.energy - upper)
    log_psi = ops.where(place.finite, log_psi, _LOG_OF_NOTHING)
    return factor, contour.weight_power * log_psi


def _segment(
    log_masses: Tensor, index: Tensor, temperature: Tensor, contour: Contour
) -> tuple[Tensor, Tensor]:
    """Return log Psi at the upper end of subregion J, and its limited slope."""
    if contour.is_forward:
        end = tensors.pick(log_masses, ops.minimum(index + 1, contour.partitions - 1))
        slope = (end - tensors.pick(log_masses, index)) / contour.energy_gap
    else:
        end = tensors.pick(log_masses, _weighing(index, contour))
        slope = (
            end - tensors.pick(log_masses, ops.maximum(index - 1, 0))
        ) / contour.energy_gap
        # The last bin is unbounded. With a slope there, a chain thrown to a high energy
        # might never come back, or have an unbounded weight.
        is_last = index == contour.partitions - 1
        slope = ops.where(is_last, ops.zeros_like(slope), slope)
    if contour.max_multiplier is not None:
        # At T = 0 the factor is 1 for any slope.
        scale = ops.convert_to_tensor(contour.zeta * temperature, "float32")
        scale = ops.maximum(scale, 1e-30)
        steepest = (-contour.max_multiplier - 1.0) / scale
        slope = ops.clip(slope, steepest, (contour.max_multiplier - 1.0) / scale)
    return end, slope


def _weighing(index: Tensor, contour: Contour) -> Tensor:
    """Return the subregion whose theta weighs a point of subregion J."""
    if contour.is_forward:
        return index
    # Psi is constant above the last boundary.
    return ops.minimum(index, contour.partitions - 2)


# Stands for log 0: not every backend adds -inf correctly.
_LOG_OF_NOTHING = -1e30


def _rates(
    log_weighing: Tensor, step_size: Tensor, contour: Contour
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what eq. (10) takes for i < J and for i >= J, and the log of that."""
    log_low = ops.log(step_size) + contour.exponent * log_weighing
    low = ops.exp(log_low)
    if contour.rho == 0.0:
        return low, low, log_low
    high = low + step_size * step_size * contour.rho
    return low, high, ops.log(high)


def _bins(contour: Contour, like: Tensor) -> Tensor:
    """Return the numbers of all subregions, int32, on the device of `like`."""
    return tensors.constant(range(contour.partitions), "int32", like)


class PilotState(NamedTuple):
    """The energies of the pilot's second half, and what they gave."""

    energies: Tensor  # U, nats, (..., n); infinite: not known yet
    # u_1 and du, nats, (..., 2); the width is infinite until the pilot's end.
    partition: Tensor


class Pilot(NamedTuple):
    """A pilot of so many steps, for a partition of so many subregions."""

    steps: int  # P
    partitions: int  # m
    is_shared: bool  # whether all chains find one partition together
    room: int = 0  # energies that the state has room for, if they are more than n

    def shortened(self, steps: int) -> Self:
        """Return a pilot of so many steps, at most as many, with the same state."""
        return self._replace(steps=min(steps, self.steps), room=self._room())

    def _room(self) -> int:
        return max(self.room, self.steps - self.steps // 2)

    def init(self) -> PilotState:
        return PilotState(
            Slot("pilot_energies", (self._room(),), value=math.inf),
            Slot("partition", (2,), value=_UNKNOWN, is_shared=self.is_shared),
        )

    def update(self, state: PilotState, energy: Tensor, number: Tensor) -> PilotState:
        """Return the state after the step `number`, which evaluated `energy`."""
        number = ops.cast(number, "int32")

        def recorded() -> Tensor:
            places = tensors.constant(range(self._room()), "int32", energy)
            is_place = places == number - self.steps // 2
            return ops.where(is_place, ops.expand_dims(energy, -1), state.energies)

        energies = tensors.cond(number < self.steps, recorded, lambda: state.energies)
        partition = tensors.cond(
            number == self.steps - 1,
            lambda: self.found(energies),
            lambda: state.partition,
        )
        return PilotState(energies, partition)

    def found(self, energies: Tensor) -> Tensor:
        """Return (u_1, du) of each chain, or of all chains, float32, (..., 2)."""
        if self.is_shared:
            energies = ops.reshape(energies, (-1,))
        is_finite = ops.isfinite(energies)
        ordered = ops.sort(ops.where(is_finite, energies, math.inf), axis=-1)
        count = ops.sum(ops.cast(is_finite, "int32"), axis=-1)
        last = ops.maximum(ops.cast(count, "int32") - 1, 0)
        low, high = _quantile(ordered, last, LOW_SHARE), tensors.pick(ordered, last)
        # A chain without a finite energy is lost, and its partition must be finite.
        low, high = (ops.where(ops.isfinite(x), x, 0.0) for x in (low, high))
        largest = ops.maximum(ops.maximum(ops.abs(low), ops.abs(high)), 1.0)
        gap = width(low, high, self.partitions, _REACH)
        gap = ops.maximum(gap, _FINEST * largest)
        return ops.stack([low, gap], axis=-1)


def width(low: Tensor, high: Tensor, partitions: int, reach: float) -> Tensor:
    """Return du of m subregions, the last from low + reach (high - low) on."""
    return reach * (high - low) / (partitions - 2)


def _quantile(ordered: Tensor, last: Tensor, share: float) -> Tensor:
    """Return the quantile of the first `last` + 1 numbers of each row."""
    place = share * ops.cast(last, "float32")
    below = ops.floor(place)
    index = ops.cast(below, "int32")
    lower = tensors.pick(ordered, index)
    upper = tensors.pick(ordered, ops.minimum(index + 1, last))
    return lower + (place - below) * (upper - lower)
