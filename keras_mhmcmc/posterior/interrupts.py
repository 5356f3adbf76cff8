"""Ctrl-C during `fit`, which waits for the end of the mini-batch."""

import inspect
import signal
import threading
import weakref
from types import FrameType

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc.posterior.processes import Processes


class Interrupts:
    """A handler of Ctrl-C while one model trains.

    A `KeyboardInterrupt` in the middle of a step would leave a proposal in the model
    and half of a state in the slots. The first Ctrl-C is therefore only noted; a second
    one interrupts at once.
    """

    def __init__(self) -> None:
        self._fitted: weakref.ref[keras.Model] | None = None
        self._is_waiting = False

    def begin(self, model: keras.Model) -> None:
        """Handle Ctrl-C from now on. Do nothing outside of the main thread.

        Do nothing either if several processes make one chain: they would end at
        different mini-batches, and wait for each other.
        """
        self._is_waiting = False
        if Processes(model).are_several:
            return
        if threading.current_thread() is not threading.main_thread():
            return
        owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(owner, Interrupts):
            # Several callbacks of one `fit`: the last one interrupts, after the others
            # have kept their samples. An error may also have ended an earlier `fit`
            # without a call to its callbacks.
            is_same = owner._fitted is not None and owner._fitted() is model
            if is_same or not owner._is_fitting(inspect.currentframe()):
                owner.end()
        # A handler that the user installed stays.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._fitted = weakref.ref(model)
            signal.signal(signal.SIGINT, self._note)

    def end(self) -> None:
        """Return Ctrl-C to Python."""
        if self._fitted is not None:
            self._fitted = None
            # Another handler may have taken over since `begin`.
            if signal.getsignal(signal.SIGINT) == self._note:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def is_waiting(self) -> bool:
        """Return whether Ctrl-C was pressed and has not yet ended `fit`."""
        return self._is_waiting

    def _note(self, signal_number: int, frame: FrameType | None) -> None:
        if self._is_waiting or not self._is_fitting(frame):
            self.end()
            signal.default_int_handler(signal_number, frame)
        self._is_waiting = True

    def _is_fitting(self, frame: FrameType | None) -> bool:
        """Return whether the model's `fit` is among the callers of `frame`."""
        model = None if self._fitted is None else self._fitted()
        return model is not None and _backend.fitting_frame(model, frame) is not None
