"""`Ensemble`: a Keras model that averages the predictions of posterior samples."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Self

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import architecture
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import StoredModel
from keras_mhmcmc._stored_model import check_layers
from keras_mhmcmc._stored_model import recipe_if_needed
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble import checks
from keras_mhmcmc.ensemble import compile as ensemble_compile
from keras_mhmcmc.ensemble import recalibration
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.samplers.parts import importance

# Options of the variables, which hold samples and are not trained.
_STORED: dict[str, Any] = dict(initializer="zeros", trainable=False, autocast=False)


@serializable
class Ensemble(StoredModel):
    """A model whose prediction is the weighted mean over samples of another model.

    `predict` averages activation(model(x)) over the samples, in one compiled pass.
    `predict_members` returns the prediction of each sample. Most ensembles come from
    `PosteriorSamples.ensemble`, which also compiles them, so that `evaluate` works.
    The weights of an ensemble are the stacked samples. None of them is trainable.

    Args:
        member: a built `keras.Model`, the architecture of every sample.
        num_members: number of samples, an integer that is at least 1.
        activation: function that turns the member's outputs into the quantity to
            average, as in `keras.activations.get`; a list has one for each output, in
            the order of `keras.tree.flatten`. Defaults to None, the identity.
        chunk: number of members to evaluate side by side. Memory grows with it.
            Defaults to None: 1 on a CPU, where that is fastest, all members elsewhere.
        shared: positions in `member.weights` of the weights that all members have in
            common, such as those of frozen layers. They are stored once. First layers
            with such weights alone run once for all members, unless `member` is a
            subclass with a `call` of its own. Defaults to ().
        name: name of the model. Defaults to "ensemble".

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
        member: keras.Model,
        num_members: int,
        activation: ActivationLike = None,
        chunk: int | None = None,
        shared: Sequence[int] = (),
        name: str = "ensemble",
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        _validate.instance("member", member, keras.Model, "a `keras.Model`")
        if not member.built:
            raise ValueError(
                "Argument `member` must be a built model: call it on some data first. "
                f"Received: member={member}"
            )
        check_layers("member", member)
        hint = "For the samples of a chain, use `posterior.ensemble(model)`."
        self.num_members = _validate.integer("num_members", num_members, 1, hint)
        if chunk is not None:
            chunk = _validate.integer("chunk", chunk, 1)
        self.chunk = chunk
        self.activation = activations.checked(activation)
        self.shared = _validate.positions(
            "shared", shared, len(member.weights), "member"
        )
        self._own = sorted(set(range(len(member.weights))) - set(self.shared))
        self._untracked = _Untracked(member, member.weights, recipe_if_needed(member))
        self._makes_masks = _backend.makes_masks(member)
        self._values: list[keras.Variable] = [
            self._add_stacked(*pair) for pair in enumerate(member.weights)
        ]
        self._log_weights = self.add_weight(
            shape=(self.num_members,), dtype="float32", name="log_weights", **_STORED
        )
        if isinstance(member, keras.Function):
            # Keras finds losses and metrics by these names.
            self.output_names = list(member.output_names)
        self.built = True

    def _add_stacked(self, index: int, weight: keras.Variable) -> keras.Variable:
        leading = () if index in self.shared else (self.num_members,)
        shape, name = (*leading, *weight.shape), weight.path.replace("/", "_")
        with _layout_of_members(f"{self.name}/{name}", len(shape), weight):
            return self.add_weight(shape, dtype=weight.dtype, name=name, **_STORED)

    @property
    def member(self) -> keras.Model:
        """Return the model that gives the architecture, with weights of its own.

        It is the model that was sampled until that one gets or loses weights, for
        example by `enable_lora`. From then on it is a copy of what was sampled.

        Raises:
            ValueError: Keras cannot make the copy.
        """
        held = self._untracked
        if list(map(id, held.member.weights)) != list(map(id, held.weights)):
            held.member = checks.copy_of_sampled(held.member, held.weights, held.recipe)
            held.weights = held.member.weights
        return held.member

    @property
    def averaging_weights(self) -> npt.NDArray[np.float64]:
        """Return the members' weights in the mean, which sum to 1, shape (members,)."""
        weights = np.exp(ops.convert_to_numpy(self._log_weights).astype("float64"))
        return weights / np.sum(weights)

    def __repr__(self) -> str:
        shares = self.averaging_weights
        ess = importance.effective_sample_size(shares)
        how = "equally" if np.ptp(shares) == 0 else f"with weights of ESS {ess:.1f}"
        member = self._untracked.member
        return (
            f"Ensemble({member!r}, num_members={self.num_members}): "
            f"{member.count_params():,} weights a member, averaged {how}"
        )

    def summary(self, **options: Any) -> None:
        """Print the ensemble in a line, then the summary of its member.

        Args:
            options: as for `keras.Model.summary`.
        """
        options.get("print_fn", print)(repr(self))
        self.member.summary(**options)

    def call(self, inputs: Tensor) -> Tensor:
        """Return the weighted mean of the members' predictions."""
        # Not `ops.softmax`, which warns if there is a single member.
        weights = ops.exp(self._log_weights)
        weights = weights / ops.sum(weights)

        def mean(outputs: Tensor) -> Tensor:
            if not keras.backend.is_float_dtype(outputs.dtype):  # for example labels
                outputs = ops.cast(outputs, keras.config.floatx())
            return ops.tensordot(ops.cast(weights, outputs.dtype), outputs, axes=1)

        outputs = keras.tree.map_structure(mean, self.call_members(inputs))
        if self._makes_masks:  # they do not depend on the weights
            _backend.give_masks(outputs, self.member, inputs)
        return outputs

    def call_members(self, inputs: Tensor) -> Tensor:
        """Return the predictions of all members, stacked along a new first axis."""
        stacked = [self._values[i].value for i in self._own]
        chunk = self.chunk or (self.num_members if _backend.accelerated() else 1)
        chunk = min(chunk, self.num_members)
        return _backend.map_members(self._predictor(inputs), stacked, chunk)

    def call_member(self, inputs: Tensor, index: int | Tensor) -> Tensor:
        """Return the prediction of the member at `index`, a number or a tensor."""
        stacked = [self._values[i].value for i in self._own]
        values = [ops.take(value, index, axis=0) for value in stacked]
        return self._predictor(inputs)(values)

    def _predictor(self, inputs: Tensor) -> Callable[[Sequence[Tensor]], Tensor]:
        """Return a function from a member's own weights to its prediction.

        What the first layers give, if all members share them, is computed once.
        """
        member = self.member
        variables = member.trainable_variables + member.non_trainable_variables
        weights = list(map(id, member.weights))
        common = {weights[i]: self._values[i].value for i in self.shared}
        positions = {weights[i]: place for place, i in enumerate(self._own)}
        first, rest, read = _backend.split_call(member, set(common))

        def common_value(variable: keras.Variable) -> Tensor:
            return common.get(id(variable), variable.value)

        with keras.StatelessScope([(v, common_value(v)) for v in variables]):
            features = first(inputs)

        def predict(values: Sequence[Tensor]) -> Tensor:
            def value_of(variable: keras.Variable) -> Tensor:
                place = positions.get(id(variable))
                return common_value(variable) if place is None else values[place]

            with keras.StatelessScope([(v, value_of(v)) for v in read]):
                # Not `stateless_call`, which fails if `call` has no `training`.
                outputs = rest(features)
            return activations.applied(self.activation, outputs)

        return predict

    def predict(self, *args: Any, **options: Any) -> Any:
        """Return the weighted mean of the members, as `keras.Model.predict` does."""
        _ = self.member  # which no compiled function could make again
        return super().predict(*args, **options)

    def predict_members(
        self, x: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Any:
        """Return the predictions of each member, shape (members, examples, ...).

        A model with several outputs gives a structure of arrays.

        Args:
            x: inputs, as for `keras.Model.predict`.
            batch_size: as for `keras.Model.predict`. Defaults to None, which is 32.
            verbose: as for `keras.Model.predict`. Defaults to 0, silence.
        """
        if self._untracked.members_second is None:
            self._untracked.members_second = _MembersSecond(self)
        _ = self.member
        with _backend.values_kept(self):
            outputs = self._untracked.members_second.predict(
                x, batch_size=batch_size, verbose=verbose
            )
        return keras.tree.map_structure(lambda y: np.moveaxis(y, 1, 0), outputs)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        """Return the metrics of a mini-batch, as `keras.Model` does."""
        if self._untracked.doubt is None:
            self._untracked.doubt = checks.mean_of_parameters(self, y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        """Return the loss and the metrics, as `keras.Model.evaluate` does."""
        _ = self.member
        results = super().evaluate(*args, **options)
        if self._untracked.doubt:
            warn(self._untracked.doubt)
            self._untracked.doubt = ""
        return results

    def set_members(self, stacked: Sequence[Array], weights: Any) -> None:
        """Set the samples and their weights in the mean.

        Args:
            stacked: a list of one array (members, ...) for each of `member.weights`.
                Weights that are `shared` take the value of the first member.
            weights: a number for each member, at least 0 and not all 0.

        Raises:
            ValueError: an array has another shape or NaN, a weight is negative or not
                finite, or all are zero.
        """
        weights = checks.checked_weights(weights, self.num_members)
        values = checks.checked_values(
            stacked, self.member, self.num_members, self.shared
        )
        for variable, value in zip(self._values, values, strict=True):
            variable.assign(value)
        checks.warn_of_few(weights)
        smallest = np.finfo("float32").tiny
        self._log_weights.assign(np.log(np.maximum(weights / weights.max(), smallest)))

    def stacked_values(self) -> list[Array]:
        """Return the samples: an array (members, ...) for each of `member.weights`.

        What all members have in common is a view that repeats one array.
        """
        count = self.num_members
        values = [ops.convert_to_numpy(variable) for variable in self._values]
        for i in self.shared:
            values[i] = np.broadcast_to(values[i], (count, *values[i].shape))
        return values

    def recalibrate(self, x: Any, batch_size: int = 256) -> None:
        """Estimate the batch normalisation statistics of each member again.

        The moving statistics of the run lag behind a sample's weights. After this call,
        each member has the mean and variance of all of `x` at its own weights. The
        layers before normalise by the batch, as in training.

        Args:
            x: inputs, usually those of training, with N examples along the first axis,
                or a dict, list or tuple of such arrays. Or a data set that `fit` takes
                and that ends. It is read once, and targets are left out.
            batch_size: number of examples of arrays that are normalised together, at
                least 1. Use that of training, as the batches of a data set should.
                Defaults to 256.

        Raises:
            ValueError: an argument is outside its range, or the members have no batch
                normalisation layer whose statistics may change.

        Reference: Izmailov et al. (2018), "Averaging weights leads to wider optima and
        better generalization", section 3.2, for why this is needed.
        """
        batch_size = _validate.integer("batch_size", batch_size, 1)
        members = list(zip(*self.stacked_values(), strict=True))
        found = recalibration.moving_statistics(self.member, members, x, batch_size)
        common = sorted(set(found[0]) & set(self.shared))
        if common:
            raise ValueError(
                "Argument `shared` of the ensemble must leave out the statistics of "
                f"batch normalisation. Received: shared={self.shared}, which includes "
                f"the statistics {common}"
            )
        for index in found[0]:
            self._values[index].assign(np.stack([one[index] for one in found]))

    def export(
        self,
        filepath: PathLike,
        format: str = "tf_saved_model",
        verbose: bool | None = None,
        input_signature: Sequence[Any] | None = None,
        **options: Any,
    ) -> None:
        """Export the ensemble for inference, as `keras.Model.export` does.

        Args:
            filepath: as for `keras.Model.export`.
            format: "tf_saved_model" (on JAX it needs TensorFlow as well), "torch" (on
                PyTorch, a file whose name ends in `.pt2`), or another format of Keras.
                Defaults to "tf_saved_model".
            verbose: as for `keras.Model.export`. Defaults to None.
            input_signature: shapes and dtypes of the inputs, a list with one structure
                of `keras.InputSpec`. Defaults to None, those of the member. A subclass
                of `keras.Model` does not know its dtypes: pass them if they are
                integers.
            options: options of the format.

        Raises:
            ValueError: the backend has no such format.
        """
        _backend.refuse_export(format)
        if input_signature is None:
            input_signature = _backend.input_signature(self.member)
        super().export(filepath, format, verbose, input_signature, **options)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "member": architecture(self.member),
            "num_members": self.num_members,
            "activation": activations.serialized(self.activation),
            "chunk": self.chunk,
            "shared": list(self.shared),
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the ensemble with these arguments. Its weights are loaded later."""
        member = _backend.made_again("member", config["member"], custom_objects)
        return cls(**(config | {"member": member}))


@dataclass
class _Untracked:
    """A holder of models that Keras must not track as parts of the ensemble."""

    member: keras.Model
    weights: list[keras.Variable]  # that the member had when it came here
    recipe: Callable[..., keras.Model]  # of what was sampled
    members_second: "_MembersSecond | None" = None
    doubt: str | None = None  # about the loss, empty if it has been told


class _MembersSecond(keras.Model):
    """A model of the members' predictions with the batch axis first, for `predict`."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__(name="members", autocast=False)
        self.ensemble = ensemble
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        outputs = self.ensemble.call_members(inputs)
        return keras.tree.map_structure(lambda y: ops.moveaxis(y, 0, 1), outputs)


class WithEnsemble(StoredModel):
    """Abstract: a model that makes an ensemble, and predicts with it."""

    @property
    def ensemble(self) -> Ensemble:
        """Return the ensemble, or raise a `ValueError` if there is none yet."""
        raise NotImplementedError


def ensemble_of(
    model: keras.Model,
    stacked: Sequence[Array],
    weights: npt.NDArray[np.float64],
    activation: ActivationLike,
    chunk: int | None = None,
) -> Ensemble:
    """Return the ensemble of samples of `model`, compiled if the model is.

    The samples and their `weights` are as in `Ensemble.set_members`. An activation of
    None stands for what the model's loss needs.
    """
    check_layers("model", model)
    if activation is None:
        activation = ensemble_compile.activation_of(model)
    else:
        ensemble_compile.warn_of_second_activation(model, activation)
    # Weights that all samples share are views with a stride of 0.
    common = [i for i, values in enumerate(stacked) if values.strides[0] == 0]
    shared = common if len(common) < len(stacked) else []
    ensemble = Ensemble(model, len(weights), activation, chunk, shared)
    ensemble.set_members(stacked, weights)
    if model.compiled:
        ensemble.compile(**ensemble_compile.arguments(model, ensemble.activation))
    return ensemble


@contextlib.contextmanager
def _layout_of_members(path: str, rank: int, weight: keras.Variable) -> Iterator[None]:
    """Give a new stacked weight the layout of one member, with None in front.

    A pattern such as ".*hidden.*kernel.*" in a `keras.distribution.LayoutMap` describes
    the weight of a model. It also matches the path of the stacked weight, which has one
    axis more. A pattern for all axes of the stacked weight is taken as it is.
    """
    distribution, found = keras.distribution.distribution(), None
    if isinstance(distribution, keras.distribution.ModelParallel):
        found = distribution.get_tensor_layout(path) or _backend.layout_of(weight)
    mesh = None if found is None else distribution.device_mesh
    if found is None or found.device_mesh is not mesh or len(found.axes) != rank - 1:
        yield
        return
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*"] = keras.distribution.TensorLayout((None, *found.axes), mesh)
    name = distribution.batch_dim_name
    with keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name=name
    ).scope():
        yield
