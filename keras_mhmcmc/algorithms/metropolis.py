"""Mini-batch Metropolis-Hastings with batch tempering (MHBT), one gradient a step.

Papers: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", algorithm 1; Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.

Target: position and mini-batch together have the density (1). The state keeps the
energy and the gradient that its batch I gave. A proposal is evaluated on a new batch
I', and keeps what I' gave if it is accepted. The marginal of theta, eq. (3), is
approximately exp(-U/T).

Equations, with q the density of the proposal:

         U_I(theta) = -n mu_I(theta) - log prior(theta),  mu_I the mean log-likelihood
                      of the examples in batch I
    (1)  pi(theta, I) = exp(-U_I(theta) / T) nu(I),   T = n / c_n,   c_n = m by default
    (2)  log r = -(U_I'(theta') - U_I(theta)) / T
                 + log q_I'(theta' -> theta) - log q_I(theta -> theta')
         accept (theta', I') if log u < log r, u uniform on [0, 1)
    (3)  pi(theta) = exp(-U(theta) / T) * mean over I of exp((U - U_I)(theta) / T)

    MINT's temperature: T = n^(1 - lambda), lambda = alpha log m / log n

One step of algorithm 1 is `move`, which draws theta', the evaluation of theta' on I',
and `decide`, which applies (2) by `acceptance.py`. With the reversible proposal, eq.
(2) is the paper's (8). `mh.sample` draws I' at random from all batches. In `fit` the
batches of one epoch share no example, and (1) holds approximately. CMINT is MINT with
the learning rate `schedules.GeometricCycle`.

A *refresh* proposes the position itself with a new batch. Its two densities q are
equal, and the energies alone decide: an exact move on (theta, I). A step is a refresh
with the probability rho. The paper has rho = 0. A refresh frees a state whose batch has
an uncommonly small gradient. `settle` also makes the next step a refresh, after it has
put the state back into the model.

The proposals stand in `proposals.py`. RSGLD is this algorithm with a reversible
proposal whose beta is adapted, `beta_adaptation.py`.

| paper          | name                  | shape           | unit                |
|----------------|-----------------------|-----------------|---------------------|
| theta          | `position`            | list of tensors | weights             |
| theta'         | `point`               | list of tensors | weights             |
| -g_I(theta)    | `gradient`            | list of tensors | nats/example/weight |
| U_I            | `energy`              | () or (K,)      | nats                |
| n              | `train_size`          | int             | examples            |
| m              | `batch_size`          | int             | examples            |
| T = n / c_n    | `temperature`         | scalar, or (K,) | 1                   |
| epsilon, delta | `learning_rate`       | scalar, or (K,) | see `proposals.py`  |
| log q' - log q | `log_q_ratio`         | () or (K,)      | nats                |
| log r          | `log_ratio`           | () or (K,)      | nats                |
| u              | `uniforms[0]`         | () or (K,)      | 1                   |
| alpha of MINT  | `alpha`               | float           | 1                   |
| rho, here      | `refresh_probability` | float           | 1                   |

Batches I are drawn by `fit` or by `mh.sample`. The state does not hold them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import acceptance
from keras_mhmcmc.algorithms import beta_adaptation
from keras_mhmcmc.algorithms import next_point
from keras_mhmcmc.algorithms import proposals
from keras_mhmcmc.algorithms import tempering
from keras_mhmcmc.algorithms.rate_adaptation import RateAdaptation
from keras_mhmcmc.samplers.base import SHARE
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Info
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Rate
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import Traits
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import checked_learning_rate
from keras_mhmcmc.samplers.base import checked_temperature
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.base import slots_like
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class State(NamedTuple):
    """The pending point, the state of the chain, and what drew the point."""

    point: Position
    position: Position
    gradient: Position  # empty for proposals that need none
    energy: Tensor  # () or (K,)
    pending: Tensor  # int32: `NOTHING`, `PROPOSAL`, `REFRESH` or `WARM_UP`
    forward: Tensor  # bool: whether the pending move goes down the gradient
    scales: proposals.Scales
    adaptation: Any  # `beta_adaptation.State`, or () if beta is fixed
    rate: Any  # `rate_adaptation.State`, or () if the rate is not adapted


class Auxiliary(NamedTuple):
    """What `decide` hands to `move` besides the state."""

    has_state: Tensor  # bool
    finite: Tensor  # bool: the evaluated point was
    adaptation: Any
    rate: Any


@dataclasses.dataclass(frozen=True)
class Metropolis(Algorithm):
    """MHBT for any proposal, MINT, and RSGLD."""

    learning_rate: Rate | None  # step of the proposal
    temperature: Rate | None  # None is N/m, or 1 without data
    proposal: proposals.Proposal
    alpha: float | None = None  # MINT's, which gives the temperature
    adaptation: beta_adaptation.BetaAdaptation | None = None  # None: beta is fixed
    refresh_probability: float = 0.0  # rho
    warm_up: int = 0  # first moves, which are plain gradient steps
    rate_adaptation: RateAdaptation | None = None
    energy_weight: Callable[[int], float] = float  # c_n of m, if T is None

    def __post_init__(self) -> None:
        temperature, alpha = self.temperature, self.alpha
        if temperature is not None:
            temperature = checked_temperature(temperature, _validate.POSITIVE)
        if alpha is not None:
            alpha = tempering.checked_alpha(alpha)
        set_checked(
            self,
            learning_rate=checked_learning_rate(self.learning_rate),
            temperature=temperature,
            alpha=alpha,
            refresh_probability=_validate.number(
                "refresh_probability", self.refresh_probability, SHARE
            ),
            warm_up=_validate.integer("warm_up", self.warm_up, 0),
        )
        proposals.only_if_reversible(
            self.proposal,
            refresh_probability=self.refresh_probability,
            warm_up=self.warm_up,
            rate_adaptation=self.rate_adaptation is not None,
        )

    @property
    def traits(self) -> Traits:
        """What the algorithm needs and gives."""
        counts: tuple[str, ...] = ("accepted", "proposed", "nonfinite")
        if self.proposal.has_backward:
            counts += ("forward_accepted", "forward_proposed")
        if self.refresh_probability > 0.0:
            counts += ("refresh_accepted", "refresh_proposed")
        return Traits(
            uses_gradient=self.proposal.uses_gradient,
            uses_energy=True,
            counts_weights="the density of a proposal, with `normalized=True`,"
            if self.proposal.counts_weights
            else "",
            num_uniforms=3 if self.refresh_probability > 0.0 else 2,
            # One step more evaluates where the last move went.
            warm_up=self.warm_up + 1 if self.warm_up else 0,
            warm_up_argument=("warm_up", self.warm_up),
            counts=counts,
        )

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the algorithm at the temperature that follows from the data."""
        temperature, adaptation = self.temperature, self.adaptation
        if self.alpha is not None:
            if train_size is None or batch_size is None:
                raise ValueError(
                    "Argument `kernel`: MINT takes its temperature from the number of "
                    "examples, and there are none with `log_density`. Use "
                    "`mh.kernels.mhbt(..., temperature=...)`. Received: mint"
                )
            temperature = tempering.mint_temperature(self.alpha, train_size, batch_size)
        elif temperature is None:
            temperature = 1.0
            if train_size and batch_size:
                temperature = train_size / self.energy_weight(batch_size)
        rate_adaptation = self.rate_adaptation
        if adaptation is not None:
            adaptation = adaptation.bind_data_size(train_size, batch_size)
        if rate_adaptation is not None:
            rate_adaptation = rate_adaptation.bind_data_size(train_size, batch_size)
        return dataclasses.replace(
            self,
            temperature=temperature,
            adaptation=adaptation,
            rate_adaptation=rate_adaptation,
        )

    def with_warm_up(self, steps: int) -> Self:
        """Return the algorithm with a warm-up of so many steps."""
        return dataclasses.replace(self, warm_up=steps)

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        """Return the algorithm as it is."""
        return self

    def at_temperature(
        self, temperature: Rate, learning_rate: Rate | None = None
    ) -> Self:
        """Return the algorithm at another temperature, and learning rate if given."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        return dataclasses.replace(
            self, temperature=temperature, learning_rate=rate, alpha=None
        )

    def energy_unit(self, number: int) -> float | None:
        """Return the lowest temperature of a step."""
        return float(np.min(ops.convert_to_numpy(at_step(self.temperature, number))))

    def init(self, position: Position) -> State:
        """Return the state before the first step."""
        gradient = []
        if self.proposal.uses_gradient:
            gradient = slots_like(position, "gradient")
        return State(
            point=position,
            position=slots_like(position, "position"),
            gradient=gradient,
            energy=Slot("energy"),
            pending=Slot("pending", dtype="int32", value=acceptance.NOTHING),
            forward=Slot("forward", dtype="bool", value=False),
            scales=proposals.Scales(
                *(
                    Slot(name, value=value)
                    for name, value in proposals.STILL._asdict().items()
                )
            ),
            adaptation=() if self.adaptation is None else self.adaptation.init(),
            rate=() if self.rate_adaptation is None else self.rate_adaptation.init(),
        )

    def point(self, state: State) -> Position:
        """Return the pending point."""
        return state.point

    def decide(self, state: State, evaluation: Evaluation) -> tuple[Current, Info]:
        """Accept or reject the evaluated point."""
        gradient = evaluation.gradient if self.proposal.uses_gradient else []
        delta = tensors.lazy_difference(
            state.point, state.position, like=evaluation.energy
        )
        move = delta, state.gradient, gradient, state.scales
        distances: Any = None
        if self.adaptation is None:
            log_q_ratio = self.proposal.log_q_ratio(*move)
        else:
            distances = proposals.squared_distances(*move)
            log_q_ratio = self._log_q_ratio_at(state, distances, state.scales.beta)
        before = acceptance.Candidate(state.position, state.gradient, state.energy)
        candidate = acceptance.Candidate(state.point, gradient, evaluation.energy)
        after, outcome = acceptance.accept_or_reject(
            before,
            candidate,
            state.pending,
            log_q_ratio,
            evaluation.restart,
            evaluation.uniforms[0],
            temperature=evaluation.temperature,
        )
        adaptation = state.adaptation
        if self.adaptation is not None:
            seen = beta_adaptation.Move(
                distances,
                acceptance.energy_log_ratio(
                    state.energy, evaluation.energy, evaluation.temperature
                ),
                outcome.finite,
                state.forward,
                outcome.accepted,
                outcome.proposed,
            )
            adaptation = self.adaptation.update(
                adaptation,
                seen,
                evaluation.number,
                functools.partial(self._log_q_ratio_at, state),
            )
        rate = state.rate
        if self.rate_adaptation is not None:
            rate = self.rate_adaptation.update(
                rate, state.forward, outcome.accepted, outcome.proposed
            )
        auxiliary = Auxiliary(outcome.has_state, outcome.finite, adaptation, rate)
        current = Current(*after, auxiliary)
        counts = self._counts(outcome, state)
        return current, Info(counts, accepted=outcome.accepted)

    def resume(self, state: State, has_state: Tensor) -> Current:
        """Return where chains are if `has_state` says which have a state to go on."""
        return Current(
            state.position,
            state.gradient,
            state.energy,
            Auxiliary(has_state, has_state, state.adaptation, state.rate),
        )

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Draw the next proposal; a chain without a state stays where it is."""
        has_state, finite, adaptation, rate = current.auxiliary
        learning_rate, uniform = evaluation.learning_rate, evaluation.uniforms[1]
        refreshes: Tensor = None
        warms_up: Tensor = None
        if self.refresh_probability > 0.0:
            refreshes = evaluation.uniforms[2] < self.refresh_probability
        if self.warm_up > 0:
            warms_up = evaluation.number < self.warm_up
            uniform = ops.where(warms_up, 0.0, uniform)  # forward
        kind = next_point.next_kind(has_state, refreshes, warms_up)
        if self.rate_adaptation is not None:
            factor = ops.where(kind == acceptance.WARM_UP, 1.0, rate.factor)
            learning_rate = learning_rate * factor
            rate = rate._replace(learning_rate=learning_rate)
        scales = self.proposal.scales(
            learning_rate, evaluation.temperature, evaluation.train_size
        )
        if self.adaptation is not None:
            adaptation = self.adaptation.start(
                adaptation, current.gradient, scales, next_point.has_beta(kind)
            )
            scales = scales._replace(beta=adaptation.beta)
        scales = next_point.scales_of(kind, scales, finite if self.warm_up else None)
        point, forward = self.proposal.propose(
            current.position, current.gradient, evaluation.normals, uniform, scales
        )
        return State(
            point=point,
            position=current.position,
            gradient=current.gradient,
            energy=current.energy,
            pending=kind,
            forward=forward,
            scales=scales,
            adaptation=adaptation,
            rate=rate,
        )

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        """Return shares of accepted proposals, beta, and the count of not finite."""
        accepted, proposed = counts["accepted"], counts["proposed"]
        summary = {"acceptance": _share(accepted, proposed)}
        if self.proposal.has_backward:
            forward, tried = counts["forward_accepted"], counts["forward_proposed"]
            summary["forward_acceptance"] = _share(forward, tried)
            summary["backward_acceptance"] = _share(
                accepted - forward, proposed - tried
            )
            adaptation = state.scales if self.adaptation is None else state.adaptation
            # 0 is a beta that is not chosen yet.
            summary["beta"] = np.where(adaptation.beta > 0, adaptation.beta, math.nan)
        if self.rate_adaptation is not None:
            summary["learning_rate"] = state.rate.learning_rate
        if self.refresh_probability > 0.0:
            summary["refresh_acceptance"] = _share(
                counts["refresh_accepted"], counts["refresh_proposed"]
            )
        return summary | {"nonfinite": counts["nonfinite"]}

    def _log_q_ratio_at(
        self, state: State, distances: proposals.SquaredDistances, beta: Tensor
    ) -> Tensor:
        dimension = tensors.size(state.point, like=state.energy)
        return self.proposal.log_q_ratio_at(distances, beta, dimension)

    def _counts(self, outcome: acceptance.Outcome, state: State) -> dict[str, Tensor]:
        accepted = outcome.proposed & outcome.accepted
        counts = {
            "accepted": accepted,
            "proposed": outcome.proposed,
            "nonfinite": ~outcome.finite,
        }
        if self.proposal.has_backward:
            counts["forward_accepted"] = accepted & state.forward
            counts["forward_proposed"] = outcome.proposed & state.forward
        if self.refresh_probability > 0.0:
            refreshed = state.pending == acceptance.REFRESH
            counts["refresh_accepted"] = refreshed & outcome.accepted
            counts["refresh_proposed"] = refreshed
        return {name: ops.cast(value, "float32") for name, value in counts.items()}


def _share(part: Array, whole: Array) -> Array:
    return np.where(whole > 0, part / np.maximum(whole, 1.0), math.nan)
