"""How the chain of a sampler lies in its model, and what that asks for between steps.

A diffusion has the chain in the variables of the model. A Metropolis-Hastings sampler
has the proposal there, and the state of the chain in its own variables. A sampler that
tests whole paths (`samplers/amagold.py`) has the path there.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.state import Energies
from keras_mhmcmc.fit.state import SampleInfo
from keras_mhmcmc.fit.state import StateVariables
from keras_mhmcmc.fit.state import constant
from keras_mhmcmc.fit.watch import Standstill
from keras_mhmcmc.fit.watch import reason_of_loss
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.rate_adaptation import FLOOR


class Parts(NamedTuple):
    """What a chain works with."""

    name: str  # of the sampler, for messages
    state: StateVariables
    energies: Energies
    iterations: keras.Variable
    counts: keras.Variable  # sums of what the algorithm counts
    # The evaluation of a step, of (point, gradient, energy, learning rate).
    evaluate: Callable[[Position, Position, Tensor, Tensor], Evaluation]
    learning_rate: Callable[[], Tensor]
    temperature: Callable[[], float]
    algorithm: Callable[[], Any]  # with the sizes of the data, once they are known


class Chain:
    """A chain that always moves: it lies in the variables of the model.

    It stops in the step that meets a loss or gradient that is not finite. No step waits
    for the device: the step stores its number in a variable, and from then on nothing
    of the chain is written. Whoever looks at the end of an epoch or of `fit` warns or
    raises.
    """

    _changes = 0  # of the state, between steps
    _runs: Tensor = None  # (chains,), in a step that must select
    # The step, from 1, that stopped each chain, or -1; None: nothing stops a chain.
    _stopped_at: Any = None

    def __init__(self, nan_policy: str | None) -> None:
        # Whether to warn of a chain that was stopped, or to raise an error.
        self._policy = _validate.choice("nan_policy", nan_policy, ("stop", "raise"))
        self._reported = 0

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        """Take the parts, and add variables of its own to the sampler."""
        self._parts = parts
        self._stopped_at = add_variable((), constant(-1), "int32", "stopped_at")

    # In a step.

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        variables: Sequence[keras.Variable],
    ) -> None:
        """Run `step()`, which assigns `variables`, for the chains that go on."""
        if self._stopped_at is None:
            step()
            return
        stopped_at = ops.convert_to_tensor(self._stopped_at)
        is_finite = tensors.all_finite(gradient, like=stopped_at)
        if energy is not None:
            is_finite = is_finite & ops.isfinite(energy)
        is_running = stopped_at < 0
        runs = is_finite & is_running
        is_new = is_running & ~is_finite
        now = ops.cast(self._parts.iterations, "int32") + 1
        _backend.write([self._stopped_at], [ops.where(is_new, now, stopped_at)])
        is_one = len(stopped_at.shape) == 0
        if not (is_one and _backend.steps_if(runs, step, variables)):
            self._runs = runs
            step()
            self._runs = None

    def read(self, keeps: bool) -> Any:
        """Return the state as tensors, which the algorithm overwrites or `keeps`."""
        can_overwrite = not keeps and self._runs is None
        return self._parts.state.read(_donated if can_overwrite else _backend.read)

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        """Assign values in a step."""
        if self._runs is not None:
            old = _backend.read(variables)
            values = tensors.select(self._runs, list(values), old)
        _backend.write(variables, values)

    def restart(self, state: Any) -> Tensor:
        """Return whether the evaluated point starts a new chain; None: it does not."""

    def between(self, current: Current, accepted: Tensor, keeps: bool) -> Current:
        """Look at the step after the decision, and return `current` for the move."""
        return current

    def store(self, state: Any) -> None:
        """Write the state after the move."""
        self.write(self._parts.state.all, leaves(state))

    def take_accepted(self) -> Tensor:
        """Return whether each chain took the point of this step; None: all did."""

    def take_changes(self) -> int:
        """Return how often somebody changed the state since the last call."""
        changes, self._changes = self._changes, 0
        return changes

    # Between steps.

    def _steps(self) -> int:
        return int(ops.convert_to_numpy(self._parts.iterations))

    def _settings(self) -> dict[str, float]:
        """Return learning rate and temperature of the next step, for a warning."""
        rate = float(np.min(ops.convert_to_numpy(self._parts.learning_rate())))
        return {"rate": rate, "temperature": self._parts.temperature()}

    def state_values(self) -> list[Tensor]:
        """Return the current state: a tensor for each weight of the model."""
        return _backend.read(self._parts.state.weights)

    def settle(self) -> None:
        """Put the current state into the model, where it is."""

    def propose(self) -> None:
        """Put the point to evaluate next into the model, after `settle`."""

    def freeze(self) -> None:
        """End the adaptation of the learning rate: samples are kept from now on."""

    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        """Mark the current state as a sample."""
        self._parts.energies.mark(self._steps(), listener)

    def sample_info(self) -> SampleInfo:
        """Return energy and weight of the sample that was marked last."""
        return self._parts.energies.of_sample()

    def lost_chains(self) -> Array:
        """Return whether each chain has no finite state to sample, () or (chains,)."""
        if not _backend.hold_values([self._stopped_at]):  # after a failed step on JAX
            return np.zeros(self._stopped_at.shape, bool)
        return ops.convert_to_numpy(self._stopped_at) >= 0

    def has_stopped(self) -> bool:
        """Return whether no chain goes on."""
        return bool(self.lost_chains().all())

    def reason_of_loss(self) -> str:
        """Return why `lost_chains` have no state, and what to do."""
        stopped_at = np.ravel(ops.convert_to_numpy(self._stopped_at))
        chains = np.flatnonzero(stopped_at >= 0)
        which, others = "The chain was", ""
        if len(stopped_at) > 1:
            which = f"Chains {chains.tolist()} of {len(stopped_at)} were"
        if len(chains) < len(stopped_at):
            others = ", and the other chains go on"
        return (
            f"{which} stopped by {self._parts.name} at step "
            f"{stopped_at[chains].min()}{others}: the loss, or the gradient, was not "
            "finite. Look for such values in the data, or start from other weights, "
            "with a new sampler and a lower learning rate "
            "(`mh.suggest_learning_rate` finds one)."
        )

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        """Warn at the end of an epoch if its counts show wrong settings."""
        self._report()

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        """Warn at the end of `fit` of what nobody was told."""
        self._report()
        self._reported = 0  # another `fit` speaks again of the same chains

    def _report(self) -> None:
        """Warn or raise if chains were stopped since the last call."""
        count = int(self.lost_chains().sum())
        if count <= self._reported or _backend.error_leaves_fit():
            return  # an error on its way out of `fit` is not to be hidden by this one
        self._reported = count
        if self._policy == "raise":
            raise FloatingPointError(self.reason_of_loss())
        warn(self.reason_of_loss())


def _donated(variables: Sequence[keras.Variable]) -> list[Tensor]:
    """Return values that the algorithm may overwrite."""
    return _backend.donated(variables, _backend.read(variables))


class ProposingChain(Chain):
    """A chain that accepts or rejects: the model has the proposal, the slots the state.

    Keras evaluates the proposal on the next batch. A step decides, stores the state,
    and writes the next proposal into the model. What drew the pending proposal is part
    of the state, so that a schedule or an adapted beta cannot come between the two
    directions of its density.
    """

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
            delta = tensors.subtract(state.point, state.position)
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

    def _pending(self) -> Array:
        """Return what is pending, of each chain; nothing after a failed step on JAX."""
        if not _backend.hold_values([self._slots.pending, *self._slots.position]):
            return np.full(self._slots.pending.shape, acceptance.NOTHING)
        return ops.convert_to_numpy(self._slots.pending)

    def _holds_proposal(self) -> Array:
        """Return whether the model holds a proposal, of each chain.

        Where a refresh is pending it holds the state, or what somebody else has set.
        """
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
        if self._keeps or (self._pending() == acceptance.NOTHING).all():
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
        return ops.convert_to_numpy(self._slots.pending) == acceptance.NOTHING

    def has_stopped(self) -> bool:
        return False

    def reason_of_loss(self) -> str:
        return reason_of_loss(self._parts.name, self.lost_chains())

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        watch, adapted = self._watch, self._slots.rate
        watch.look_at_lost(self.lost_chains(), self.reason_of_loss())
        if self._steps() <= self._parts.algorithm().traits.warm_up:
            return
        energy, now = ops.convert_to_numpy(self._slots.energy), self._settings()
        watch.look_at_energy(energy, now["temperature"])
        if self._is_adapting().all():
            factor = ops.convert_to_numpy(adapted.factor)
            lowest = factor < 1.01 * FLOOR  # whatever the last digit of float32
            watch.look_at_rate(lowest, **now)
        else:
            self._look_at_acceptance(counts)

    def _look_at_acceptance(self, counts: dict[str, Array]) -> None:
        now, adapted = self._settings(), self._slots.rate
        if adapted:
            now["rate"] = float(np.min(ops.convert_to_numpy(adapted.learning_rate)))
        self._watch.look(counts["accepted"], counts["proposed"], **now)

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
