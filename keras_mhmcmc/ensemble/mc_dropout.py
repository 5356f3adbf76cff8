"""`MCDropout`: a Keras model that averages passes in which dropout is at work."""

import keras
import numpy as np
from keras import layers
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable


@serializable
class MCDropout(keras.Model):
    """The mean prediction of passes through a model with dropout at work.

    Averages activation(model(x)) over passes, each with its own dropout masks, as
    samples of a crude posterior. Only dropout is at work: batch normalisation uses its
    moving statistics, and augmentation and noise layers do nothing. It shares the
    model's weights; none are copied.

    Each call draws new masks, from `seed` on, with the random numbers of Keras: the
    same on each run, on PyTorch too, where Keras' own dropout takes PyTorch's global
    generator. `mh.adversarial` and `mh.evaluate` use the same masks for every batch,
    so that an attack meets the network that it was made for.

    Args:
        model: built sequential or functional `keras.Model` with one input and one
            output, and with `keras.layers.Dropout` or `SpatialDropout` layers.
        samples: number of passes, at least 1. Memory grows with it.
        activation: what turns the model's outputs into the quantity to average, as in
            `keras.activations.get`: "softmax" for logits. None is nothing.
        seed: integer that the masks are drawn from.
        name: name of the model.

    Raises:
        ValueError: an argument is outside its range, or `model` is of another kind or
            has no dropout that can be put to work.

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

    def __init__(self, model, samples=20, activation=None, seed=0, name="mc_dropout"):
        super().__init__(name=_validate.scope_name(name))
        self.num_members = _validate.integer("samples", samples, 1)
        self.seed = _validate.seed(seed)
        self.activation = _validate.activation(activation)
        _check(model)
        self.model = model
        self.draws = keras.random.SeedGenerator(self.seed)
        # In a box, where Keras does not look: the layers are already those of `model`.
        self._box = _Box(self._passes())
        self.built = True

    @property
    def averaging_weights(self):
        """Weight of each pass in the mean, which sum to 1."""
        return np.full(self.num_members, 1.0 / self.num_members)

    def call(self, inputs):
        """The mean of the passes' predictions."""
        return ops.mean(self.call_members(inputs), axis=0)

    def call_members(self, inputs):
        """Each pass's prediction, stacked along a new first axis."""
        return ops.moveaxis(self._box.passes(inputs, training=False), 1, 0)

    def call_member(self, inputs, index):
        """The prediction of one pass. All are computed, with masks drawn together."""
        return ops.take(self.call_members(inputs), index, axis=0)

    def predict_members(self, x, batch_size=None, verbose=0):
        """Predictions of each pass, shape (passes, examples, ...)."""
        passes = self._box.passes.predict(x, batch_size=batch_size, verbose=verbose)
        return np.moveaxis(passes, 1, 0)

    def save(self, filepath, overwrite=True, zipped=None, **options):
        """As `keras.Model.save`, to a `.keras` file."""
        _backend.refuse_legacy_file(filepath)
        super().save(filepath, overwrite, zipped, **options)

    def compile_from_config(self, config):
        """Compiles with what `get_compile_config` gave, on whatever backend."""
        super().compile_from_config(_backend.portable(config))

    def get_config(self):
        """The arguments of the constructor."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "samples": self.num_members,
            "activation": keras.activations.serialize(self.activation),
            "seed": self.seed,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model with these arguments; its weights are loaded separately."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))

    def _passes(self):
        """A model from inputs to the predictions of shape (examples, passes, ...)."""
        (source,) = self.model.inputs
        inputs = keras.Input(source.shape[1:], dtype=source.dtype)
        # What comes before the first dropout is the same in all passes.
        shared, rest = [], [self.model]
        if isinstance(self.model, keras.Sequential):
            stack = self.model.layers
            first = [_dropouts(layer) != [] for layer in stack].index(True)
            shared, rest = stack[:first], stack[first:]
        x = inputs
        for layer in shared:
            x = layer(x)
        x = ops.repeat(x, self.num_members, axis=0)
        for layer in rest:
            x = self._at_work(layer)(x)
        x = self.activation(x)
        x = ops.reshape(x, (-1, self.num_members, *x.shape[1:]))
        return keras.Model(inputs, x)

    def _at_work(self, layer):
        """The layer, with its dropout at work; all else is shared with it."""
        if isinstance(layer, layers.Dropout):
            return _AtWork(layer, self.draws)
        if not _dropouts(layer):
            return layer
        return keras.models.clone_model(layer, clone_function=self._at_work)


class _Box:
    """Holds a model that Keras must not track: a list of its own it would."""

    def __init__(self, passes):
        self.passes = passes


class _AtWork(layers.Layer):
    """Dropout that drops in inference mode as well."""

    def __init__(self, dropout, draws):
        super().__init__(dtype=dropout.dtype_policy)
        self._dropout = dropout
        self._draws = draws

    def call(self, inputs):
        rate, shape = self._dropout.rate, list(ops.shape(inputs))
        # Not `keras.random.dropout`: PyTorch's may ignore Keras' seeds.
        for axis, size in enumerate(_noise_shape(self._dropout, len(shape))):
            shape[axis] = shape[axis] if size is None else size
        draws = keras.random.uniform(shape, seed=self._draws)
        if rate == 1.0:
            return ops.zeros_like(inputs)
        return ops.where(draws >= rate, inputs / (1.0 - rate), ops.zeros_like(inputs))


_GRAPHS = (keras.Sequential, keras.Function)
_SPATIAL = (layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D)


def _noise_shape(dropout, rank):
    """Sizes of the mask, None for those of the input."""
    if not isinstance(dropout, _SPATIAL):
        return dropout.noise_shape or (None,) * rank
    first = getattr(dropout, "data_format", "channels_last") == "channels_first"
    channels, ones = (None,), (1,) * (rank - 2)
    return (None, *channels, *ones) if first else (None, *ones, *channels)


def _check(model):
    """Refuses a model whose dropout cannot be put to work."""
    graph = isinstance(model, _GRAPHS) and model.built
    if not graph or len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError(
            "Argument `model` must be a built sequential or functional `keras.Model` "
            "with one input and one output. In a model of another kind, call the "
            "dropout layers with `training=True`, and average the passes yourself. "
            f"Received: model={model!r}"
        )
    found = _dropouts(model)
    every = {
        id(x) for x in _backend.inner_layers(model) if isinstance(x, layers.Dropout)
    }
    hidden = len(every - {id(layer) for layer in found})
    if hidden or not any(layer.rate > 0.0 for layer in found):
        raise ValueError(
            "Argument `model` must have a `Dropout` layer with a rate above 0. All of "
            "them must stand in the model itself or in models nested in it: inside a "
            "layer of another kind they cannot be put to work. "
            f"Received: {len(every)} dropout layers, {hidden} of them inside others"
        )


def _dropouts(layer):
    """The dropout layers of a layer or graph of layers."""
    if isinstance(layer, layers.Dropout):
        return [layer]
    inner = layer.layers if isinstance(layer, _GRAPHS) else []
    return [dropout for part in inner for dropout in _dropouts(part)]
