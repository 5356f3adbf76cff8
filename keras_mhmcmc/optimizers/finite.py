"""The guard that stops a chain whose loss or gradient is not finite."""

import sys
from collections.abc import Callable
from collections.abc import Sequence

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.base import Position


class FiniteGuard:
    """Stop chains in the step that meets NaN or infinity, and report it afterwards.

    No step waits for the device. The step stores its number in a variable, and from
    then on nothing of the chain is written. `report` looks at the variable at the end
    of an epoch or of `fit`, and warns or raises.

    Args:
        policy: "stop" to warn, "raise" to raise an error.
    """

    def __init__(self, policy: str | None) -> None:
        self.policy = _validate.choice("nan_policy", policy, ("stop", "raise"))
        self._variable = None
        self._runs = None
        self._told = 0

    def build(self, variable: keras.Variable) -> None:
        """Take the int32 variable, () or (chains,), that is -1 while a chain runs."""
        self._variable = variable

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        iterations: keras.Variable,
        variables: Sequence[keras.Variable],
    ) -> None:
        """Run `step()`, which assigns `variables` by `write`, for chains that run."""
        stopped_at = ops.convert_to_tensor(self._variable)
        has_chains = len(stopped_at.shape) > 0
        is_finite = tensors.all_finite(gradient, like=stopped_at)
        if energy is not None:
            is_finite = is_finite & ops.isfinite(energy)
        is_running = stopped_at < 0
        runs = is_finite & is_running
        is_new = is_running & ~is_finite
        now = ops.cast(iterations, "int32") + 1
        _backend.write([self._variable], [ops.where(is_new, now, stopped_at)])

        if not has_chains and _backend.steps_if(runs, step, variables):
            return
        self._runs = runs
        step()
        self._runs = None

    def donated(self, variables: Sequence[keras.Variable]) -> list[Tensor]:
        """Return values that the algorithm may overwrite, unless a chain is held."""
        values = _backend.read(variables)
        if self._runs is not None:
            return values
        return _backend.donated(variables, values)

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        """Assign `values` for the chains that run."""
        if self._runs is not None:
            old = _backend.read(variables)
            values = tensors.select(self._runs, list(values), old)
        _backend.write(variables, values)

    def stopped_at(self) -> Array:
        """Return the step, from 1, that stopped each chain, or -1, () or (chains,)."""
        return ops.convert_to_numpy(self._variable)

    def stopped_chains(self) -> Array:
        """Return whether each chain was stopped, () or (chains,).

        False after a step that failed, which leaves no values on JAX.
        """
        if not _backend.hold_values([self._variable]):
            return np.zeros(self._variable.shape, bool)
        return self.stopped_at() >= 0

    def has_stopped(self) -> bool:
        """Return whether all chains were stopped."""
        return bool(self.stopped_chains().all())

    def reset(self) -> None:
        """Let `report` speak again of the same chains, in another `fit`."""
        self._told = 0

    def report(self, name: str) -> None:
        """Warn or raise if sampler `name` stopped chains since the last call.

        Raises:
            FloatingPointError: the policy is "raise".
        """
        count = int(self.stopped_chains().sum())
        if count <= self._told or sys.exc_info()[1] is not None:
            return  # an error on its way out of `fit` is not to be hidden by this one
        self._told = count
        if self.policy == "raise":
            raise FloatingPointError(self.message(name))
        warn(self.message(name))

    def message(self, name: str) -> str:
        """Return what happened to the chains that were stopped, and what to do."""
        stopped_at = np.ravel(self.stopped_at())
        chains = np.flatnonzero(stopped_at >= 0)
        which, others = "The chain was", ""
        if len(stopped_at) > 1:
            which = f"Chains {chains.tolist()} of {len(stopped_at)} were"
        if len(chains) < len(stopped_at):
            others = " The other chains go on, and samples are theirs alone."
        return (
            f"{which} stopped by {name} at step {stopped_at[chains].min()}: the loss, "
            "or the gradient, was not finite. The weights are those of the last finite "
            f"state.{others} Look for such values in the data, or lower the learning "
            "rate; then compile the model with a new sampler and go on from these "
            "weights, or take a Metropolis-Hastings sampler, which rejects such points."
        )
