"""`Classifier`: a model's class probabilities, computed in compiled batches."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _data
from keras_mhmcmc import _inputs
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import Inputs
from keras_mhmcmc._inputs import as_model_inputs
from keras_mhmcmc._inputs import declares_integers
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc._types import InputsLike
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.ensemble.compile import takes_logits
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.ensemble.wrapper import WithEnsemble
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.checks import as_outputs
from keras_mhmcmc.evaluation.checks import outputs_as_probabilities
from keras_mhmcmc.evaluation.checks import warn_of_probabilities
from keras_mhmcmc.evaluation.logits import WITH_MEMBERS
from keras_mhmcmc.evaluation.logits import checked_from_logits
from keras_mhmcmc.evaluation.scaled import TemperatureScaled
from keras_mhmcmc.parallel.stacked_model import StackedModel

BATCH_SIZE = 256


class Classifier:
    """A model whose class probabilities and gradients are compiled once.

    Attacks and `mh.evaluate` wrap each model in a `Classifier`, and compile it in each
    call. Pass a `Classifier` in place of the model to compile only once. Each call
    reads the current weights. After any other change of the model make a new
    `Classifier`.

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
        if not isinstance(model, keras.Model) or not model.built:
            raise ValueError(
                f"{subject} must be a `keras.Model` that is built. Call it on a batch "
                f"of inputs, or train it, first. Received: {model!r}"
            )
        if isinstance(model, StackedModel):
            raise ValueError(
                f"{subject} must be one network or an ensemble. Pass "
                "`posterior.ensemble(chains)`, or `chains.template` for one chain. "
                f"Received: {model!r}"
            )
        if isinstance(model, WithEnsemble):
            model = model.ensemble
        self.model = model
        self.from_logits = checked_from_logits(model, from_logits, subject)
        self.batch_size = _validate.integer("batch_size", batch_size, 1)
        self.subject = subject
        self.has_members = isinstance(model, WITH_MEMBERS)
        self._variables = model.trainable_variables + model.non_trainable_variables
        # An ensemble has its member's weights, but not its seeds of random numbers.
        known = {id(one) for one in [*self._variables, *self._network().weights]}
        inner = self._network().non_trainable_variables
        self._variables += [one for one in inner if id(one) not in known]
        self._compiled: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def probabilities(self, x: DataLike) -> Array:
        """Return the class probabilities of inputs.

        Args:
            x: finite inputs, shape (N, ...), or a dict or list of them; or a data set
                that `fit` takes and that ends, of which the targets are left out.

        Returns:
            A float64 array of shape (N, C), C >= 2.

        Raises:
            ValueError: `x` has another type or shape, or the model's outputs are not
                probabilities.
        """
        return self.as_probabilities(self.mean_outputs(x))

    def mean_outputs(self, x: DataLike) -> Array:
        """Return the outputs, neither checked nor converted, shape (N, columns).

        Args:
            x: as in `probabilities`.
        """
        return self._over(self.compiled(_mean_outputs), x)

    def redrawn(self, x: DataLike) -> Array:
        """Return class probabilities as `probabilities` does, with new random numbers.

        A model that draws random numbers in inference mode draws others than in
        `probabilities`. `mh.MCDropout` is the exception: its masks are those of its
        seed. The model's state does not change.

        Args:
            x: as in `probabilities`.

        Raises:
            ValueError: as in `probabilities`.
        """
        function = self.compiled(_mean_outputs)
        layers = _backend.inner_layers(self.model)
        masks = [x.mask_seeds.state for x in layers if isinstance(x, MCDropout)]
        fixed = {id(variable) for variable in [*self.model.weights, *masks]}
        is_seed = [id(variable) not in fixed for variable in self._variables]

        def evaluate(x: Tensor, values: Sequence[Tensor]) -> Tensor:
            others = [
                value + 1 if other else value
                for value, other in zip(values, is_seed, strict=True)
            ]
            return function(x, others)

        return self.as_probabilities(self._over(evaluate, x))

    def outputs_and_information(self, x: InputsLike) -> tuple[Array, Array | None]:
        """Return `mean_outputs` and the mutual information, from one pass.

        Args:
            x: finite inputs, shape (N, ...), or a dict or list of them.

        Returns:
            `(outputs, information)`: the outputs as in `mean_outputs`, and an array of
            shape (N,) as in `mh.metrics.mutual_information`, or None if the model has
            no members.

        Raises:
            ValueError: as in `probabilities`.
        """
        if not self.has_members:
            return self.mean_outputs(x), None
        weights = self.model.averaging_weights
        parts = []
        inputs = self.checked_inputs(x)
        for outputs in self.batches(self.compiled(_member_outputs), inputs):
            mean = np.tensordot(weights, outputs.astype("float64"), axes=(0, 1))
            shape = (-1, outputs.shape[2])
            members = self.as_probabilities(outputs.reshape(shape))
            members = members.reshape(*outputs.shape[:2], -1)
            members = np.moveaxis(members, 1, 0)
            parts.append((mean, metrics.mutual_information(members, weights)))
        pair: tuple[Array, Array] = _data.joined(parts)
        return pair

    def output_arrays(self, x: DataLike) -> Array:
        """Return the outputs of each member as they are, neither checked nor converted.

        Args:
            x: as in `probabilities`.

        Returns:
            A float64 array of shape (N, members, columns). A model without members
            counts as one member.

        Raises:
            ValueError: `x` has another type or shape.
        """
        of = _member_outputs if self.has_members else _mean_outputs
        outputs = self._over(self.compiled(of), x).astype("float64")
        return outputs if self.has_members else outputs[:, None]

    def logits(self, x: DataLike) -> Array:
        """Return the logits of inputs, a float64 array of shape (N, C), C >= 2.

        They are the logarithms of the probabilities, raised to 1.2e-38, if the model
        outputs probabilities.

        Args:
            x: as in `probabilities`.

        Raises:
            ValueError: as in `probabilities`.
        """
        return self.as_logits(self.mean_outputs(x))

    def checked_inputs(self, x: InputsLike, name: str = "x") -> Inputs:
        """Return `x` as inputs that the model takes, or raise a `ValueError`.

        Args:
            x: finite inputs, shape (N, ...); for a model with several inputs a dict or
                list of arrays.
            name: name of the argument, for errors.
        """
        return as_model_inputs(name, x, self._network())

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
        return declares_integers(self._network())

    def _network(self) -> keras.Model:
        """Return the network inside the model, which knows its inputs."""
        model = self.model
        if isinstance(model, TemperatureScaled):
            model = model.model
        if isinstance(model, Ensemble):
            return model.member
        return model.model if isinstance(model, MCDropout) else model

    def check_member(self, member: int | None) -> int | None:
        """Return `member` if it is a member's index or None, or raise a `ValueError`.

        Args:
            member: index of a member, or None for the whole model.
        """
        if member is None:
            return None
        count = self.model.num_members if self.has_members else 0
        if not count:
            raise ValueError(
                "Argument `member` must be None for a model without members. Only "
                "`mh.Ensemble` and `mh.MCDropout` have members. "
                f"Received: member={member!r}"
            )
        member = _validate.integer("member", member, 0)
        if member >= count:
            raise ValueError(
                f"Argument `member` must be less than {count}, the number of members. "
                f"Received: member={member}"
            )
        return member

    def compiled(self, make: Callable[..., Any], *options: Any) -> Callable[..., Any]:
        """Return `make(classifier, *options)`, a function of tensors, compiled once.

        Args:
            make: function that returns the function to compile.
            *options: further hashable arguments of `make`.
        """
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
        """Return the model's outputs for given values of its variables.

        The model's state does not change. So two calls use the same random numbers.

        Args:
            x: inputs, shape (n, ...).
            values: values of the trainable and then the non-trainable variables.
            member: index of a member as a tensor, or None for the whole model.

        Returns:
            A float32 tensor of shape (n, columns).
        """
        mapping = zip(self._variables, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            if member is None:
                result = self.model(x, training=False)
            else:
                result = self.model.call_member(x, member)
        return as_outputs(self.subject, result, 2)

    def member_outputs(self, x: Tensor, values: Sequence[Tensor]) -> Tensor:
        """Return the outputs of each member for given values of the variables.

        Args:
            x: inputs, shape (n, ...).
            values: as in `outputs`.

        Returns:
            A float32 tensor of shape (n, members, columns).
        """
        mapping = zip(self._variables, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            result = self.model.call_members(x)
        return ops.moveaxis(as_outputs(self.subject, result, 3), 0, 1)

    def batches(self, function: Callable[..., Any], *arrays: Inputs) -> Iterator[Any]:
        """Yield `function(*parts, values)` for each batch, as NumPy arrays.

        Args:
            function: takes the batch of each array, and the variables' values.
            *arrays: arrays of equal lengths, or dicts or lists of such arrays.
        """
        count = len(keras.tree.flatten(arrays[0])[0])
        size = min(self.batch_size, count)
        values = self.values()
        for start in range(0, count, size):
            # The last row is repeated to fill the last batch: one shape, one compile.
            rows = np.minimum(np.arange(start, start + size), count - 1)
            parts = [_inputs.tensors(array, rows) for array in arrays]
            outputs = function(*parts, values)
            yield keras.tree.map_structure(
                lambda part, stop=count - start: ops.convert_to_numpy(part)[:stop],
                outputs,
            )

    def map(self, function: Callable[..., Any], *arrays: Inputs) -> Any:
        """Return the concatenated results of `batches`.

        Args:
            function: as in `batches`.
            *arrays: as in `batches`.
        """
        return _data.joined(self.batches(function, *arrays))

    def _over(self, function: Callable[..., Any], x: DataLike) -> Array:
        """Return `map` over inputs, or over the batches of a data set."""

        def of_arrays(x: InputsLike) -> Any:
            return self.map(function, self.checked_inputs(x))

        outputs: Array = _data.predicted(of_arrays, x, needs_targets=False)[0]
        return outputs

    def as_probabilities(self, outputs: Array) -> Array:
        """Convert outputs to float64 probabilities of shape (N, C), C >= 2."""
        if not self.from_logits:
            return outputs_as_probabilities(self.subject, outputs)
        outputs = self.as_logits(outputs)
        powers = np.exp(outputs - np.max(outputs, axis=1, keepdims=True))
        return powers / np.sum(powers, axis=1, keepdims=True)

    def as_logits(self, outputs: Array) -> Array:
        """Convert outputs to finite float64 logits of shape (N, C), C >= 2."""
        if not self.from_logits:
            return np.log(np.clip(self.as_probabilities(outputs), SMALLEST, 1.0))
        if not takes_logits(self.model):
            warn_of_probabilities(self.subject, outputs)
        outputs = outputs.astype("float64")
        if not np.all(np.isfinite(outputs)):
            raise ValueError(
                f"{self.subject} must output finite logits. Check its weights. "
                f"Received: {np.sum(~np.isfinite(outputs))} outputs that are NaN or "
                "infinite"
            )
        if outputs.shape[1] == 1:
            outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        return outputs


def _mean_outputs(classifier: Classifier) -> Callable[..., Tensor]:
    return lambda x, values: classifier.outputs(x, values)


def _member_outputs(classifier: Classifier) -> Callable[..., Tensor]:
    return lambda x, values: classifier.member_outputs(x, values)
