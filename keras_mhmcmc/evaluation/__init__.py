"""Scores of models: class probabilities, predictive distributions, calibration."""

from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.corruptions import corrupt
from keras_mhmcmc.evaluation.evaluate import evaluate
from keras_mhmcmc.evaluation.regression import predict_distribution
from keras_mhmcmc.evaluation.shift import evaluate_shift

__all__ = [
    "Classifier",
    "corrupt",
    "evaluate",
    "evaluate_shift",
    "predict_distribution",
]
