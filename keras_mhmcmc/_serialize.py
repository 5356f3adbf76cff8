"""Keras serialisation: of the package's objects, and of models without weights."""

import keras

serializable = keras.saving.register_keras_serializable(package="keras_mhmcmc")


class Configurable:
    """Abstract: an object that is made again from the arguments of its constructor."""

    def get_config(self):
        """The arguments of the constructor."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config):
        """The object with these arguments."""
        return cls(**config)


def architecture(model):
    """The serialised model, without what it is compiled with."""
    config = keras.saving.serialize_keras_object(model)
    return {key: value for key, value in config.items() if key != "compile_config"}
