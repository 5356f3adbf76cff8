"""What the compiled loss is: a likelihood, a mean, its terms, that of a constant.

How many terms an example has tells what a sampler takes for N.
"""

import inspect
import itertools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.losses import Likelihood

Check = Callable[[keras.Model], None]  # of a compiled model, before the first step

_EXAMPLES, _BATCH = 1000, 250  # that give the loss of a constant prediction
_AT_ONCE = 512  # examples of arrays that are evaluated at once
_SMALLEST = 1e-7  # of a probability: the bound of Keras' cross-entropies
_ROWS = 2  # enough to tell a sum from a mean
# Losses whose size says nothing about the noise, as `name_of` returns them.
_NO_LIKELIHOODS = (
    *("mse", "meansquarederror", "mae", "meanabsoluteerror", "mape", "msle", "huber"),
    *("meanabsolutepercentageerror", "meansquaredlogarithmicerror", "logcosh"),
    *("cosinesimilarity", "hinge", "squaredhinge", "categoricalhinge", "circle"),
    *("binaryfocalcrossentropy", "categoricalfocalcrossentropy", "dice", "tversky"),
    "categoricalgeneralizedcrossentropy",
)
# Names as `name_of` returns them.
OF_LABELS = "binarycrossentropy"  # a mean over the labels of an example
OF_MEAN_SQUARES = ("mse", "meansquarederror")
OF_REGRESSIONS = (*OF_MEAN_SQUARES, "mae", "meanabsoluteerror", "huber", "logcosh")


def name_of(loss: Any) -> str:
    """Return the name of a loss as given to `compile`, in small letters alone."""
    return _own_name(loss).lower().replace("_", "")


def _own_name(loss: Any) -> str:
    is_name = isinstance(loss, str)
    return loss if is_name else getattr(loss, "__name__", type(loss).__name__)


def missing(name: str) -> str:
    """Return the error for a training loss that did not reach the sampler `name`."""
    return (
        f"{name} needs the training loss, which did not arrive. In a custom training "
        "loop, call `loss = optimizer.scale_loss(loss)` inside the differentiated "
        "function, and on JAX `stateless_apply` in the same compiled function."
    )


def check_is_mean(model: keras.Model) -> None:
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
    for loss in keras.tree.flatten(model.loss):
        if name_of(loss) not in _NO_LIKELIHOODS:
            continue
        squares = (
            " The mean squared error stands for normal noise with a standard deviation "
            "of 0.71, in units of the target."
        )
        squares *= is_mean_squared_error(loss)
        tell("no likelihood", name=_own_name(loss), squares=squares)


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


def is_mean_squared_error(loss: Any) -> bool:
    if isinstance(loss, keras.losses.MeanSquaredError):
        return loss.reduction == "sum_over_batch_size"
    if isinstance(loss, str):
        return name_of(loss) in OF_MEAN_SQUARES
    return loss is keras.losses.mean_squared_error


def check_is_mean_squared_error(model: keras.Model) -> None:
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
    found = [f"{len(losses)} losses"] * (len(losses) > 1)
    found += ["`loss_weights`"] * has_weights
    found += [f"a regularizer of '{v.path}'" for v in variables if v.regularizer]
    refuse_parts(found)


def refuse_parts(found: list[str]) -> None:
    """Raise a `ValueError` for parts of a `keras` loss that are no squared errors."""
    if found:
        raise ValueError(
            'Argument `likelihood` must be "categorical" with this model: "gaussian" '
            "learns the noise from the loss, which must be the mean squared error of "
            "one output and nothing else. Leave out `loss_weights`, regularizers and "
            f'`add_loss`. Received: likelihood="gaussian" with {", ".join(found)}'
        )


def found_size(model: keras.Model | None, x: Any, *, is_of_examples: bool) -> int:
    """Return N for the data `x` that `model` is fitted to: the terms of the loss."""
    count = _backend.count_examples(x)
    reason = "no data tell the number of examples"
    if model is not None and count:
        factors = terms_of_an_example(model) or {1}
        if factors == {1} or (len(factors) == 1 and not is_of_examples):
            return count * factors.pop()
        reason = "the loss may be a mean over several terms of each example"
    raise ValueError(
        f"Argument `train_size` must be given here: {reason}. Pass `train_size=<number "
        "of training examples>`, times the number of terms in a mean over the "
        f"positions of an example. Received: train_size='auto', x={_validate.shown(x)}"
    )


def terms_of_an_example(model: keras.Model) -> set[int] | None:
    """Return how many terms of the loss an example may have; None: it is not known."""
    shapes, losses = _output_shapes(model), keras.tree.flatten(model.loss)
    if shapes is None:
        return None
    names = [name_of(loss) for loss in losses]
    if len(shapes) == len(losses) == 1 and not _backend.makes_masks(_network_of(model)):
        if names[0] in ("categoricalcrossentropy", "sparsecategoricalcrossentropy"):
            return {math.prod(shapes[0][:-1])}
        if names[0] in (OF_LABELS, *OF_MEAN_SQUARES):
            return {math.prod(shapes[0])}
        if isinstance(losses[0], Likelihood):
            return {1}
    positions = {math.prod(shape[:-1]) for shape in shapes}
    outputs = {math.prod(shape) for shape in shapes}
    # A cross-entropy of several classes is never a mean over the classes.
    is_categorical = all("categorical" in name for name in names)
    return {1} | positions - {0} | (set() if is_categorical else outputs - {0})


def output_shape(model: keras.Model) -> tuple[int, ...] | None:
    """Return the shape of the only output for one example, None if it is not known."""
    shapes = _output_shapes(model)
    return shapes[0] if shapes is not None and len(shapes) == 1 else None


def _output_shapes(model: keras.Model) -> list[tuple[int, ...]] | None:
    """Return the shapes of the outputs for one example, None if they are not known."""
    model = _network_of(model)
    if not isinstance(model, keras.Sequential | keras.Function) or not model.built:
        return None
    shapes = [tuple(output.shape[1:]) for output in model.outputs]
    return None if any(None in shape for shape in shapes) else shapes


def _network_of(model: keras.Model) -> keras.Model:
    """Return the network of chains side by side, or of a wrapper, or the model."""
    model = _backend.network_of(model)
    return model.model if isinstance(model, WrapperModel) else model


def warn_of_sum(model: keras.Model) -> None:
    """Warn if a loss of the user's own doubles when the examples are doubled."""
    losses, y = _backend.compiled_losses(model), fitted_targets(model)
    shape, given = output_shape(model), keras.tree.flatten(model.loss)
    if len(losses) != 1 or shape is None or _is_of_keras(given[0]):
        return
    if y is None or len(y.shape) == 0 or y.shape[0] < _ROWS:
        return
    targets = np.asarray(ops.convert_to_numpy(y[:_ROWS]))
    outputs = np.random.default_rng(0).uniform(0.1, 0.9, (_ROWS, *shape))

    def value(times: int) -> float:
        rows = (targets, outputs.astype("float32"))
        tensors = (ops.convert_to_tensor(np.repeat(part, times, 0)) for part in rows)
        return float(ops.convert_to_numpy(losses[0][0](*tensors)))

    try:
        once, twice = value(1), value(2)
    except Exception as error:  # a loss may take mini-batches of one size alone
        tell("unknown", error=error)
        return
    if once != 0.0 and math.isclose(twice, 2.0 * once, rel_tol=1e-3):
        tell("sum", once=once, twice=twice)


def fitted_targets(model: keras.Model) -> Any:
    """Return the targets that `fit` was given, None if they are no array."""
    data = _backend.fitted_data(model)
    y: Any = None if data is None else data["y"]
    return y if isinstance(y, np.ndarray) or ops.is_tensor(y) else None


def _is_of_keras(given: Any) -> bool:
    kind = given if inspect.isfunction(given) else type(given)
    is_known = kind.__module__.partition(".")[0] in ("keras", "keras_mhmcmc")
    return isinstance(given, str) or is_known


def constant_loss(
    model: keras.Model, batches: Sequence[_data.Batch] | None = None
) -> float | None:
    """Return the mean loss of the best constant prediction, None if it is not known."""
    data, losses = _backend.fitted_data(model), _backend.compiled_losses(model)
    shape = output_shape(model)
    if data is None or any(
        data[f"{k}_weight"] is not None for k in ("class", "sample")
    ):
        return None
    if len(losses) != 1 or losses[0][1] != 1.0 or shape is None:
        return None
    # An output without an axis for time has no mask.
    if len(shape) > 1 and _backend.makes_masks(_backend.network_of(model)):
        return None
    batches = first_batches(model) if batches is None else batches
    targets = [y for _, y, _ in batches]
    if not all(isinstance(y, np.ndarray) and y.ndim > 0 for y in targets):
        return None
    given = keras.tree.flatten(model.loss)[0]
    outputs = _constant(given, np.concatenate(targets), shape) if targets else None
    if outputs is None:
        return None
    outputs = outputs.astype("float32")
    found = [
        mean_loss(model, np.broadcast_to(outputs, (len(y), *shape)), y, weights)
        for _, y, weights in batches
    ]
    return float(np.average(found, weights=list(map(len, targets))))


def loss_of_state(model: keras.Model) -> float:
    """Return the mean loss of the state, over the data that gave the constant loss."""
    found = []
    for x, y, weights in first_batches(model):
        outputs = model(x, training=False)
        is_stacked = isinstance(model, StackedModel)
        members = ops.moveaxis(outputs, 1, 0) if is_stacked else outputs[None]
        found += [mean_loss(model, member, y, weights) for member in members]
    return float(np.mean(found))


def first_batches(
    model: keras.Model, count: int = _EXAMPLES // _BATCH
) -> list[_data.Batch]:
    """Return mini-batches of `fit`, none if they can be read only once."""
    data = _backend.fitted_data(model)
    if data is None:
        return []
    try:
        stream = _data.stream_of(data["x"], data["y"], _BATCH, seed=0)
        return list(itertools.islice(stream(), count))
    except ValueError:  # a generator, whose mini-batches belong to `fit`
        return []


def mean_loss(model: keras.Model, outputs: Any, y: Any, weights: Any = None) -> float:
    y_true, y_pred = ops.convert_to_tensor(y), ops.convert_to_tensor(outputs)
    # Not by `Loss.__call__`, which divides by the number of replicas.
    loss = _backend.compiled_losses(model)[0][0]
    values = np.asarray(ops.convert_to_numpy(loss.call(y_true, y_pred)))
    if weights is not None:
        values = values * weights.reshape(len(weights), *[1] * (values.ndim - 1))
    return float(np.mean(values))


def _constant(loss: Any, y: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the best outputs that are the same for all examples, or None."""
    name = name_of(loss)
    if isinstance(loss, Likelihood):
        return loss.constant(y).reshape(shape)
    if name == "sparsecategoricalcrossentropy":
        counts = np.bincount(y.astype("int64").reshape(-1).clip(0), minlength=shape[-1])
        share = counts[: shape[-1]] / counts.sum()
    elif name in ("categoricalcrossentropy", OF_LABELS, *OF_REGRESSIONS):
        share = y.astype("float64").mean(axis=0).reshape(shape)
    else:
        return None
    if name in OF_REGRESSIONS:
        return share
    share = np.clip(share, _SMALLEST, 1.0 - _SMALLEST)
    is_object = isinstance(loss, keras.losses.Loss)
    if not (is_object and loss.get_config().get("from_logits", False)):
        return share
    return np.log(share / (1.0 - share) if name == OF_LABELS else share)


class FullLoss:
    """The mean loss of all of the data in inference mode, compiled once for a model."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] = (None, None)  # the model, and its `compile`
        self._loss: Callable[..., Tensor]

    def __call__(self, model: keras.Model, data: _data.Batch, train_size: int) -> float:
        """Return the mean, summed in float64, or raise a `ValueError`."""
        key = model, _backend.compile_key(model)
        if any(new is not old for new, old in zip(key, self._key, strict=True)):
            self._key, self._loss = key, _backend.compile_function(_loss_of(model))
        values = list(_backend.read(_variables(model)))
        total, count, largest = 0.0, 0, 0
        for batch in batches_again(data):
            size = int(keras.tree.flatten(batch.x)[0].shape[0])
            loss = self._loss(values, *batch)
            total += size * float(ops.convert_to_numpy(loss))
            count, largest = count + size, max(largest, size)
            if count >= train_size:  # a data set may repeat for ever
                break
        # A data set may leave out the last examples, which do not fill a mini-batch.
        if count == 0 or not -largest < count - train_size < 1:
            raise ValueError(
                "Argument `train_size` must be the number of examples in the data of "
                "`fit`, since the test of a path needs all of them. Received: "
                f"train_size={train_size}, and data of {count} examples or more"
            )
        return total / count


def batches_again(data: _data.Batch) -> Iterator[_data.Batch]:
    """Yield the mini-batches of the data in their own order, as Keras' tensors."""
    if isinstance(data.x, Iterator):
        raise ValueError(
            "Argument `x` of `fit` must be arrays, or a data set that can be read "
            "again, such as a `tf.data.Dataset`, a `DataLoader` or a "
            "`keras.utils.PyDataset`: the test of a path needs all examples. Pass one, "
            "or give the examples to the optimizer: `optimizer.use_data(x, y)`. "
            f"Received: x={_validate.shown(data.x)}"
        )

    def tensor(value: Any) -> Any:
        return None if value is None else ops.convert_to_tensor(value)

    for batch in _data.batches(*data, batch_size=_AT_ONCE):
        arrays = _data.in_floatx(tuple(batch))
        yield _data.Batch(*keras.tree.map_structure(tensor, arrays))


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.trainable_variables, *model.non_trainable_variables]


def _loss_of(model: keras.Model) -> Callable[..., Tensor]:
    """Return the loss of a mini-batch, which changes no variable."""

    def loss(values: Any, x: Any, y: Any, sample_weight: Any) -> Tensor:
        mapping = zip(_variables(model), values, strict=True)
        with keras.StatelessScope(mapping, collect_losses=True):
            outputs = _backend.step_outputs(model, x, training=False)
            value = model.compute_loss(x, y, outputs, sample_weight, training=False)
        return ops.cast(value, "float32")

    return loss
