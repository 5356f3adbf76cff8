"""What the Metropolis-Hastings samplers share: an abstract Keras optimizer."""

import math
import sys

import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc.algorithms import metropolis
from keras_mhmcmc.algorithms import moves
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.optimizers.standstill import Standstill
from keras_mhmcmc.optimizers.standstill import reason_of_loss

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
        self._accepted = None
        self._watch = Standstill(type(self).__name__)

    # Where beta comes from; `RSGLD` adapts it.

    def _scales(self, gradient, learning_rate, temperature):
        return self.proposal.scales(learning_rate, temperature, self.train_size)

    def _log_q_ratio(self, delta, gradient, new_gradient, scales):
        """The density ratio of a move, and what is recorded of it."""
        ratio = self.proposal.log_ratio(
            delta, gradient, new_gradient, scales, self._has_chains
        )
        return ratio, None

    def _adapt(
        self, record, state_energy, evaluated_energy, temperature, info, forward
    ):
        """Learns from the move that was just judged."""

    # Variables.

    def _build_slots(self, variables):
        self._pending = self.add_variable(
            self._chain_shape(), dtype="int32", name="pending"
        )
        self._scales_used = self.add_variable(
            self._chain_shape(3), constant(list(moves.STILL)), "float32", name="scales"
        )
        scalar = {"shape": self._chain_shape(), "dtype": "float32"}
        self._forward = self.add_variable(**scalar, name="forward")
        self._energy = self.add_variable(**scalar, name="energy")
        self._tally = self.add_variable(
            self._chain_shape(len(_COUNTS)), dtype="float32", name="tally"
        )
        self._positions = self.add_optimizer_variables(variables, "position")
        self._gradients = []
        if self.proposal.uses_gradient:
            self._gradients = self.add_optimizer_variables(variables, "gradient")

    # The step.

    def _move(self, variables, position, gradient, energy, learning_rate):
        temperature = self._current_temperature()
        self._keep_idle(variables)
        positions = self._slots_of(self._positions, variables)
        gradients = []
        if self.proposal.uses_gradient:
            gradients = self._slots_of(self._gradients, variables)
        else:
            gradient = []
        pending = ops.convert_to_tensor(self._pending)
        forward = ops.convert_to_tensor(self._forward) > 0.5
        scales_used = ops.convert_to_tensor(self._scales_used)
        scales = moves.Scales(*ops.unstack(scales_used, 3, axis=-1))

        state = metropolis.State(
            _backend.read(positions),
            _backend.read(gradients),
            ops.convert_to_tensor(self._energy),
        )
        # Nothing as large as the weights is held from here to the draw.
        log_q_ratio, record = self._log_q_ratio(
            tensors.lazy_difference(position, state.position, self._has_chains),
            state.gradient,
            gradient,
            scales,
        )
        normals, uniforms = self._noise.draw(position, 2)
        of_decision, of_direction = ops.unstack(uniforms, 2, axis=-1)
        before = state.energy
        state, info = metropolis.decide(
            state,
            metropolis.State(position, gradient, energy),
            pending,
            log_q_ratio,
            self._was_set(position, state.position, pending),
            of_decision,
            temperature=temperature,
        )
        if self._has_chains:
            self._accepted = info.accepted
        self._count(info, forward)
        self._adapt(record, before, energy, temperature, info, forward)

        # The state before the proposal: on PyTorch the state may still be the tensors
        # that the model's variables hold.
        _backend.write(
            [*positions, *gradients, self._energy],
            [*state.position, *state.gradient, state.energy],
        )
        self._propose(
            variables, state, info.has_state, normals, of_direction, learning_rate
        )
        return state.energy

    def _was_set(self, position, state_position, pending):
        """Whether somebody else set the weights since they were settled."""

        def compare():
            delta = tensors.lazy_difference(position, state_position, self._has_chains)
            return metropolis.was_modified(delta, pending, self._has_chains)

        is_refresh = pending == metropolis.REFRESH
        return _backend.cond(ops.any(is_refresh), compare, lambda: is_refresh)

    def _propose(self, variables, state, has_state, normals, uniform, learning_rate):
        scales = self._scales(
            state.gradient, learning_rate, self._current_temperature()
        )
        scales = moves.Scales(
            *(
                ops.where(has_state, scale, still)
                for scale, still in zip(scales, moves.STILL, strict=True)
            )
        )
        start = _backend.donated(variables, state.position)
        proposed, forward = self.proposal.propose(
            start, state.gradient, normals, uniform, scales
        )
        # Not `where` of two Python numbers: on JAX the result has a weak type, and the
        # second step is traced anew.
        pending = ops.convert_to_tensor(self._pending)
        nothing = metropolis.NOTHING + ops.zeros_like(pending)
        pending = ops.where(has_state, metropolis.PROPOSAL, nothing)
        scales = ops.stack([ops.cast(s, "float32") for s in scales], axis=-1)
        _backend.write(
            [*variables, self._scales_used, self._forward, self._pending],
            [*proposed, scales, ops.cast(forward, "float32"), pending],
        )

    def _keep_idle(self, variables):
        """Gives variables without a gradient, which no move touches, their state."""
        if len(variables) < len(self._positions):
            moving = {self._get_variable_index(variable) for variable in variables}
            idle = [i for i in range(len(self._positions)) if i not in moving]
            _backend.write(
                [self._positions[i] for i in idle],
                _backend.read([self._trainable_variables[i] for i in idle]),
            )

    def _count(self, info, forward):
        counts = [
            info.proposed & info.accepted & forward,
            info.proposed & forward,
            info.proposed & info.accepted & ~forward,
            info.proposed & ~forward,
            ~info.finite,
        ]
        counts = ops.cast(ops.stack(counts, axis=-1), "float32")
        _backend.write([self._tally], [ops.convert_to_tensor(self._tally) + counts])

    # What users and callbacks call.

    def _has_state(self):
        """Whether any chain has a state."""
        scalars = [self._pending, *self._positions] if self.built else []
        return (
            self.built
            and _backend.hold_values(scalars)
            and bool(np.any(self._read_pending() != metropolis.NOTHING))
        )

    def _read_pending(self):
        return ops.convert_to_numpy(self._pending)

    def state_values(self):
        """The current state of the chain: one tensor for each trainable variable."""
        values = super().state_values()
        if not self._has_state():
            return values
        has_state = ops.convert_to_tensor(self._read_pending() != metropolis.NOTHING)
        return tensors.select(has_state, _backend.read(self._positions), values)

    def take_accepted(self):
        """Whether each chain took the point of this step; handed out once."""
        accepted, self._accepted = self._accepted, None
        return accepted

    def mark_sample(self, listener=None):
        """Has nothing to wait for: the state was evaluated when it was proposed."""

    def lost_chains(self):
        """Whether each chain has no finite state to sample: a bool, or (chains,)."""
        if not self.built or not int(ops.convert_to_numpy(self.iterations)):
            return np.zeros(self._chain_shape(), bool)
        return self._read_pending() == metropolis.NOTHING

    def reason_of_loss(self):
        """Sentences that say why `lost_chains` have no state, and what to do."""
        return reason_of_loss(type(self).__name__, self.lost_chains())

    def check_epoch(self):
        """Warns, once, if a chain stands still or cannot tell energies apart."""
        tally = self._read_tally()
        temperature = self.temperature_now()
        self._watch.look_at_lost(self.lost_chains(), self.reason_of_loss())
        self._watch.look_at_energy(ops.convert_to_numpy(self._energy), temperature)
        self._watch.look(
            tally["forward_accepted"] + tally["backward_accepted"],
            tally["forward_proposed"] + tally["backward_proposed"],
            rate=float(ops.convert_to_numpy(self.learning_rate)),
            temperature=temperature,
        )

    def sample_info(self):
        """Energy of the current state, and log importance weight, which is 0."""
        energy = ops.convert_to_numpy(self._energy)
        return SampleInfo(energy, np.zeros(self._chain_shape()), True)

    def settle(self):
        """Puts the current state of the chain into the model's variables.

        The pending proposal is dropped. Unless `propose` draws another, the next step
        evaluates the state itself on a new batch, an exact Metropolis-Hastings move.
        Has no effect before the first step. Call it between steps only; `fit` calls it
        at its end, and `mh.PosteriorSamples` at each epoch's end and before validation.
        """
        if self._has_state():
            pending = self._read_pending()
            if (pending != metropolis.NOTHING).all():
                _backend.write_copies(self._trainable_variables, self._positions)
            else:
                _backend.write(self._trainable_variables, self.state_values())
            refresh = np.where(
                pending == metropolis.NOTHING, pending, metropolis.REFRESH
            )
            self._pending.assign(refresh)

    @_backend.unwarned
    def propose(self):
        """Puts a new proposal into the model's variables, after `settle`.

        Saves the evaluation that would look at the state once more; the chain's law
        does not depend on it. Has no effect where there is nothing to go on from:
        before the first step, without `settle`, or after somebody set the weights.
        """
        if not self._has_state():
            return
        variables = self._trainable_variables
        values = _backend.read(variables)
        delta = tensors.subtract(values, _backend.read(self._positions))
        squares = ops.convert_to_numpy(tensors.sum_squares(delta, self._has_chains))
        goes_on = (self._read_pending() == metropolis.REFRESH) & (squares == 0.0)
        if not goes_on.any():
            return
        has_state = ops.convert_to_tensor(goes_on)
        state = metropolis.State(
            # A chain that does not go on is evaluated where it stands.
            tensors.select(has_state, _backend.read(self._positions), values),
            _backend.read(self._gradients),
            ops.convert_to_tensor(self._energy),
        )
        normals, uniforms = self._noise.draw(state.position, 2)
        direction = ops.unstack(uniforms, 2, axis=-1)[1]
        rate = ops.convert_to_tensor(self.learning_rate)
        self._propose(variables, state, has_state, normals, direction, rate)

    def finalize_variable_values(self, var_list):
        """Settles, at the end of `fit`, and looks at the chain if nobody else did."""
        self.settle()
        super().finalize_variable_values(var_list)
        is_known = self.built and _backend.hold_values([self._tally, self._pending])
        if is_known and not self._watch.has_looked and sys.exc_info()[1] is None:
            self.check_epoch()

    def _read_tally(self):
        tally = np.moveaxis(ops.convert_to_numpy(self._tally), -1, 0)
        return dict(zip(_COUNTS, tally, strict=True))

    def _counts(self):
        counts = self._read_tally()
        forward, backward = counts["forward_proposed"], counts["backward_proposed"]
        accepted = counts["forward_accepted"] + counts["backward_accepted"]
        report = {"acceptance": _share(accepted, forward + backward)}
        if self.proposal.has_backward:
            report["forward_acceptance"] = _share(counts["forward_accepted"], forward)
            report["backward_acceptance"] = _share(
                counts["backward_accepted"], backward
            )
            report["beta"] = self._current_beta()
        report["nonfinite"] = counts["nonfinite"]
        return report

    def _current_beta(self):
        return np.full(self._chain_shape(), self.proposal.beta)

    def _count_variables(self):
        return [self._tally]

    def get_config(self):
        """The arguments of the constructor."""
        return super().get_config() | {"batch_size": self.batch_size}


def _share(part, whole):
    return np.where(whole > 0, part / np.maximum(whole, 1.0), math.nan)
