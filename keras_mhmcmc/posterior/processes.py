"""The processes that run one chain together. The first of them writes files."""

import json
from collections.abc import Callable
from typing import Any

import keras

from keras_mhmcmc import _backend

# JSON values.
Answer = Any


class Processes:
    """The processes that hold a model together; usually this one alone.

    They call the same functions in the same order, and wait for each other there.

    Args:
        model: a compiled model. None: this process is alone.
    """

    def __init__(self, model: keras.Model | None = None) -> None:
        optimizer = None if model is None else model.optimizer
        self.are_several = optimizer is not None and _backend.is_spread(
            optimizer.iterations
        )
        self.is_first = not self.are_several or _backend.is_first_process()

    def do_in_first(self, action: Callable[[], Answer]) -> Answer:
        """Return `action()` of the first process in all of them.

        Raises:
            RuntimeError: in the other processes, if `action` failed in the first one,
                which raises the error itself. Otherwise they would wait forever.
        """
        if not self.are_several:
            return action()
        answer, failure = None, None
        if self.is_first:
            try:
                answer = action()
            except BaseException as error:
                failure = error
        told = {"answer": answer, "error": None if failure is None else repr(failure)}
        told = json.loads(_backend.from_first_process(json.dumps(told)))
        if failure is not None:
            raise failure
        if told["error"] is not None:
            raise RuntimeError(
                f"The first process, which writes the samples, failed: {told['error']}"
            )
        return told["answer"]
