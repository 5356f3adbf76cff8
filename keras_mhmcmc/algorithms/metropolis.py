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
import math
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
from keras_mhmcmc.algorithms import proposals
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import Algorithm
from keras_mhmcmc.algorithms.base import Current
from keras_mhmcmc.algorithms.base import Evaluation
from keras_mhmcmc.algorithms.base import Info
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import Rate
from keras_mhmcmc.algorithms.base import Slot
from keras_mhmcmc.algorithms.base import Traits
from keras_mhmcmc.algorithms.base import at_step
from keras_mhmcmc.algorithms.base import checked_temperature
from keras_mhmcmc.algorithms.base import rate_or_none
from keras_mhmcmc.algorithms.base import set_checked
from keras_mhmcmc.algorithms.base import slots_like
from keras_mhmcmc.algorithms.tensors import ops

_REFRESH = _validate.Interval(0.0, 1.0)
_ALPHA = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)


class State(NamedTuple):
    """The pending point, the state of the chain, and what drew the point."""

    point: Position
    position: Position
    gradient: Position  # empty for proposals that need none
    energy: Tensor  # () or (K,)
    pending: Tensor  # int32: `NOTHING`, `PROPOSAL` or `REFRESH`
    forward: Tensor  # bool: whether the pending move goes down the gradient
    scales: proposals.Scales
    adaptation: Any  # `beta_adaptation.State`, or () if beta is fixed


class Auxiliary(NamedTuple):
    """What `decide` hands to `move` besides the state."""

    has_state: Tensor  # bool
    adaptation: Any


@dataclasses.dataclass(frozen=True)
class Metropolis(Algorithm):
    """MHBT for any proposal, MINT, and RSGLD."""

    learning_rate: Rate | None  # step of the proposal
    temperature: Rate | None  # None is N/m, or 1 without data
    proposal: proposals.Proposal
    alpha: float | None = None  # MINT's, which gives the temperature
    adaptation: beta_adaptation.BetaAdaptation | None = None  # None: beta is fixed
    refresh_probability: float = 0.0  # rho

    def __post_init__(self) -> None:
        temperature, alpha = self.temperature, self.alpha
        if temperature is not None:
            temperature = checked_temperature(temperature, _validate.POSITIVE)
        if alpha is not None:
            alpha = checked_alpha(alpha)
        set_checked(
            self,
            learning_rate=rate_or_none(self.learning_rate),
            temperature=temperature,
            alpha=alpha,
            refresh_probability=checked_refresh_probability(
                self.refresh_probability, self.proposal
            ),
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
            counts_weights=self.proposal.counts_weights,
            num_uniforms=3 if self.refresh_probability > 0.0 else 2,
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
            temperature = mint_temperature(self.alpha, train_size, batch_size)
        elif temperature is None:
            temperature = train_size / batch_size if train_size and batch_size else 1.0
        if adaptation is not None:
            adaptation = adaptation.bind_data_size(train_size, batch_size)
        return dataclasses.replace(self, temperature=temperature, adaptation=adaptation)

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
            log_q_ratio = self.adaptation.log_q_ratio(
                distances, state.scales.beta, self._dimension(state)
            )
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
                adaptation, seen, evaluation.number, self._dimension(state)
            )
        current = Current(*after, Auxiliary(outcome.has_state, adaptation))
        counts = self._counts(outcome, state)
        return current, Info(counts, accepted=outcome.accepted)

    def resume(self, state: State, has_state: Tensor) -> Current:
        """Return where chains are if `has_state` says which have a state to go on."""
        return Current(
            state.position,
            state.gradient,
            state.energy,
            Auxiliary(has_state, state.adaptation),
        )

    def move(self, current: Current, evaluation: Evaluation) -> State:
        """Draw the next proposal; a chain without a state stays where it is."""
        has_state, adaptation = current.auxiliary
        is_pending = ops.cast(has_state, "int32")
        pending = acceptance.PROPOSAL * is_pending
        scales = self.proposal.scales(
            evaluation.learning_rate, evaluation.temperature, evaluation.train_size
        )
        scales = _still_unless(has_state, scales)
        if self.adaptation is not None:
            adaptation = self.adaptation.start(
                adaptation, current.gradient, scales, has_state
            )
            scales = _still_unless(has_state, scales._replace(beta=adaptation.beta))
        if self.refresh_probability > 0.0:
            refreshes = evaluation.uniforms[2] < self.refresh_probability
            pending = ops.where(refreshes, acceptance.REFRESH * is_pending, pending)
            scales = _still_unless(ops.logical_not(refreshes), scales)
        point, forward = self.proposal.propose(
            current.position,
            current.gradient,
            evaluation.normals,
            evaluation.uniforms[1],
            scales,
        )
        return State(
            point=point,
            position=current.position,
            gradient=current.gradient,
            energy=current.energy,
            pending=pending,
            forward=forward,
            scales=scales,
            adaptation=adaptation,
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
            if self.adaptation is None:
                # Not that of the state's scales, which is 1 in a pending refresh.
                beta = self.proposal.scales(0.0, 1.0, 1).beta
                summary["beta"] = np.full(np.shape(counts["accepted"]), beta)
            else:
                summary["beta"] = state.adaptation.beta
        if self.refresh_probability > 0.0:
            summary["refresh_acceptance"] = _share(
                counts["refresh_accepted"], counts["refresh_proposed"]
            )
        return summary | {"nonfinite": counts["nonfinite"]}

    def _dimension(self, state: State) -> int:
        return tensors.size(state.point, like=state.energy)

    def _counts(self, outcome: acceptance.Outcome, state: State) -> dict[str, Tensor]:
        accepted, forward = outcome.proposed & outcome.accepted, state.forward
        refreshed = state.pending == acceptance.REFRESH
        counts = {
            "accepted": accepted,
            "proposed": outcome.proposed,
            "nonfinite": ~outcome.finite,
            "forward_accepted": accepted & forward,
            "forward_proposed": outcome.proposed & forward,
            "refresh_accepted": refreshed & outcome.accepted,
            "refresh_proposed": refreshed,
        }
        return {name: ops.cast(counts[name], "float32") for name in self.traits.counts}


def _still_unless(condition: Tensor, scales: proposals.Scales) -> proposals.Scales:
    """Return the scales of chains where `condition` holds; the others stay in place."""
    return proposals.Scales(
        *(
            ops.where(condition, ops.cast(scale, "float32"), still)
            for scale, still in zip(scales, proposals.STILL, strict=True)
        )
    )


def checked_alpha(value: Any) -> float:
    """Return alpha of MINT, a number in (0, 1]."""
    return _validate.number("alpha", value, _ALPHA)


def checked_refresh_probability(value: Any, proposal: proposals.Proposal) -> float:
    """Return rho, a number in [0, 1), and 0 unless the proposal is reversible."""
    value = _validate.number("refresh_probability", value, _REFRESH)
    if value > 0.0 and not proposal.has_backward:
        raise ValueError(
            "Argument `refresh_probability` must be 0 unless the proposal is "
            "`mh.proposals.ReversibleLangevin(beta)`. "
            f"Received: refresh_probability={value}, proposal={proposal!r}"
        )
    return value


def mint_temperature(alpha: float, train_size: int, batch_size: int) -> float:
    """Return MINT's temperature n^(1 - lambda), with n^lambda = m^alpha."""
    return train_size / batch_size**alpha


def _share(part: Array, whole: Array) -> Array:
    return np.where(whole > 0, part / np.maximum(whole, 1.0), math.nan)
