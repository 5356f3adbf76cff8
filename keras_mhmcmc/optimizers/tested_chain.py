"""A chain whose proposal is tested on several batches, with the state in the model."""

from collections.abc import Callable

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.moving_chain import MovingChain
from keras_mhmcmc.optimizers.standstill import Standstill


class TestedChain(MovingChain):
    """The chain of `mh.Barker`. Its state has the fields of `BarkerSteps`."""

    __test__ = False  # no class of tests, for pytest

    def __init__(self) -> None:
        super().__init__("stop")

    def build(self, parts: Parts, add_variable: Callable[..., keras.Variable]) -> None:
        super().build(parts, add_variable)
        self._standstill = Standstill(parts.name)

    def settle(self) -> None:
        """Drop the sums of a test that has not ended: the next step begins it anew."""
        count = self._parts.state.structure.count
        if _backend.hold_values([count]):  # not after a failed step on JAX
            count.assign(np.zeros((), "float32"))

    def look_at_epoch(self, counts: dict[str, Array]) -> None:
        temperature, watch = self._parts.temperature(), self._standstill
        rate = float(ops.convert_to_numpy(self._parts.learning_rate()))
        if not counts["proposed"].any():
            watch.look_at_undecided()
        watch.look(
            counts["accepted"], counts["proposed"], rate=rate, temperature=temperature
        )

    def look_at_end(self, counts: Callable[[], dict[str, Array]]) -> None:
        is_known = _backend.hold_values(self._parts.state.all)
        self.settle()
        is_new = is_known and not self._standstill.has_looked
        if is_new and not _backend.error_leaves_fit():
            self.look_at_epoch(counts())
