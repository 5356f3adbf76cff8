"""Many chains of one Keras model, trained side by side."""

from keras_mhmcmc.parallel.chains import ParallelChains

__all__ = ["ParallelChains"]
