"""What a transition is: a Metropolis-Hastings step that draws its data as it goes.

An `Algorithm` of `base.py` evaluates the energy once a step, on a batch of fixed size.
A transition evaluates what its test needs: examples one by one at two points, batches
until the test can decide, or a path of gradients. `mh.sample` hands it a `Density`,
which evaluates K chains at once and makes the noise.

| symbol       | name              | shape           | unit |
|--------------|-------------------|-----------------|------|
| theta        | `position`        | list of tensors | weights |
| log p(x_i)   | `log_likelihoods` | (K, B)          | nats |
| log p(theta) | `log_prior`       | (K,)            | nats |
| U            | `energies`        | (K,)            | nats |
| grad(U/N)    | `gradient`        | list of tensors | nats per example and weight |
| grad sum_b w_b log p(x_b) | `weighted_gradient` | list of tensors | nats per weight |
| grad log p(theta) | `prior_gradient` | list of tensors | nats per weight |
| N            | `train_size`      | int             | examples |
| u            | `uniforms`        | (n, K, B)       | 1, in [0, 1) |
"""

import abc
from typing import Any
from typing import Protocol
from typing import Self

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position


class Density(Protocol):
    """The target of K chains at one step, and the noise of the step.

    A `part` numbers what is drawn within a step, from 0. Equal parts give equal noise.
    """

    train_size: int  # N; 1 without data
    arrays: list[Tensor]  # of the transition: `Transition.arrays`, as tensors

    def log_likelihoods(self, positions: list[Position], index: Tensor) -> list[Tensor]:
        """Return log p(x_i|theta) at each of the positions, float32, (K, B).

        Args:
            positions: one or more positions of all chains.
            index: examples of each chain, int32, (K, B).
        """

    def log_prior(self, position: Position) -> Tensor:
        """Return the log prior, float32, (K,)."""

    def energies(self, position: Position) -> Tensor:
        """Return U on all of the data, float32, (K,)."""

    def energies_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """Return U on all of the data, float32, (K,), and the gradient of U/N."""

    def gradient(self, position: Position, batch_size: int, part: Tensor) -> Position:
        """Return the gradient of U/N on a random mini-batch of each chain."""

    def weighted_gradient(
        self, position: Position, index: Tensor, weights: Tensor
    ) -> Position:
        """Return the gradient of sum_b w_b log p(x_b|theta).

        Args:
            position: of all chains.
            index: examples of each chain, int32, (K, B).
            weights: w, (K, B).
        """

    def prior_gradient(self, position: Position) -> Position:
        """Return the gradient of the log prior."""

    def uniforms(self, count: int, size: int, part: Tensor) -> Tensor:
        """Return uniforms, float32, (count, K, size)."""

    def normals(self, part: Tensor) -> Position:
        """Return standard normals like the position."""


class Transition(abc.ABC):
    """Abstract: a Markov kernel of K chains, which evaluates its target as it needs.

    A final class is a frozen dataclass of the settings. The state is a named tuple
    with the field `point`, the position of the chains.
    """

    @property
    @abc.abstractmethod
    def counts(self) -> tuple[str, ...]:
        """Names of what the steps count."""

    @property
    def needs_examples(self) -> bool:
        """Return whether the kernel needs log-likelihoods of single examples."""
        return False

    @property
    def is_flat(self) -> bool:
        """Return whether a step may take all tensors of a position as one, (K, d).

        It may if it treats all weights alike, whatever tensor they belong to. One
        tensor needs a fraction of the time of many small ones.
        """
        return False

    @property
    def arrays(self) -> list[Array]:
        """Return what each step reads, which `Density.arrays` gives as tensors."""
        return []

    @property
    def warm_up_argument(self) -> tuple[str, int]:
        """Return name and value of the argument that sets the warm-up, in steps."""
        return ("warm_up", 0)

    def energy_unit(self, dimension: int) -> float | None:
        """Return the nats of energy that decide; None: no energy of all data decides.

        A transition that returns a number has a state with the field `energy`, in nats,
        (K,).

        Args:
            dimension: number of weights of a chain.
        """
        return None

    @abc.abstractmethod
    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the transition for data of this size.

        Args:
            train_size: number of examples, N; None: there is no data.
            batch_size: what the user has asked for; None: nothing.

        Raises:
            ValueError: the settings do not fit the data.
        """

    @abc.abstractmethod
    def init(self, position: Position) -> Any:
        """Return the state before the first step, with `Slot`s besides the point."""

    @abc.abstractmethod
    def step(self, state: Any, density: Density) -> tuple[Any, dict[str, Tensor]]:
        """Return the next state, and counts by name, float32, (K,)."""

    @abc.abstractmethod
    def check(self, state: Any) -> None:
        """Raise an error if the state shows that the settings are wrong.

        Args:
            state: the state, whose leaves are numpy arrays.
        """

    @abc.abstractmethod
    def summary(self, counts: dict[str, Array]) -> dict[str, Array]:
        """Return diagnostics by name, arrays (K,).

        Args:
            counts: sums over the steps after the burn-in, arrays (K,).
        """


class ExampleTest(Transition):
    """Abstract: a kernel whose test draws examples of its own, and counts them."""

    @property
    def counts(self) -> tuple[str, ...]:
        """Names of what a step counts."""
        return ("accepted", "proposed", "examples", "nonfinite")

    @property
    def needs_examples(self) -> bool:
        """Return whether the kernel needs single log-likelihoods: it does."""
        return True

    def summary(self, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of accepted proposals, and the mean size of a batch."""
        with np.errstate(invalid="ignore"):
            acceptance = counts["accepted"] / counts["proposed"]
            batch_size = counts["examples"] / counts["proposed"]
        nonfinite = counts["nonfinite"]
        return dict(acceptance=acceptance, batch_size=batch_size, nonfinite=nonfinite)
