"""Private names and ways of Keras that the package follows, each with the reason."""

import keras
from keras.src.export import export_utils

__all__ = [
    "compile_arguments",
    "inner_layers",
    "input_signature",
    "layout_of",
    "made_again",
    "portable",
    "refuse_legacy_file",
    "step_outputs",
]


def step_outputs(model, x, training):
    """The outputs of `model` as the training or test step of Keras computes them.

    Keras passes `training` where `call` takes it, which only a private flag says. On
    JAX its step runs `call` itself, and layers inside a subclassed model that does not
    pass `training` on stay in inference mode; on the others it calls the model, and
    they learn of it (Keras 3.15.1: there the statistics of batch normalisation move).
    """
    given = {"training": training} if model._call_has_training_arg else {}
    run = model.call if keras.backend.backend() == "jax" else model
    return run(x, **given)


def inner_layers(model):
    """`model`, and the layers inside of it at any depth.

    Keras offers no public way to the layers inside layers.
    """
    return list(model._flatten_layers())


def compile_arguments(model):
    """What `model` was compiled with, as it was given.

    `get_compile_config` serialises it, which fails for functions and classes that are
    not registered.
    """
    return model._compile_config.config


def input_signature(model):
    """The `input_signature` that Keras exports `model` with.

    Of a subclass Keras knows the shapes that it was built with, but wants a call in
    this process as well, which a model from a file does not have.

    Raises:
        ValueError: the model does not know its inputs.
    """
    if isinstance(model, keras.Sequential | keras.Function):
        return export_utils.get_input_signature(model)
    signature = export_utils._infer_input_signature_from_model(model)
    if not signature:
        raise ValueError(
            "Argument `input_signature` must be given for a model that was built "
            "without inputs: [keras.InputSpec(shape=(None, 5), dtype='float32')], "
            f"where None is the number of examples. Received: model={model}"
        )
    return signature


def layout_of(variable):
    """Return the layout of a variable over devices, or None.

    `Optimizer.add_variable` takes one, and a variable shows its own under a private
    name alone.
    """
    return getattr(variable, "_layout", None)


def portable(config):
    """A compile configuration for every backend.

    Keras saves what "auto" became on the backend that saved: True on JAX, which on
    PyTorch compiles for minutes, and what it is there is False.
    """
    return config | {"jit_compile": "auto" if config.get("jit_compile") else False}


def made_again(name, config, custom_objects=None):
    """The model of a configuration, which is the argument `name` of another one.

    Raises:
        ValueError: Keras cannot make it. Of an error of another type Keras would say
            that this package is at fault.
    """
    try:
        return keras.saving.deserialize_keras_object(config, custom_objects)
    except (NotImplementedError, TypeError) as error:
        kind = config["registered_name"] or config["class_name"]
        raise ValueError(
            f"Argument `{name}` of the saved model must be a model that Keras can make "
            "again from its configuration. Decorate its class and those of its own "
            "layers with `@keras.saving.register_keras_serializable()`, and import "
            "them before the file is loaded, or load it with `custom_objects={"
            f"{kind!r}: ...}}`. Received: class {kind!r}, and the error: {error}"
        ) from error


def refuse_legacy_file(filepath):
    """Raises for the format of old, which writes files that cannot be loaded."""
    if str(filepath).endswith((".h5", ".hdf5")):
        raise ValueError(
            "Argument `filepath` must end in `.keras`: in an HDF5 file this model "
            'could not be found again. Save as "name.keras", or the weights alone '
            'with `save_weights("name.weights.h5")`. '
            f"Received: filepath={str(filepath)!r}"
        )
