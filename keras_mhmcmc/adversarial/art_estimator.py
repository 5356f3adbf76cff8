"""Models as estimators of the Adversarial Robustness Toolbox (ART)."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import Literal
from typing import NoReturn

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.adversarial.derivatives import Derivatives
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifiers import as_classifier

if TYPE_CHECKING:
    from art.estimators.classification.classifier import ClassifierNeuralNetwork

Reduction = Literal["none", "mean", "sum"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "mean", "sum")


def art_classifier(
    model: keras.Model | Classifier,
    *,
    input_shape: Sequence[int] | None = None,
    from_logits: bool = False,
    clip: Sequence[float] | None = (0.0, 1.0),
    batch_size: int = 256,
) -> "ClassifierNeuralNetwork":
    """Return an estimator with which the attacks of ART attack a model.

    ART is the Adversarial Robustness Toolbox. Its attacks take and return NumPy
    arrays, so they run on every backend of Keras. The estimator has `predict`,
    `compute_loss`, `loss_gradient` and `class_gradient`. `predict` returns logits. For
    a model that outputs probabilities they are the logarithms of these, and for an
    ensemble those of the mean probability. The loss is the cross-entropy. `fit`
    refuses: train the model with Keras.

    Each call reads the current weights. The model runs in inference mode, and need
    not be compiled. ART's own batch sizes have no effect on the results, and at most
    `batch_size` examples are computed at a time. `mh.MCDropout` is the exception: its
    masks depend on the position of an example in its batch, and a warning says so.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1). It may be an
            `mh.Ensemble`, an `mh.MCDropout` or an `mh.Classifier`.
        input_shape: shape of one input, such as (28, 28, 1). Defaults to None: the
            shape that the model declares. A subclass of `keras.Model` declares none.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        clip: smallest and largest valid input, an increasing pair. Defaults to (0, 1);
            None sets no limits, with which some attacks of ART do not run.
        batch_size: number of examples computed at a time, at least 1. Defaults to 256.

    Returns:
        An estimator with ART's `BaseEstimator`, `NeuralNetworkMixin`,
        `ClassifierMixin`, `LossGradientsMixin` and `ClassGradientsMixin`.

    Raises:
        ValueError: an argument is outside its range, or the model's outputs are not
            probabilities. Gradients raise it for a model that has none.
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
    if isinstance(classifier.model, MCDropout):
        warn(
            "The masks of `mh.MCDropout` depend on the position of an example in its "
            "batch. Attacks of ART that work in batches meet other masks than the "
            "predictions that score them, and look weaker than they are. Give them a "
            "`batch_size` of at least the number of examples, or use the attacks of "
            "`mh.adversarial`, which keep the batches."
        )
    estimator = _estimator_class()
    made: ClassifierNeuralNetwork = estimator(
        Derivatives(classifier, input_shape, limits), limits
    )
    return made


@functools.cache
def _estimator_class() -> type:
    """Return the class of the estimators, or raise an error that names the package."""
    try:
        from art.estimators.classification.classifier import ClassGradientsMixin
        from art.estimators.classification.classifier import ClassifierMixin
        from art.estimators.estimator import BaseEstimator
        from art.estimators.estimator import LossGradientsMixin
        from art.estimators.estimator import NeuralNetworkMixin
    except ImportError as error:
        raise ImportError(
            "An estimator of the Adversarial Robustness Toolbox needs its package: "
            "pip install keras-mhmcmc[art]"
        ) from error

    class KerasEstimator(
        ClassGradientsMixin,
        ClassifierMixin,
        LossGradientsMixin,
        NeuralNetworkMixin,
        BaseEstimator,
    ):
        """A Keras model for the attacks of ART. See `art_classifier`."""

        estimator_params = (
            BaseEstimator.estimator_params
            + NeuralNetworkMixin.estimator_params
            + ClassifierMixin.estimator_params
        )

        def __init__(self, derivatives: Derivatives, limits: checks.Limits) -> None:
            layout = keras.config.image_data_format()
            super().__init__(
                model=derivatives.classifier.model,
                clip_values=limits,
                preprocessing=None,
                channels_first=layout == "channels_first",
            )
            self._derivatives = derivatives
            self._layer_names = None  # hidden layers are not shown to ART
            self.nb_classes = derivatives.classes

        @property
        def input_shape(self) -> tuple[int, ...]:
            """Shape of one input."""
            return self._derivatives.input_shape

        def predict(self, x: npt.ArrayLike, batch_size: int = 128, **_: Any) -> Array:
            """Return logits in float32, shape (N, C).

            Args:
                x: finite inputs, shape (N, ...).
                batch_size: ignored; that of `art_classifier` counts.
            """
            return self._derivatives.logits(x)

        def compute_loss(
            self,
            x: npt.ArrayLike,
            y: npt.ArrayLike,
            reduction: Reduction = "none",
            **_: Any,
        ) -> Array:
            """Return the cross-entropy -log p(y | x).

            Args:
                x: finite inputs, shape (N, ...).
                y: labels, integers of shape (N,) or one-hot rows of shape (N, C).
                reduction: "none" for the loss of each example, shape (N,), or "mean"
                    or "sum". Defaults to "none".
            """
            reduction = _validate.choice("reduction", reduction, REDUCTIONS)
            loss = self._derivatives.loss(x, y)
            if reduction == "none":
                return loss
            return np.asarray(np.mean(loss) if reduction == "mean" else np.sum(loss))

        def loss_gradient(
            self,
            x: npt.ArrayLike,
            y: npt.ArrayLike,
            training_mode: bool = False,
            **_: Any,
        ) -> Array:
            """Return the gradient of each example's loss, in the shape of `x`.

            Args:
                x: finite inputs, shape (N, ...).
                y: labels, integers of shape (N,) or one-hot rows of shape (N, C).
                training_mode: must be False.
            """
            _check_mode(training_mode)
            return self._derivatives.loss_gradient(x, y)

        def class_gradient(
            self,
            x: npt.ArrayLike,
            label: Any = None,
            training_mode: bool = False,
            **_: Any,
        ) -> Array:
            """Return gradients of logits, shape (N, C, ...), or (N, 1, ...).

            Args:
                x: finite inputs, shape (N, ...).
                label: a class, a class of each example, or None for all classes.
                    Defaults to None.
                training_mode: must be False.
            """
            _check_mode(training_mode)
            return self._derivatives.class_gradient(x, label)

        def fit(self, x: Any, y: Any, **_: Any) -> NoReturn:
            """Refuse: the model is trained with Keras."""
            raise NotImplementedError(
                "The estimator of `mh.adversarial.art_classifier` cannot be trained. "
                "Train the model with `model.fit`, or with "
                "`mh.adversarial.training(model, epsilon).fit` on adversarial examples"
            )

        def get_activations(self, x: Any, layer: Any, *_: Any, **__: Any) -> NoReturn:
            """Refuse: only outputs of the model are known."""
            raise NotImplementedError(
                "The estimator of `mh.adversarial.art_classifier` has no activations "
                "of hidden layers. Make a `keras.Model` that outputs them"
            )

        def set_params(self, **changes: Any) -> NoReturn:
            """Refuse: a change would be ignored."""
            raise ValueError(
                "An estimator of `mh.adversarial.art_classifier` must be made anew "
                "with other arguments. It takes no defences of ART: put them into the "
                f"model. Received: {_validate.shown(changes)}"
            )

    return KerasEstimator


def _check_mode(training_mode: bool) -> None:
    if training_mode:
        raise ValueError(
            "Argument `training_mode` must be False: the model runs in inference mode. "
            "For active dropout pass an `mh.MCDropout`. "
            f"Received: training_mode={training_mode!r}"
        )
