"""What Keras does not say of a `fit` that runs, from the frames of its callers."""

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import keras

__all__ = [
    "data_of_step",
    "error_leaves_fit",
    "fitted_batches",
    "fitted_data",
    "fitting_frame",
    "is_fitting",
    "noted_weights",
    "training_model",
]


def fitting_frame(
    model: keras.Model | None, frame: FrameType | None
) -> FrameType | None:
    """Return the frame of `model.fit` among the callers of `frame`, or None.

    None as `model` stands for any Keras model. Keras has no flag that says whether
    `fit` runs: after an error in `fit`, its callbacks are not told about the end.
    """
    while frame is not None:
        if frame.f_code.co_name == "fit":
            fitted = frame.f_locals.get("self")
            if isinstance(fitted, keras.Model) and (model is None or fitted is model):
                return frame
        frame = frame.f_back
    return None


def is_fitting() -> bool:
    """Return whether the `fit` of any Keras model runs."""
    return fitting_frame(None, inspect.currentframe()) is not None


def error_leaves_fit() -> bool:
    """Return whether an exception is on its way out of the `fit` that runs.

    Keras finalizes the optimizer in a `finally` on JAX. An exception that the caller of
    `fit` is handling is another one.
    """
    error = sys.exception()
    trace = None if error is None else error.__traceback__
    frame = fitting_frame(None, inspect.currentframe())
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return trace is not None


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


def data_of_step() -> Any:
    """Return the mini-batch of the training step that runs, None outside of one."""
    frame = inspect.currentframe()
    while frame is not None:
        code = frame.f_code
        is_model = isinstance(frame.f_locals.get("self"), keras.Model)
        if is_model and code.co_name == "train_step":
            return frame.f_locals[code.co_varnames[1]]
        frame = frame.f_back
    return None


def fitted_batches(model: keras.Model) -> Any:
    """Return what gives the mini-batches of a `model.fit` that runs, or None."""
    frame = fitting_frame(model, inspect.currentframe())
    return None if frame is None else frame.f_locals.get("epoch_iterator")


def noted_weights(batches: Any, note: Callable[[Any], None]) -> Any:
    """Yield the mini-batches, after note(weights of the examples) of each."""
    for batch in batches:
        note(keras.utils.unpack_x_y_sample_weight(batch)[2])
        yield batch


def training_model(optimizer: keras.optimizers.Optimizer) -> keras.Model | None:
    """Return the Keras model whose training step runs with `optimizer`.

    Keras does not tell an optimizer about its model, and a sampler has to see the loss
    that the model was compiled with. The only link is the training step of the model:
    it calls `scale_loss` and `apply`, and is then further up the stack. Keras' loss
    scaling may stand between them. Return None in a custom training loop. A model has
    no `optimizer` until it is compiled, and its own methods may be among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.Model):
            used = getattr(caller, "optimizer", None)
            if isinstance(used, keras.optimizers.LossScaleOptimizer):
                used = used.inner_optimizer
            if used is optimizer:
                return caller
        frame = frame.f_back
    return None
