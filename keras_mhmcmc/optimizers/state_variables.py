"""The state of an algorithm as variables of an optimizer."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.base import map_leaves


class StateVariables:
    """The leaves of a state, in the order of the file format.

    The point of the state lies in the variables of the model. Every other leaf is a
    variable of the optimizer, a slot.

    Args:
        algorithm: the algorithm, bound to the weights.
        weights: the variables of the model that the chain moves.
        add_variable: the method of the optimizer.
        num_chains: K; None: there is one chain, without a chain axis.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        weights: Sequence[keras.Variable],
        add_variable: Callable[..., keras.Variable],
        num_chains: int | None,
    ) -> None:
        self.weights = list(weights)

        def variable(leaf: Any) -> keras.Variable:
            if not isinstance(leaf, Slot):
                return leaf
            if leaf.weight is None:
                axis = () if num_chains is None else (num_chains,)
                return add_variable(
                    (*axis, *leaf.shape), constant(leaf.value), leaf.dtype, leaf.name
                )
            weight = self.weights[leaf.weight]
            return add_variable(
                leaf.shape,
                constant(leaf.value),
                leaf.dtype or weight.dtype,
                f"{weight.path.replace('/', '_')}_{leaf.name}",
                _backend.layout_of(weight),
            )

        self.structure = map_leaves(variable, algorithm.init(self.weights))
        self.all = leaves(self.structure)

    def read(self, take: Callable[[Any], Any] = _backend.read) -> Any:
        """Return the state as tensors; `take` reads a list of variables."""
        return _read(self.structure, take)

    def arrays(self) -> Any:
        """Return the state with numpy arrays, but for lists, which stay variables."""
        return _read(self.structure, list, ops.convert_to_numpy)


def _read(
    part: Any,
    take: Callable[[Any], Any],
    one: Callable[[Any], Any] = ops.convert_to_tensor,
) -> Any:
    if isinstance(part, list):
        return take(part)
    if not isinstance(part, tuple):
        return one(part)
    if part == ():
        return ()
    return type(part)(*(_read(field, take, one) for field in part))
