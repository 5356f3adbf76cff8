"""Ctrl-C during `fit` waits for the end of a mini-batch, where a chain is whole."""

import inspect
import signal
import threading
import weakref


class Interrupts:
    """Takes note of Ctrl-C while one model trains.

    A `KeyboardInterrupt` in the middle of a step would leave a proposal in the model,
    and half of a state in its slots. A second Ctrl-C interrupts at once.
    """

    def __init__(self):
        self._model = None
        self._is_waiting = False

    def begin(self, model):
        """Takes note from now on. Does nothing outside the main thread."""
        self._is_waiting = False
        if threading.current_thread() is not threading.main_thread():
            return
        owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(owner, Interrupts):
            is_same = owner._model is not None and owner._model() is model
            # Of several callbacks the last one, when the others have kept their
            # samples. And an error may have ended a `fit` without a word to callbacks.
            if is_same or not owner._is_fitting(inspect.currentframe()):
                owner.end()
        # Whoever has a handler of their own knows what to do.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._model = weakref.ref(model)
            signal.signal(signal.SIGINT, self._note)

    def end(self):
        """Leaves Ctrl-C to Python again."""
        if self._model is not None:
            self._model = None
            # Somebody else may have come after.
            if signal.getsignal(signal.SIGINT) == self._note:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def is_waiting(self):
        """Whether Ctrl-C was pressed."""
        return self._is_waiting

    def _note(self, number, frame):
        if self._is_waiting or not self._is_fitting(frame):
            self.end()
            signal.default_int_handler(number, frame)
        self._is_waiting = True

    def _is_fitting(self, frame):
        """Whether the `fit` of the model is among the callers of a frame."""
        model = None if self._model is None else self._model()
        while frame is not None and model is not None:
            is_fit = frame.f_code.co_name == "fit"
            if is_fit and frame.f_locals.get("self") is model:
                return True
            frame = frame.f_back
        return False
