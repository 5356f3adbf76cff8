"""Mini-batch Metropolis-Hastings with batch tempering (MHBT), one gradient a step.

Papers: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", algorithm 1; Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.

Target: position and mini-batch together have the density exp(-U_I(theta)/T) nu(I), with
U_I the energy estimated from batch I. The state keeps the energy and the gradient of
*its own* batch, and a proposal brings its own. The marginal of theta is approximately
exp(-U(theta)/T).

Equations, with q the density of the proposal:

    log r = -(U_I'(theta') - U_I(theta)) / T
            + log q_I'(theta' -> theta) - log q_I(theta -> theta')
    accept (theta', I') if log u < log r, u uniform on (0, 1)

    MINT's temperature: T = n^(1 - lambda), lambda = alpha log m / log n

A *refresh* proposes the position itself with a new batch. Its densities cancel, so that
the same rule with the energies alone is an exact move on (theta, I). With the
probability rho, `refresh_probability`, a step is a refresh (the paper has rho = 0): a
state whose batch has an uncommonly small gradient leaves it in this way. A refresh also
follows after the current state was put back into a model.

The proposals stand in `proposals.py`. RSGLD is this algorithm with a reversible
proposal whose beta is adapted, `beta_adaptation.py`.

| paper             | name          | shape            | unit                        |
|-------------------|---------------|------------------|-----------------------------|
| theta             | `position`    | list of tensors  | weights                     |
| theta'            | `point`       | list of tensors  | weights                     |
| -g_I(theta)       | `gradient`    | list of tensors  | nats per example and weight |
| -n mu_I(theta)    | `energy`      | () or (K,)       | nats                        |
| T = n / c_n       | `temperature` | scalar, or (K,)  | 1                           |
| u                 | `uniform`     | () or (K,)       | 1                           |
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

# What the point that is evaluated next is to the state.
NOTHING = 0  # there is no state yet: the point becomes the state
PROPOSAL = 1  # a move proposed from the state
REFRESH = 2  # the state's own position, for a new batch


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
            pending=Slot("pending", dtype="int32", value=NOTHING),
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
            log_q_ratio = self.proposal.log_ratio(*move)
        else:
            distances = proposals.squared_distances(*move)
            log_q_ratio = self.adaptation.log_q_ratio(
                distances, state.scales.beta, self._dimension(state)
            )
        before = Candidate(state.position, state.gradient, state.energy)
        candidate = Candidate(state.point, gradient, evaluation.energy)
        after, outcome = accept_or_reject(
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
                energy_log_ratio(
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
        moves, pending = has_state, PROPOSAL * ops.cast(has_state, "int32")
        if self.refresh_probability > 0.0:
            refreshes = evaluation.uniforms[2] < self.refresh_probability
            moves = ops.logical_and(has_state, ~refreshes)
            pending = ops.where(has_state & refreshes, REFRESH, pending)
        scales = self.proposal.scales(
            evaluation.learning_rate, evaluation.temperature, evaluation.train_size
        )
        if self.adaptation is not None:
            adaptation = self.adaptation.start(
                adaptation, current.gradient, scales, has_state
            )
            scales = scales._replace(beta=adaptation.beta)
        scales = proposals.Scales(
            *(
                ops.where(moves, ops.cast(scale, "float32"), still)
                for scale, still in zip(scales, proposals.STILL, strict=True)
            )
        )
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
            beta = state.scales.beta
            if self.adaptation is not None:
                beta = state.adaptation.beta
            summary["beta"] = beta
        if self.refresh_probability > 0.0:
            summary["refresh_acceptance"] = _share(
                counts["refresh_accepted"], counts["refresh_proposed"]
            )
        return summary | {"nonfinite": counts["nonfinite"]}

    def _dimension(self, state: State) -> int:
        return tensors.size(state.point, like=state.energy)

    def _counts(self, outcome: "Outcome", state: State) -> dict[str, Tensor]:
        accepted, forward = outcome.proposed & outcome.accepted, state.forward
        refreshed = state.pending == REFRESH
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


class Candidate(NamedTuple):
    """A position with the energy and the gradient that one batch gave it."""

    position: Position
    gradient: Position  # empty for proposals that need none
    energy: Tensor


class Outcome(NamedTuple):
    """What happened to the point that was evaluated."""

    accepted: Tensor  # bool: the point is the new state
    proposed: Tensor  # bool: the point was a proposal, no first point and no refresh
    finite: Tensor  # bool: the energy and the gradient were finite
    has_state: Tensor  # bool: there is a state now
    log_ratio: Tensor  # log r of the rule above


def energy_log_ratio(energy: Tensor, new_energy: Tensor, temperature: Tensor) -> Tensor:
    """Return -(U_I'(theta') - U_I(theta)) / T, the energies' part of log r."""
    return (energy - new_energy) / temperature


def accept_or_reject(
    state: Candidate,
    candidate: Candidate,
    pending: Tensor,
    log_q_ratio: Tensor,
    restart: Tensor,
    uniform: Tensor,
    *,
    temperature: Tensor,
) -> tuple[Candidate, Outcome]:
    """Accept or reject an evaluated point.

    Args:
        state: the state before the step; arbitrary while `pending` is `NOTHING`.
        candidate: the point that was evaluated.
        pending: `NOTHING`, `PROPOSAL` or `REFRESH`, int32, () or (K,).
        log_q_ratio: log q(theta' -> theta) - log q(theta -> theta'); not finite where
            the gradient is not.
        restart: bool, the evaluated point starts a new chain; None: it does not.
        uniform: uniform noise in (0, 1), () or (K,).
        temperature: T, greater than 0.

    Returns:
        The next state, and the `Outcome`.
    """
    proposed = pending == PROPOSAL
    finite = ops.isfinite(candidate.energy) & ops.isfinite(log_q_ratio)
    log_ratio = energy_log_ratio(state.energy, candidate.energy, temperature)
    log_ratio = log_ratio + ops.where(proposed, log_q_ratio, 0.0)
    log_ratio = ops.where(finite, log_ratio, -math.inf)

    first = pending == NOTHING
    if restart is not None:
        first = first | restart
    accepted = finite & (first | (ops.log(uniform) < log_ratio))
    state = Candidate(
        # A first point that is not finite is kept, to be evaluated on another batch.
        position=tensors.select(accepted | first, candidate.position, state.position),
        gradient=tensors.select(accepted, candidate.gradient, state.gradient),
        energy=ops.where(accepted, candidate.energy, state.energy),
    )
    return state, Outcome(accepted, proposed, finite, ~first | accepted, log_ratio)


def was_modified(delta: Position, pending: Tensor) -> Tensor:
    """Return whether somebody changed the weights after they were settled.

    The pending point of a refresh is the position of the state. Where both differ by
    `delta`, the state is out of date.
    """
    is_elsewhere = tensors.sum_squares(delta, like=pending) > 0
    return ops.logical_and(pending == REFRESH, is_elsewhere)


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
