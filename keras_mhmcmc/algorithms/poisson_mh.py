"""PoissonMH: exact Metropolis-Hastings given a mini-batch of auxiliary counts.

Papers: Zhang and De Sa (2019), "Poisson-minibatching for Gibbs sampling with
convergence rate guarantees", for the counts; Zhang, Cooper and De Sa (2020),
"Asymptotically optimal exact minibatch Metropolis-Hastings", for the kernel.

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
lower_i <= log p(x_i|theta) <= upper_i wherever the prior is positive.

Equations, with phi_i = (log p(x_i|theta) - lower_i) / T, M_i = (upper_i - lower_i) / T
and L = sum_i M_i:

    theta' = theta + epsilon Z
    (1)  the batch: s_i ~ Poisson(lambda M_i / L + phi_i(theta))
    (2)  log r = sum_i s_i log((lambda M_i + L phi_i(theta'))
                               / (lambda M_i + L phi_i(theta)))
                 + (log p(theta') - log p(theta)) / T
    accept theta' if log u < log r

(1) is drawn from a Poisson process of rate lambda + L: an arrival of example i stays
with the probability (lambda M_i / L + phi_i) / (lambda M_i / L + M_i). Why it is exact:
theta and the counts have the density prod_i (lambda M_i / L + phi_i)^s_i / s_i! times
the prior, whose sum over all counts is the target. (1) draws the counts given theta,
and (2) is a test on this density.

| paper     | name             | shape           | unit    |
|-----------|------------------|-----------------|---------|
| theta     | `point`          | list of tensors | weights |
| theta'    | `proposal`       | list of tensors | weights |
| epsilon   | `learning_rate`  | float           | weights |
| lower, upper | `lower`, `upper` | (N,)         | nats    |
| M_i       | `width`          | (K, B)          | nats    |
| L         | `total`          | float           | nats    |
| lambda    | `poisson_rate`   | float           | examples |
| phi_i/M_i | `here`, `there`  | (K, B)          | 1       |
| s_i       | `stays`, of each arrival | (K, B)  | 1       |
| T         | `temperature`    | float           | 1       |
"""

import dataclasses
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import bounded
from keras_mhmcmc.algorithms import poisson_batch
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.tensors import ops
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.algorithms.transition import Report
from keras_mhmcmc.algorithms.transition import Transition


class State(NamedTuple):
    """The position, and the first bound that was exceeded."""

    point: Position
    violation: bounded.Violation


class Gathered(NamedTuple):
    """What the examples of a batch have given so far."""

    log_ratio: Tensor  # (2) without the prior, (K,)
    examples: Tensor  # evaluated, float32, (K,)
    violation: bounded.Violation


@dataclasses.dataclass(frozen=True, eq=False)
class PoissonMH(Transition):
    """PoissonMH with a random walk as proposal."""

    learning_rate: float
    lower: Array
    upper: Array
    poisson_rate: float | None
    temperature: float
    block_size: int

    def __post_init__(self) -> None:
        positive = _validate.POSITIVE
        rate = self.poisson_rate
        lower, upper = checked_limits(self.lower, self.upper)
        set_checked(
            self,
            learning_rate=_validate.number(
                "learning_rate", self.learning_rate, positive
            ),
            lower=lower,
            upper=upper,
            poisson_rate=None
            if rate is None
            else _validate.number("poisson_rate", rate, positive),
            temperature=_validate.number("temperature", self.temperature, positive),
            block_size=_validate.integer("block_size", self.block_size, 1),
        )

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of what a step counts."""
        return bounded.COUNTS

    @property
    def needs_examples(self) -> bool:
        """Return whether the kernel needs single log-likelihoods: it does."""
        return True

    @property
    def arrays(self) -> list[Array]:
        """Return lower and upper bounds, and the table that draws by their distance."""
        limits = [self.lower.astype("float32"), self.upper.astype("float32")]
        return [*limits, *poisson_batch.alias_table(self.upper - self.lower)]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the kernel, if it has bounds for each example."""
        bounded.check_no_batch_size(batch_size)
        bounded.check_size("lower", self.lower, train_size)
        return self

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position, bounded.no_violation())

    def step(self, state: State, density: Density) -> tuple[State, Report]:
        """Draw the counts, propose, and accept or reject."""
        lower, upper, *table = density.arrays
        total = float(np.sum(self.upper - self.lower)) / self.temperature
        extra = total if self.poisson_rate is None else self.poisson_rate
        noise = density.normals(0)
        proposal = tensors.add_scaled(state.point, self.learning_rate, noise)
        prior = density.log_prior(proposal) - density.log_prior(state.point)
        possible = ops.isfinite(prior)

        def visit(
            gathered: Gathered, index: Tensor, arrived: Tensor, uniform: Tensor
        ) -> Gathered:
            values = density.log_likelihoods([state.point, proposal], index)
            low, high = tensors.gather([lower, upper], index)
            violation = gathered.violation
            shares = []
            for value in values:
                slack = bounded.rounding(value)
                outside = (value < low - slack) | (value > high + slack)
                outside = outside | ~ops.isfinite(value)
                nearest = ops.where(value > high, high, low)
                violation = bounded.first_violation(
                    violation, value, nearest, index, arrived & outside
                )
                width = ops.where(high > low, high - low, 1.0)
                shares.append(ops.clip((value - low) / width, 0.0, 1.0))
            here, there = shares
            # lambda M_i / L + phi_i(theta) of lambda M_i / L + M_i.
            stays = arrived & (uniform * (extra + total) < extra + total * here)
            term = ops.log((extra + total * there) / (extra + total * here))
            term = ops.where(stays, term, 0.0)
            return Gathered(
                gathered.log_ratio + ops.sum(term, axis=1),
                gathered.examples + ops.sum(ops.cast(arrived, "float32"), axis=1),
                violation,
            )

        zero = ops.zeros_like(prior)
        gathered = poisson_batch.visit_arrivals(
            density,
            ops.where(possible, zero + (extra + total), 0.0),
            poisson_batch.AliasTable(*table),
            self.block_size,
            visit,
            Gathered(zero, zero, state.violation),
        )
        point, report = bounded.decided(
            state.point,
            proposal,
            gathered.log_ratio + prior / self.temperature,
            possible,
            gathered.examples,
            gathered.violation,
            density,
        )
        return State(point, gathered.violation), report

    def check(self, state: State) -> None:
        """Raise a `ValueError` if a bound was exceeded."""
        bounded.check_violation("lower` or `upper", state.violation)

    def summary(self, counts: dict[str, Array], steps: int) -> dict[str, Array]:
        """Return the share of accepted proposals, and the mean size of a batch."""
        return bounded.summary(counts, steps)


def checked_limits(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return both bounds as arrays, float64, (N,), or raise a `ValueError`."""
    low = _validate.array("Argument `lower`", lower)
    high = _validate.array("Argument `upper`", upper)
    if low.ndim != 1 or low.size == 0 or low.shape != high.shape:
        raise ValueError(
            "Arguments `lower` and `upper` must have one number for each example, "
            f"shape (N,). Received: arrays of shapes {low.shape} and {high.shape}"
        )
    fine = np.isfinite(low) & np.isfinite(high) & (low <= high)
    if not fine.all() or not (low < high).any():
        bad = int(np.argmin(fine & (low < high)))
        raise ValueError(
            "Argument `lower` must be finite and at most `upper`, and below it for an "
            f"example or more. Received: lower={low[bad]}, upper={high[bad]} for "
            f"example {bad}"
        )
    return low, high
