"""`Classifier`: a model's class probabilities, computed in compiled batches."""

import operator
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _inputs
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import Inputs
from keras_mhmcmc._names import distinct
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import InputsLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble.compile import takes_logits
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import WithEnsemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation import metrics

BATCH_SIZE = 256
# What `Classifier.compiled` compiles for the outputs of a model, and of its members.
_MEAN = operator.attrgetter("outputs")
_EACH = operator.attrgetter("member_outputs")


class Classifier:
    """A model whose class probabilities and gradients are compiled once.

    Attacks and `mh.evaluate` wrap each model in a `Classifier`, and compile it in each
    call. Pass a `Classifier` in place of the model to compile only once. Each call
    reads the current weights. After any other change of the model make a new
    `Classifier`. The inputs `x` of a method are finite, shape (N, ...), or a dict or
    list of such arrays; or a data set that `fit` takes and that ends.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1). It runs in
            inference mode. An `mh.Ensemble` and an `mh.MCDropout` also offer the
            outputs of their members.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        batch_size: number of examples computed at a time, at least 1. Memory use
            grows with it. Defaults to 256.
        subject: name of the model in errors.

    Raises:
        ValueError: an argument is outside its range, or `model` is not built.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, kernel_initializer="zeros")
    >>> model = keras.Sequential([keras.Input((4,)), layer])
    >>> classifier = Classifier(model, from_logits=True)
    >>> classifier.probabilities(np.ones((1, 4)))
    array([[0.5, 0.5]])
    """

    def __init__(
        self,
        model: keras.Model,
        from_logits: bool = False,
        batch_size: int = BATCH_SIZE,
        *,
        subject: str = "Argument `model`",
    ) -> None:
        checks.check_built(subject, model)
        if isinstance(model, StackedModel):
            raise ValueError(
                f"{subject} must be one network or an ensemble. Pass "
                "`posterior.ensemble(chains)`, or `chains.template` for one chain. "
                f"Received: {model!r}"
            )
        if isinstance(model, WithEnsemble):
            model = model.ensemble
        self.model = model
        self.has_members = isinstance(model, Ensemble | MCDropout)
        self.from_logits = self._checked_from_logits(from_logits, subject)
        self.batch_size = _validate.integer("batch_size", batch_size, 1)
        self.subject = subject
        self._variables = model.trainable_variables + model.non_trainable_variables
        # An ensemble has its member's weights, but not its seeds of random numbers.
        known = {id(one) for one in [*self._variables, *self._network().weights]}
        inner = self._network().non_trainable_variables
        self._variables += [one for one in inner if id(one) not in known]
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def _checked_from_logits(self, from_logits: bool, subject: str) -> bool:
        """Return `from_logits`, or raise if the model tells otherwise."""
        _validate.instance("from_logits", from_logits, bool, "True or False")
        if not self.has_members:
            if not from_logits and takes_logits(self.model):
                raise ValueError(
                    "Argument `from_logits` must be True for a model that was compiled "
                    f"with a loss from logits. {checks.SEVERAL_MODELS} Received: "
                    f"from_logits=False, and {subject} with loss={self.model.loss!r}"
                )
            return from_logits
        activation, linear = self.model.activation, keras.activations.linear
        functions = keras.tree.flatten(activation)
        if from_logits and any(each is not linear for each in functions):
            raise ValueError(
                "Argument `from_logits` must be False for an ensemble that converts "
                f"its members' logits to probabilities. {checks.SEVERAL_MODELS} "
                "Received: from_logits=True, and activation="
                f"{_validate.shown(activations.serialized(activation))}"
            )
        if from_logits:
            warn(
                f"{subject} averages the logits of its members, but a posterior "
                "predicts the mean of their probabilities. Make the ensemble with "
                "activation='softmax', or 'sigmoid' for one column, and leave out "
                "`from_logits`."
            )
        return from_logits

    def probabilities(self, x: DataLike) -> Array:
        """Return the class probabilities, a float64 array of shape (N, C), C >= 2."""
        return self.as_probabilities(self.mean_outputs(x))

    def logits(self, x: DataLike) -> Array:
        """Return the logits of inputs, a float64 array of shape (N, C), C >= 2.

        They are the logarithms of the probabilities, raised to 1.2e-38, if the model
        outputs probabilities.
        """
        return self.as_logits(self.mean_outputs(x))

    def mean_outputs(self, x: DataLike) -> Array:
        """Return the outputs, neither checked nor converted, shape (N, columns)."""
        return self._over(self.compiled(_MEAN), x)

    def output_arrays(self, x: DataLike) -> Array:
        """Return the outputs of each member as they are, neither checked nor converted.

        They are a float64 array of shape (N, members, columns). A model without members
        counts as one member.
        """
        function = self.compiled(_EACH if self.has_members else _MEAN)
        outputs = self._over(function, x).astype("float64")
        return outputs if self.has_members else outputs[:, None]

    def outputs_and_information(self, x: InputsLike) -> tuple[Array, Array | None]:
        """Return `mean_outputs` and the mutual information, from one pass.

        The information has the shape (N,), as in `mh.metrics.mutual_information`. It is
        None if the model has no members.
        """
        if not self.has_members:
            return self.mean_outputs(x), None
        weights = self.model.averaging_weights

        def finish(outputs: Array) -> tuple[Array, Array]:
            mean = np.tensordot(weights, outputs.astype("float64"), axes=(0, 1))
            members = self.as_probabilities(outputs.reshape(-1, outputs.shape[2]))
            members = members.reshape(*outputs.shape[:2], -1)
            members = np.moveaxis(members, 1, 0)
            return mean, metrics.mutual_information(members, weights)

        inputs = self.checked_inputs(x)
        pair: tuple[Array, Array]
        pair = self.map(self.compiled(_EACH), inputs, finish=finish)
        return pair

    def redrawn(self, x: DataLike) -> Array:
        """Return class probabilities as `probabilities` does, with new random numbers.

        A model that draws random numbers in inference mode draws others than in
        `probabilities`. `mh.MCDropout` is the exception: its masks are those of its
        seed. The model's state does not change.
        """
        function = self.compiled(_MEAN)
        layers = _backend.inner_layers(self.model)
        masks = [x.mask_seeds.state for x in layers if isinstance(x, MCDropout)]
        fixed = {id(variable) for variable in [*self.model.weights, *masks]}
        is_seed = [id(variable) not in fixed for variable in self._variables]

        def evaluate(x: Tensor, values: Sequence[Tensor]) -> Tensor:
            pairs = zip(values, is_seed, strict=True)
            return function(x, [value + 1 if seed else value for value, seed in pairs])

        return self.as_probabilities(self._over(evaluate, x))

    def checked_inputs(self, x: InputsLike, name: str = "x") -> Inputs:
        """Return `x` as inputs that the model takes, or raise a `ValueError`."""
        return _inputs.as_model_inputs(name, x, self._network())

    @property
    def input_shape(self) -> tuple[int | None, ...] | None:
        """Shape of one input, or None for a network that does not declare it."""
        network = self._network()
        if not isinstance(network, keras.Sequential | keras.Function):
            return None
        return tuple(network.inputs[0].shape[1:]) if len(network.inputs) == 1 else None

    @property
    def takes_integers(self) -> bool:
        """Whether the network declares an input of integers, such as word numbers."""
        return _inputs.declares_integers(self._network())

    def _network(self) -> keras.Model:
        """Return the network inside the model, which knows its inputs."""
        model = self.model
        while isinstance(model, WrapperModel):
            model = model.model
        return model.member if isinstance(model, Ensemble) else model

    def check_member(self, member: int | None) -> int | None:
        """Return `member` if it is a member's index or None, or raise."""
        if member is None:
            return None
        if not self.has_members:
            raise ValueError(
                "Argument `member` must be None for a model without members: only "
                "`mh.Ensemble` and `mh.MCDropout` have some. Received: "
                f"member={member!r}"
            )
        member = _validate.integer("member", member, 0)
        if member >= self.model.num_members:
            raise ValueError(
                f"Argument `member` must be less than {self.model.num_members}, the "
                f"number of members. Received: member={member}"
            )
        return member

    def compiled(self, make: Callable[..., Any], *options: Any) -> Callable[..., Any]:
        """Return `make(classifier, *options)`, a function of tensors, compiled once."""
        key = (make, *options)
        if key not in self._compiled:
            self._compiled[key] = _backend.compile_function(make(self, *options))
        return self._compiled[key]

    def values(self) -> list[Tensor]:
        """Return the values of the trainable and then the non-trainable variables."""
        return list(_backend.read(self._variables))

    def outputs(
        self, x: Tensor, values: Sequence[Tensor], member: Tensor | None = None
    ) -> Tensor:
        """Return the outputs (n, columns) for given `values` of the variables.

        They are those of the whole model, or of a member, whose index is a tensor. The
        model's state does not change. So two calls use the same random numbers.
        """
        with self._with(values):
            if member is None:
                result = self.model(x, training=False)
            else:
                result = self.model.call_member(x, member)
        return checks.as_outputs(self.subject, result, 2)

    def member_outputs(self, x: Tensor, values: Sequence[Tensor]) -> Tensor:
        """Return `outputs` of each member, a tensor of shape (n, members, columns)."""
        with self._with(values):
            result = self.model.call_members(x)
        return ops.moveaxis(checks.as_outputs(self.subject, result, 3), 0, 1)

    def _with(self, values: Sequence[Tensor]) -> keras.StatelessScope:
        mapping = zip(self._variables, values, strict=True)
        return keras.StatelessScope(state_mapping=mapping)

    def map(
        self,
        function: Callable[..., Any],
        *arrays: Inputs,
        finish: Callable[[Any], Any] = lambda outputs: outputs,
    ) -> Any:
        """Return `finish(function(*parts, values))` of all batches, joined.

        `function` takes the batch of each array, or dict or list of arrays, and the
        variables' values. `finish` gets its results as NumPy arrays.
        """
        count = len(keras.tree.flatten(arrays[0])[0])
        size = min(self.batch_size, count)
        values, results = self.values(), []
        for start in range(0, count, size):
            # The last row is repeated to fill the last batch: one shape, one compile.
            rows = np.minimum(np.arange(start, start + size), count - 1)
            outputs = function(*(_inputs.tensors(a, rows) for a in arrays), values)
            outputs = keras.tree.map_structure(ops.convert_to_numpy, outputs)
            results.append(finish(_data.rows(outputs, slice(count - start))))
        return _data.joined(results)

    def _over(self, function: Callable[..., Any], x: DataLike) -> Array:
        """Return `map` over inputs, or over the batches of a data set."""

        def of_arrays(x: InputsLike) -> Any:
            return self.map(function, self.checked_inputs(x))

        outputs: Array = _data.predicted(of_arrays, x, needs_targets=False)[0]
        return outputs

    def as_probabilities(self, outputs: Array) -> Array:
        """Convert outputs to float64 probabilities of shape (N, C), C >= 2."""
        if self.from_logits:
            outputs = self.as_logits(outputs)
            powers = np.exp(outputs - np.max(outputs, axis=1, keepdims=True))
            return powers / np.sum(powers, axis=1, keepdims=True)
        remedy = (
            "Pass from_logits=True if they are logits, or, for a regression, which has "
            "no classes, compile with a loss of `mh.losses` or pass `noise_std`."
        )
        if outputs.shape[1] > 1 and np.all((outputs >= 0.0) & (outputs <= 1.0)):
            remedy = f"Let the model end in a softmax, or {checks.SEVERAL_LABELS}"
        subject = f"{self.subject} has outputs that should be probabilities: they"
        # A softmax in half precision needs the larger tolerance.
        given = outputs.astype("float64"), 1e-2, remedy
        values = checks.as_probabilities(subject, *given)
        if outputs.shape[1] == 1:  # 1 - p of one column is known to float32 only
            values[:, 0] = np.maximum(values[:, 0], checks.ROUNDED)
        return values / np.sum(values, axis=1, keepdims=True)

    def as_logits(self, outputs: Array) -> Array:
        """Convert outputs to finite float64 logits of shape (N, C), C >= 2."""
        if not self.from_logits:
            return np.log(np.clip(self.as_probabilities(outputs), checks.SMALLEST, 1.0))
        is_one = outputs.shape[1] == 1  # of two classes
        is_share = np.all((outputs >= 0.0) & (outputs <= 1.0))
        if is_share and not is_one:
            is_share = np.all(np.abs(np.sum(outputs, axis=1) - 1.0) < 1e-3)
        if is_share and not takes_logits(self.model):
            seen = "" if is_one else f", and all {len(outputs)} rows sum to 1"
            warn(
                f"{self.subject} has outputs that look like probabilities: they lie in "
                f"[0, 1]{seen}. Pass from_logits=False, or a dict for several models."
            )
        outputs = checks.finite_outputs(self.subject, outputs, "logits")
        if is_one:
            outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        return outputs


Model: TypeAlias = keras.Model | Classifier
Models: TypeAlias = Model | Sequence[Model] | Mapping[str, Model]


def as_classifier(
    subject: str, model: Model, from_logits: bool, batch_size: int
) -> Classifier:
    """Return a `Classifier` of a model. A `Classifier` stays as it is."""
    if not isinstance(model, Classifier):
        return Classifier(model, from_logits, batch_size, subject=subject)
    is_default = isinstance(batch_size, int) and batch_size == BATCH_SIZE
    if from_logits is not False or not is_default:
        raise ValueError(
            "Arguments `from_logits` and `batch_size` must be omitted for an "
            "`mh.Classifier`, which has its own. "
            f"Received: from_logits={_validate.shown(from_logits)}, "
            f"batch_size={_validate.shown(batch_size)}"
        )
    return model


def as_classifiers(
    models: Models,
    from_logits: bool | Mapping[str, bool],
    batch_size: int,
    argument: str = "models",
) -> dict[str, Classifier]:
    """Return a `Classifier` for each name, as `named` has them."""
    models = named(models, argument)
    flags = of_each("from_logits", from_logits, models, "True, False", argument)
    return {
        name: as_classifier(
            f"Argument `{argument}[{name!r}]`", model, flags[name], batch_size
        )
        for name, model in models.items()
    }


def of_each(
    name: str, value: Any, models: Mapping[str, Any], kind: str, argument: str
) -> Mapping[str, Any]:
    """Return an argument of each model, of a value for all or a dict of all names."""
    if not isinstance(value, Mapping):
        return dict.fromkeys(models, value)
    if value.keys() != models.keys():
        raise ValueError(
            f"Argument `{name}` must be {kind}, or a dict with the names of "
            f"`{argument}`, {list(models)}. Received: {name}={_validate.shown(value)}"
        )
    return value


def named(models: Models, argument: str = "models") -> Mapping[str, Model]:
    """Return models by name: a model, and each of a list, has its own name."""
    given = [models] if isinstance(models, Model) else models
    if isinstance(given, list | tuple) and all(isinstance(x, Model) for x in given):
        networks = [x.model if isinstance(x, Classifier) else x for x in given]
        names = distinct(network.name for network in networks)
        models = dict(zip(names, given, strict=True))
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            f"Argument `{argument}` must be a model, a list of models, or a dict from "
            'names to models, with at least one model, such as {"ensemble": model}. '
            f"Received: {argument}={_validate.shown(models)}"
        )
    return models
