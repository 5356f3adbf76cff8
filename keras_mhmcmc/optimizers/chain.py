"""How the chain of a sampler lies in its model, and what that asks for between steps.

A diffusion has the chain in the variables of the model (`moving_chain.py`). A
Metropolis-Hastings sampler has the proposal there, and the state of the chain in its
own variables (`proposing_chain.py`). A sampler that tests whole paths has the path
there (`path_chain.py`).
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.optimizers.energies import Energies
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.state_variables import StateVariables
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position


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


class Chain(abc.ABC):
    """Abstract: how a chain lies in its model."""

    _changes = 0  # of the state, between steps

    @abc.abstractmethod
    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        """Take the parts, and add variables of its own to the sampler."""

    def use_warm_up(self, steps: int) -> None:
        """Take another length of the warm-up, before the first step."""
        return None

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        variables: Sequence[keras.Variable],
    ) -> None:
        """Run `step()`, which assigns `variables`, for the chains that go on."""
        step()

    @abc.abstractmethod
    def read(self, keeps: bool) -> Any:
        """Return the state as tensors.

        Args:
            keeps: whether the algorithm must leave the tensors as they are.
        """

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        """Assign values in a step."""
        _backend.write(variables, values)

    def restart(self, state: Any) -> Tensor:
        """Return whether the evaluated point starts a new chain; None: it does not."""
        return None

    def between(self, current: Current, accepted: Tensor, keeps: bool) -> Current:
        """Look at the step after the decision, and return `current` for the move."""
        return current

    @abc.abstractmethod
    def store(self, state: Any) -> None:
        """Write the state after the move."""

    def take_accepted(self) -> Tensor:
        """Return whether each chain took the point of this step; None: all did."""
        return None

    def take_changes(self) -> int:
        """Return how often somebody changed the state since the last call."""
        changes, self._changes = self._changes, 0
        return changes

    @abc.abstractmethod
    def state_values(self) -> list[Tensor]:
        """Return the current state: a tensor for each weight of the model."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Put the current state into the variables of the model."""

    def propose(self) -> None:
        """Put the point to evaluate next into the model, after `settle`."""
        return None

    @abc.abstractmethod
    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        """Mark the current state as a sample."""

    def freeze(self) -> None:
        """End the adaptation of the learning rate: samples are kept from now on."""
        return None

    @abc.abstractmethod
    def sample_info(self) -> SampleInfo:
        """Return energy and weight of the sample that was marked last."""

    @abc.abstractmethod
    def lost_chains(self) -> Array:
        """Return whether each chain has no finite state to sample, () or (chains,)."""

    @abc.abstractmethod
    def has_stopped(self) -> bool:
        """Return whether no chain goes on."""

    @abc.abstractmethod
    def reason_of_loss(self) -> str:
        """Return why `lost_chains` have no state, and what to do."""

    @abc.abstractmethod
    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        """Warn at the end of an epoch if its counts show wrong settings."""

    @abc.abstractmethod
    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        """Warn at the end of `fit` of what nobody was told."""
