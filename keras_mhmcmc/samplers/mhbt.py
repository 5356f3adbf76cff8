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
    (1)  pi(theta, I) = exp(-U_I(theta) / T) nu(I),   T = n / c_n
    (2)  log r = -(U_I'(theta') - U_I(theta)) / T
                 + log q_I'(theta' -> theta) - log q_I(theta -> theta')
         accept (theta', I') if log u < log r, u uniform on [0, 1)
    (3)  pi(theta) = exp(-U(theta) / T) * mean over I of exp((U - U_I)(theta) / T)
         c_n = m (MHBT), n^lambda = m^alpha (MINT), 2 sqrt(m) (RSGLD here)

With c_n = 2 sqrt(m), the energies of two batches in log r differ by 2 sqrt(2) times the
standard deviation of the loss of one example, whatever m is.

With the reversible proposal, eq. (2) is the paper's (8). `mh.sample` draws I' at random
from all batches. In `fit` the batches of one epoch share no example, and (1) holds
approximately. CMINT is MINT with the learning rate `schedules.GeometricCycle`.

A *refresh* proposes the position itself with a new batch. The energies alone decide: an
exact move on (theta, I). A step is a refresh with the probability rho, 0 in the paper.
It frees a state whose batch has an uncommonly small gradient. `settle` also makes the
next step a refresh, after it has put the state back into the model.

| paper          | name                  | shape           | unit                |
|----------------|-----------------------|-----------------|---------------------|
| theta'         | `point`               | list of tensors | weights             |
| -g_I(theta)    | `gradient`            | list of tensors | nats/example/weight |
| T = n / c_n    | `temperature`         | scalar, or (K,) | 1                   |
| epsilon, delta | `learning_rate`       | scalar, or (K,) | see `proposals.py`  |
| log q' - log q | `log_q_ratio`         | () or (K,)      | nats                |
| rho, here      | `refresh_probability` | float           | 1                   |
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.arguments import WARM_UP
from keras_mhmcmc.fit.metropolis import MetropolisSampler
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import beta_adaptation
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.beta_adaptation import BetaAdaptation
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.samplers.parts.rate_adaptation import RateAdaptation
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.schedules import Schedule

REFRESH_PROBABILITY = 0.1  # with which reversible proposals move a network


class State(NamedTuple):
    point: base.Position
    position: base.Position
    gradient: base.Position  # empty for proposals that need none
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
class Metropolis(base.Algorithm):
    """MHBT for any proposal, MINT, and RSGLD."""

    learning_rate: base.Rate  # step of the proposal
    temperature: base.Rate | None  # None is N/m, or 1 without data
    proposal: proposals.Proposal
    alpha: float | None = None  # MINT's, which gives the temperature
    adaptation: BetaAdaptation | None = None  # None: beta is fixed
    refresh_probability: float = 0.0  # rho
    warm_up: int = 0  # first moves, which are plain gradient steps
    rate_adaptation: RateAdaptation | None = None
    energy_weight: Callable[[int], float] = float  # c_n of m, if T is None
    can_swap = True

    def __post_init__(self) -> None:
        if self.temperature is not None:
            base.check(self, temperature=base.OrSchedule(base.POSITIVE))
        base.check(self, learning_rate=base.RATE)
        base.check(self, refresh_probability=base.SHARE, warm_up=0)
        proposals.only_if_reversible(
            self.proposal,
            refresh_probability=self.refresh_probability,
            warm_up=self.warm_up,
            rate_adaptation=self.rate_adaptation is not None,
        )

    @property
    def traits(self) -> base.Traits:
        counts: tuple[str, ...] = ("accepted", "proposed", "nonfinite")
        if self.proposal.has_backward:
            counts += ("forward_accepted", "forward_proposed")
        if self.refresh_probability > 0.0:
            counts += ("refresh_accepted", "refresh_proposed")
        return base.Traits(
            uses_gradient=self.proposal.uses_gradient,
            uses_energy=True,
            compares_batches=True,
            num_uniforms=3 if self.refresh_probability > 0.0 else 2,
            # One step more evaluates where the last move went.
            warm_up=self.warm_up + 1 if self.warm_up else 0,
            warm_up_argument=("warm_up", self.warm_up),
            counts=counts,
            adapts_target=self.adaptation is not None,
        )

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        temperature = self.temperature
        if self.alpha is not None:
            if train_size is None or batch_size is None:
                raise ValueError(
                    "Argument `kernel` must not be MINT with `log_density`: its "
                    "temperature follows from the number of examples. Use "
                    "`mh.kernels.mhbt(..., temperature=...)`. Received: mint"
                )
            temperature = mint_temperature(self.alpha, train_size, batch_size)
        elif temperature is None:
            temperature = 1.0
            if train_size and batch_size:
                temperature = train_size / self.energy_weight(batch_size)
        steps = train_size // batch_size if train_size and batch_size else 1
        parts: dict[str, Any] = dict(adaptation=self.adaptation)
        parts["rate_adaptation"] = self.rate_adaptation
        for name, part in parts.items():
            parts[name] = part and dataclasses.replace(part, steps=steps)
        return dataclasses.replace(self, temperature=temperature, **parts)

    def at_temperature(
        self, temperature: base.Rate, learning_rate: base.Rate | None = None
    ) -> Self:
        cold = super().at_temperature(temperature, learning_rate)
        return dataclasses.replace(cold, alpha=None)

    def energy_unit(self, number: int, dimension: int) -> float | None:
        temperature = base.at_step(self.temperature, number)
        return float(np.min(ops.convert_to_numpy(temperature)))

    def init(self, position: base.Position) -> State:
        gradient = base.slots_like(position, "gradient")
        still = proposals.STILL._asdict()
        return State(
            point=position,
            position=base.slots_like(position, "position"),
            gradient=gradient if self.proposal.uses_gradient else [],
            energy=base.Slot("energy"),
            pending=base.Slot("pending", dtype="int32", value=acceptance.NOTHING),
            forward=base.Slot("forward", dtype="bool", value=False),
            scales=proposals.Scales(*(base.Slot(n, value=x) for n, x in still.items())),
            adaptation=() if self.adaptation is None else self.adaptation.init(),
            rate=() if self.rate_adaptation is None else self.rate_adaptation.init(),
        )

    def decide(
        self, state: State, evaluation: base.Evaluation
    ) -> tuple[base.Current, base.Info]:
        energy, temperature = evaluation.energy, evaluation.temperature
        gradient = evaluation.gradient if self.proposal.uses_gradient else []
        delta = tensors.subtract(state.point, state.position)
        move = delta, state.gradient, gradient, state.scales
        distances: Any = None
        if self.adaptation is None:
            log_q_ratio = self.proposal.log_q_ratio(*move)
        else:
            distances = proposals.squared_distances(*move)
            log_q_ratio = self._log_q_ratio_at(state, distances, state.scales.beta)
        before = acceptance.Candidate(state.position, state.gradient, state.energy)
        after, outcome = acceptance.accept_or_reject(
            before,
            acceptance.Candidate(state.point, gradient, energy),
            state.pending,
            log_q_ratio,
            evaluation.restart,
            evaluation.uniforms[0],
            temperature=temperature,
        )
        happened = state.forward, outcome.accepted, outcome.proposed
        adaptation = state.adaptation
        if self.adaptation is not None:
            change = acceptance.energy_log_ratio(state.energy, energy, temperature)
            seen = beta_adaptation.Move(distances, change, outcome.finite, *happened)
            ratio_at = functools.partial(self._log_q_ratio_at, state)
            number = evaluation.number
            adaptation = self.adaptation.update(adaptation, seen, number, ratio_at)
        rate = state.rate
        if self.rate_adaptation is not None:
            rate = self.rate_adaptation.update(rate, *happened)
        auxiliary = Auxiliary(outcome.has_state, outcome.finite, adaptation, rate)
        info = base.Info(self._counts(outcome, state), accepted=outcome.accepted)
        return base.Current(*after, auxiliary), info

    def resume(self, state: State, has_state: Tensor) -> base.Current:
        """Return where chains are if `has_state` says which have a state to go on."""
        auxiliary = Auxiliary(has_state, has_state, state.adaptation, state.rate)
        return base.Current(state.position, state.gradient, state.energy, auxiliary)

    def move(self, current: base.Current, evaluation: base.Evaluation) -> State:
        has_state, finite, adaptation, rate = current.auxiliary
        learning_rate, uniform = evaluation.learning_rate, evaluation.uniforms[1]
        refreshes: Tensor = None
        warms_up: Tensor = None
        if self.refresh_probability > 0.0:
            refreshes = evaluation.uniforms[2] < self.refresh_probability
        if self.warm_up > 0:
            warms_up = evaluation.number < self.warm_up
            uniform = ops.where(warms_up, 0.0, uniform)  # forward
        kind = acceptance.next_kind(has_state, refreshes, warms_up)
        if self.rate_adaptation is not None:
            factor = ops.where(kind == acceptance.WARM_UP, 1.0, rate.factor)
            learning_rate = learning_rate * factor
            rate = rate._replace(learning_rate=learning_rate)
        scales = self.proposal.scales(
            learning_rate, evaluation.temperature, evaluation.train_size
        )
        if self.adaptation is not None:
            adaptation = self.adaptation.start(
                adaptation, current.gradient, scales, acceptance.has_beta(kind)
            )
            scales = scales._replace(beta=adaptation.beta)
        scales = acceptance.scales_of(kind, scales, finite if self.warm_up else None)
        point, forward = self.proposal.propose(
            current.position, current.gradient, evaluation.normals, uniform, scales
        )
        here = current.position, current.gradient, current.energy
        return State(point, *here, kind, forward, scales, adaptation, rate)

    def summary(self, state: State, counts: dict[str, Array]) -> dict[str, Array]:
        accepted, proposed = counts["accepted"], counts["proposed"]
        summary = {"acceptance": base.share(accepted, proposed)}
        if self.proposal.has_backward:
            forward, tried = counts["forward_accepted"], counts["forward_proposed"]
            summary["forward_acceptance"] = base.share(forward, tried)
            backward = accepted - forward, proposed - tried
            summary["backward_acceptance"] = base.share(*backward)
            adaptation = state.scales if self.adaptation is None else state.adaptation
            # 0 is a beta that is not chosen yet.
            summary["beta"] = np.where(adaptation.beta > 0, adaptation.beta, math.nan)
        if self.rate_adaptation is not None:
            summary["learning_rate"] = state.rate.learning_rate
        if self.refresh_probability > 0.0:
            refreshed = counts["refresh_accepted"], counts["refresh_proposed"]
            summary["refresh_acceptance"] = base.share(*refreshed)
        return summary | {"nonfinite": counts["nonfinite"]}

    def _log_q_ratio_at(
        self, state: State, distances: proposals.SquaredDistances, beta: Tensor
    ) -> Tensor:
        dimension = tensors.size(state.point, like=state.energy)
        return self.proposal.log_q_ratio_at(distances, beta, dimension)

    def _counts(self, outcome: acceptance.Outcome, state: State) -> dict[str, Tensor]:
        accepted, proposed = outcome.proposed & outcome.accepted, outcome.proposed
        counts = dict(accepted=accepted, proposed=proposed, nonfinite=~outcome.finite)
        if self.proposal.has_backward:
            counts["forward_accepted"] = accepted & state.forward
            counts["forward_proposed"] = proposed & state.forward
        if self.refresh_probability > 0.0:
            refreshed = state.pending == acceptance.REFRESH
            counts["refresh_accepted"] = refreshed & outcome.accepted
            counts["refresh_proposed"] = refreshed
        return base.counted(**counts)


def mint_temperature(alpha: float, train_size: int, batch_size: int) -> float:
    """Return MINT's temperature n^(1 - lambda), with n^lambda = m^alpha."""
    return train_size / batch_size**alpha


def root_weight(batch_size: int) -> float:
    """Return c_n = 2 sqrt(m)."""
    return 2.0 * math.sqrt(batch_size)


def mhbt(
    learning_rate: base.Rate,
    *,
    proposal: Proposal | None = None,
    temperature: base.Rate | None = None,
    refresh_probability: float = 0.0,
) -> Metropolis:
    """Return mini-batch Metropolis-Hastings (MHBT), a kernel for `mh.sample`.

    The kernel samples exp(-U/T), approximately on mini-batches: position and batch I
    together have exactly the density exp(-U_I/T). The energy U in nats is minus the log
    density. With `log_density`, or if a batch is all of the data, the kernel is exact:
    the Metropolis-Hastings algorithm at the temperature T.

    Args:
        learning_rate: step of the proposal: the standard deviation of a `RandomWalk`,
            otherwise as in `mh.SGLD`. A number of at least 0, or a schedule.
        proposal: one of `mh.proposals`. None is `RandomWalk()`.
        temperature: T, greater than 0, or a schedule. None is 1 with `log_density`, and
            N/m with data: the bias falls with N/T, the paper's c_n. With N/m the draws
            are wider than exp(-U/T): on a logistic regression (N = 565, m = 113) their
            variance was 4.2 times as large in the stiffest directions
            (`examples/benchmarks/laws.py --only metropolis`).
        refresh_probability: probability of a refresh, in [0, 1), for a reversible
            proposal: the position of the state with the next mini-batch, which the
            energies alone accept. The paper has 0.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mhbt(0.5, proposal=mh.proposals.RandomWalk())

    Reference: Wu, Wang and Wong (2020), algorithm 1.
    """
    proposal = proposals.checked_proposal(proposal, proposals.RandomWalk())
    given: dict[str, Any] = dict(refresh_probability=refresh_probability)
    return Metropolis(learning_rate, temperature, proposal, **given)


def mint(
    learning_rate: base.Rate,
    *,
    alpha: float = 0.99,
    proposal: Proposal | None = None,
    refresh_probability: float = 0.0,
) -> Metropolis:
    """Return mini-batch tempered MCMC, MHBT at T = N / m^alpha, for `mh.sample`.

    The kernel samples exp(-U/T) approximately. The energy U in nats is minus the log
    density. The kernel needs data. The other arguments and the errors are those of
    `mh.kernels.mhbt`.

    Args:
        learning_rate: step of the proposal.
        alpha: in (0, 1]. A smaller alpha gives a higher temperature and a smaller bias;
            0.5 is c_n = sqrt(m). Defaults to 0.99, whose draws are wider than
            exp(-U/T): on the logistic regression of `mhbt` their variance was 4.4 times
            as large in the stiffest directions.
        proposal: None is `Langevin()`.
        refresh_probability: as in `mhbt`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mint(0.1, alpha=0.99)

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """
    proposal = proposals.checked_proposal(proposal, proposals.Langevin())
    alpha = base.checked("alpha", alpha, base.UP_TO_ONE)
    given: dict[str, Any] = dict(refresh_probability=refresh_probability)
    return Metropolis(learning_rate, None, proposal, alpha, **given)


def rsgld(
    learning_rate: base.Rate,
    *,
    temperature: base.Rate | None = None,
    forward_probability: float = 0.5,
    refresh_probability: float = 0.0,
    beta: float | str = "auto",
    beta_adaptation: str | None = "replay",
    noise_temperature: float | None = None,
    normalized: bool = False,
) -> Metropolis:
    """Return Metropolis-Hastings with reversible SGLD proposals, for `mh.sample`.

    With `normalized=True` and a fixed beta the kernel samples exp(-U/T), approximately
    on mini-batches, and exactly with `log_density` or all of the data in a batch. The
    energy U in nats is minus the log density. The defaults, the paper's ratio and
    noise, make the chain nearly an optimizer: `mh.RSGLD` has the figures.

    Args:
        learning_rate: epsilon, as in `keras.optimizers.SGD`. A number of at least 0, or
            a schedule.
        temperature: T, greater than 0, or a schedule. None is N/m with data, and 1 with
            `log_density`.
        forward_probability: of a forward move, in (0, 1]. The paper has 0.5.
        refresh_probability: of a refresh, in [0, 1), as in `mhbt`.
        beta: factor of the noise of backward moves, at least 1. "auto" chooses the
            first beta from the first forward proposals.
        beta_adaptation: "replay" chooses the smallest beta that would have given 90% of
            the best acceptance, at the end of each epoch of N // m steps, or at each
            step without mini-batches. "paper" is the rule of the paper. None keeps beta
            fixed (with "auto", after its first choice), as the theory requires.
        noise_temperature: of the proposal's noise, whose variance is
            2 learning_rate noise_temperature / N. Greater than 0. None is 1/N, as in
            the paper. Choose T for low dimensions.
        normalized: whether the density ratio has its normalising constants. They make
            detailed balance exact, and suit low dimensions.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.rsgld(
    ...     0.5, beta=2.0, beta_adaptation=None, noise_temperature=1.0, normalized=True
    ... )

    Reference: Wu, Wang and Wong (2020), section 2.3 and 3.2.
    """
    adaptation = BetaAdaptation.of(beta, beta_adaptation)
    proposal = proposals.ReversibleLangevin(
        adaptation.first or 1.0, noise_temperature, normalized, forward_probability
    )
    return Metropolis(
        learning_rate,
        temperature,
        proposal,
        adaptation=adaptation,
        refresh_probability=refresh_probability,
    )


def network_settings(
    proposal: Proposal,
    learning_rate: Any,
    refresh_probability: float | None,
    warm_up: int | None,
    rate_adaptation: bool | None,
) -> dict[str, Any]:
    """Return the settings of `Metropolis`. None is the default of the proposal.

    A schedule of the learning rate is not adapted by default: it has its own rates.
    """
    is_reversible = proposal.has_backward
    if refresh_probability is None:
        refresh_probability = REFRESH_PROBABILITY if is_reversible else 0.0
    if warm_up is None:
        warm_up = WARM_UP if is_reversible else 0
    if rate_adaptation is None:
        rate_adaptation = is_reversible and not isinstance(learning_rate, Schedule)
    return {
        "refresh_probability": refresh_probability,
        "warm_up": warm_up,
        "rate_adaptation": adaptation_or_none(rate_adaptation),
    }


def adaptation_or_none(rate_adaptation: Any) -> RateAdaptation | None:
    _validate.choice("rate_adaptation", rate_adaptation, (True, False))
    return RateAdaptation() if rate_adaptation else None


@serializable
class MHBT(MetropolisSampler):
    """Mini-batch Metropolis-Hastings with batch tempering, for any proposal.

    It samples exp(-U/T) approximately. The energy U in nats is train_size * loss -
    log prior. If each step draws its batch at random, weights and mini-batches I
    together have exactly the density exp(-U_I/T). `fit` with `shuffle=True` comes close
    to this. A fixed order of batches does not. A proposal whose loss or gradient is not
    finite is rejected. The sampler keeps two copies of the weights, one copy with
    `RandomWalk`.

    Other arguments are those of `mh.kernels.mhbt` and `mh.SGLD`. The last three below
    are for a reversible proposal. For others None switches them off.

    Args:
        batch_size: number of examples in a mini-batch, m.
        refresh_probability: as in `mh.kernels.mhbt`. None is 0.1.
        warm_up: number of first steps that are plain gradient steps, at least 0. They
            are burn-in: `mh.PosteriorSamples` keeps no sample of them, and acceptance
            is not reported. None is 500, or, in the first `fit` with
            `mh.PosteriorSamples`, at most a quarter of its steps; with a long
            `burn_in`, half of that, up to ten epochs of N // m steps.
        rate_adaptation: whether the learning rate follows the acceptance of forward
            moves after the warm-up: 30% down after a window with less than a quarter
            accepted, 10% up again, at most to the rate that was given, with more than
            half. Windows have 16, 32, ... forward moves, up to an epoch. The first kept
            sample freezes the rate, so choose a `burn_in` that some windows end before.
            The logs have it as `learning_rate`. None is True, but False for a schedule.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution. In the first step: the loss
            did not reach the sampler.

    Example:

    >>> import keras_mhmcmc as mh
    >>> proposal = mh.proposals.Langevin()
    >>> optimizer = mh.MHBT(0.05, train_size=1000, batch_size=100, proposal=proposal)

    Reference: that of `mh.kernels.mhbt`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        proposal: Proposal | None = None,
        temperature: base.Rate | None = None,
        refresh_probability: float | None = None,
        warm_up: int | None = None,
        rate_adaptation: bool | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "mhbt",
        **options: Any,
    ) -> None:
        proposal = proposals.checked_proposal(proposal, proposals.RandomWalk())
        settings = network_settings(
            proposal, learning_rate, refresh_probability, warm_up, rate_adaptation
        )
        algorithm = Metropolis(base.OF_OPTIMIZER, temperature, proposal, **settings)
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, batch_size=batch_size)


@serializable
class MINT(MetropolisSampler):
    """Mini-batch tempered MCMC: MHBT at the temperature N^(1 - lambda).

    Here lambda = alpha log(m)/log(N): energies are compared at the weight m^alpha, a
    little less than that of one batch. The sampler samples exp(-U/T) approximately. The
    energy U in nats is train_size * loss - log prior. Like `MHBT`, it needs shuffled
    batches. With the learning rate `mh.schedules.GeometricCycle` it is CMINT. It keeps
    two copies of the weights, one copy with `RandomWalk`.

    Other arguments and the errors are those of `mh.kernels.mint` and `mh.MHBT`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(0.1, train_size=10000, batch_size=100)
    >>> round(optimizer.temperature, 1)
    104.7

    Reference: that of `mh.kernels.mint`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        alpha: float = 0.99,
        proposal: Proposal | None = None,
        refresh_probability: float | None = None,
        warm_up: int | None = None,
        rate_adaptation: bool | None = None,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "mint",
        **options: Any,
    ) -> None:
        proposal = proposals.checked_proposal(proposal, proposals.Langevin())
        settings = network_settings(
            proposal, learning_rate, refresh_probability, warm_up, rate_adaptation
        )
        settings["alpha"] = base.checked("alpha", alpha, base.UP_TO_ONE)
        algorithm = Metropolis(base.OF_OPTIMIZER, None, proposal, **settings)
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, batch_size=batch_size)


@serializable
class RSGLD(MetropolisSampler):
    """Mini-batch Metropolis-Hastings with reversible SGLD proposals.

    Each proposal moves down the gradient (forward) or up the gradient with noise beta
    times wider (backward), and is accepted or rejected on the next mini-batch. One
    whose loss or gradient is not finite is rejected. The run begins with `warm_up`
    plain gradient steps: without them, and with the paper's other settings, a chain of
    a convolutional network freezes.

    With `normalized=True` and a fixed beta the sampler samples exp(-U/T) approximately.
    The energy U in nats is train_size * loss - log prior. The defaults, the paper's
    ratio and noise, let networks move, but make the sampler nearly an optimizer. On a
    Bayesian logistic regression (N = 565, d = 31, learning rate 0.5) a chain of 6,000
    steps had 6 to 8% of the posterior's standard deviation, and 11 to 14% with the
    paper's settings (`examples/benchmarks/laws.py --only rsgld --steps 6000`). The
    sampler keeps two copies of the weights.

    Other arguments and the errors are those of `mh.kernels.rsgld` and `mh.MHBT`.

    Args:
        temperature: T, greater than 0, or a schedule. None is N / (2 sqrt(m)), so that
            refreshes are accepted as often with any m. The paper has N/m.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.RSGLD(0.2, train_size=20000, batch_size=100)
    >>> paper = dict(temperature=200.0, forward_probability=0.5, warm_up=0)
    >>> paper |= dict(refresh_probability=0.0, rate_adaptation=False)
    >>> paper |= dict(beta_adaptation="paper")
    >>> optimizer = mh.RSGLD(0.2, train_size=20000, batch_size=100, **paper)

    Reference: that of `mh.kernels.rsgld`.
    """

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        batch_size: int,
        temperature: base.Rate | None = None,
        forward_probability: float = 0.9,
        refresh_probability: float = REFRESH_PROBABILITY,
        warm_up: int | None = None,
        rate_adaptation: bool = True,
        beta: float | str = "auto",
        beta_adaptation: str | None = "replay",
        noise_temperature: float | None = None,
        normalized: bool = False,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "rsgld",
        **options: Any,
    ) -> None:
        algorithm = dataclasses.replace(
            base.of_optimizer(rsgld, locals()),
            warm_up=WARM_UP if warm_up is None else warm_up,
            rate_adaptation=adaptation_or_none(rate_adaptation),
            energy_weight=root_weight,
        )
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, batch_size=batch_size)
