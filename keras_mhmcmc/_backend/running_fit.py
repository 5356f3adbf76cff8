"""What Keras does not say of a `fit` that runs, from the frames of its callers."""

import inspect
import sys
from types import FrameType
from typing import Any

import keras

__all__ = [
    "error_leaves_fit",
    "fitted_data",
    "fitting_frame",
    "return_values_in_fit",
]


def fitting_frame(model: keras.Model, frame: FrameType | None) -> FrameType | None:
    """Return the frame of `model.fit` among the callers of `frame`, or None.

    Keras has no flag that says whether `fit` runs: after an error in `fit`, its
    callbacks are not told about the end.
    """
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def _innermost_fit() -> FrameType | None:
    """Return the frame of the newest `fit` of a Keras model that runs, or None."""
    frame = inspect.currentframe()
    while frame is not None:
        is_fit = frame.f_code.co_name == "fit"
        if is_fit and isinstance(frame.f_locals.get("self"), keras.Model):
            return frame
        frame = frame.f_back
    return None


def error_leaves_fit() -> bool:
    """Return whether an exception is on its way out of the `fit` that runs.

    Keras finalizes the optimizer in a `finally` on JAX. An exception that the caller of
    `fit` is handling is another one.
    """
    error, frame = sys.exception(), _innermost_fit()
    trace = None if error is None else error.__traceback__
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return trace is not None


def return_values_in_fit() -> None:
    """Give the variables of a running `fit` their values on JAX.

    Between the steps of an epoch Keras keeps them elsewhere, until a callback asks for
    its model.
    """
    frame = _innermost_fit()
    if frame is not None and keras.backend.backend() == "jax":
        frame.f_locals["self"].jax_state_sync()


_DATA = ("x", "y", "sample_weight", "class_weight", "shuffle")


def fitted_data(model: keras.Model) -> dict[str, Any] | None:
    """Return the arguments of a `model.fit` that runs, as far as they are data.

    Keras gives its callbacks and its optimizer no data. After `validation_split` these
    are the part for training. Return None if there is no `fit`.
    """
    frame = fitting_frame(model, inspect.currentframe())
    if frame is None:
        return None
    return {name: frame.f_locals[name] for name in _DATA}
