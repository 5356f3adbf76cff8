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


def missing(name):
    """What to do if the training loss did not reach the sampler `name`."""
    return (
        f"{name} needs the training loss, which did not arrive. In a custom training "
        "loop, pass it through the optimizer inside the differentiated function, "
        "before the gradients are applied: `loss = optimizer.scale_loss(loss)`. Under "
        "the 'mixed_float16' policy Keras' loss scaling bypasses the optimizer: use "
        "'mixed_bfloat16', or `model.compile(..., auto_scale_loss=False)`."
    )


def check_is_mean(model):
    """Raises a `ValueError` if a loss of `model` is a sum, or one number an example.

    Energy and gradient would be as many times too large as a batch has examples.
    """
    for loss in keras.tree.flatten(model.loss):
        is_loss = isinstance(loss, keras.losses.Loss)
        if is_loss and loss.reduction in ("sum", "none", None):
            raise ValueError(
                "The loss must be a mean over the batch: a sampler multiplies it by "
                "`train_size`. Leave `reduction` away, or pass "
                'reduction="sum_over_batch_size", which is the mean. '
                f"Received: {type(loss).__name__}(reduction={loss.reduction!r})"
            )


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
