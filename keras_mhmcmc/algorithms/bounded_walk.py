"""What TunaMH and PoissonMH share: moves of a random walk, or along a gradient.

Every proposal moves the chain by Delta = theta' - theta. The log prior adds its
difference over T to log r, and the batch depends on |Delta| alone. A random walk has
theta' = theta + epsilon Z. `informed.py` has the proposals that follow a gradient.

| symbol       | name             | shape           | unit    |
|--------------|------------------|-----------------|---------|
| theta        | `point`          | list of tensors | weights |
| theta'       | `proposal` of `Move` | list of tensors | weights |
| epsilon      | `learning_rate`  | float           | weights |
| abs(Delta)   | `distance`       | (K,)            | weights |
| d            | `size`           | int             | weights |
"""

import abc
from typing import NamedTuple

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms.bounded import BoundedTest
from keras_mhmcmc.algorithms.bounded import Move
from keras_mhmcmc.algorithms.transition import Density
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import set_checked
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


class Walk(NamedTuple):
    """What the kernels measure of a move."""

    distance: Tensor  # between proposal and position, (K,)
    size: int  # number of weights of a chain


class BoundedWalk(BoundedTest):
    """Abstract: a `BoundedTest` of moves by a distance.

    A final class adds `limits`, `weights`, `names`, `rate`, `propose` and `judge`.
    """

    learning_rate: float

    @abc.abstractmethod
    def rate(self, walk: Walk) -> Tensor:
        """Return the expected size of a batch, (K,)."""

    @property
    def shared(self) -> list[Array]:
        """Return nothing."""
        return []

    def random_walk(self, point: Position, density: Density) -> Move:
        """Return the move of a random walk."""
        noise = density.normals(0)
        proposal = tensors.add_scaled(point, self.learning_rate, noise)
        return self.move_to(proposal, point, density)

    def move_to(self, proposal: Position, point: Position, density: Density) -> Move:
        """Return a move whose proposal has the same density both ways."""
        prior = density.log_prior(proposal) - density.log_prior(point)
        moved = tensors.subtract(proposal, point)
        walk = Walk(
            ops.sqrt(tensors.sum_squares(moved, like=prior)),
            tensors.size(moved, like=prior),
        )
        return Move(
            proposal,
            prior / self.temperature,
            self.rate(walk),
            ops.zeros_like(prior),
            walk,
        )

    def _check_walk(self) -> None:
        """Check the settings that all final classes have."""
        self._check_test()
        rate = _validate.number("learning_rate", self.learning_rate, _validate.POSITIVE)
        set_checked(self, learning_rate=rate)
