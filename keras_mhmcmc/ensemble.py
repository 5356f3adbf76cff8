"""`Ensemble`: a Keras model that averages the predictions of posterior samples."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.kernels import importance

_ACTIVATION_OF_LOGITS = {
    "SparseCategoricalCrossentropy": "softmax",
    "CategoricalCrossentropy": "softmax",
    "CategoricalFocalCrossentropy": "softmax",
    "BinaryCrossentropy": "sigmoid",
    "BinaryFocalCrossentropy": "sigmoid",
}


@serializable
class Ensemble(keras.Model):
    """The weighted mean prediction of samples of one model.

    `predict` averages activation(model(x)) over the samples, in one compiled pass;
    `predict_members` gives each sample's prediction. Usually made by
    `PosteriorSamples.ensemble`, which also compiles it, so that `evaluate` works.
    Its weights are the stacked samples; none of them is trainable.

    Args:
        member: a built `keras.Model`, the architecture of every sample.
        num_members: number of samples, at least 1.
        activation: what turns the member's outputs into the quantity to average, as in
            `keras.activations.get`; None is nothing.
        chunk: number of members evaluated side by side. Memory grows with it. None is
            1 on a CPU, where that is fastest, and all of them elsewhere.
        name: name of the model.

    Raises:
        ValueError: an argument is outside its range, or `member` is not built.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> member = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> ensemble = Ensemble(member, num_members=2, activation="softmax")
    >>> ensemble.predict(np.ones((5, 4)), verbose=0).shape
    (5, 3)
    >>> ensemble.predict_members(np.ones((5, 4))).shape
    (2, 5, 3)
    """

    def __init__(
        self, member, num_members, activation=None, chunk=None, name="ensemble"
    ):
        super().__init__(name=name)
        _validate.instance("member", member, keras.Model, "a `keras.Model`")
        if not member.built:
            raise ValueError(
                "Argument `member` must be a built model: call it on some data first. "
                f"Received: member={member}"
            )
        self.num_members = _validate.integer("num_members", num_members, 1)
        if chunk is not None:
            chunk = _validate.integer("chunk", chunk, 1)
        self.chunk = chunk
        self.activation = keras.activations.get(activation)
        # In a box, where Keras does not look: the member's own weights are not ours.
        self._box = _Box(member)
        self._stacked = [
            self.add_weight(
                shape=(self.num_members, *variable.shape),
                initializer="zeros",
                dtype=variable.dtype,
                trainable=False,
                autocast=False,
                name=variable.path.replace("/", "_"),
            )
            for variable in member.weights
        ]
        self._log_weights = self.add_weight(
            shape=(self.num_members,),
            initializer="zeros",
            dtype="float32",
            trainable=False,
            autocast=False,
            name="log_weights",
        )
        self.built = True

    @property
    def member(self):
        """The model whose weights are sampled; it holds weights of its own."""
        return self._box.member

    @property
    def member_weights(self):
        """Weight of each member in the mean, a float64 array; they sum to 1."""
        weights = np.exp(ops.convert_to_numpy(self._log_weights).astype("float64"))
        return weights / np.sum(weights)

    def call(self, inputs):
        """The weighted mean of the members' predictions."""
        # Not `softmax`, which warns of a single member.
        weights = ops.exp(self._log_weights)
        weights = weights / ops.sum(weights)

        def mean(outputs):
            return ops.tensordot(ops.cast(weights, outputs.dtype), outputs, axes=1)

        return keras.tree.map_structure(mean, self.call_members(inputs))

    def call_members(self, inputs):
        """Each member's prediction, stacked along a new first axis."""
        stacked = [variable.value for variable in self._stacked]
        chunk = self.chunk or _backend.default_chunk(self.num_members)
        return _backend.map_members(
            lambda values: self._predict(values, inputs),
            stacked,
            min(chunk, self.num_members),
        )

    def call_member(self, inputs, index):
        """The prediction of the member with this index, which may be a tensor."""
        values = [ops.take(v.value, index, axis=0) for v in self._stacked]
        return self._predict(values, inputs)

    def _predict(self, values, inputs):
        """The prediction of a member with these weights."""
        member = self.member
        positions = {id(v): i for i, v in enumerate(member.weights)}

        def value_of(variable):
            index = positions.get(id(variable))
            return variable.value if index is None else values[index]

        outputs, _ = member.stateless_call(
            [value_of(v) for v in member.trainable_variables],
            [value_of(v) for v in member.non_trainable_variables],
            inputs,
            training=False,
        )
        return keras.tree.map_structure(self.activation, outputs)

    def predict_members(self, x, batch_size=None, verbose=0):
        """Predictions of each member, shape (members, examples, ...)."""
        if self._box.members_first is None:
            self._box.members_first = _MembersSecond(self)
        outputs = self._box.members_first.predict(
            x, batch_size=batch_size, verbose=verbose
        )
        return keras.tree.map_structure(lambda y: np.moveaxis(y, 1, 0), outputs)

    def set_members(self, stacked, weights):
        """Sets the samples: one array (members, ...) for each weight, and weights.

        Raises:
            ValueError: a weight is negative or not finite, or all are zero.
        """
        weights = np.asarray(weights, "float64")
        if not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() == 0:
            raise ValueError(
                "Argument `weights` must be finite, at least 0, and not all 0. "
                f"Received: weights={weights}"
            )
        for variable, value in zip(self._stacked, stacked, strict=True):
            variable.assign(value)
        warn_of_few(weights)
        smallest = np.finfo("float32").tiny
        self._log_weights.assign(np.log(np.maximum(weights / weights.max(), smallest)))

    def get_config(self):
        """The arguments of the constructor."""
        return {
            "member": keras.saving.serialize_keras_object(self.member),
            "num_members": self.num_members,
            "activation": keras.activations.serialize(self.activation),
            "chunk": self.chunk,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The ensemble with these arguments; its weights are loaded separately."""
        config = dict(config)
        config["member"] = keras.saving.deserialize_keras_object(
            config["member"], custom_objects
        )
        return cls(**config)


def warn_of_few(weights):
    """Warns where hardly more than one of several samples counts."""
    number = importance.effective_sample_size(weights)
    # Two samples of nearly equal weight are worth a little less than two.
    if number < min(2.0, 0.75 * np.size(weights)):
        warnings.warn(
            f"The importance weights of the {np.size(weights)} samples have an "
            f"effective sample size of {number:.2f}: the ensemble is hardly more than "
            "one sample. Keep more samples after a longer burn-in, use a wider "
            "`energy_gap` or a smaller `zeta`; or even the weights out with "
            "`weight_power`, which changes the law.",
            stacklevel=3,
        )


class _Box:
    """Holds models that Keras must not track as part of the ensemble."""

    def __init__(self, member):
        self.member = member
        self.members_first = None


class _MembersSecond(keras.Model):
    """The members' predictions with the batch axis first, as `predict` needs it."""

    def __init__(self, ensemble):
        super().__init__(name="members")
        self.ensemble = ensemble
        self.built = True

    def call(self, inputs):
        outputs = self.ensemble.call_members(inputs)
        return keras.tree.map_structure(lambda y: ops.moveaxis(y, 0, 1), outputs)


def ensemble_of(model, stacked, weights, activation):
    """The ensemble of these samples, compiled for `evaluate` where `model` is."""
    loss = getattr(model, "loss", None)
    loss_config = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
    if activation is None and loss_config.get("from_logits"):
        activation = _ACTIVATION_OF_LOGITS.get(type(loss).__name__)
    ensemble = Ensemble(model, len(weights), activation)
    ensemble.set_members(stacked, weights)
    config = model.get_compile_config() if model.compiled else None
    if config is not None:
        if loss_config.get("from_logits") and activation is not None:
            loss = type(loss).from_config(loss_config | {"from_logits": False})
        metrics = keras.saving.deserialize_keras_object(config["metrics"])
        ensemble.compile(loss=loss, metrics=metrics)
    return ensemble
