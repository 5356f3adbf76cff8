"""A chain that always moves: it lies in the variables of the model.

It stops in the step that meets a loss or gradient that is not finite. No step waits for
the device: the step stores its number in a variable, and from then on nothing of the
chain is written. Whoever looks at the end of an epoch or of `fit` warns or raises.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.optimizers.chain import Chain
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.parts import tensors


class MovingChain(Chain):
    """The chain of a diffusion.

    Args:
        nan_policy: "stop" to warn of a chain that was stopped, "raise" to raise an
            error.
    """

    def __init__(self, nan_policy: str | None) -> None:
        self._policy = _validate.choice("nan_policy", nan_policy, ("stop", "raise"))
        self._runs: Tensor = None  # (chains,), in a step that must select
        self._reported = 0

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        self._parts = parts
        # The step, from 1, that stopped each chain, or -1.
        self._stopped_at = add_variable((), constant(-1), "int32", "stopped_at")

    def run(
        self,
        step: Callable[[], None],
        energy: Tensor,
        gradient: Position,
        variables: Sequence[keras.Variable],
    ) -> None:
        stopped_at = ops.convert_to_tensor(self._stopped_at)
        is_finite = tensors.all_finite(gradient, like=stopped_at)
        if energy is not None:
            is_finite = is_finite & ops.isfinite(energy)
        is_running = stopped_at < 0
        runs = is_finite & is_running
        is_new = is_running & ~is_finite
        now = ops.cast(self._parts.iterations, "int32") + 1
        _backend.write([self._stopped_at], [ops.where(is_new, now, stopped_at)])

        has_chains = len(stopped_at.shape) > 0
        if not has_chains and _backend.steps_if(runs, step, variables):
            return
        self._runs = runs
        step()
        self._runs = None

    def read(self, keeps: bool) -> Any:
        can_overwrite = not keeps and self._runs is None
        return self._parts.state.read(_donated if can_overwrite else _backend.read)

    def write(
        self, variables: Sequence[keras.Variable], values: Sequence[Tensor]
    ) -> None:
        if self._runs is not None:
            old = _backend.read(variables)
            values = tensors.select(self._runs, list(values), old)
        _backend.write(variables, values)

    def store(self, state: Any) -> None:
        self.write(self._parts.state.all, leaves(state))

    def state_values(self) -> list[Tensor]:
        return _backend.read(self._parts.state.weights)

    def settle(self) -> None:
        """Do nothing: the state is in the model."""

    def mark_sample(self, listener: Callable[[], None] | None) -> None:
        iteration = int(ops.convert_to_numpy(self._parts.iterations))
        self._parts.energies.mark(iteration, listener)

    def sample_info(self) -> SampleInfo:
        return self._parts.energies.of_sample()

    def lost_chains(self) -> Array:
        if not _backend.hold_values([self._stopped_at]):  # after a failed step on JAX
            return np.zeros(self._stopped_at.shape, bool)
        return ops.convert_to_numpy(self._stopped_at) >= 0

    def has_stopped(self) -> bool:
        return bool(self.lost_chains().all())

    def reason_of_loss(self) -> str:
        stopped_at = np.ravel(ops.convert_to_numpy(self._stopped_at))
        chains = np.flatnonzero(stopped_at >= 0)
        which, others = "The chain was", ""
        if len(stopped_at) > 1:
            which = f"Chains {chains.tolist()} of {len(stopped_at)} were"
        if len(chains) < len(stopped_at):
            others = " The other chains go on, and samples are theirs alone."
        return (
            f"{which} stopped by {self._parts.name} at step "
            f"{stopped_at[chains].min()}: the loss, "
            "or the gradient, was not finite. The weights are those of this step."
            f"{others} Look for such values in the data. If there are none, the chain "
            "ran away: start from other weights, with a new sampler and a lower "
            "learning rate (`mh.suggest_learning_rate` finds one), or take a "
            "Metropolis-Hastings sampler, which rejects such points."
        )

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        self._report()

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
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
