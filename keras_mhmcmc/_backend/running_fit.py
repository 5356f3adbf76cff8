"""What Keras does not say of a `fit` that runs, from the frames of its callers."""

import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import keras


def _callers() -> Iterator[FrameType]:
    """Yield the frames of the callers, from inside."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def fitting_frame(model: keras.Model | None = None) -> FrameType | None:
    """Return the frame of `model.fit` among the callers, or None.

    None as `model` stands for any Keras model. Keras has no flag that says whether
    `fit` runs: after an error in `fit`, its callbacks are not told about the end.
    """
    for caller in _callers():
        if caller.f_code.co_name == "fit":
            fitted = caller.f_locals.get("self")
            if isinstance(fitted, keras.Model) and (model is None or fitted is model):
                return caller
    return None


def is_fitting() -> bool:
    """Return whether the `fit` of any Keras model runs."""
    return fitting_frame() is not None


def error_leaves_fit() -> bool:
    """Return whether an exception is on its way out of the `fit` that runs.

    Keras finalizes the optimizer in a `finally` on JAX. An exception that the caller of
    `fit` is handling is another one.
    """
    error = sys.exception()
    trace = None if error is None else error.__traceback__
    frame = fitting_frame()
    while trace is not None and trace.tb_frame is not frame:
        trace = trace.tb_next
    return trace is not None


_DATA = ("x", "y", "sample_weight", "class_weight", "shuffle")


def fitted_data(model: keras.Model) -> dict[str, Any] | None:
    """Return the arguments of a `model.fit` that runs, as far as they are data.

    Keras gives its callbacks and its optimizer no data. After `validation_split` these
    are the part for training. Return None if there is no `fit`.
    """
    frame = fitting_frame(model)
    return None if frame is None else {name: frame.f_locals[name] for name in _DATA}


def data_of_step() -> Any:
    """Return the mini-batch of the training step that runs, None outside of one."""
    for caller in _callers():
        code = caller.f_code
        is_model = isinstance(caller.f_locals.get("self"), keras.Model)
        if is_model and code.co_name == "train_step":
            return caller.f_locals[code.co_varnames[1]]
    return None


def training_model(optimizer: keras.optimizers.Optimizer) -> keras.Model | None:
    """Return the Keras model whose training step runs with `optimizer`.

    Keras does not tell an optimizer about its model, and a sampler has to see the loss
    that the model was compiled with. The only link is the training step of the model:
    it calls `scale_loss` and `apply`, and is then further up the stack. Keras' loss
    scaling may stand between them. Return None in a custom training loop. A model has
    no `optimizer` until it is compiled, and its own methods may be among the callers.
    """
    for caller in _callers():
        model = caller.f_locals.get("self")
        if isinstance(model, keras.Model):
            used = getattr(model, "optimizer", None)
            if isinstance(used, keras.optimizers.LossScaleOptimizer):
                used = used.inner_optimizer
            if used is optimizer:
                return model
    return None


def from_file(name: str) -> Iterator[Any]:
    """Yield a local variable of the functions of Keras that save or load, from inside.

    They walk from a model to its parts, and do not tell a part about the model.
    """
    for caller in _callers():
        if name in caller.f_locals and "visited_saveables" in caller.f_locals:
            yield caller.f_locals[name]
