"""Mini-batch Metropolis-Hastings as Keras optimizers: MHBT and MINT."""

import math

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc import proposals
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.kernels import metropolis
from keras_mhmcmc.kernels import moves
from keras_mhmcmc.kernels import tensors
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.optimizers.sampler import checked_temperature
from keras_mhmcmc.optimizers.sampler import constant

_COUNTS = (
    "forward_accepted",
    "forward_proposed",
    "backward_accepted",
    "backward_proposed",
    "nonfinite",
)


class MetropolisSampler(Sampler):
    """Abstract: Metropolis-Hastings with one evaluation of loss and gradient a step.

    During `fit` the model's variables hold the proposal and the slots hold the current
    state: position, gradient and energy. Keras evaluates the proposal on the next
    batch; `_move` decides, stores the state, and writes the next proposal into the
    model. What drew the pending proposal is kept with it, so that a schedule or an
    adapted beta cannot come between the two directions of its density.
    """

    needs_loss = True

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        proposal,
        temperature,
        prior,
        seed,
        name,
        options,
    ):
        super().__init__(
            learning_rate,
            train_size=train_size,
            temperature=temperature,
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
        self.batch_size = _validate.batch_size(batch_size, self.train_size)
        self.proposal = proposal

    # Where beta comes from; `RSGLD` adapts it.

    def _scales(self, gradient, learning_rate, temperature):
        return self.proposal.scales(learning_rate, temperature, self.train_size)

    def _log_q_ratio(self, delta, gradient, new_gradient, scales):
        """The density ratio of a move, and what is recorded of it."""
        ratio = self.proposal.log_ratio(delta, gradient, new_gradient, scales)
        return ratio, None

    def _adapt(
        self, record, state_energy, evaluated_energy, temperature, info, forward
    ):
        """Learns from the move that was just judged."""

    # Variables.

    def _build_slots(self, variables):
        self._pending = self.add_variable((), dtype="int32", name="pending")
        self._scales_used = self.add_variable(
            (3,), constant(list(moves.STILL)), "float32", name="scales"
        )
        self._forward = self.add_variable((), dtype="float32", name="forward")
        self._energy = self.add_variable((), dtype="float32", name="energy")
        self._tally = self.add_variable((len(_COUNTS),), dtype="float32", name="tally")
        self._positions = self.add_optimizer_variables(variables, "position")
        self._gradients = []
        if self.proposal.uses_gradient:
            self._gradients = self.add_optimizer_variables(variables, "gradient")

    # The step.

    def _move(self, variables, position, gradient, energy, learning_rate):
        temperature = self._current_temperature()
        positions = self._slots_of(self._positions, variables)
        gradients = []
        if self.proposal.uses_gradient:
            gradients = self._slots_of(self._gradients, variables)
        else:
            gradient = []
        normals, uniforms = self._noise.draw(position, 2)
        pending = ops.convert_to_tensor(self._pending)
        forward = ops.convert_to_tensor(self._forward) > 0.5
        scales = moves.Scales(*ops.unstack(ops.convert_to_tensor(self._scales_used), 3))

        state = metropolis.State(
            _backend.read(positions),
            _backend.read(gradients),
            ops.convert_to_tensor(self._energy),
        )
        delta = tensors.subtract(position, state.position)
        log_q_ratio, record = self._log_q_ratio(delta, state.gradient, gradient, scales)
        before = state.energy
        state, info = metropolis.decide(
            state,
            metropolis.State(position, gradient, energy),
            pending,
            log_q_ratio,
            metropolis.moved(delta, pending),
            uniforms[0],
            temperature=temperature,
        )
        self._count(info, forward)
        self._adapt(record, before, energy, temperature, info, forward)

        scales = self._scales(state.gradient, learning_rate, temperature)
        scales = moves.Scales(
            *(
                ops.where(info.has_state, scale, still)
                for scale, still in zip(scales, moves.STILL, strict=True)
            )
        )
        proposed, forward = self.proposal.propose(
            state.position, state.gradient, normals, uniforms[1], scales
        )
        # The state before the proposal: on PyTorch the state may still be the tensors
        # that the model's variables hold.
        _backend.write(positions, state.position)
        _backend.write(gradients, state.gradient)
        _backend.write(variables, proposed)
        self._energy.assign(state.energy)
        self._scales_used.assign(ops.stack([ops.cast(s, "float32") for s in scales]))
        self._forward.assign(ops.cast(forward, "float32"))
        self._pending.assign(
            ops.where(info.has_state, metropolis.PROPOSAL, metropolis.NOTHING)
        )
        return state.energy

    def _count(self, info, forward):
        counts = [
            info.proposed & info.accepted & forward,
            info.proposed & forward,
            info.proposed & info.accepted & ~forward,
            info.proposed & ~forward,
            ~info.finite,
        ]
        counts = ops.stack([ops.cast(count, "float32") for count in counts])
        self._tally.assign(ops.convert_to_tensor(self._tally) + counts)

    # What users and callbacks call.

    def _has_state(self):
        scalars = [self._pending, *self._positions] if self.built else []
        return (
            self.built
            and _backend.hold_values(scalars)
            and int(ops.convert_to_numpy(self._pending)) != metropolis.NOTHING
        )

    def state_values(self):
        """The current state of the chain: one tensor for each trainable variable."""
        if self._has_state():
            return _backend.read(self._positions)
        return super().state_values()

    def settle(self):
        """Puts the current state of the chain into the model's variables.

        The pending proposal is dropped; the next step evaluates the state itself on a
        new batch, an exact Metropolis-Hastings move. Has no effect before the first
        step. Call it between steps only; `fit` calls it at its end, and
        `mh.PosteriorSamples` at each epoch's end and before validation.
        """
        if self._has_state():
            _backend.write_copies(self._trainable_variables, self._positions)
            self._pending.assign(metropolis.REFRESH)

    def finalize_variable_values(self, var_list):
        """Settles, at the end of `fit`."""
        self.settle()

    def _counts(self):
        counts = dict(zip(_COUNTS, ops.convert_to_numpy(self._tally), strict=True))
        forward, backward = counts["forward_proposed"], counts["backward_proposed"]
        accepted = counts["forward_accepted"] + counts["backward_accepted"]
        report = {"acceptance": _share(accepted, forward + backward)}
        if self.proposal.has_backward:
            report["forward_acceptance"] = _share(counts["forward_accepted"], forward)
            report["backward_acceptance"] = _share(
                counts["backward_accepted"], backward
            )
            report["beta"] = self._current_beta()
        report["nonfinite"] = float(counts["nonfinite"])
        return report

    def _current_beta(self):
        return self.proposal.beta

    def _count_variables(self):
        return [self._tally]

    def get_config(self):
        """The arguments of the constructor."""
        return super().get_config() | {"batch_size": self.batch_size}


@serializable
class MHBT(MetropolisSampler):
    """Mini-batch Metropolis-Hastings with batch tempering, for any proposal.

    Samples exp(-U/T) approximately, with U the energy in nats, train_size * loss -
    log prior: exactly the law exp(-U_I/T) on weights and mini-batches I together. A
    loss or gradient that is not finite is a rejected proposal. Keeps two copies of the
    weights, one with `RandomWalk`.

    Args:
        learning_rate: step of the proposal: as in `keras.optimizers.SGD` for
            `Langevin` and `ReversibleLangevin`, the standard deviation of the step for
            `RandomWalk`; at least 0, or a schedule.
        train_size: number of training examples, N.
        batch_size: number of examples in a mini-batch, m.
        proposal: one of `mh.proposals`; defaults to a random walk.
        temperature: T, greater than 0, or a schedule. Defaults to N/m, at which the
            energies of two batches are compared at the weight of one batch. c_n in the
            paper is N/T; the law's bias is small for c_n below sqrt(m).
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MHBT(
    ...     0.05, train_size=1000, batch_size=100, proposal=mh.proposals.Langevin()
    ... )

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        proposal=None,
        temperature=None,
        prior=None,
        seed=None,
        name="mhbt",
        **options,
    ):
        super().__init__(
            learning_rate,
            train_size=train_size,
            batch_size=batch_size,
            proposal=checked_proposal(proposal or proposals.RandomWalk()),
            temperature=batch_temperature(temperature, train_size, batch_size),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )

    def get_config(self):
        """The arguments of the constructor."""
        proposal = keras.saving.serialize_keras_object(self.proposal)
        return super().get_config() | {"proposal": proposal}


@serializable
class MINT(MetropolisSampler):
    """Mini-batch tempered MCMC: MHBT at the temperature N^(1 - lambda).

    lambda = alpha log(m)/log(N), so that the energies are compared with the weight
    N^lambda = m^alpha of a little less than one batch. Samples exp(-U/T)
    approximately, with U the energy in nats. CMINT is MINT with the learning rate
    `mh.schedules.GeometricCycle`. Keeps two copies of the weights, one with
    `RandomWalk`.

    Args:
        learning_rate: step of the proposal, as in `MHBT`.
        train_size: number of training examples, N, at least 2.
        batch_size: number of examples in a mini-batch, m.
        alpha: in (0, 1]; smaller is a higher temperature and a smaller bias.
        proposal: one of `mh.proposals`; defaults to `Langevin()`.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the draws repeatable; None draws one.
        name: name of the optimizer.

    Raises:
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, in the first step, the loss
            did not arrive.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.MINT(0.1, train_size=10000, batch_size=100)
    >>> round(optimizer.temperature, 1)
    104.7

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        batch_size,
        alpha=0.99,
        proposal=None,
        prior=None,
        seed=None,
        name="mint",
        **options,
    ):
        share = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
        self_alpha = _validate.number("alpha", alpha, share)
        super().__init__(
            learning_rate,
            train_size=train_size,
            batch_size=batch_size,
            proposal=checked_proposal(proposal or proposals.Langevin()),
            temperature=mint_temperature(self_alpha, train_size, batch_size),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
        )
        self.alpha = self_alpha

    def get_config(self):
        """The arguments of the constructor."""
        config = super().get_config()
        del config["temperature"]
        proposal = keras.saving.serialize_keras_object(self.proposal)
        return config | {"alpha": self.alpha, "proposal": proposal}


def batch_temperature(temperature, train_size, batch_size):
    """The temperature, N/m unless one is given."""
    if temperature is not None:
        return checked_temperature(temperature, _validate.POSITIVE)
    train_size = _validate.integer("train_size", train_size, 1)
    return train_size / _validate.batch_size(batch_size, train_size)


def mint_temperature(alpha, train_size, batch_size):
    """MINT's temperature N^(1 - lambda), with lambda = alpha log m / log N."""
    train_size = _validate.integer("train_size", train_size, 2)
    batch_size = _validate.batch_size(batch_size, train_size)
    exponent = alpha * math.log(batch_size) / math.log(train_size)
    return train_size ** (1.0 - exponent)


def checked_proposal(proposal):
    """A proposal of this package, or a `ValueError` that lists them."""
    return _validate.instance(
        "proposal",
        proposal,
        proposals.Proposal,
        "one of `mh.proposals`: RandomWalk(), Langevin(), ReversibleLangevin(beta)",
    )


def _share(part, whole):
    return float(part / whole) if whole > 0 else math.nan
