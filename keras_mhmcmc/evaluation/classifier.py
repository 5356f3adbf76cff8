"""`Classifier`: a model's class probabilities, from compiled batches of one shape."""

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.parallel.stacked_model import StackedModel

WITH_MEMBERS = (Ensemble, MCDropout)
BATCH_SIZE = 256


class Classifier:
    """A model whose class probabilities and gradients are compiled once.

    Attacks and `mh.evaluate` make one of each model that they get, and so compile it
    at each call. Give them a `Classifier` in place of the model to compile it once for
    many calls. Weights are read anew at each call; after any other change of the model
    make a new one.

    Args:
        model: built `keras.Model` from inputs to class probabilities of shape (N, C),
            or to the probability of class 1 of two, of shape (N, 1). It runs in
            inference mode; an `mh.Ensemble` or `mh.MCDropout` has members, too.
        from_logits: whether the model outputs logits in place of probabilities.
        batch_size: number of examples computed at a time, at least 1. Memory grows
            with it.
        subject: how errors name the model.

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
        model,
        from_logits=False,
        batch_size=BATCH_SIZE,
        *,
        subject="Argument `model`",
    ):
        if not isinstance(model, keras.Model) or not model.built:
            raise ValueError(
                f"{subject} must be a `keras.Model` that is built. Call it on a batch "
                f"of inputs, or train it, first. Received: {model!r}"
            )
        if isinstance(model, StackedModel):
            raise ValueError(
                f"{subject} must be one network or an ensemble. Pass "
                "`posterior.ensemble(chains)`, or `chains.template` for one of them. "
                f"Received: {model!r}"
            )
        self.model = model
        self.from_logits = _validate.instance(
            "from_logits", from_logits, bool, "True or False"
        )
        is_ensemble = isinstance(model, Ensemble)
        if from_logits and is_ensemble and not activations.is_linear(model.activation):
            raise ValueError(
                "Argument `from_logits` must be False for an ensemble that turns the "
                "logits of its members into probabilities. For several models pass a "
                'dict, such as {"network": True, "ensemble": False}. Received: '
                f"from_logits=True, and activation={_named(model.activation)}"
            )
        self.batch_size = _validate.integer("batch_size", batch_size, 1)
        self.subject = subject
        self.has_members = isinstance(model, WITH_MEMBERS)
        self._variables = model.trainable_variables + model.non_trainable_variables
        self._compiled = {}

    def probabilities(self, x):
        """Class probabilities of inputs, a float64 array of shape (N, C), C >= 2.

        Args:
            x: inputs, finite, N examples along the first axis.

        Raises:
            ValueError: `x` is something else, or the model's outputs are no
                probabilities.
        """
        x = self.checked_inputs(x)
        return self._as_probabilities(self.map(self.compiled(_mean_outputs), x))

    def probabilities_and_information(self, x):
        """Class probabilities, and the members' mutual information of each example.

        Both come from one pass. The information is None for a model without members.

        Args:
            x: inputs, finite, N examples along the first axis.

        Raises:
            ValueError: as in `probabilities`.
        """
        x = self.checked_inputs(x)
        if not self.has_members:
            return self.probabilities(x), None
        weights = self.model.averaging_weights
        probabilities, information = [], []
        for outputs in self.batches(self.compiled(_member_outputs), x):
            mean = np.tensordot(weights, outputs.astype("float64"), axes=(0, 1))
            probabilities.append(self._as_probabilities(mean))
            shape = (-1, outputs.shape[2])
            members = self._as_probabilities(outputs.reshape(shape))
            members = members.reshape(*outputs.shape[:2], -1)
            members = np.moveaxis(members, 1, 0)
            information.append(metrics.mutual_information(members, weights))
        return np.concatenate(probabilities), np.concatenate(information)

    def checked_inputs(self, x):
        """`x` as float32 inputs of the shape that the model takes."""
        x = as_inputs("x", x)
        model = self.model
        if isinstance(model, Ensemble):
            model = model.member
        elif isinstance(model, MCDropout):
            model = model.model
        _validate.examples("x", x.shape, model)
        return x

    def check_member(self, member):
        """`member` as the index of a member, or None for the model as a whole."""
        if member is None:
            return None
        count = self.model.num_members if self.has_members else 0
        if not count:
            raise ValueError(
                "Argument `member` must be None for a model without members; "
                "`mh.Ensemble` and `mh.MCDropout` have some. "
                f"Received: member={member!r}"
            )
        member = _validate.integer("member", member, 0)
        if member >= count:
            raise ValueError(
                f"Argument `member` must be less than {count}, the number of members. "
                f"Received: member={member}"
            )
        return member

    def compiled(self, make, *options):
        """`make(classifier, *options)`, a function of tensors, compiled once."""
        key = (make, *options)
        if key not in self._compiled:
            self._compiled[key] = _backend.compile_function(make(self, *options))
        return self._compiled[key]

    def outputs(self, x, values, member=None):
        """Outputs in float32 of shape (n, columns), for these values of the weights.

        `member` is the index of a member as a tensor. State of the model, such as that
        of its random numbers, stays as it is: two calls draw the same.
        """
        mapping = zip(self._variables, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            if member is None:
                result = self.model(x, training=False)
            else:
                result = self.model.call_member(x, member)
        return self._checked(result, 2)

    def member_outputs(self, x, values):
        """Outputs of each member, in float32 of shape (n, members, columns)."""
        mapping = zip(self._variables, values, strict=True)
        with keras.StatelessScope(state_mapping=mapping):
            result = self.model.call_members(x)
        return ops.moveaxis(self._checked(result, 3), 0, 1)

    def batches(self, function, *arrays):
        """`function(*parts, weights)` for batches of the arrays, as NumPy arrays."""
        count = len(arrays[0])
        size = min(self.batch_size, count)
        values = _backend.read(self._variables)
        for start in range(0, count, size):
            # Repeats of the last row fill the last batch.
            rows = np.minimum(np.arange(start, start + size), count - 1)
            parts = [ops.convert_to_tensor(array[rows]) for array in arrays]
            outputs = function(*parts, values)
            yield keras.tree.map_structure(
                lambda part, stop=count - start: ops.convert_to_numpy(part)[:stop],
                outputs,
            )

    def map(self, function, *arrays):
        """The results of `batches`, concatenated."""
        parts = list(self.batches(function, *arrays))
        return keras.tree.map_structure(lambda *rows: np.concatenate(rows), *parts)

    def _checked(self, result, rank):
        if not ops.is_tensor(result) or len(result.shape) != rank:
            shapes = keras.tree.map_structure(lambda y: tuple(y.shape), result)
            raise ValueError(
                f"{self.subject} must output one tensor of shape (examples, classes). "
                f"Received: outputs of the shape {shapes}"
            )
        return ops.cast(result, "float32")

    def _as_probabilities(self, outputs):
        """Float64 probabilities of shape (N, C), C >= 2, of the model's outputs."""
        outputs = outputs.astype("float64")
        if not self.from_logits:
            remedy = (
                "If the model outputs logits, pass from_logits=True, or for several "
                'models a dict, such as {"network": True, "ensemble": False}.'
            )
            subject = f"{self.subject} outputs what should be probabilities, which"
            # The looser tolerance is for a softmax in half precision.
            values = metrics.as_probabilities(subject, outputs, 1e-2, remedy)
            return values / np.sum(values, axis=1, keepdims=True)
        if not np.all(np.isfinite(outputs)):
            raise ValueError(
                f"{self.subject} must output finite logits. Check its weights. "
                f"Received: {np.sum(~np.isfinite(outputs))} outputs that are not finite"
            )
        if outputs.shape[1] == 1:
            outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        powers = np.exp(outputs - np.max(outputs, axis=1, keepdims=True))
        return powers / np.sum(powers, axis=1, keepdims=True)


def as_classifier(subject, model, from_logits, batch_size):
    """A `Classifier` of a model; one that is given stays as it is."""
    if not isinstance(model, Classifier):
        return Classifier(model, from_logits, batch_size, subject=subject)
    is_default = isinstance(batch_size, int) and batch_size == BATCH_SIZE
    if from_logits is not False or not is_default:
        raise ValueError(
            "Arguments `from_logits` and `batch_size` must be left away for an "
            "`mh.Classifier`, which has its own. "
            f"Received: from_logits={_validate.shown(from_logits)}, "
            f"batch_size={_validate.shown(batch_size)}"
        )
    return model


def as_classifiers(models, from_logits, batch_size):
    """A `Classifier` for each name of a dict of models."""
    if not isinstance(models, dict) or not models:
        raise ValueError(
            "Argument `models` must be a dict from names to models, with at least one, "
            'such as {"ensemble": model}. Received: models='
            f"{_validate.shown(models)}"
        )
    if not isinstance(from_logits, dict):
        from_logits = dict.fromkeys(models, from_logits)
    if from_logits.keys() != models.keys():
        raise ValueError(
            "Argument `from_logits` must be True, False, or a dict with the names of "
            f"`models`, which are {list(models)}. Received: from_logits="
            f"{_validate.shown(from_logits)}"
        )
    return {
        name: as_classifier(
            f"Argument `models[{name!r}]`", model, from_logits[name], batch_size
        )
        for name, model in models.items()
    }


def _named(activation):
    return _validate.shown(activations.serialized(activation))


def as_inputs(name, x):
    """Finite float32 inputs of at least one example, or a `ValueError`."""
    if isinstance(x, dict) or (isinstance(x, tuple) and np.ndim(x[0]) > 1):
        raise ValueError(
            f"Argument `{name}` must be one array: models of several inputs are not "
            "scored or attacked here. Give `mh.metrics` the predictions of "
            "`ensemble.predict_members`. Received: several arrays"
        )
    x = _validate.array(f"Argument `{name}`", x, "float32")
    if x.ndim == 0 or x.size == 0:
        raise ValueError(
            f"Argument `{name}` must have at least one example, along its first axis. "
            f"Received: shape {x.shape}"
        )
    if not np.all(np.isfinite(x)):
        raise ValueError(
            f"Argument `{name}` must be finite. Drop or fill the examples that are "
            f"not. Received: {np.sum(~np.isfinite(x))} values that are NaN or infinite"
        )
    return x


def _mean_outputs(classifier):
    return lambda x, values: classifier.outputs(x, values)


def _member_outputs(classifier):
    return lambda x, values: classifier.member_outputs(x, values)
