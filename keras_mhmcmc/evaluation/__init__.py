"""Scores of models: class probabilities, predictive distributions, calibration."""

from keras_mhmcmc.evaluation.calibrated import TemperatureScaled
from keras_mhmcmc.evaluation.calibrated import conformal_intervals
from keras_mhmcmc.evaluation.calibrated import conformal_sets
from keras_mhmcmc.evaluation.calibrated import temperature_scaling
from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.evaluate import evaluate
from keras_mhmcmc.evaluation.evaluate import predict_distribution
from keras_mhmcmc.evaluation.shift import corrupt
from keras_mhmcmc.evaluation.shift import evaluate_shift

__all__ = [
    "Classifier",
    "TemperatureScaled",
    "conformal_intervals",
    "conformal_sets",
    "corrupt",
    "evaluate",
    "evaluate_shift",
    "predict_distribution",
    "temperature_scaling",
]
