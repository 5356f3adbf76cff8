"""Models for the attacks of the Adversarial Robustness Toolbox (ART).

ART asks an estimator for logits, the loss and its gradient with respect to the inputs,
and the gradient of each class's logit. The logits of an ensemble are the logarithms of
the mean probabilities: an attack is on the whole ensemble.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial.losses import two_columns
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.checks import SMALLEST
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifiers import as_classifier


def art_classifier(
    model: keras.Model | Classifier,
    *,
    input_shape: Sequence[int] | None = None,
    from_logits: bool = False,
    clip: Sequence[float] = (0.0, 1.0),
    batch_size: int = 256,
) -> Any:
    """Return a model or an ensemble as an estimator of ART, for ART's attacks.

    FGSM, PGD, Auto-PGD, DeepFool, Square and HopSkipJump of ART run on the estimator.
    Give ART's Auto-PGD `loss_type=None`: its other losses know ART's own estimators
    only. The estimator is for attacks. It does not train.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1); or an
            `mh.Classifier` of such a model.
        input_shape: shape of one input, without the batch axis. Defaults to None, the
            shape that a Sequential or functional model declares.
        from_logits: whether the model outputs logits instead of probabilities. Defaults
            to False.
        clip: smallest and largest valid input, an increasing pair. Defaults to (0, 1).
        batch_size: number of inputs to evaluate at once, at least 1. Defaults to 256.

    Returns:
        An `art.estimators.BaseEstimator` with loss gradients and class gradients.

    Raises:
        ImportError: ART is not installed.
        ValueError: an argument is outside its range, or `input_shape` is needed.

    Example, with ART installed:

    ```python
    from art.attacks.evasion import ProjectedGradientDescent

    estimator = mh.adversarial.art_classifier(ensemble)
    attack = ProjectedGradientDescent(estimator, eps=0.1, eps_step=0.01, max_iter=50)
    x_attacked = attack.generate(x_test, y_test)
    ```

    Reference: Nicolae et al. (2018), "Adversarial Robustness Toolbox v1.0.0", arXiv
    1807.01069.
    """
    classifier = as_classifier("Argument `model`", model, from_logits, batch_size)
    limits = checks.as_limits(clip, is_bounded=True)
    shape = _checked_shape(input_shape, classifier)
    return _estimator_class()(classifier, shape, limits)


def _checked_shape(
    input_shape: Sequence[int] | None, classifier: Classifier
) -> tuple[int, ...]:
    if input_shape is None:
        declared = classifier.declared_input_shape()
        sizes = tuple(size for size in declared or () if size is not None)
        if declared is None or len(sizes) < len(declared):
            raise ValueError(
                "Argument `input_shape` must be given for a model that does not "
                "declare the shape of its inputs, such as a subclass of `keras.Model`. "
                f"Received: input_shape=None, model={classifier.model!r}"
            )
        return sizes
    _validate.instance("input_shape", input_shape, (list, tuple), "a tuple of integers")
    return tuple(_validate.integer("input_shape", size, 1) for size in input_shape)


def _loss_and_gradient(classifier: Classifier) -> Callable[..., Any]:
    """Return a function of inputs and one-hot labels: the gradient and the loss."""

    def objective(
        x: Tensor, labels: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        logits = _logits(classifier, x, values)
        loss = ops.logsumexp(logits, axis=1) - ops.sum(labels * logits, axis=1)
        return ops.sum(loss) + 0.0 * ops.sum(x), loss

    return _backend.gradient_and_more(objective)


def _gradient_of_weighted_logits(classifier: Classifier) -> Callable[..., Any]:
    """Return a function of inputs and factors (n, C): the gradient of their product."""

    def objective(
        x: Tensor, factors: Tensor, values: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor]:
        logits = _logits(classifier, x, values)
        return ops.sum(factors * logits) + 0.0 * ops.sum(x), logits

    return _backend.gradient_and_more(objective)


def _logits(classifier: Classifier, x: Tensor, values: Sequence[Tensor]) -> Tensor:
    """Return logits (n, C). Those of probabilities are their logarithms."""
    outputs = two_columns(classifier.outputs(x, values), classifier.from_logits)
    if classifier.from_logits:
        return outputs
    return ops.log(ops.maximum(outputs, SMALLEST))


@functools.cache
def _estimator_class() -> Any:
    """Return the class of the estimators. ART is imported here, once."""
    try:
        from art.estimators.classification.classifier import ClassGradientsMixin
        from art.estimators.classification.classifier import ClassifierMixin
        from art.estimators.estimator import BaseEstimator
        from art.estimators.estimator import LossGradientsMixin
        from art.estimators.estimator import NeuralNetworkMixin
    except ImportError as error:
        raise ImportError(
            "`art_classifier` needs the Adversarial Robustness Toolbox: "
            "pip install adversarial-robustness-toolbox"
        ) from error

    class KerasClassifier(
        ClassGradientsMixin,
        ClassifierMixin,
        LossGradientsMixin,
        NeuralNetworkMixin,
        BaseEstimator,
    ):
        """A classifier whose logits, losses and gradients ART's attacks ask for."""

        def __init__(
            self,
            classifier: Classifier,
            input_shape: tuple[int, ...],
            limits: checks.Limits,
        ) -> None:
            super().__init__(
                model=classifier.model, clip_values=limits, channels_first=False
            )
            self._classifier = classifier
            self._input_shape = input_shape
            low, _ = limits or (0.0, 1.0)
            example = np.full((1, *input_shape), low, "float32")
            self.nb_classes = classifier.logits(example).shape[1]

        @property
        def input_shape(self) -> tuple[int, ...]:
            """Shape of one input."""
            return self._input_shape

        def predict(self, x: Array, batch_size: int = 128, **kwargs: Any) -> Array:
            """Return logits, shape (N, C)."""
            return self._classifier.logits(x).astype("float32")

        def fit(self, x: Any, y: Any, **kwargs: Any) -> None:
            """Refuse to train."""
            raise NotImplementedError(
                "An estimator of `mh.adversarial.art_classifier` does not train. Train "
                "the Keras model with `fit`, and for adversarial training wrap it in "
                "`mh.adversarial.training` before."
            )

        def get_activations(self, x: Array, layer: Any, **kwargs: Any) -> Array:
            """Refuse: attacks that read hidden layers are not supported."""
            raise NotImplementedError(
                "An estimator of `mh.adversarial.art_classifier` has no activations of "
                "hidden layers. Build a `keras.Model` that outputs them."
            )

        def compute_loss(
            self, x: Array, y: npt.ArrayLike, reduction: str = "none", **kwargs: Any
        ) -> Any:
            """Return the cross-entropy of each input, or their mean or sum."""
            _validate.choice("reduction", reduction, ("none", "mean", "sum"))
            loss = self._evaluate(_loss_and_gradient, x, self._one_hot(y, x))[1]
            if reduction == "none":
                return loss
            return loss.mean() if reduction == "mean" else loss.sum()

        def loss_gradient(self, x: Array, y: npt.ArrayLike, **kwargs: Any) -> Array:
            """Return the gradient of each input's cross-entropy, the shape of `x`."""
            return self._evaluate(_loss_and_gradient, x, self._one_hot(y, x))[0]

        def class_gradient(self, x: Array, label: Any = None, **kwargs: Any) -> Array:
            """Return gradients of logits, shape (N, classes, ...).

            All classes for `label=None`; otherwise the class `label`, or one for each
            input.
            """
            classes = self.nb_classes
            if label is None:
                wanted = [np.full(len(x), one) for one in range(classes)]
            else:
                wanted = [np.broadcast_to(np.ravel(label), len(x))]
            gradients = [
                self._evaluate(_gradient_of_weighted_logits, x, np.eye(classes)[one])[0]
                for one in wanted
            ]
            return np.stack(gradients, axis=1)

        def _one_hot(self, y: npt.ArrayLike, x: Array) -> Array:
            labels = checks.as_labels("y", y, len(x), self.nb_classes)
            return np.eye(self.nb_classes)[labels]

        def _evaluate(
            self, make: Callable[..., Any], x: Array, factors: Array
        ) -> tuple[Array, Array]:
            x = self._classifier.checked_inputs(x)
            function = self._classifier.compiled(make)
            result: tuple[Array, Array] = self._classifier.map(
                function, x, factors.astype("float32")
            )
            return result

    return KerasClassifier
