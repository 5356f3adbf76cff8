"""Contour stochastic gradient MCMC: a flattened energy, and importance weights for it.

Papers: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin dynamics
algorithm for simulations of multi-modal distributions", eq. (5) to (10), (57) and
appendix D.1; Deng, Liang, Hao, Lin and Liang (2022), "Interacting contour stochastic
gradient Langevin dynamics", for the field with exponent 1 and the shared density.

Law: the chain samples exp(-U(x)/T) / Psi(U(x))^zeta, where Psi interpolates the masses
theta(i) of the energy's m subregions; with the importance weights Psi(U(x))^zeta draws
have the law exp(-U(x)/T).

Equations, with J the subregion of the point that was just evaluated:

    J       = 1 where U <= u_1,  i where u_{i-1} < U <= u_i,  m where U > u_{m-1}
    theta   <- theta(i) + omega (theta(J)^p + omega rho 1{i >= J}) (1{i = J} - theta(i))
    factor  = 1 + zeta T (log theta(J) - log theta((J-1) v 1)) / du
    or        1 + zeta T (log theta((J+1) ^ m) - log theta(J)) / du   (D.1, "forward")

    Psi(U)  = theta(J) exp((log theta(J) - log theta((J-1) v 1)) (U - u_J) / du)

with p = zeta, eq. (10), whose fixed point is the mass of each subregion under
exp(-U/T), or p = 1, eq. (15), whose fixed point is that mass to the power 1/zeta. The
factor scales the gradient of U, and not the noise. With rho > 0 eq. (57) adds to the
sum of theta; here theta is divided by its sum, at each step then.

In the last subregion, which has no upper end, Psi is constant and the factor is 1, as
in the authors' code for images; eq. (8) keeps the slope there.

The paper weights a draw by theta(J)^zeta. Inside a subregion Psi is not constant,
though: on its mixture of section 4.1, with du = 1 and zeta = 0.75, those weights move
the mean from 0 to 0.25 (by quadrature), and Psi(U)^zeta, eq. (5), does not. Where the
factor is limited, the weights use the slope that is left.

Everything is kept as log theta: theta of a subregion that is never visited decays
without end, and float32 would make it 0. Subregions are counted from 0 here.

| paper         | name                | shape          | unit           |
|---------------|---------------------|----------------|----------------|
| U             | `energy`            | (...)          | nats           |
| J             | `index`             | (...), int32   | 1, from 0      |
| log theta     | `log_masses`           | (..., m)       | nats           |
| omega         | `step_size`         | scalar         | 1              |
| T             | `temperature`       | scalar         | 1              |
| u_1           | `energy_min`        | float          | nats           |
| du            | `energy_gap`        | float          | nats           |
| m             | `partitions`        | int            | 1              |
| zeta          | `zeta`              | float          | 1              |
| p             | `exponent`          | float          | 1              |
| rho           | `rho`               | float          | 1              |

(...) is () for one chain and (K,) for K chains.
"""

from typing import Any
from typing import NamedTuple

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops


class Contour(NamedTuple):
    """The numbers of a contour sampler that stay as they are."""

    energy_min: float
    energy_gap: float
    partitions: int
    zeta: float
    exponent: float
    rho: float
    is_forward: bool  # whether the factor looks at the next subregion
    max_multiplier: float | None
    weight_power: float


def partition_index(energy, contour):
    """J, the subregion of each energy; the first one where it is not finite."""
    above = ops.ceil((energy - contour.energy_min) / contour.energy_gap)
    above = ops.where(ops.isfinite(energy), above, ops.zeros_like(above))
    return ops.cast(ops.clip(above, 0, contour.partitions - 1), "int32")


class Place(NamedTuple):
    """Where the partition has an energy."""

    energy: Any
    index: Any  # J, from 0; 0 where the energy is not finite
    finite: Any


def locate(energy, contour):
    """The `Place` of each energy."""
    return Place(energy, partition_index(energy, contour), ops.isfinite(energy))


def update_log_masses(log_masses, place, step_size, contour):
    """log theta after the energy of one more point; as it was where that is not finite.

    Each chain learns a theta of its own. The sum is 1 up to rounding, which many steps
    add up unless `normalized` is called.
    """
    index, finite = place.index, place.finite
    visited = _at(log_masses, index)
    low, high, log_high = _rates(visited, step_size, contour)
    gained = ops.logaddexp(visited + ops.log1p(-high), log_high)
    gained = ops.where(finite, gained, visited)
    decay = ops.log1p(-ops.where(finite, low, ops.zeros_like(low)))
    bins, index = _bins(contour, index), ops.expand_dims(index, -1)
    kept = log_masses + ops.expand_dims(decay, -1)
    if contour.rho > 0.0:
        above = ops.log1p(-ops.where(finite, high, ops.zeros_like(high)))
        kept = ops.where(bins > index, log_masses + ops.expand_dims(above, -1), kept)
    return ops.where(bins == index, ops.expand_dims(gained, -1), kept)


def update_shared_log_masses(log_masses, place, step_size, contour):
    """log theta, shape (m,), after the energies (K,) of K chains that share it.

    The field is the mean of the chains'. An energy that is not finite has no part.
    """
    index, finite = place.index, place.finite[:, None]
    count = ops.maximum(ops.sum(ops.cast(finite, "float32")), 1.0)
    low, high, log_high = _rates(ops.take(log_masses, index), step_size, contour)
    bins, index = _bins(contour, index), index[:, None]
    taken = ops.where(bins >= index, high[:, None], low[:, None])
    taken = ops.where(finite, taken, ops.zeros_like(taken))
    kept = log_masses + ops.log1p(-ops.sum(taken, axis=0) / count)
    given = ops.where((bins == index) & finite, log_high[:, None], _LOG_OF_NOTHING)
    gained = ops.logsumexp(given, axis=0) - ops.log(count)
    return ops.logaddexp(kept, gained)


def normalized(log_masses):
    """log theta with a sum of theta that is 1, where it was nearly that."""
    total = ops.sum(ops.exp(log_masses), axis=-1, keepdims=True)
    return log_masses - ops.log(total)


def visited(visits, place, contour):
    """`visits` of each subregion, int32, with one more energy; one that is finite."""
    hits = ops.expand_dims(place.index, -1) == _bins(contour, place.index)
    hits = ops.logical_and(hits, ops.expand_dims(place.finite, -1))
    return visits + ops.cast(hits, "int32")


def multiplier_and_log_weight(log_masses, place, temperature, contour):
    """The factor of the gradient of U, and the log importance weight of the point.

    A factor below 0 drives the chain uphill. A point whose energy is not finite stands
    for nothing: its factor is finite and its weight 0.
    """
    end, slope = _segment(log_masses, place.index, temperature, contour)
    factor = 1.0 + contour.zeta * temperature * slope
    upper = contour.energy_min + contour.energy_gap * ops.cast(place.index, "float32")
    log_psi = end + slope * (place.energy - upper)
    log_psi = ops.where(place.finite, log_psi, _LOG_OF_NOTHING)
    return factor, contour.weight_power * log_psi


def _segment(log_masses, index, temperature, contour):
    """log Psi at the upper end of subregion J, and its slope there, as limited."""
    if contour.is_forward:
        end = _at(log_masses, ops.minimum(index + 1, contour.partitions - 1))
        slope = (end - _at(log_masses, index)) / contour.energy_gap
    else:
        end = _at(log_masses, index)
        slope = (end - _at(log_masses, ops.maximum(index - 1, 0))) / contour.energy_gap
        # The last subregion has no upper end. With a slope there, a chain that was
        # thrown far up might never come back, or have a weight without limit.
        is_last = index == contour.partitions - 1
        slope = ops.where(is_last, ops.zeros_like(slope), slope)
    if contour.max_multiplier is not None:
        # At T = 0 the factor is 1 whatever the slope is.
        scale = ops.convert_to_tensor(contour.zeta * temperature, "float32")
        scale = ops.maximum(scale, 1e-30)
        steepest = (-contour.max_multiplier - 1.0) / scale
        slope = ops.clip(slope, steepest, (contour.max_multiplier - 1.0) / scale)
    return end, slope


# A finite stand-in for log 0, which not every backend adds well.
_LOG_OF_NOTHING = -1e30


def _rates(log_visited, step_size, contour):
    """omega (theta(J)^p + omega rho 1{i >= J}): where i < J, elsewhere, and its log."""
    log_low = ops.log(step_size) + contour.exponent * log_visited
    low = ops.exp(log_low)
    if contour.rho == 0.0:
        return low, low, log_low
    high = low + step_size * step_size * contour.rho
    return low, high, ops.log(high)


def _at(log_masses, index):
    """log theta(J) of each chain."""
    return tensors.pick(log_masses, index)


def _bins(contour, like):
    return tensors.constant(range(contour.partitions), "int32", like)
