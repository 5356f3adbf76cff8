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
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.evaluation.checks import as_labels
from keras_mhmcmc.evaluation.checks import check_built
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
        weights: Floats,
        is_classifier: bool,
        chunk: int | None,
    ) -> Ensemble:
        """Return `model` with draws of its last layer, like `values`, as members.

        The logits of a classifier become probabilities.
        """
        activation = None
        if is_classifier:
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
        return ensemble_of(model, stacked, weights, activation, chunk)


def checked_head(
    model: keras.Model, x: Any, y: Any, prior: Any, batch_size: int
) -> Head:
    """Check the arguments, and return the head."""
    check_built("Argument `model`", model)
    if not (isinstance(prior, str) and prior == "auto"):
        hint = 'an `mh.priors.Gaussian`, or "auto" for a classification'
        _validate.instance("prior", prior, Gaussian, hint)
    head = head_of(model, x, _validate.integer("batch_size", batch_size, 1), y)
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
    if layer.activation not in [getattr(keras.activations, name) for name in _LINKS]:
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
    return Head(layer, inputs, values, _link(inputs @ values, outputs), targets)


def checked_labels(model: keras.Model, head: Head, hint: str) -> Array:
    """Return the labels of a classifier, shape (N,), or raise a `ValueError`.

    An error that may be about a regression ends with `hint`.
    """
    classes = head.values.shape[1]
    refused = ""
    if head.link != "linear" and (head.link == "sigmoid") != (classes == 1):
        refused = f"{head.link} of {classes} units"
    for loss in keras.tree.flatten(model.loss):
        name = compiled_loss.name_of(loss)
        if name in compiled_loss.OF_REGRESSIONS:
            raise ValueError(
                "Argument `model` must be compiled with the loss of a classification, "
                f"such as a cross-entropy, or not at all.{hint} Received: a model "
                f"with the loss {name!r}"
            )
        if name == compiled_loss.OF_LABELS and classes > 1:
            refused = f"binary cross-entropy of {classes} units"
    if refused:
        raise ValueError(
            "Argument `model` must have a softmax, a sigmoid of one unit, or logits. "
            "For several labels of an example use `mh.swag` or a sampler. Received: a "
            f"{refused}"
        )
    return as_labels("y", head.targets, len(head.features), max(classes, 2), hint)


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

    It may be the activation of the layer or a layer after it: the outputs tell.
    """
    # Of each example by itself: a large output must not hide the errors of others.
    scale = np.abs(outputs).max(axis=-1)
    scale = np.maximum(scale, min(float(scale.max()), 1.0))
    if logits.shape == outputs.shape:
        for name, link in _LINKS.items():
            errors = np.abs(link(logits) - outputs).max(axis=-1) / scale
            if errors.max() <= 0.02:  # half precision has 1%
                return name
    raise _refusal("a model whose outputs differ from those of its last `Dense` layer")


def _float64(value: Any) -> Array:
    return np.asarray(ops.convert_to_numpy(value)).astype("float64")


def _refusal(received: str) -> ValueError:
    return ValueError(
        "Argument `model` must end in a `Dense` layer, whose inputs are features of "
        "shape (N, F) and whose activation is linear, softmax or sigmoid. For a model "
        f"of another kind use `mh.swag` or a sampler. Received: {received}"
    )
