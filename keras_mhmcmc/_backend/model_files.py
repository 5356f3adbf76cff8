"""Files of models: what they hold, and what Keras does not say while it reads them."""

import re
from typing import Any

import keras

from keras_mhmcmc._backend.running_fit import from_file


def portable(config: dict[str, Any]) -> dict[str, Any]:
    """Return a compile configuration for every backend.

    Keras saves what "auto" became on the backend that saved: True on JAX. On PyTorch,
    True compiles for minutes, and "auto" means False.
    """
    return config | {"jit_compile": "auto" if config.get("jit_compile") else False}


def made_again(
    name: str,
    config: dict[str, Any],
    custom_objects: dict[str, Any] | None = None,
) -> keras.Model:
    """Return the model of a configuration, which is the argument `name` of another one.

    Raises:
        ValueError: Keras cannot make the model. After an error of another type, Keras
            would blame this package.
    """
    try:
        return keras.saving.deserialize_keras_object(config, custom_objects)
    except (NotImplementedError, TypeError) as error:
        kind = config["registered_name"] or config["class_name"]
        missing = re.findall(r"(Could not locate \w+ '([^']+)')", str(error))
        said = str(error).splitlines()[0]
        if missing:  # the class of a layer inside
            said, kind = missing[0]
        raise ValueError(
            f"Argument `{name}` of the saved model must be a model that Keras can make "
            "again from its configuration. Decorate its class and those of its own "
            "layers with `@keras.saving.register_keras_serializable()`, and import "
            "them before the file is loaded, or load it with `custom_objects={"
            f"{kind!r}: ...}}`. Received: class {kind!r}, and the error: {said}"
        ) from error


def refuse_legacy_file(filepath: Any) -> None:
    """Raise a `ValueError` for HDF5, in which the classes of a model are not found."""
    if str(filepath).endswith((".h5", ".hdf5")):
        raise ValueError(
            "Argument `filepath` must end in `.keras`: in an HDF5 file this model "
            'could not be found again. Save as "name.keras", or the weights alone '
            'with `save_weights("name.weights.h5")`. '
            f"Received: filepath={str(filepath)!r}"
        )


def model_in_file(optimizer: keras.optimizers.Optimizer) -> keras.Model | None:
    """Return the model that Keras saves or loads together with `optimizer`, or None."""
    for part in from_file("saveable"):
        if isinstance(part, keras.Model) and getattr(part, "optimizer", 0) is optimizer:
            return part
    return None


def loaded_parts() -> set[int]:
    """Return the `id`s of what Keras has loaded from the file that it reads."""
    return next(from_file("visited_saveables"), set())
