"""Models as classifiers: one, or several with their names."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import TypeAlias

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._names import distinct
from keras_mhmcmc.evaluation.classifier import BATCH_SIZE
from keras_mhmcmc.evaluation.classifier import Classifier

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


def named(models: Models, argument: str = "models") -> Mapping[str, Model]:
    """Return models by name: a model, and each of a list, has its own name.

    `argument` names them in errors.
    """
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
