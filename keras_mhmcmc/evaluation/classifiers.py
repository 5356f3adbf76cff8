"""Models as classifiers: one, or a dict of several."""

from collections.abc import Mapping

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier


def as_classifier(
    subject: str, model: keras.Model | Classifier, from_logits: bool, batch_size: int
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
    models: Mapping[str, keras.Model | Classifier],
    from_logits: bool | Mapping[str, bool],
    batch_size: int,
    argument: str = "models",
) -> dict[str, Classifier]:
    """Return a `Classifier` for each name of a dict of models.

    `argument` names the dict in errors.
    """
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            f"Argument `{argument}` must be a dict from names to models, with at least "
            'one model, such as {"ensemble": model}. Received: '
            f"{argument}={_validate.shown(models)}"
        )
    if not isinstance(from_logits, Mapping):
        from_logits = dict.fromkeys(models, from_logits)
    if from_logits.keys() != models.keys():
        raise ValueError(
            "Argument `from_logits` must be True, False, or a dict with the names of "
            f"`{argument}`, {list(models)}. Received: from_logits="
            f"{_validate.shown(from_logits)}"
        )
    return {
        name: as_classifier(
            f"Argument `{argument}[{name!r}]`", model, from_logits[name], batch_size
        )
        for name, model in models.items()
    }
