"""`MCDropout`: a Keras model that averages predictions over dropout masks."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import layers
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.ensemble.activations import Activation
from keras_mhmcmc.ensemble.activations import at_least_float32
from keras_mhmcmc.ensemble.compile import activation_of


@serializable
class MCDropout(WrapperModel):
    """A model whose prediction is the mean over passes with active dropout.

    It averages activation(model(x)) over passes. Each pass has its own dropout masks
    and counts as a sample of a crude posterior. Only dropout is active: batch
    normalisation uses its moving statistics, and augmentation and noise layers do
    nothing. `MCDropout` shares the weights of `model`.

    Each call draws new masks from Keras' random numbers, starting at `seed`. They are
    the same on each run, also on PyTorch, where Keras' own dropout uses the global
    generator of PyTorch. `mh.adversarial` and `mh.evaluate` use the same masks for
    every batch, so that an attack is scored on the network that it was made for.

    Args:
        model: built sequential or functional `keras.Model` with one output, and with
            `keras.layers.Dropout` or `SpatialDropout` layers. Of several inputs all
            must have examples along the first axis.
        samples: number of passes, an integer that is at least 1. Memory grows with it.
            Defaults to 20.
        activation: function that turns the model's outputs into the quantity to
            average, as in `keras.activations.get`. Defaults to None: softmax or sigmoid
            if `model` is compiled with a cross-entropy from logits, else the identity.
        seed: integer that the masks are drawn from. Defaults to 0.
        name: name of the model. Defaults to "mc_dropout".

    Raises:
        ValueError: an argument is outside its range, or `model` is of another kind, has
            no dropout that can be made active, or has other dropout, such as that of
            recurrent layers.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> stack = [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    >>> passes = MCDropout(keras.Sequential(stack), samples=5, activation="softmax")
    >>> passes.predict(np.ones((2, 4)), verbose=0).shape
    (2, 3)
    >>> passes.predict_members(np.ones((2, 4))).shape
    (5, 2, 3)

    Reference: Gal and Ghahramani (2016), "Dropout as a Bayesian approximation".
    """

    def __init__(
        self,
        model: keras.Model,
        samples: int = 20,
        activation: str | Activation | None = None,
        seed: int = 0,
        name: str = "mc_dropout",
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        self.num_members = _validate.integer("samples", samples, 1)
        self.seed = _validate.seed(seed)
        if activation is None and isinstance(model, keras.Model) and model.compiled:
            found = activation_of(model)
            activation = found if isinstance(found, str) else None
        self.activation = _validate.activation(activation)
        _check(model)
        self.model = model
        self.mask_seeds = keras.random.SeedGenerator(self.seed)
        self._untracked = _Untracked(self._passes())
        self.built = True

    @property
    def averaging_weights(self) -> npt.NDArray[np.float64]:
        """Return the passes' weights in the mean, which sum to 1, shape (passes,)."""
        return np.full(self.num_members, 1.0 / self.num_members)

    def call(self, inputs: Any) -> Tensor:
        """Return the mean of the passes' predictions."""
        return ops.mean(self.call_members(inputs), axis=0)

    def call_members(self, inputs: Any) -> Tensor:
        """Return the predictions of all passes, stacked along a new first axis."""
        return ops.moveaxis(self._untracked.passes(inputs, training=False), 1, 0)

    def call_member(self, inputs: Any, index: int | Tensor) -> Tensor:
        """Return the prediction of the pass at `index`, a number or a tensor.

        All passes are computed: their masks are drawn together.
        """
        return ops.take(self.call_members(inputs), index, axis=0)

    def predict_members(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Array:
        """Return the predictions of each pass, shape (passes, examples, ...).

        The arguments are those of `mh.Ensemble.predict_members`.
        """
        with _backend.values_kept(self):
            passes = self._untracked.passes.predict(x, batch_size, verbose)
        return np.moveaxis(passes, 1, 0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "samples": self.num_members,
            "activation": keras.activations.serialize(self.activation),
            "seed": self.seed,
            "name": self.name,
        }

    def _passes(self) -> keras.Model:
        """Return a model from inputs to predictions, shape (examples, passes, ...)."""
        is_stack = isinstance(self.model, keras.Sequential)
        source = self.model.inputs[0] if is_stack else self.model.input
        inputs = keras.tree.map_structure(
            lambda x: keras.Input(x.shape[1:], dtype=x.dtype, name=x.name), source
        )
        # The layers before the first dropout give the same in all passes.
        stack = self.model.layers if is_stack else [self.model]
        first = [_dropouts(layer) != [] for layer in stack].index(True)
        x = inputs
        for layer in stack[:first]:
            x = layer(x)
        x = keras.tree.map_structure(_Repeat(self.num_members), x)
        for layer in stack[first:]:
            x = self._with_active_dropout(layer)(x)
        x = self.activation(at_least_float32(x))
        x = ops.reshape(x, (-1, self.num_members, *x.shape[1:]))
        return keras.Model(inputs, x)

    def _with_active_dropout(self, layer: layers.Layer) -> layers.Layer:
        """Return `layer` with active dropout; all its other parts are shared."""
        if isinstance(layer, layers.Dropout):
            return _ActiveDropout(layer, self.mask_seeds)
        if not _dropouts(layer):
            return layer
        return keras.models.clone_model(layer, clone_function=self._with_active_dropout)


@dataclass
class _Untracked:
    """A holder of a model that Keras must not track: `model` has all its weights."""

    passes: keras.Model


class _Repeat(layers.Layer):
    """A layer that repeats each example, and its mask of padding."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.supports_masking = True
        self._times = times

    def call(self, inputs: Tensor) -> Tensor:
        return ops.repeat(inputs, self._times, axis=0)

    def compute_mask(self, inputs: Tensor, previous_mask: Any) -> Any:
        return None if previous_mask is None else self.call(previous_mask)


class _ActiveDropout(layers.Layer):
    """A dropout layer that also drops in inference mode."""

    def __init__(
        self, dropout: layers.Dropout, mask_seeds: keras.random.SeedGenerator
    ) -> None:
        super().__init__(dtype=dropout.dtype_policy)
        self.supports_masking = True
        self._dropout = dropout
        self._mask_seeds = mask_seeds

    def call(self, inputs: Tensor) -> Tensor:
        rate, lengths = self._dropout.rate, ops.shape(inputs)
        sizes = zip(_noise_shape(self._dropout, len(lengths)), lengths, strict=True)
        shape = [length if size is None else size for size, length in sizes]
        # Not `keras.random.dropout`: on PyTorch it may ignore Keras' seeds.
        uniforms = keras.random.uniform(shape, seed=self._mask_seeds)
        zeros = ops.zeros_like(inputs)
        if rate == 1.0:
            return zeros
        return ops.where(uniforms >= rate, inputs / (1.0 - rate), zeros)


_GRAPHS = (keras.Sequential, keras.Function)
# Layers with dropout of their own, which is off in inference mode.
_RECURRENT = (
    *(layers.LSTM, layers.GRU, layers.SimpleRNN),
    *(layers.LSTMCell, layers.GRUCell, layers.SimpleRNNCell),
    *(layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D),
)
_SPATIAL = (layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D)


def _noise_shape(dropout: layers.Dropout, rank: int) -> tuple[int | None, ...]:
    """Return the sizes of the mask, with None for an axis as long as the input's."""
    if not isinstance(dropout, _SPATIAL):
        return dropout.noise_shape or (None,) * rank
    # `SpatialDropout1D` has no `data_format`.
    first = getattr(dropout, "data_format", "channels_last") == "channels_first"
    ones = (1,) * (rank - 2)
    return (None, None, *ones) if first else (None, *ones, None)


def _check(model: keras.Model) -> None:
    """Refuse a model whose dropout cannot be made active."""
    is_graph = isinstance(model, _GRAPHS) and model.built
    if not is_graph or len(model.outputs) != 1:
        raise ValueError(
            "Argument `model` must be a built sequential or functional `keras.Model` "
            "with one output. For a model of another kind, call the dropout layers "
            "with `training=True`, and average the passes yourself. "
            f"Received: model={model!r}"
        )
    inner = _backend.inner_layers(model)
    fixed = [layer.name for layer in inner if _drops_by_itself(layer)]
    if fixed:
        raise ValueError(
            "Argument `model` must drop only in `Dropout` and `SpatialDropout` layers: "
            "no other dropout can be made active. Put `Dropout` layers in place of "
            "`AlphaDropout`, `GaussianDropout`, and the arguments `dropout` and "
            "`recurrent_dropout` of other layers. Received: layers with other dropout: "
            f"{fixed}"
        )
    found = _dropouts(model)
    plain = [d for d in found if not isinstance(d, _SPATIAL) and d.noise_shape]
    shared = [layer.name for layer in plain if layer.noise_shape[0] is not None]
    if shared:
        raise ValueError(
            "Argument `model` must have a dropout mask for each example: all passes "
            "would share a mask that all examples share. Leave out the first entry of "
            "`noise_shape`, as in noise_shape=(None, ...). "
            f"Received: dropout layers whose examples share a mask: {shared}"
        )
    every = {id(layer) for layer in inner if isinstance(layer, layers.Dropout)}
    hidden = len(every - {id(layer) for layer in found})
    if hidden or not any(layer.rate > 0.0 for layer in found):
        raise ValueError(
            "Argument `model` must have a `Dropout` layer with a rate above 0, and no "
            "dropout inside a layer of another kind, where it cannot be made active. "
            "Make it a layer of the model, or of a model nested in it. Received: "
            f"{len(every)} dropout layers, {hidden} of them inside others"
        )


def _drops_by_itself(layer: layers.Layer) -> bool:
    """Return whether a layer that is no `Dropout` drops in training."""
    if isinstance(layer, layers.AlphaDropout | layers.GaussianDropout):
        return bool(layer.rate > 0.0)
    if isinstance(layer, layers.Attention):  # AdditiveAttention is one
        return bool(layer.dropout > 0.0)
    if not isinstance(layer, _RECURRENT):
        return False
    return bool(layer.dropout > 0.0 or layer.recurrent_dropout > 0.0)


def _dropouts(layer: layers.Layer) -> list[layers.Dropout]:
    """Return the dropout layers of a layer, or of a graph of layers."""
    if isinstance(layer, layers.Dropout):
        return [layer]
    inner = layer.layers if isinstance(layer, _GRAPHS) else []
    return [dropout for part in inner for dropout in _dropouts(part)]
