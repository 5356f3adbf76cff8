"""The last dense layer of a model: its inputs, its weights and its link function."""

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _inputs
from keras_mhmcmc import _validate
from keras_mhmcmc._layer_calls import noted
from keras_mhmcmc._types import Array
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.priors import Gaussian

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """The last dense layer: outputs = link(features @ kernel + bias)."""

    layer: keras.layers.Dense
    features: Floats  # (N, F), and a last column of ones if the layer has a bias
    values: Floats  # kernel and bias, (F, C) or (F + 1, C)
    link: str  # "linear", "softmax" or "sigmoid"
    targets: Any = None  # of the N examples, as they are given

    @property
    def variables(self) -> list[keras.Variable]:
        """Return the kernel, and the bias if there is one."""
        layer = self.layer
        return [layer.kernel, layer.bias] if layer.use_bias else [layer.kernel]

    @property
    def to_probabilities(self) -> str:
        """Return the function from the outputs of a classifier to probabilities."""
        if self.link != "linear":
            return "linear"
        return "sigmoid" if self.values.shape[1] == 1 else "softmax"

    def precisions(self, of_variables: list[float]) -> Floats:
        """Return an array like `values`, given a number for each of `variables`."""
        result = np.full_like(self.values, of_variables[0])
        if self.layer.use_bias:
            result[-1] = of_variables[1]
        return result

    def stacked(self, model: keras.Model, draws: Floats) -> list[Array]:
        """Return one array (members, ...) for each of `model.weights`.

        Args:
            model: the model that ends in the layer.
            draws: of the layer's weights, like `values`, shape (members, ..., C).
        """
        parts = [draws[:, :-1], draws[:, -1]] if self.layer.use_bias else [draws]
        drawn = dict(zip(map(id, self.variables), parts, strict=True))
        stacked = []
        for variable in model.weights:
            value = ops.convert_to_numpy(variable)
            if id(variable) in drawn:
                stacked.append(drawn[id(variable)].astype(value.dtype))
            else:
                stacked.append(np.broadcast_to(value, (len(draws), *value.shape)))
        return stacked


def head_and_precisions(
    model: keras.Model, x: Any, y: Any, prior: Gaussian, batch_size: int
) -> tuple[Head, Floats]:
    """Check the arguments, and return the head and the prior's precisions (F, C)."""
    _validate.instance("model", model, keras.Model, "a built `keras.Model`")
    if not model.built:
        raise ValueError(
            "Argument `model` must be a built model: call it on a batch of inputs "
            f"first. Received: model={model!r}"
        )
    _validate.instance("prior", prior, Gaussian, "an `mh.priors.Gaussian`")
    batch_size = _validate.integer("batch_size", batch_size, 1)
    head = head_of(model, x, batch_size, y)
    return head, head.precisions(prior.bind(head.variables).precisions)


_ACTIVATIONS = (
    keras.activations.linear,
    keras.activations.softmax,
    keras.activations.sigmoid,
)


def head_of(model: keras.Model, x: Any, batch_size: int, y: Any = None) -> Head:
    """Return the last dense layer of a model, with its inputs for the examples `x`.

    Args:
        model: the model.
        x: inputs that the model takes, or a data set.
        batch_size: number of examples to compute at a time.
        y: targets, or None.

    Raises:
        ValueError: the model does not take `x`, its outputs are not those of the layer,
            or the features are not finite.
    """
    first, x = _data.peeked(x, y, needs_targets=True)
    first = _inputs.as_model_inputs("x", first, model)
    _inputs.check_taken(first, model)
    dense = [
        layer
        for layer in _backend.inner_layers(model)
        if isinstance(layer, keras.layers.Dense)
    ]
    layer = _last_called(model, dense, _inputs.tensors(first, slice(0, 1)))
    if layer is None:
        raise _refusal("no `Dense` layer")
    # With LoRA or quantisation, `kernel` is no weight of the model.
    if id(layer.kernel) not in {id(variable) for variable in model.weights}:
        raise _refusal(f"{len(dense)} `Dense` layers, the last with LoRA or quantised")
    if layer.activation not in _ACTIVATIONS:
        raise _refusal(
            f"a last `Dense` layer with the activation {layer.activation.__name__!r}"
        )
    seen: list[Any] = []

    def features_and_outputs(x: Any) -> Any:
        parts = []
        x = _inputs.as_model_inputs("x", x, model)
        for batch in _data.batches(x, batch_size=batch_size):
            found = model(_inputs.tensors(batch.x, slice(None)), training=False)
            if keras.tree.is_nested(found) or len(seen) != 1 or len(seen[0].shape) != 2:
                raise _refusal(
                    "a model with several outputs, or whose last `Dense` layer is not "
                    "called once on features of shape (N, F)"
                )
            parts.append((_float64(seen.pop()), _float64(found)))
        return _data.joined(parts)

    with noted(layer, seen.append):
        (inputs, outputs), targets = _data.predicted(features_and_outputs, x, y)
    if not np.isfinite(inputs).all():
        raise ValueError(
            "Argument `x` must give finite features before the last layer. Scale it as "
            "in training. "
            f"Received: {np.sum(~np.isfinite(inputs))} features that are not finite"
        )
    values = _float64(layer.kernel)
    if layer.use_bias:
        inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
        values = np.concatenate([values, _float64(layer.bias)[None]])
    link = _link(inputs @ values, outputs)
    return Head(layer, inputs, values, link, targets)


def check_loss(model: keras.Model, head: Head, hint: str) -> None:
    """Refuse a classification whose model was compiled with another loss.

    Args:
        model: the model, compiled or not.
        head: its last layer.
        hint: ends the error of a regression's loss.
    """
    for loss in keras.tree.flatten(model.loss):
        name = compiled_loss.name_of(loss)
        if name in compiled_loss.OF_REGRESSIONS:
            raise ValueError(
                "Argument `model` must be compiled with the loss of a classification, "
                f"such as a cross-entropy, or not at all.{hint} Received: a model "
                f"with the loss {name!r}"
            )
        if name == compiled_loss.OF_LABELS and head.values.shape[1] > 1:
            raise _of_several_labels(
                f"binary cross-entropy of {head.values.shape[1]} units"
            )


def _of_several_labels(received: str) -> ValueError:
    return ValueError(
        "Argument `model` must have a softmax, a sigmoid of one unit, or logits. For "
        "several labels of an example use `mh.SWAG` or a sampler. Received: a "
        f"{received}"
    )


def checked_labels(head: Head, hint: str) -> Array:
    """Return the labels of a classifier, shape (N,), or raise a `ValueError`.

    An error for numbers that are no labels ends with `hint`.
    """
    classes = head.values.shape[1]
    if head.link != "linear" and (head.link == "sigmoid") != (classes == 1):
        raise _of_several_labels(f"{head.link} of {classes} units")
    return as_labels("y", head.targets, len(head.features), max(classes, 2), hint)


def softmax(logits: Floats) -> Floats:
    """Return the probabilities of logits, shape (..., C)."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities of class 1, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


def _link(logits: Floats, outputs: Floats) -> str:
    """Return which function turns the layer's logits into the model's outputs.

    What the model gives says it, whether the function is the layer's own activation or
    a layer after it.
    """
    links = {"linear": logits, "softmax": softmax(logits), "sigmoid": sigmoid(logits)}
    # Of each example by itself: a large output must not hide the errors of others.
    scale = np.abs(outputs).max(axis=-1)
    scale = np.maximum(scale, min(float(scale.max()), 1.0))
    errors = {
        name: (np.abs(expected - outputs).max(axis=-1) / scale).max()
        for name, expected in links.items()
        if expected.shape == outputs.shape
    }
    nearest = min(errors, key=lambda name: errors[name], default="linear")
    # Half precision has errors of 1%.
    if errors and errors[nearest] <= 0.02:
        return nearest
    raise _refusal("a model whose outputs differ from those of its last `Dense` layer")


def _last_called(
    model: keras.Model, layers: list[keras.layers.Layer], x: Any
) -> keras.layers.Layer | None:
    """Return the layer that the model calls last. A model may list it before others."""
    called: list[keras.layers.Layer] = []
    with contextlib.ExitStack() as stack:
        for layer in layers:
            note = functools.partial(_append, called, layer)
            stack.enter_context(noted(layer, note))
        model(x, training=False)
    return called[-1] if called else None


def _append(found: list[Any], value: Any, _: Any) -> None:
    found.append(value)


def _float64(value: Any) -> Array:
    return np.asarray(ops.convert_to_numpy(value)).astype("float64")


def _refusal(received: str) -> ValueError:
    return ValueError(
        "Argument `model` must end in a `Dense` layer, whose inputs are features of "
        "shape (N, F) and whose activation is linear, softmax or sigmoid. For a model "
        f"of another kind use `mh.SWAG` or a sampler. Received: {received}"
    )
