"""Registration of the package's objects with Keras serialisation."""

import keras

serializable = keras.saving.register_keras_serializable(package="keras_mhmcmc")
