"""TunaMH: exact Metropolis-Hastings on mini-batches of random size.

Paper: Zhang, Cooper and De Sa (2020), "Asymptotically optimal exact minibatch
Metropolis-Hastings", algorithm 2.

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
the bounds hold: |Delta_i| <= c_i M(theta, theta') for all examples, with
Delta_i = log p(x_i|theta) - log p(x_i|theta') and M = |theta' - theta|.

Equations, with C = sum_i c_i; c_i and Delta_i are divided by T first:

    theta' = theta + epsilon Z
    (1)  the batch: s_i ~ Poisson(chi c_i C M^2 + (Delta_i + c_i M) / 2)
    (2)  log r = sum_i s_i 2 artanh(-Delta_i / (c_i M (1 + 2 chi C M)))
                 + (log p(theta') - log p(theta)) / T
    accept theta' if log u < log r

(1) is drawn from a Poisson process of rate chi C^2 M^2 + C M, the expected number of
examples: an arrival of example i stays with the probability of its share of
chi c_i C M^2 + c_i M. Why it is exact: on the way back from theta' the counts have the
rates of -Delta_i. The two probabilities of the same counts differ by the factor (2), up
to exp(sum_i Delta_i), which is the likelihood's own ratio.

| paper          | name            | shape           | unit                  |
|----------------|-----------------|-----------------|-----------------------|
| theta          | `point`         | list of tensors | weights               |
| theta'         | `proposal`      | list of tensors | weights               |
| epsilon        | `learning_rate` | float           | weights               |
| c_i            | `bounds`        | (N,)            | nats / weight         |
| C              | `total`         | float           | nats / weight         |
| chi            | `chi`           | float           | examples / nats^2     |
| M              | `distance`      | (K,)            | weights               |
| Delta_i        | `difference`    | (K, B)          | nats                  |
| s_i            | `stays`, of each arrival | (K, B) | 1                     |
| T              | `temperature`   | float           | 1                     |
| u              | `uniforms`, part 0 | (K,)         | 1                     |
"""

import dataclasses
import math
from typing import NamedTuple
from typing import Self

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

# The default of chi C M. On a logistic regression (N = 10,000, d = 10) the accepted
# squared distance for each evaluated example was largest at 3: 1.2, 1.4 and 1.1 times
# that of chi C M = 1 with three learning rates, and up to 1.8 times that of 10.
_CHI_SHARE = 3.0


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
class Tuna(Transition):
    """TunaMH with a random walk as proposal."""

    learning_rate: float
    bounds: Array
    chi: float | None
    temperature: float
    block_size: int

    def __post_init__(self) -> None:
        positive = _validate.POSITIVE
        set_checked(
            self,
            learning_rate=_validate.number(
                "learning_rate", self.learning_rate, positive
            ),
            bounds=bounded.checked_bounds("bounds", self.bounds),
            chi=None
            if self.chi is None
            else _validate.number("chi", self.chi, positive),
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
        """Return the bounds c_i, and the table that draws examples by them."""
        return [self.bounds.astype("float32"), *poisson_batch.alias_table(self.bounds)]

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the kernel, if it has a bound for each example."""
        bounded.check_no_batch_size(batch_size)
        bounded.check_size("bounds", self.bounds, train_size)
        return self

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        return State(position, bounded.no_violation())

    def step(self, state: State, density: Density) -> tuple[State, Report]:
        """Propose, draw a batch, and accept or reject."""
        bounds, *table = density.arrays
        total = float(self.bounds.sum()) / self.temperature
        noise = density.normals(0)
        proposal = tensors.add_scaled(state.point, self.learning_rate, noise)
        prior = density.log_prior(proposal) - density.log_prior(state.point)
        moved = tensors.subtract(proposal, state.point)
        distance = ops.sqrt(tensors.sum_squares(moved, like=prior))
        chi = self._chi(state.point)
        rate = total * distance * (1.0 + chi * total * distance)
        # A proposal that is out of the prior's support needs no batch.
        possible = ops.isfinite(prior) & ops.isfinite(rate)

        def visit(
            gathered: Gathered, index: Tensor, arrived: Tensor, uniform: Tensor
        ) -> Gathered:
            here, there = density.log_likelihoods([state.point, proposal], index)
            (bound,) = tensors.gather([bounds], index)
            # T divides both the difference and the bound, and their ratio not at all.
            share, violation = bounded.bounded_share(
                here,
                there,
                bound * ops.expand_dims(distance, 1),
                index,
                arrived,
                gathered.violation,
            )
            far = ops.expand_dims(1.0 + 2.0 * chi * total * distance, 1)
            # Numerator and denominator of (1), over c_i M / 2.
            stays = arrived & (uniform * (far + 1.0) < far + share)
            term = ops.where(stays, -2.0 * ops.arctanh(share / far), 0.0)
            return Gathered(
                gathered.log_ratio + ops.sum(term, axis=1),
                gathered.examples + ops.sum(ops.cast(arrived, "float32"), axis=1),
                violation,
            )

        zero = ops.zeros_like(distance)
        gathered = poisson_batch.visit_arrivals(
            density,
            ops.where(possible, rate, 0.0),
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
        bounded.check_violation("bounds", state.violation)

    def summary(self, counts: dict[str, Array], steps: int) -> dict[str, Array]:
        """Return the share of accepted proposals, and the mean size of a batch."""
        return bounded.summary(counts, steps)

    def _chi(self, position: Position) -> float:
        """Return chi; by default chi C M is `_CHI_SHARE` for a move of usual length."""
        if self.chi is not None:
            return self.chi
        size = sum(math.prod(x.shape[1:]) for x in position)
        usual = self.learning_rate * math.sqrt(size)
        return _CHI_SHARE * self.temperature / (float(self.bounds.sum()) * usual)
