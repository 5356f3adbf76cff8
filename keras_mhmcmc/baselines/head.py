"""The last dense layer of a model: its inputs, its weights and its link function."""

from collections.abc import Callable
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
from keras_mhmcmc._layer_calls import called
from keras_mhmcmc._layer_calls import noted
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.priors import Gaussian
from keras_mhmcmc.priors import warn_of_regularizers

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

    def precisions(self, of_variables: list[float]) -> Floats:
        """Return an array like `values`, given a number for each of `variables`."""
        result = np.full_like(self.values, of_variables[0])
        if self.layer.use_bias:
            result[-1] = of_variables[1]
        return result

    def ensemble(
        self,
        model: keras.Model,
        draws: Floats,
        activation: ActivationLike,
        chunk: int | None,
        is_classifier: bool,
        weights: Floats | None = None,
    ) -> Ensemble:
        """Return `model` with draws of its last layer, like `values`, as members.

        Without an activation, the logits of a classifier become probabilities. The
        draws have equal weights, or those that are given.
        """
        if activation is None and is_classifier:
            of_logits = "sigmoid" if self.values.shape[1] == 1 else "softmax"
            activation = of_logits if self.link == "linear" else "linear"
        parts = [draws[:, :-1], draws[:, -1]] if self.layer.use_bias else [draws]
        drawn = dict(zip(map(id, self.variables), parts, strict=True))
        stacked = []
        for variable in model.weights:
            value = ops.convert_to_numpy(variable)
            if id(variable) in drawn:
                stacked.append(drawn[id(variable)].astype(value.dtype))
            else:
                stacked.append(np.broadcast_to(value, (len(draws), *value.shape)))
        weights = np.ones(len(draws)) if weights is None else weights
        return ensemble_of(model, stacked, weights, activation, chunk)


def checked_head(
    model: keras.Model, x: Any, y: Any, prior: Any, batch_size: int
) -> Head:
    """Check the arguments, and return the head."""
    _validate.instance("model", model, keras.Model, "a built `keras.Model`")
    if not model.built:
        raise ValueError(
            "Argument `model` must be a built model: call it on a batch of inputs "
            f"first. Received: model={model!r}"
        )
    if not (isinstance(prior, str) and prior == "auto"):
        hint = 'an `mh.priors.Gaussian`, or "auto" for a classification'
        _validate.instance("prior", prior, Gaussian, hint)
    batch_size = _validate.integer("batch_size", batch_size, 1)
    head = head_of(model, x, batch_size, y)
    warn_of_regularizers(head.variables)
    return head


def head_of(model: keras.Model, x: Any, batch_size: int, y: Any = None) -> Head:
    """Return the last dense layer of a model, with its inputs for the examples `x`."""
    first, x = _data.peeked(x, y, needs_targets=True)
    first = _inputs.as_model_inputs("x", first, model)
    _inputs.check_taken(first, model)
    inner = _backend.inner_layers(model)
    dense = [layer for layer in inner if isinstance(layer, keras.layers.Dense)]
    # A model may list the layer that it calls last before others.
    with called(dense) as calls:
        model(_inputs.tensors(first, slice(0, 1)), training=False)
    if not calls:
        raise _refusal("no `Dense` layer")
    layer = calls[-1]
    # With LoRA or quantisation, `kernel` is no weight of the model.
    if id(layer.kernel) not in {id(variable) for variable in model.weights}:
        raise _refusal(f"{len(dense)} `Dense` layers, the last with LoRA or quantised")
    known = [getattr(keras.activations, name) for name in _LINKS]
    if layer.activation not in known:
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


def checked_labels(model: keras.Model, head: Head, hint: str) -> Array:
    """Return the labels of a classifier, shape (N,), or raise a `ValueError`.

    An error that may be about a regression ends with `hint`.
    """
    classes = head.values.shape[1]
    several = "" if head.link == "linear" else f"{head.link} of {classes} units"
    if (head.link == "sigmoid") == (classes == 1):
        several = ""
    for loss in keras.tree.flatten(model.loss):
        name = compiled_loss.name_of(loss)
        if name in compiled_loss.OF_REGRESSIONS:
            raise ValueError(
                "Argument `model` must be compiled with the loss of a classification, "
                f"such as a cross-entropy, or not at all.{hint} Received: a model "
                f"with the loss {name!r}"
            )
        if name == compiled_loss.OF_LABELS and classes > 1:
            several = f"binary cross-entropy of {classes} units"
    if several:
        raise ValueError(
            "Argument `model` must have a softmax, a sigmoid of one unit, or logits. "
            "For several labels of an example use `mh.swag` or a sampler. Received: a "
            f"{several}"
        )
    return as_labels("y", head.targets, len(head.features), max(classes, 2), hint)


def one_hot(labels: npt.NDArray[np.int_], classes: int) -> Floats:
    """Return the targets of labels, (N, C); of class 1 if C is 1."""
    rows = labels[:, None] if classes == 1 else np.eye(classes)[labels]
    return rows.astype("float64")


def softmax(logits: Floats) -> Floats:
    """Return the probabilities of logits, shape (..., C)."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities of class 1, without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


_LINKS: dict[str, Callable[[Floats], Floats]] = {
    "linear": np.asarray,
    "softmax": softmax,
    "sigmoid": sigmoid,
}


def probabilities(logits: Floats) -> Floats:
    """Return the probabilities of logits (..., C); of class 1 if C is 1."""
    return sigmoid(logits) if logits.shape[-1] == 1 else softmax(logits)


def _link(logits: Floats, outputs: Floats) -> str:
    """Return which function turns the layer's logits into the model's outputs.

    What the model gives says it, whether the function is the layer's own activation or
    a layer after it.
    """
    # Of each example by itself: a large output must not hide the errors of others.
    scale = np.abs(outputs).max(axis=-1)
    scale = np.maximum(scale, min(float(scale.max()), 1.0))
    errors = {
        name: (np.abs(link(logits) - outputs).max(axis=-1) / scale).max()
        for name, link in _LINKS.items()
        if logits.shape == outputs.shape
    }
    nearest = min(errors, key=lambda name: errors[name], default="linear")
    # Half precision has errors of 1%.
    if errors and errors[nearest] <= 0.02:
        return nearest
    raise _refusal("a model whose outputs differ from those of its last `Dense` layer")


def _float64(value: Any) -> Array:
    return np.asarray(ops.convert_to_numpy(value)).astype("float64")


def _refusal(received: str) -> ValueError:
    return ValueError(
        "Argument `model` must end in a `Dense` layer, whose inputs are features of "
        "shape (N, F) and whose activation is linear, softmax or sigmoid. For a model "
        f"of another kind use `mh.swag` or a sampler. Received: {received}"
    )
