"""Check the loss that a model was compiled with."""

import inspect
import json
import re
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc.fit import base_options
from keras_mhmcmc.fit.watch import tell

Check = Callable[[keras.Model], None]  # of a compiled model, before the first step

# Losses whose size says nothing about the noise: classes, and functions of these names.
_NAMES = (
    *("MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError"),
    *("MeanSquaredLogarithmicError", "Huber", "LogCosh", "CosineSimilarity"),
    *("Hinge", "SquaredHinge", "CategoricalHinge", "BinaryFocalCrossentropy"),
    *("CategoricalFocalCrossentropy", "CategoricalGeneralizedCrossEntropy"),
    *("Circle", "Dice", "Tversky"),
)
_NO_LIKELIHOODS = tuple(getattr(keras.losses, name) for name in _NAMES)
_AS_FUNCTIONS = tuple(
    getattr(keras.losses, re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())
    for name in _NAMES
)
# Names as `name_of` returns them.
OF_LABELS = "binarycrossentropy"  # a mean over the labels of an example
OF_MEAN_SQUARES = ("mse", "meansquarederror")
OF_REGRESSIONS = (*OF_MEAN_SQUARES, "mae", "meanabsoluteerror", "huber", "logcosh")


def name_of(loss: Any) -> str:
    """Return the name of a loss as given to `compile`, in small letters alone."""
    if not isinstance(loss, str):
        loss = getattr(loss, "__name__", type(loss).__name__)
    return str(loss).lower().replace("_", "")


def missing(name: str) -> str:
    """Return the error for a training loss that did not reach the sampler `name`."""
    return (
        f"{name} needs the training loss, which did not arrive. In a custom training "
        "loop, call `loss = optimizer.scale_loss(loss)` inside the differentiated "
        "function, and on JAX `stateless_apply` in the same compiled function."
    )


def check_is_mean(model: keras.Model) -> None:
    """Raise a `ValueError` if a loss of `model` is not a mean over the batch.

    With a sum, or with one number for each example, energy and gradient would be too
    large by a factor: the number of examples in a batch.
    """
    for loss in keras.tree.flatten(model.loss):
        is_loss = isinstance(loss, keras.losses.Loss)
        if is_loss and loss.reduction in ("sum", "none", None):
            raise ValueError(
                "The loss must be a mean over the batch: a sampler multiplies it by "
                "`train_size`. Leave out `reduction`, or pass "
                'reduction="sum_over_batch_size", which is the mean. '
                f"Received: {type(loss).__name__}(reduction={loss.reduction!r})"
            )


def warn_of_no_likelihood(model: keras.Model) -> None:
    """Warn if a loss of `model` is known to be no negative log-likelihood."""
    _warn_of_another_likelihood(model)
    for given in keras.tree.flatten(model.loss):
        loss = keras.losses.get(given) if isinstance(given, str) else given
        if not isinstance(loss, _NO_LIKELIHOODS) and loss not in _AS_FUNCTIONS:
            continue
        kind = loss if inspect.isfunction(loss) else type(loss)
        name = given if isinstance(given, str) else kind.__name__
        squares = (
            " The mean squared error stands for normal noise with a standard deviation "
            "of 0.71, in units of the target."
        )
        squares *= is_mean_squared_error(loss)
        tell("no likelihood", name=name, squares=squares)


def _warn_of_another_likelihood(model: keras.Model) -> None:
    """Warn if options change the likelihood that a loss stands for."""
    found = []
    for loss in keras.tree.flatten(model.loss):
        if isinstance(loss, keras.losses.Loss):
            smoothing = loss.get_config().get("label_smoothing")
            found += [f"label_smoothing={smoothing}"] * bool(smoothing)
    weights = _backend.compile_arguments(model).get("loss_weights")
    if any(weight not in (None, 1) for weight in keras.tree.flatten(weights)):
        found.append(f"loss_weights={weights}")
    if found:
        tell("another likelihood", found=", ".join(found))


def check_is_mean_squared_error(model: keras.Model) -> None:
    """Raise a `ValueError` if `model` has a loss other than the mean squared error."""
    losses = keras.tree.flatten(model.loss)
    others = [x for x in losses if x is not None and not is_mean_squared_error(x)]
    if others:
        raise ValueError(
            'Argument `likelihood` must be "categorical" with this loss: "gaussian" '
            "learns the noise of a regression from the mean squared error. Compile the "
            'model with loss="mean_squared_error", or choose "categorical", which '
            "takes any mean negative log-likelihood. Received: "
            f'likelihood="gaussian", loss={model.loss!r}'
        )
    has_weights = _backend.compile_arguments(model).get("loss_weights") is not None
    variables = _backend.network_of(model).trainable_variables
    paths = [v.path for v in variables if v.regularizer is not None]
    found = [f"{len(losses)} losses"] * (len(losses) > 1)
    found += ["`loss_weights`"] * has_weights
    found += [f"a regularizer of '{path}'" for path in paths]
    _refuse_all(found)


def check_adds_no_loss(model: keras.Model) -> None:
    """Raise a `ValueError` if layers of `model`, which was called, add to its loss."""
    _refuse_all([f"a loss of the layer '{x}'" for x in _backend.adding_layers(model)])


def _refuse_all(found: list[str]) -> None:
    """Raise a `ValueError` for parts of a loss that are no squared errors."""
    if found:
        raise ValueError(
            'Argument `likelihood` must be "categorical" with this model: "gaussian" '
            "learns the noise from the loss, which must be the mean squared error of "
            "one output and nothing else. Leave out `loss_weights`, regularizers and "
            f'`add_loss`. Received: likelihood="gaussian" with {", ".join(found)}'
        )


def is_mean_squared_error(loss: Any) -> bool:
    """Return whether `loss`, as given to `compile`, is the mean squared error."""
    if isinstance(loss, keras.losses.MeanSquaredError):
        return loss.reduction == "sum_over_batch_size"
    if isinstance(loss, str):
        return name_of(loss) in OF_MEAN_SQUARES
    return loss is keras.losses.mean_squared_error


def _as_json(value: Any) -> Any:
    """Return what stands for a value that JSON does not know."""
    if isinstance(value, np.ndarray) or ops.is_tensor(value):
        return ops.convert_to_numpy(value).tolist()
    return type(value).__name__


def checked_as(first: Any, model: keras.Model) -> Any:
    """Return what tells the loss, and warn if the chain began with another, `first`.

    A chain that compares energies needs one loss. An error would empty the model on
    JAX, where the step runs already.
    """

    def of_one(loss: Any) -> Any:
        if not isinstance(loss, keras.losses.Loss):
            return loss
        config = {**loss.get_config(), "name": None}
        return type(loss), json.dumps(config, sort_keys=True, default=_as_json)

    now = [
        keras.tree.map_structure(of_one, model.loss),
        _backend.compile_arguments(model).get("loss_weights"),
    ]
    if first is not None and first != now:
        tell("another loss", now=now, first=first)
    return now


def _unknown() -> None:
    return None


class LossCheck:
    """Checks each loss that a model is compiled with once in each `fit`."""

    def __init__(
        self,
        own: Check,
        in_step: Check | None,  # of a model that has been called
        is_compared: bool,  # whether the chain compares energies: it needs one loss
    ) -> None:
        self._own, self._in_step, self._is_compared = own, in_step, is_compared
        self._is_step_checked = False
        self._model: Callable[[], keras.Model | None] = _unknown
        self._key: Any = None  # of the compilation that was checked
        self._first: Any = None  # tells the first loss
        self._has_told = False

    def look(
        self,
        optimizer: keras.optimizers.Optimizer,
        sampled: Sequence[keras.Variable],
        is_step: bool,
    ) -> None:
        """Raise a `ValueError` if the model that trains does not suit the sampler.

        On JAX an error in a step would empty the model. So `Optimizer.build` looks,
        too, which Keras calls before the first step.
        """
        known = self._model()
        if known is not None and _backend.compile_key(known) is self._key:
            if is_step and self._in_step is not None and not self._is_step_checked:
                self._in_step(known)
                self._is_step_checked = True
            return
        model = _backend.training_model(optimizer)
        if model is None:
            if is_step:
                self._look_for_fit(optimizer)
            return
        self._own(model)
        base_options.refuse_loss_scaling(model)
        base_options.refuse_other_weights(sampled, model)
        check_is_mean(model)
        if self._is_compared:
            self._first = checked_as(self._first, model)
        self._model, self._key = weakref.ref(model), _backend.compile_key(model)
        self._is_step_checked = False
        if is_step:
            self.look(optimizer, sampled, is_step)

    def forget(self) -> None:
        """Look again in the next step: of another `fit`, perhaps of another model."""
        self._model = _unknown

    def _look_for_fit(self, optimizer: keras.optimizers.Optimizer) -> None:
        """Warn, once, of a `fit` that does not know this optimizer."""
        if self._has_told or not _backend.is_fitting():
            return
        self._has_told = True
        tell("not compiled", name=optimizer.name)
