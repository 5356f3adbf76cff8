"""How a chain that accepts or rejects runs in Keras."""

from typing import Any

import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.fit.state import SampleInfo
from keras_mhmcmc.fit.watch import Standstill
from keras_mhmcmc.fit.watch import reason_of_loss
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import tensors


class MetropolisSampler(Sampler):
    """Abstract: a sampler that accepts or rejects the point that it proposed.

    The model has the proposal, and the slots have the state. Keras evaluates the
    proposal on the next batch. A step decides, stores the state, and writes the next
    proposal into the model. What drew the pending proposal is part of the state, so
    that a schedule or an adapted beta cannot come between the two directions of its
    density.
    """

    algorithm: Any  # a `Metropolis`
    _watch: Standstill
    _accepted: Tensor = None
    _counted: Any = 0.0  # the counts at the end of the last `fit`

    def _build_chain(self) -> None:
        name, rho = type(self).__name__, self.algorithm.refresh_probability
        self._watch = Standstill(name, rho)

    # In a step.

    def _read_state(self, can_overwrite: bool) -> Any:
        return self._state.read()

    def _restart(self, slots: Any) -> Tensor:
        """Return whether somebody else set the weights since they were settled."""

        def compare() -> Tensor:
            delta = tensors.subtract(slots.point, slots.position)
            return acceptance.was_modified(delta, slots.pending)

        is_refresh = slots.pending == acceptance.REFRESH
        return _backend.cond(ops.any(is_refresh), compare, lambda: is_refresh)

    def _between(self, current: Current, accepted: Tensor) -> Current:
        if len(accepted.shape) > 0:
            self._accepted = accepted
        # The state before the proposal: on PyTorch the state may still be the tensors
        # that the variables of the model hold.
        slots = self.slots
        _backend.write(
            [*slots.position, *slots.gradient, slots.energy],
            [*current.position, *current.gradient, current.energy],
        )
        start = _backend.donated(self._state.weights, current.position)
        return current._replace(position=start)

    def _store(self, slots: Any, runs: Tensor = None) -> None:
        # `_between` has stored these, and the proposal may have taken their memory.
        variables = self.slots._replace(position=[], gradient=[])
        slots = slots._replace(position=[], gradient=[])
        _backend.write(leaves(variables), leaves(slots))

    def take_accepted(self) -> Tensor:
        accepted, self._accepted = self._accepted, None
        return accepted

    # Between steps.

    def _pending(self) -> Array:
        """Return what is pending, of each chain; nothing after a failed step on JAX."""
        if not _backend.hold_values([self.slots.pending, *self.slots.position]):
            return np.full(self.slots.pending.shape, acceptance.NOTHING)
        return ops.convert_to_numpy(self.slots.pending)

    def _holds_proposal(self) -> Array:
        """Return whether the model holds a proposal of each chain, and no state."""
        return ~np.isin(self._pending(), (acceptance.NOTHING, acceptance.REFRESH))

    def _values(self) -> list[Tensor]:
        values = _backend.read(self._state.weights)
        is_proposal = self._holds_proposal()
        if not is_proposal.any():
            return values
        position = _backend.read(self.slots.position)
        return tensors.select(ops.convert_to_tensor(is_proposal), position, values)

    def _settle(self) -> None:
        is_proposal = self._holds_proposal()
        if not is_proposal.any():
            return
        self._changes += 1
        if is_proposal.all():
            _backend.write_copies(self._state.weights, self.slots.position)
        else:
            _backend.write(self._state.weights, self._values())
        refresh = np.where(is_proposal, acceptance.REFRESH, self._pending())
        self.slots.pending.assign(refresh)

    def propose(self) -> None:
        if not self.built:
            return
        _backend.return_values(self)
        if (self._pending() == acceptance.NOTHING).all():
            return
        slots = self._state.read()
        delta = tensors.subtract(slots.point, slots.position)
        squares = tensors.sum_squares(delta, like=slots.energy)
        is_settled = ops.convert_to_numpy(squares) == 0.0
        goes_on = (self._pending() == acceptance.REFRESH) & is_settled
        if not goes_on.any():
            return
        self._changes += 1
        has_state = ops.convert_to_tensor(goes_on)
        # A chain that does not go on is evaluated where it stands.
        position = tensors.select(has_state, slots.position, slots.point)
        slots = slots._replace(position=position)
        evaluation = self._evaluation(slots.point, [], None, self._rate())
        # The move of the last step is drawn again.
        evaluation = evaluation._replace(number=evaluation.number - 1)
        current = self.algorithm.resume(slots, has_state)
        start = _backend.donated(self._state.weights, current.position)
        self._store(self.algorithm.move(current._replace(position=start), evaluation))

    def mark_sample(self, listener: Any = None) -> None:
        # The state was evaluated when it was proposed: nobody has to wait.
        self.freeze()

    def freeze(self) -> None:
        if not self.built:
            return
        _backend.return_values(self)
        if self._is_adapting().any():
            self._changes += 1
            adapts = self.slots.rate.adapts
            adapts.assign(np.zeros(adapts.shape, bool))

    def _is_adapting(self) -> Array:
        if not self.slots.rate:
            return np.zeros(self.slots.pending.shape, bool)
        return ops.convert_to_numpy(self.slots.rate.adapts)

    def sample_info(self) -> SampleInfo:
        _backend.return_values(self)
        energy = ops.convert_to_numpy(self.slots.energy)
        return SampleInfo(energy, np.zeros_like(energy), True)

    def _lost_chains(self) -> Array:
        if self._steps() == 0:
            return np.zeros(self.slots.pending.shape, bool)
        return ops.convert_to_numpy(self.slots.pending) == acceptance.NOTHING

    def has_stopped(self) -> bool:
        return False

    def reason_of_loss(self) -> str:
        return reason_of_loss(type(self).__name__, self._lost_chains())

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        self._watch.look_at_lost(self._lost_chains(), self.reason_of_loss())
        if self._steps() <= self.warm_up:
            return
        energy = ops.convert_to_numpy(self.slots.energy)
        self._watch.look_at_energy(energy, self.temperature_now())
        if not self._is_adapting().all():
            self._look_at_acceptance(counts)

    def _look_at_acceptance(self, counts: dict[str, Array]) -> None:
        now, adapted = self._settings(), self.slots.rate
        if adapted:
            now["rate"] = float(np.min(ops.convert_to_numpy(adapted.learning_rate)))
        self._watch.look(counts["accepted"], counts["proposed"], **now)

    def _look_at_end(self) -> None:
        self._settle()
        is_known = _backend.hold_values(self._state.all)
        if not is_known or _backend.error_leaves_fit():
            return
        # Of this `fit` alone: without a callback nobody sets the counts to 0.
        now, before = ops.convert_to_numpy(self._counts), self._counted
        new = np.moveaxis(np.where(now >= before, now - before, now), -1, 0)
        counts = dict(zip(self.algorithm.traits.counts, new, strict=True))
        self._counted = now
        if not self._watch.has_looked:
            self._look_at_epoch(counts)
        if not self._watch.has_looked and self._steps() > self.algorithm.warm_up:
            # No sample was kept: the rate adapted to the end.
            self._look_at_acceptance(counts)
        self._watch.has_looked = False
        self._watch.look_at_warm_up(self._steps(), self.algorithm.traits)
