"""A chain that always moves: it lies in the variables of the model."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.base import Current
from keras_mhmcmc.algorithms.base import Position
from keras_mhmcmc.algorithms.base import leaves
from keras_mhmcmc.optimizers.chain import Chain
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.finite import FiniteGuard
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.partition_watch import PartitionWatch


class MovingChain(Chain):
    """The chain of a diffusion, which stops where loss or gradient is not finite.

    Args:
        nan_policy: "stop" or "raise".
        watch: looks at the partition of a contour sampler.
    """

    def __init__(
        self, nan_policy: str | None, watch: PartitionWatch | None = None
    ) -> None:
        self._guard = FiniteGuard(nan_policy)
        self._watch = watch

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        self._parts = parts
        self._guard.build(add_variable((), constant(-1), "int32", "stopped_at"))

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        variables: Sequence[keras.Variable],
    ) -> None:
        self._guard.run(step, energy, gradient, self._parts.iterations, variables)

    def read(self, keeps: bool) -> Any:
        take = _backend.read if keeps else self._guard.donated
        return self._parts.state.read(take)

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        self._guard.write(variables, values)

    def restart(self, state: Any) -> Tensor:
        return None

    def between(self, current: Current, accepted: Tensor, keeps: bool) -> Current:
        return current

    def store(self, state: Any) -> None:
        self.write(self._parts.state.all, leaves(state))

    def take_accepted(self) -> Tensor:
        return None

    def state_values(self) -> list[Tensor]:
        return _backend.read(self._parts.state.weights)

    def settle(self) -> None:
        """Do nothing: the state is in the model."""

    def propose(self) -> None:
        """Do nothing: the state is the point to evaluate next."""

    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        iteration = int(keras.ops.convert_to_numpy(self._parts.iterations))
        self._parts.energies.mark(iteration, listener)

    def sample_info(self) -> SampleInfo:
        return self._parts.energies.of_sample()

    def lost_chains(self) -> Array:
        return self._guard.stopped_chains()

    def has_stopped(self) -> bool:
        return self._guard.has_stopped()

    def reason_of_loss(self) -> str:
        return self._guard.message(self._parts.name)

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        self._guard.report(self._parts.name)
        if self._watch is not None:
            self._watch.look_at_epoch(counts, *self._parts.energies.extremes())

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        self._guard.report(self._parts.name)
        self._guard.reset()
        state = self._parts.state
        if self._watch is not None and _backend.hold_values(state.all):
            visits = keras.ops.convert_to_numpy(state.structure.visits)
            self._watch.look_at_end(visits, *self._parts.energies.extremes())
