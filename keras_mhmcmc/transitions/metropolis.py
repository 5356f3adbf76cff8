"""Kernels for `mh.sample` that accept or reject: MHBT and MINT."""

import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc import proposals
from keras_mhmcmc.algorithms import metropolis
from keras_mhmcmc.algorithms import moves
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.transitions.kernel import Current
from keras_mhmcmc.transitions.kernel import Kernel
from keras_mhmcmc.transitions.kernel import at_step
from keras_mhmcmc.transitions.kernel import checked_learning_rate
from keras_mhmcmc.transitions.kernel import checked_temperature


class MetropolisState(NamedTuple):
    """The chain's state, the pending point, and what drew it."""

    position: list
    gradient: list
    energy: Any  # (K,)
    point: list
    pending: Any  # (K,) int32, as in `metropolis`
    forward: Any  # (K,) bool
    step: Any  # (K,)
    noise: Any  # (K,)
    beta: Any  # (K,)


@dataclasses.dataclass(frozen=True)
class MetropolisKernel(Kernel):
    """Kernels that accept or reject: MHBT, and MINT at its own temperature."""

    learning_rate: Any
    temperature: Any  # None: N/m
    proposal: proposals.Proposal
    alpha: float | None = None  # MINT's

    @property
    def uses_gradient(self):
        return self.proposal.uses_gradient

    @property
    def count_names(self):
        names = ("accepted", "proposed", "nonfinite")
        if self.proposal.has_backward:
            names += ("forward_accepted", "forward_proposed")
        return names

    def fit(self, train_size, batch_size):
        if self.alpha is not None:
            if train_size is None:
                raise ValueError(
                    "Argument `kernel`: MINT takes its temperature from the number of "
                    "examples, and there are none with `log_density`. Use "
                    "`mh.kernels.mhbt(..., temperature=...)`."
                )
            temperature = metropolis.mint_temperature(
                self.alpha, train_size, batch_size
            )
            return dataclasses.replace(self, temperature=temperature)
        if self.temperature is None:
            temperature = 1.0 if train_size is None else train_size / batch_size
            return dataclasses.replace(self, temperature=temperature)
        return self

    def energy_unit(self, number):
        temperature = at_step(self.temperature, number)
        return float(np.min(ops.convert_to_numpy(temperature)))

    def init(self, position):
        chains = position[0].shape[0]
        zeros = ops.zeros((chains,), "float32")
        gradient = []
        if self.uses_gradient:
            gradient = [ops.zeros_like(x) for x in position]
        return MetropolisState(
            position=position,
            gradient=gradient,
            energy=zeros,
            point=position,
            pending=ops.full((chains,), metropolis.NOTHING, "int32"),
            forward=ops.zeros((chains,), "bool"),
            step=zeros,
            noise=zeros,
            beta=zeros + 1.0,
        )

    def point(self, state):
        return state.point

    def decide(self, state, step):
        scales = moves.Scales(state.step, state.noise, state.beta)
        delta = tensors.subtract(state.point, state.position)
        log_q_ratio = self.proposal.log_ratio(
            delta, state.gradient, step.gradient, scales, chains=True
        )
        current, info = metropolis.decide(
            metropolis.State(state.position, state.gradient, state.energy),
            metropolis.State(state.point, step.gradient, step.energy),
            state.pending,
            log_q_ratio,
            ops.zeros_like(state.forward),
            step.uniforms[0],
            temperature=at_step(self.temperature, step.number),
        )
        counts = self._counts(info, state.forward)
        return Current(*current, memory=info.has_state), counts

    def move(self, current, step):
        has_state = current.memory
        temperature = at_step(self.temperature, step.number)
        rate = at_step(self.learning_rate, step.number)
        scales = self.proposal.scales(rate, temperature, step.train_size)
        scales = moves.Scales(
            *(
                ops.where(has_state, ops.cast(scale, "float32"), still)
                for scale, still in zip(scales, moves.STILL, strict=True)
            )
        )
        point, forward = self.proposal.propose(
            current.position,
            current.gradient,
            step.normals,
            step.uniforms[1],
            scales,
        )
        pending = ops.where(has_state, metropolis.PROPOSAL, metropolis.NOTHING)
        pending = ops.cast(pending, "int32")
        return MetropolisState(*current[:3], point, pending, forward, *scales)

    def tempered(self, temperature, learning_rate=None):
        rate = self.learning_rate if learning_rate is None else learning_rate
        return dataclasses.replace(
            self, temperature=temperature, learning_rate=rate, alpha=None
        )

    def _counts(self, info, forward):
        accepted = info.proposed & info.accepted
        counts = {
            "accepted": accepted,
            "proposed": info.proposed,
            "nonfinite": ~info.finite,
            "forward_accepted": accepted & forward,
            "forward_proposed": info.proposed & forward,
        }
        return {name: ops.cast(counts[name], "float32") for name in self.count_names}


def mhbt(learning_rate, *, proposal=None, temperature=None):
    """Mini-batch Metropolis-Hastings with batch tempering, a kernel for `mh.sample`.

    Samples exp(-U/T), approximately for mini-batches, and exactly when the batch is all
    of the data or with `log_density`: then it is the Metropolis-Hastings algorithm,
    tempered where T is not 1. Each step draws its mini-batch at random, so that
    position and batch I together have the density exp(-U_I/T) exactly.

    Args:
        learning_rate: step of the proposal: the standard deviation of a `RandomWalk`,
            otherwise as in `mh.SGLD`; at least 0, or a schedule.
        proposal: one of `mh.proposals`; defaults to a random walk.
        temperature: T, greater than 0, or a schedule. Defaults to N/m, at which two
            batches are compared at the weight of one; 1 with `log_density`. c_n in the
            paper is N/T; the bias falls with it. At the default the
            draws are wider than exp(-U/T): on a logistic regression (N = 565, m = 113)
            their variance was 4.2 times as large in the stiffest directions
            (`examples/benchmarks/laws.py --only metropolis`).

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mhbt(0.5, proposal=mh.proposals.RandomWalk())

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", algorithm 1.
    """
    if temperature is not None:
        temperature = checked_temperature(temperature, _validate.POSITIVE)
    proposal = proposals.checked(proposal, proposals.RandomWalk())
    return MetropolisKernel(checked_learning_rate(learning_rate), temperature, proposal)


def mint(learning_rate, *, alpha=0.99, proposal=None):
    """Mini-batch tempered MCMC, a kernel for `mh.sample`: MHBT at T = N / m^alpha.

    Samples exp(-U/T) approximately. Needs data.

    Args:
        learning_rate: step of the proposal, as in `mhbt`.
        alpha: in (0, 1]; smaller is a higher temperature and a smaller bias; 0.5 is
            c_n = sqrt(m). At the default the draws are wider than exp(-U/T), as those
            of `mhbt` at its default: 4.4 times the variance on the same regression.
        proposal: one of `mh.proposals`; defaults to `Langevin()`.

    Raises:
        ValueError: an argument is outside its range, or there is no data.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.mint(0.1, alpha=0.99)

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """
    share = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
    return MetropolisKernel(
        checked_learning_rate(learning_rate),
        temperature=None,
        proposal=proposals.checked(proposal, proposals.Langevin()),
        alpha=_validate.number("alpha", alpha, share),
    )
