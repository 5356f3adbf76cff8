"""Which loss an optimizer's model is compiled with, to refuse one that does not fit.

Keras never tells an optimizer: the only link is the model's training step, which calls
`scale_loss`, and stands further up the stack then.
"""

import inspect

import keras

_NAMES = ("mse", "MSE", "mean_squared_error")


def training_model(optimizer):
    """The Keras model whose training step is running with `optimizer`, or None.

    None in a custom training loop.
    """
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, keras.Model) and caller.optimizer is optimizer:
            return caller
        frame = frame.f_back
    return None


def check_is_mean_squared_error(model):
    """Raises a `ValueError` where `model` is compiled with a loss that is another."""
    losses = keras.tree.flatten(model.loss)
    others = [x for x in losses if x is not None and not is_mean_squared_error(x)]
    if others:
        raise ValueError(
            'Argument `likelihood` must be "categorical" with this loss: "gaussian" '
            "learns the noise of a regression from the mean squared error. Compile the "
            'model with loss="mean_squared_error", or choose "categorical", which '
            "takes the loss as it is, a mean negative log-likelihood. Received: "
            f'likelihood="gaussian", loss={model.loss!r}'
        )


def is_mean_squared_error(loss):
    """Whether `loss`, as given to `compile`, is the mean over all targets."""
    if isinstance(loss, keras.losses.MeanSquaredError):
        return loss.reduction == "sum_over_batch_size"
    return loss in _NAMES or loss is keras.losses.mean_squared_error
