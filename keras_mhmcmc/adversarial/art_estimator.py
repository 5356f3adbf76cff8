"""Models as estimators of the Adversarial Robustness Toolbox (ART)."""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NoReturn

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._inputs import as_inputs
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifier import as_classifier

SMALLEST_SHARE = 1e-20  # of the other classes: the sign of the gradient remains


def art_classifier(
    model: keras.Model | Classifier,
    *,
    input_shape: Sequence[int] | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> Any:
    """Return an estimator with which the attacks of ART attack a model.

    It outputs logits: those of an ensemble are the logarithms of the mean probability.
    Its loss is the cross-entropy. Each call reads the current weights, in inference
    mode. For an `mh.MCDropout`, whose masks depend on the place in a batch, give the
    attacks a `batch_size` of at least the number of examples.

    Args:
        model: as in `fgsm`.
        input_shape: shape of one input. Defaults to None: the one that the model
            declares, as a subclass of `keras.Model` does not.
        from_logits: as in `fgsm`.
        clip: as in `fgsm`. Some attacks of ART do not run without limits.
        batch_size: as in `fgsm`.

    Raises:
        ValueError: as in `fgsm`. Gradients raise it for a model that has none.
        ImportError: ART is not installed.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from art.attacks.evasion import FastGradientMethod
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    >>> attack = FastGradientMethod(art_classifier(model), eps=0.25)
    >>> attack.generate(np.array([[0.75, 0.5]]), y=np.array([0]))
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Nicolae et al. (2018), "Adversarial Robustness Toolbox v1.0.0".
    """
    limits = checks.as_limits(clip)
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    objective.refuse_integers(classifier)
    declared = classifier.input_shape if input_shape is None else input_shape
    hint = "the shape of one input"
    lengths: Any = _validate.instance("input_shape", declared, (list, tuple), hint)
    shape = [_validate.integer("input_shape", length, 1) for length in lengths]
    return _estimator_class()(classifier, shape, limits)


@functools.cache
def _estimator_class() -> type:
    """Return the class of the estimators, or raise an error that names the package."""
    try:
        from art.estimators import estimator as parts
        from art.estimators.classification import classifier as of_classifiers
    except ImportError as error:
        raise ImportError(
            "An estimator of the Adversarial Robustness Toolbox needs its package: "
            "pip install keras-mhmcmc[art]"
        ) from error
    of_art = of_classifiers.ClassGradientsMixin, of_classifiers.ClassifierMixin

    class KerasEstimator(
        *of_art, parts.LossGradientsMixin, parts.NeuralNetworkMixin, parts.BaseEstimator
    ):
        """A Keras model for the attacks of ART. See `art_classifier`."""

        def __init__(self, classifier: Classifier, shape: Any, limits: Any) -> None:
            first = keras.config.image_data_format() == "channels_first"
            given = {"model": classifier.model, "clip_values": limits}
            super().__init__(channels_first=first, **given)
            self._classifier, self._shape, self._layer_names = classifier, shape, None
            middle = np.mean(np.clip(limits or (0.0, 1.0), -1e3, 1e3))
            # This refuses a regression, whose outputs are no probabilities.
            some = np.full((2, *shape), middle, "float32")
            self.nb_classes = classifier.probabilities(some).shape[1]

        @property
        def input_shape(self) -> tuple[int, ...]:
            return tuple(self._shape)

        def predict(self, x: Any, batch_size: int = 128, **_: Any) -> Array:
            x = self._inputs(x)
            logits = self._classifier.logits(x[self._rows(len(x))])
            return logits[: len(x)].astype("float32")

        def compute_loss(self, x: Any, y: Any, reduction: str = "none") -> Any:
            loss = np.logaddexp(0.0, self._ascent(x, y)[1]).astype("float32")
            return loss if reduction == "none" else getattr(np, reduction)(loss)

        def loss_gradient(self, x: Any, y: Any, **_: Any) -> Array:
            """Return (1 - p(y | x)) times the gradient of the log odds."""
            gradients, odds, labels = self._ascent(x, y)
            counts = objective.faults(gradients)
            given = self._classifier, self._inputs(x), labels, *counts
            # An attack may ask for one example at a time, of which one has none.
            objective.check_gradients(*given, has_gradient=len(labels) == 1)
            share = np.maximum(np.exp(-np.logaddexp(0.0, -odds)), SMALLEST_SHARE)
            share = share.reshape(-1, *[1] * (gradients.ndim - 1))
            return (share * gradients).astype("float32")

        def class_gradient(self, x: Any, label: Any = None, **_: Any) -> Array:
            x = self._inputs(x)
            asked = range(self.nb_classes) if label is None else [label]
            rows = [np.broadcast_to(k, len(x)).astype("int32") for k in asked]
            function = self._classifier.compiled(_gradient_of_logits)
            return np.stack([self._map(function, x, k) for k in rows], axis=1)

        def fit(self, *_: Any, **__: Any) -> NoReturn:
            raise NotImplementedError(
                "Train with the `fit` of the Keras model. For activations make a "
                "`keras.Model` that outputs them"
            )

        get_activations = fit

        def set_params(self, **changes: Any) -> NoReturn:
            raise ValueError(
                "An estimator of `mh.adversarial.art_classifier` takes no defences of "
                "ART: put them into the model, and make the estimator anew. Received: "
                f"{_validate.shown(changes)}"
            )

        def _inputs(self, x: Any) -> Array:
            return np.asarray(self._classifier.checked_inputs(as_inputs("x", x)))

        def _ascent(self, x: Any, y: Any) -> tuple[Array, Array, Array]:
            """Return the gradients of the log odds against labels, these, labels."""
            x = self._inputs(x)
            labels = checks.as_labels("y", y, len(x), self.nb_classes).astype("int32")
            function = self._classifier.compiled(objective.ascent, False)
            index = objective.index(None)
            found = self._map(lambda x, y, v: function(x, y, index, v), x, labels)
            return found[0], found[1].astype("float64"), labels

        def _rows(self, count: int) -> Array:
            """Repeat the last row up to a power of two: few shapes are compiled."""
            size = min(1 << (count - 1).bit_length(), self._classifier.batch_size)
            return np.minimum(np.arange(max(count, size)), count - 1)

        def _map(self, function: Callable[..., Any], x: Array, y: Array) -> Any:
            rows = self._rows(len(x))
            results = self._classifier.map(function, x[rows], y[rows])
            return keras.tree.map_structure(lambda part: part[: len(x)], results)

    return KerasEstimator


def _gradient_of_logits(classifier: Classifier) -> Callable[..., Tensor]:
    def chosen(x: Tensor, labels: Tensor, values: Any) -> tuple[Tensor, Tensor]:
        outputs = classifier.outputs(x, values)
        logits = objective.outputs_and_logits(outputs, classifier.from_logits)[1]
        logits = ops.sum(ops.where(objective.is_class(logits, labels), logits, 0.0), 1)
        # The second term makes the gradient zero, not None, if outputs ignore x.
        return ops.sum(logits) + 0.0 * ops.sum(x), logits

    differentiate = _backend.gradient_and_more(chosen)
    return lambda x, labels, values: differentiate(x, labels, values)[0]
