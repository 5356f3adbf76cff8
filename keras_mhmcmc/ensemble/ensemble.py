"""`Ensemble`: a Keras model that averages the predictions of posterior samples."""

import warnings

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import importance
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble import compile as ensemble_compile
from keras_mhmcmc.ensemble import recalibration


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
        activation: what turns the member's outputs into the quantities to average, as
            in `keras.activations.get`; None is nothing. A list has one for each
            output, in the order of `keras.tree.flatten`.
        chunk: number of members evaluated side by side. Memory grows with it. None is
            1 on a CPU, where that is fastest, and all of them elsewhere.
        shared: positions in `member.weights` of those that all members have in common,
            such as the weights of frozen layers; they are kept once.
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
        self,
        member,
        num_members,
        activation=None,
        chunk=None,
        shared=(),
        name="ensemble",
    ):
        super().__init__(name=_validate.scope_name(name))
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
        self.activation = activations.checked(activation)
        self.shared = _validate.positions(
            "shared", shared, len(member.weights), "member"
        )
        self._own = sorted(set(range(len(member.weights))) - set(self.shared))
        # In a box, where Keras does not look: the member's own weights are not ours.
        self._box = _Box(member)
        self._values = [
            self.add_weight(
                shape=self._leading_axis(index) + tuple(variable.shape),
                initializer="zeros",
                dtype=variable.dtype,
                trainable=False,
                autocast=False,
                name=variable.path.replace("/", "_"),
            )
            for index, variable in enumerate(member.weights)
        ]
        self._log_weights = self.add_weight(
            shape=(self.num_members,),
            initializer="zeros",
            dtype="float32",
            trainable=False,
            autocast=False,
            name="log_weights",
        )
        if isinstance(member, keras.Function):
            # Keras finds losses and metrics by these names.
            self.output_names = list(member.output_names)
        self.built = True

    def _leading_axis(self, index):
        return () if index in self.shared else (self.num_members,)

    @property
    def member(self):
        """The model whose weights are sampled; it holds weights of its own."""
        return self._box.member

    @property
    def averaging_weights(self):
        """Weight of each member in the mean, a float64 array; they sum to 1."""
        weights = np.exp(ops.convert_to_numpy(self._log_weights).astype("float64"))
        return weights / np.sum(weights)

    def call(self, inputs):
        """The weighted mean of the members' predictions."""
        # Not `softmax`, which warns of a single member.
        weights = ops.exp(self._log_weights)
        weights = weights / ops.sum(weights)

        def mean(outputs):
            if not keras.backend.is_float_dtype(outputs.dtype):  # such as labels
                outputs = ops.cast(outputs, keras.config.floatx())
            return ops.tensordot(ops.cast(weights, outputs.dtype), outputs, axes=1)

        return keras.tree.map_structure(mean, self.call_members(inputs))

    def call_members(self, inputs):
        """Each member's prediction, stacked along a new first axis."""
        stacked = [self._values[i].value for i in self._own]
        chunk = self.chunk or _backend.default_chunk(self.num_members)
        chunk = min(chunk, self.num_members)
        return _backend.map_members(self._predictor(inputs), stacked, chunk)

    def call_member(self, inputs, index):
        """The prediction of the member with this index, which may be a tensor."""
        stacked = [self._values[i].value for i in self._own]
        values = [ops.take(value, index, axis=0) for value in stacked]
        return self._predictor(inputs)(values)

    def _predictor(self, inputs):
        """A function from a member's own weights to its prediction."""
        member = self.member
        variables = member.trainable_variables + member.non_trainable_variables
        common = {id(member.weights[i]): self._values[i].value for i in self.shared}
        positions = {id(member.weights[i]): place for place, i in enumerate(self._own)}

        def predict(values):
            def value_of(variable):
                place = positions.get(id(variable))
                if place is not None:
                    return values[place]
                return common.get(id(variable), variable.value)

            with keras.StatelessScope([(v, value_of(v)) for v in variables]):
                # Called, since `stateless_call` fails where `call` takes no `training`.
                outputs = member(inputs, training=False)
            return activations.applied(self.activation, outputs)

        return predict

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

        Args:
            stacked: list of an array for each of `member.weights`, the members along
                its first axis. Of those that are `shared` the first member's are taken.
            weights: a number for each member, at least 0 and not all 0.

        Raises:
            ValueError: an array has another shape or NaN, a weight is negative or not
                finite, or all are zero.
        """
        weights = _validate.array("Argument `weights`", weights)
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(weights).all() and np.isfinite(weights.sum())
        if (
            weights.shape != (self.num_members,)
            or not is_finite
            or (weights < 0).any()
            or weights.sum() == 0
        ):
            raise ValueError(
                f"Argument `weights` must be {self.num_members} numbers, one for each "
                "member, finite, at least 0, and not all 0. "
                f"Received: weights={_validate.shown(weights)}"
            )
        values = self._checked_values(stacked)
        for variable, value in zip(self._values, values, strict=True):
            variable.assign(value)
        warn_of_few(weights)
        smallest = np.finfo("float32").tiny
        self._log_weights.assign(np.log(np.maximum(weights / weights.max(), smallest)))

    def _checked_values(self, stacked):
        """The values of the ensemble's own variables."""
        names = [variable.path for variable in self.member.weights]
        if not isinstance(stacked, list | tuple) or len(stacked) != len(names):
            raise ValueError(
                "Argument `stacked` must be a list of an array for each weight of "
                f"`member`, which has {len(names)}. "
                f"Received: stacked={_validate.shown(stacked)}"
            )
        values = []
        for i, (name, value) in enumerate(zip(names, stacked, strict=True)):
            subject = f"The entry {i} of `stacked`, of {name!r},"
            value = _validate.array(subject, value, dtype=None)
            shape = (self.num_members, *self.member.weights[i].shape)
            if value.shape != shape:
                raise ValueError(
                    f"{subject} must have the shape {shape}, a row for each member. "
                    f"Received: shape {value.shape}"
                )
            if i in self.shared:
                value = value[0]
            # Of `uint32`, the states of random numbers, nothing can be NaN.
            if value.dtype.kind in "fV" and np.isnan(value).any():
                raise ValueError(
                    f"{subject} must not be NaN, or so would be the predictions. The "
                    "run may have diverged: lower its learning rate, and keep samples "
                    f"anew. Received: {np.sum(np.isnan(value))} values that are NaN"
                )
            values.append(value)
        return values

    def recalibrate(self, x, batch_size=256):
        """Estimates each member's statistics of batch normalisation again, from `x`.

        A sample carries the moving statistics of the run, which lag behind its weights
        and mix those of the samples before it. Afterwards each member has the mean and
        variance of all of `x` at its own weights, with the layers before normalising by
        the batch, as in training.

        Args:
            x: inputs, usually those of training, N examples along the first axis, or a
                structure of such arrays.
            batch_size: number of examples that are normalised together, at least 1;
                usually that of training.

        Raises:
            ValueError: an argument is outside its range, or the members have no layer
                of batch normalisation whose statistics may change.

        Reference: Izmailov et al. (2018), "Averaging weights leads to wider optima and
        better generalization", section 3.2, for the need of it.
        """
        batch_size = _validate.integer("batch_size", batch_size, 1)
        x = recalibration.checked_inputs(x)
        if isinstance(x, np.ndarray):
            _validate.examples("x", x.shape, self.member)
        else:
            recalibration.check_taken(x, self.member)
        values = [ops.convert_to_numpy(variable) for variable in self._values]

        def of_member(i):
            return [
                value if index in self.shared else value[i]
                for index, value in enumerate(values)
            ]

        members = map(of_member, range(self.num_members))
        found = list(
            recalibration.moving_statistics(self.member, members, x, batch_size)
        )
        common = sorted(set(found[0]) & set(self.shared))
        if common:
            raise ValueError(
                "Argument `shared` of the ensemble must leave out the statistics of "
                f"batch normalisation, to estimate them. Received: {common} among them"
            )
        for index in found[0]:
            self._values[index].assign(np.stack([one[index] for one in found]))

    def save(self, filepath, overwrite=True, zipped=None, **options):
        """As `keras.Model.save`, to a `.keras` file."""
        _backend.refuse_legacy_file(filepath)
        super().save(filepath, overwrite, zipped, **options)

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **options,
    ):
        """As `keras.Model.export`, with the inputs of the member.

        Args:
            filepath: path of the artifact.
            format: "tf_saved_model" (on JAX it needs TensorFlow as well), "torch" (on
                PyTorch, a file whose name ends in `.pt2`), or another that Keras has.
            verbose: whether to print what the artifact offers.
            input_signature: shapes and dtypes of the inputs, a list with one structure
                of `keras.InputSpec`; None: those of the member. A subclass of
                `keras.Model` does not know its dtypes, so that integers must be named.
            options: of the format.

        Raises:
            ValueError: the backend has no such format.
        """
        _backend.refuse_export(format)
        if input_signature is None:
            input_signature = _backend.input_signature(self.member)
        super().export(filepath, format, verbose, input_signature, **options)

    def compile_from_config(self, config):
        """Compiles with what `get_compile_config` gave, on whatever backend."""
        super().compile_from_config(_backend.portable(config))

    def get_config(self):
        """The arguments of the constructor."""
        return {
            "member": keras.saving.serialize_keras_object(self.member),
            "num_members": self.num_members,
            "activation": activations.serialized(self.activation),
            "chunk": self.chunk,
            "shared": list(self.shared),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The ensemble with these arguments; its weights are loaded separately."""
        member = _backend.made_again("member", config["member"], custom_objects)
        return cls(**(config | {"member": member}))


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


def ensemble_of(model, stacked, weights, activation, chunk=None):
    """The ensemble of these samples, compiled for `evaluate` where `model` is."""
    if activation is None:
        activation = ensemble_compile.activation_of(model)
    common = [i for i, values in enumerate(stacked) if values.strides[0] == 0]
    shared = common if len(common) < len(stacked) else ()
    ensemble = Ensemble(model, len(weights), activation, chunk, shared)
    ensemble.set_members(stacked, weights)
    if model.compiled:
        ensemble.compile(**ensemble_compile.arguments(model, ensemble.activation))
    return ensemble
