"""Registration of the package's objects with Keras serialisation."""

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
