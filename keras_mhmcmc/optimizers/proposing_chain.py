"""A chain that accepts or rejects: the model holds the proposal, the slots the state.

Keras evaluates the proposal on the next batch. A step decides, stores the state, and
writes the next proposal into the model. What drew the pending proposal is part of the
state, so that a schedule or an adapted beta cannot come between the two directions of
its density.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.optimizers.chain import Chain
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.standstill import Standstill
from keras_mhmcmc.optimizers.standstill import reason_of_loss
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.rate_adaptation import FLOOR


class ProposingChain(Chain):
    """The chain of a Metropolis-Hastings sampler."""

    def __init__(self) -> None:
        self._accepted: Tensor = None
        self._keeps = False  # whether some weights have no gradient
        self._counted: dict[str, Array] | None = None  # at the end of the last `fit`

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        self._parts = parts
        self._slots = parts.state.structure
        self._watch = Standstill(parts.name, parts.algorithm().refresh_probability)

    def read(self, keeps: bool) -> Any:
        return self._parts.state.read()

    def restart(self, state: Any) -> Tensor:
        """Return whether somebody else set the weights since they were settled."""

        def compare() -> Tensor:
            delta = tensors.lazy_difference(
                state.point, state.position, like=state.pending
            )
            return acceptance.was_modified(delta, state.pending)

        is_refresh = state.pending == acceptance.REFRESH
        return _backend.cond(ops.any(is_refresh), compare, lambda: is_refresh)

    def between(self, current: Current, accepted: Tensor, keeps: bool) -> Current:
        if len(accepted.shape) > 0:
            self._accepted = accepted
        # The state before the proposal: on PyTorch the state may still be the tensors
        # that the variables of the model hold.
        slots = self._slots
        _backend.write(
            [*slots.position, *slots.gradient, slots.energy],
            [*current.position, *current.gradient, current.energy],
        )
        self._keeps = keeps
        if keeps:
            return current
        weights = self._parts.state.weights
        start = _backend.donated(weights, current.position)
        return current._replace(position=start)

    def store(self, state: Any) -> None:
        # `between` has stored these, and the proposal may have taken their memory.
        slots = self._slots._replace(position=[], gradient=[])
        state = state._replace(position=[], gradient=[])
        _backend.write(leaves(slots), leaves(state))

    def take_accepted(self) -> Tensor:
        accepted, self._accepted = self._accepted, None
        return accepted

    def _has_state(self) -> bool:
        """Return whether any chain has a state."""
        scalars = [self._slots.pending, *self._slots.position]
        return _backend.hold_values(scalars) and bool(
            np.any(self._pending() != acceptance.NOTHING)
        )

    def _pending(self) -> Array:
        return ops.convert_to_numpy(self._slots.pending)

    def _holds_proposal(self) -> Array:
        """Return whether the model holds a proposal, of each chain.

        Where a refresh is pending it holds the state, or what somebody else has set.
        """
        if not _backend.hold_values([self._slots.pending, *self._slots.position]):
            return np.zeros(self._slots.pending.shape, bool)
        return ~np.isin(self._pending(), (acceptance.NOTHING, acceptance.REFRESH))

    def state_values(self) -> list[Tensor]:
        values = _backend.read(self._parts.state.weights)
        is_proposal = self._holds_proposal()
        if not is_proposal.any():
            return values
        state = _backend.read(self._slots.position)
        return tensors.select(ops.convert_to_tensor(is_proposal), state, values)

    def settle(self) -> None:
        is_proposal = self._holds_proposal()
        if not is_proposal.any():
            return
        self._changes += 1
        weights = self._parts.state.weights
        if is_proposal.all():
            _backend.write_copies(weights, self._slots.position)
        else:
            _backend.write(weights, self.state_values())
        refresh = np.where(is_proposal, acceptance.REFRESH, self._pending())
        self._slots.pending.assign(refresh)

    def propose(self) -> None:
        if self._keeps or not self._has_state():
            return  # a weight without a gradient must stay where it is
        parts, state = self._parts, self._parts.state.read()
        delta = tensors.subtract(state.point, state.position)
        squares = tensors.sum_squares(delta, like=state.energy)
        is_settled = ops.convert_to_numpy(squares) == 0.0
        goes_on = (self._pending() == acceptance.REFRESH) & is_settled
        if not goes_on.any():
            return
        self._changes += 1
        has_state = ops.convert_to_tensor(goes_on)
        # A chain that does not go on is evaluated where it stands.
        state = state._replace(
            position=tensors.select(has_state, state.position, state.point)
        )
        evaluation = parts.evaluate(state.point, [], None, parts.learning_rate())
        # The move of the last step is drawn again.
        evaluation = evaluation._replace(number=evaluation.number - 1)
        current = self._parts.algorithm().resume(state, has_state)
        start = _backend.donated(parts.state.weights, current.position)
        new = self._parts.algorithm().move(current._replace(position=start), evaluation)
        self.store(new)

    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        # The state was evaluated when it was proposed: nobody has to wait.
        self.freeze()

    def freeze(self) -> None:
        if self._is_adapting().any():
            self._changes += 1
            adapts = self._slots.rate.adapts
            adapts.assign(np.zeros(adapts.shape, bool))

    def _is_adapting(self) -> Array:
        """Return whether the learning rate of each chain is adapted now."""
        if not self._slots.rate:
            return np.zeros(self._slots.pending.shape, bool)
        return ops.convert_to_numpy(self._slots.rate.adapts)

    def sample_info(self) -> SampleInfo:
        energy = ops.convert_to_numpy(self._slots.energy)
        return SampleInfo(energy, np.zeros_like(energy), True)

    def lost_chains(self) -> Array:
        if not int(ops.convert_to_numpy(self._parts.iterations)):
            return np.zeros(self._slots.pending.shape, bool)
        return self._pending() == acceptance.NOTHING

    def has_stopped(self) -> bool:
        return False

    def reason_of_loss(self) -> str:
        return reason_of_loss(self._parts.name, self.lost_chains())

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        temperature, watch = self._parts.temperature(), self._watch
        rate = float(ops.convert_to_numpy(self._parts.learning_rate()))
        watch.look_at_lost(self.lost_chains(), self.reason_of_loss())
        if self._steps() <= self._parts.algorithm().traits.warm_up:
            return
        watch.look_at_energy(ops.convert_to_numpy(self._slots.energy), temperature)
        if self._is_adapting().all():
            factor = ops.convert_to_numpy(self._slots.rate.factor)
            lowest = factor < 1.01 * FLOOR  # whatever the last digit of float32
            watch.look_at_rate(lowest, rate=rate, temperature=temperature)
        else:
            self._look_at_acceptance(counts)

    def _look_at_acceptance(self, counts: dict[str, Array]) -> None:
        rate = self._parts.learning_rate()
        if self._slots.rate:
            rate = self._slots.rate.learning_rate
        self._watch.look(
            counts["accepted"],
            counts["proposed"],
            rate=float(np.min(ops.convert_to_numpy(rate))),
            temperature=self._parts.temperature(),
        )

    def _steps(self) -> int:
        return int(ops.convert_to_numpy(self._parts.iterations))

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        self.settle()
        is_known = _backend.hold_values(self._parts.state.all)
        if not is_known or _backend.error_leaves_fit():
            return
        # Of this `fit` alone: without a callback nobody sets the counts to 0.
        now = counts()
        before = self._counted or {name: 0.0 * value for name, value in now.items()}
        new = {k: np.where(v >= before[k], v - before[k], v) for k, v in now.items()}
        self._counted = now
        if not self._watch.has_looked:
            self.look_at_epoch(new)
        warm_up = self._parts.algorithm().warm_up
        if not self._watch.has_looked and self._steps() > warm_up:
            # No sample was kept: the rate adapted to the end.
            self._look_at_acceptance(new)
        self._watch.has_looked = False
        self._watch.look_at_warm_up(self._steps(), self._parts.algorithm().traits)
