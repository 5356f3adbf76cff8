"""How far a `BayesianEnsemble.fit` has come, for the user and for callbacks."""

import time
from typing import Any

import keras


class Progress:
    """Is told after each round of a phase, and after each run of chains.

    A round is an epoch of the callbacks, whose model is `ensemble`, with the logs
    "loss" and "val_loss" in nats of an example. A callback that sets `stop_training`
    ends `fit` as Ctrl-C does: what was best so far predicts.
    """

    def __init__(
        self, ensemble: keras.Model, callbacks: Any, verbose: int | str
    ) -> None:
        self._ensemble, self.is_shown = ensemble, bool(verbose)
        self._callbacks = keras.callbacks.CallbackList(callbacks, model=ensemble)
        self._rounds = 0  # of all phases
        # The phase, and where and when it began: resumed members do not begin at 0.
        self._phase, self._first, self._begin = "", 0, time.monotonic()
        ensemble.stop_training = False

    def begin(self) -> None:
        """Tell the callbacks that `fit` begins."""
        self._callbacks.on_train_begin()

    def end(self) -> None:
        """Tell the callbacks that `fit` is over."""
        if self.is_shown:
            print()
        self._callbacks.on_train_end()

    def tell(self, phase: str, done: int, most: int, **logs: float) -> None:
        """Tell of a round: `most` are in this phase if none is saved.

        A `KeyboardInterrupt` comes if a callback wants `fit` to end.
        """
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._first, self._begin = phase, done, now
        elif self.is_shown:
            each = (now - self._begin) / max(1, done - self._first)
            left = each * (most - done)
            values = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
            line = f"{phase}: {done} of at most {most}, {values}, {left:.0f} s left"
            print(f"\r{line:<79}", end="", flush=True)
        self._callbacks.on_epoch_begin(self._rounds)
        self._callbacks.on_epoch_end(self._rounds, logs)
        self._rounds += 1
        if self._ensemble.stop_training:
            raise KeyboardInterrupt
