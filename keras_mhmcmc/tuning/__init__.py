"""Advice on the learning rate, from short runs."""

from keras_mhmcmc.tuning.learning_rate import suggest_learning_rate
from keras_mhmcmc.tuning.table import LearningRateTable

__all__ = ["LearningRateTable", "suggest_learning_rate"]
