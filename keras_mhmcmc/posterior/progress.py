"""Where a `fit` stands, as its callbacks read it, and Ctrl-C, which they put off."""

import signal
import threading
import weakref
from types import FrameType

import keras
from keras import ops

from keras_mhmcmc import _backend


def iteration_of(model: keras.Model) -> int:
    return int(ops.convert_to_numpy(model.optimizer.iterations))


def last_batch(executed: int, batch: int, steps: int | None) -> int:
    """Return the last mini-batch of an execution: Keras 3.10 tells the first."""
    if executed > 1 and batch % executed == 0:
        batch += executed - 1
    return batch if steps is None else min(batch, steps - 1)


class Interrupts:
    """A handler of Ctrl-C while one model trains.

    An interrupt in the middle of a step would leave half of a state in the slots. So
    the first Ctrl-C is only noted; a second one interrupts at once.
    """

    def __init__(self) -> None:
        self._fitted: weakref.ref[keras.Model] | None = None
        self.is_waiting = False  # Ctrl-C was pressed, and has not yet ended `fit`

    def begin(self, model: keras.Model) -> None:
        """Handle Ctrl-C from now on, in the main thread of a single process.

        Of several, each would wait for others. A handler of the user stays.
        """
        self.is_waiting = False
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or _backend.is_spread(model.optimizer.iterations):
            return
        owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(owner, Interrupts):
            # Several callbacks of one `fit`: the last one interrupts, after the others
            # have kept their samples. An error may also have ended an earlier `fit`
            # without a call to its callbacks.
            is_same = owner._fitted is not None and owner._fitted() is model
            if is_same or not owner._is_fitting():
                owner.end()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._fitted = weakref.ref(model)
            signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        if self._fitted is not None and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self._fitted = None

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        if self.is_waiting or not self._is_fitting():
            self.end()
            signal.default_int_handler(signal_number, frame)
        self.is_waiting = True

    def _is_fitting(self) -> bool:
        model = None if self._fitted is None else self._fitted()
        return model is not None and _backend.fitting_frame(model) is not None
