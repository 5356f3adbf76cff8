"""A chain of paths: the model holds the path, the slots the state that it began from.

The end of a path is tested on all of the data, between two steps. `settle` does the
test: it moves the model to the end of the path, evaluates the energy there, and accepts
the end or goes back. `propose` begins the next path.
"""

import weakref
from collections.abc import Callable
from collections.abc import Sequence
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
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.parts import amagold_path
from keras_mhmcmc.samplers.parts import tensors

# Tests that are rejected in a row before a warning: each ends a path of many steps.
_MANY = 8


class PathChain(Chain):
    """The chain of AMAGOLD.

    Args:
        algorithm: the steps of a path, and its test.
        energy: returns U on all of the data at the weights of the model, nats.
        target: returns the objects that U is made of, such as loss and data.
    """

    def __init__(
        self,
        algorithm: amagold_path.AmagoldPath,
        energy: Callable[[], float],
        target: Callable[[], tuple[Any, ...]],
    ) -> None:
        self._algorithm = algorithm
        self._energy = energy
        self._target = target
        self._tested_on: list[Callable[[], Any]] = []  # where the last test was
        self._changes = 0  # of the state, between steps

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        self._parts = parts
        self._slots = parts.state.structure
        self._watch = Standstill(parts.name, many=_MANY)

    def use_warm_up(self, steps: int) -> None:
        self._algorithm = self._algorithm.with_warm_up(steps)

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        variables: Sequence[keras.Variable],
    ) -> None:
        step()

    def read(self, keeps: bool) -> Any:
        if keeps:
            raise ValueError(
                "All weights that the optimizer trains must have a gradient: on a path "
                "of AMAGOLD all of them move. Set `trainable = False` for the layers "
                "that the loss does not depend on. Received: weights without a gradient"
            )
        state = self._parts.state.read()
        # The step moves the point, and reads the velocity again when it has moved.
        return state._replace(
            point=_backend.donated(self._parts.state.weights, state.point)
        )

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        _backend.write(variables, values)

    def restart(self, state: amagold_path.State) -> Tensor:
        """Return whether somebody else set the weights since they were settled."""

        def compare() -> Tensor:
            delta = tensors.lazy_difference(
                state.point, state.position, like=state.stage
            )
            return tensors.sum_squares(delta, like=state.work) > 0.0

        is_settled = state.stage == amagold_path.SETTLED
        changed = _backend.cond(is_settled, compare, lambda: is_settled)
        return is_settled & changed

    def between(self, current: Current, accepted: Tensor, keeps: bool) -> Current:
        return current

    def store(self, state: amagold_path.State) -> None:
        # A step changes neither of these.
        slots = self._slots._replace(position=[], start_velocity=[])
        state = state._replace(position=[], start_velocity=[])
        _backend.write(leaves(slots), leaves(state))

    def take_accepted(self) -> Tensor:
        return None

    def take_changes(self) -> int:
        changes, self._changes = self._changes, 0
        return changes

    def _stage(self) -> int:
        """Return where the chain is; `NOTHING` after a failed step on JAX."""
        if not _backend.hold_values(self._parts.state.all):
            return amagold_path.NOTHING
        return int(ops.convert_to_numpy(self._slots.stage))

    def state_values(self) -> list[Tensor]:
        on_path = self._stage() == amagold_path.PATH
        slots = self._slots.position if on_path else self._parts.state.weights
        return _backend.read(slots)

    def settle(self) -> None:
        """Test the end of the path, and put the state of the chain into the model."""
        if self._stage() < amagold_path.FREE:
            return
        weights, slots = self._parts.state.weights, self._slots
        state = self._parts.state.read()
        points, end = state.point, self._algorithm.end(state)
        points = [ops.copy(x) for x in points]
        try:
            self._renew_energy()
            _backend.write(weights, end)
            energy = ops.convert_to_tensor(self._energy(), dtype="float32")
        except BaseException:
            _backend.write(weights, points)  # the path goes on
            raise
        self._changes += 1
        # Read again: on PyTorch `state` may be the memory of the variables.
        state = self._parts.state.read()
        # Of a single weight: the test needs a uniform alone.
        one = [ops.zeros((2,), "float32")]
        evaluation = self._parts.evaluate(one, [], None, self._parts.learning_rate())
        state, verdict = self._algorithm.judge(
            state, state.point, energy, evaluation.uniforms[0]
        )
        self._write_state(state)
        self._count(verdict)
        if bool(ops.convert_to_numpy(verdict.finite)):
            energies = self._parts.energies
            energies.variable.assign(energies.recorded(slots.energy.value, None))

    def _renew_energy(self) -> None:
        """Evaluate the energy of the state again if `fit` has another loss or data."""
        target = self._target()
        pairs = zip(self._tested_on, target, strict=False)  # at first there is none
        is_new = any(reference() is not x for reference, x in pairs)
        if is_new and self._stage() == amagold_path.PATH:
            _backend.write_copies(self._parts.state.weights, self._slots.position)
            self._slots.energy.assign(self._energy())
        self._tested_on = [_reference(x) for x in target]

    def _write_state(self, state: amagold_path.State) -> None:
        """Write a state whose lists may share their memory."""
        slots = self._slots
        copies = [[ops.copy(x) for x in part] for part in state[:4]]
        _backend.write(
            [*slots.point, *slots.velocity, *slots.position, *slots.start_velocity],
            [x for part in copies for x in part],
        )
        _backend.write(list(slots[4:]), [ops.copy(x) for x in state[4:]])

    def _count(self, verdict: amagold_path.Verdict) -> None:
        tested = ops.cast(verdict.tested, "float32")
        new = [verdict.accepted, verdict.tested, ~verdict.finite, verdict.probability]
        new = [ops.cast(value, "float32") for value in new]
        new[0], new[3] = tested * new[0], tested * new[3]
        counts = self._parts.counts
        counts.assign(ops.convert_to_tensor(counts) + ops.stack(new, axis=-1))

    def propose(self) -> None:
        if self._stage() != amagold_path.SETTLED:
            return
        state = self._parts.state.read()
        pairs = zip(state.point, state.position, strict=True)
        if any(bool(ops.convert_to_numpy(ops.any(x != y))) for x, y in pairs):
            return  # the next step begins a new chain from weights that were set
        rate = ops.cast(self._parts.learning_rate(), "float32")
        if not float(ops.convert_to_numpy(rate)) > 0.0:
            raise ValueError(
                f"Argument `learning_rate` of {self._parts.name} must stay greater "
                "than 0: at 0 the chain would lose its velocity. Look at the callback "
                f"that changes the rate. Received: learning_rate={float(rate):g}"
            )
        self._changes += 1
        number = int(ops.convert_to_numpy(self._parts.iterations))
        self._write_state(self._algorithm.begin(state, rate, number))

    def _drop(self) -> None:
        """Go back to the state that the path began from."""
        stage = self._stage()
        if stage == amagold_path.PATH:
            _backend.write_copies(self._parts.state.weights, self._slots.position)
            _backend.write_copies(self._slots.velocity, self._slots.start_velocity)
            self._slots.stage.assign(amagold_path.SETTLED)

    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        """Do nothing: the energy of the state is known."""

    def freeze(self) -> None:
        """Do nothing: the rate is not adapted."""

    def sample_info(self) -> SampleInfo:
        energy = ops.convert_to_numpy(self._slots.energy)
        return SampleInfo(energy, np.zeros_like(energy), True)

    def lost_chains(self) -> Array:
        steps = int(ops.convert_to_numpy(self._parts.iterations))
        has_state = self._stage() in (amagold_path.SETTLED, amagold_path.PATH)
        return np.array(steps > 0 and not has_state)

    def has_stopped(self) -> bool:
        return self._stage() == amagold_path.NOTHING and bool(self.lost_chains())

    def reason_of_loss(self) -> str:
        name = self._parts.name
        if self._stage() == amagold_path.FREE:
            return (
                f"{name} has no state to sample: no path has ended. A path ends with "
                "an epoch, or after `steps_per_test` steps. `mh.PosteriorSamples` "
                "makes the test there."
            )
        return (
            f"{name} has no state to sample: the energy at the end of a first path "
            "was not finite. Lower the learning rate, and compile the model again, "
            "with finite weights. Or look for values in the data that are not finite."
        )

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        watch, temperature = self._watch, self._parts.temperature()
        if self._stage() == amagold_path.NOTHING:
            watch.look_at_lost(self.lost_chains(), self.reason_of_loss())
            return
        watch.look_at_energy(ops.convert_to_numpy(self._slots.energy), temperature)
        watch.look(
            counts["accepted"],
            counts["proposed"],
            rate=float(ops.convert_to_numpy(self._parts.learning_rate())),
            temperature=temperature,
        )

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        if _backend.error_leaves_fit():
            self._drop()
            return
        self.settle()
        if not self._watch.has_looked:
            self.look_at_epoch(counts())
        steps = int(ops.convert_to_numpy(self._parts.iterations))
        self._watch.look_at_warm_up(steps, self._algorithm.traits)


def _reference(x: Any) -> Callable[[], Any]:
    """Return a function that returns `x`, and lets its memory go if it can."""
    try:
        return weakref.ref(x)
    except TypeError:  # such as a list, a dictionary or None
        return lambda: x
