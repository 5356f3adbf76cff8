"""Models for the attacks of Foolbox."""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import keras
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.adversarial import derivatives
from keras_mhmcmc.adversarial.derivatives import Derivatives
from keras_mhmcmc.evaluation import checks
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.classifiers import as_classifier

if TYPE_CHECKING:
    from foolbox.models import Model


def foolbox_model(
    model: keras.Model | Classifier,
    *,
    input_shape: Sequence[int] | None = None,
    has_gradient: bool = True,
    from_logits: bool = False,
    clip: Sequence[float] = (0.0, 1.0),
) -> "Model":
    """Return a model that the attacks of Foolbox take.

    Foolbox computes with the tensors of the running backend: pass inputs and labels
    through `keras.ops.convert_to_tensor`. The model outputs logits. For a model that
    outputs probabilities they are the logarithms of these, and for an ensemble those
    of the mean probability. So Foolbox attacks the ensemble as a whole.

    Each call reads the current weights. The model runs in inference mode, and need
    not be compiled. Foolbox does not split inputs into batches.

    Args:
        model: built `keras.Model` that maps inputs to class probabilities, shape
            (N, C), or to the probability of class 1 of two, shape (N, 1). It may be an
            `mh.Ensemble`, an `mh.MCDropout` or an `mh.Classifier`.
        input_shape: shape of one input, such as (28, 28, 1). Defaults to None: the
            shape that the model declares. A subclass of `keras.Model` declares none.
        has_gradient: whether the model must have a gradient, which is checked at
            random inputs. False allows attacks that need none. Defaults to True.
        from_logits: whether the model outputs logits instead of probabilities.
            Defaults to False.
        clip: smallest and largest valid input, an increasing pair of finite numbers.
            Defaults to (0, 1).

    Returns:
        A `foolbox.models.Model`.

    Raises:
        ValueError: an argument is outside its range, the model's outputs are not
            probabilities, or it has no gradient.
        ImportError: Foolbox is not installed.

    Example:

    >>> import foolbox
    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((2,)), layer])
    >>> model.set_weights([np.array([[1.0, -1.0], [0.5, 0.0]]), np.zeros(2)])
    >>> x = keras.ops.convert_to_tensor(np.array([[0.75, 0.5]], "float32"))
    >>> y = keras.ops.convert_to_tensor(np.array([0]))
    >>> attack = foolbox.attacks.LinfFastGradientAttack()
    >>> moved, _, _ = attack(foolbox_model(model), x, y, epsilons=0.25)
    >>> keras.ops.convert_to_numpy(moved)
    array([[0.5 , 0.25]], dtype=float32)

    Reference: Rauber, Zimmermann, Bethge and Brendel (2020), "Foolbox Native".
    """
    _validate.instance("has_gradient", has_gradient, bool, "True or False")
    limits = checks.as_limits(clip, is_bounded=True)
    classifier = as_classifier("Argument `model`", model, from_logits, BATCH_SIZE)
    found = Derivatives(classifier, input_shape, limits)
    make = _model_class()
    if has_gradient:
        found.check_gradient()
    made: Model = make(classifier, limits)
    return made


@functools.cache
def _model_class() -> type:
    """Return the class of the models, or raise an error that names the package."""
    try:
        import eagerpy
        from foolbox.models.base import ModelWithPreprocessing
    except ImportError as error:
        raise ImportError(
            "A model for the attacks of Foolbox needs its package: "
            "pip install keras-mhmcmc[foolbox]"
        ) from error

    class KerasModel(ModelWithPreprocessing):
        """A Keras model for the attacks of Foolbox. See `foolbox_model`."""

        def __init__(self, classifier: Classifier, bounds: tuple[float, float]) -> None:
            function = classifier.compiled(derivatives.logits_of)

            def logits(x: Tensor) -> Tensor:
                return function(x, classifier.values())

            super().__init__(logits, bounds, eagerpy.astensor(ops.zeros(0)))

        @property
        def data_format(self) -> str:
            """Where images have their channels: as Keras is set."""
            layout: str = keras.config.image_data_format()
            return layout

    return KerasModel
