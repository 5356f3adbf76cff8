"""Quality of predictions: accuracy, scores, calibration, uncertainty.

The functions compute in float64 with NumPy. `probabilities` have the shape (N, C) for
N examples and C classes. The shapes (N,) and (N, 1) stand for the probability of class
1 of two classes. `labels` are integers of shape (N,) or (N, 1), or one-hot rows of
shape (N, C).

A regression has a `PredictiveMixture` as its prediction. `mh.predict_distribution`
makes it from a model.
"""

from keras_mhmcmc.evaluation.metrics.classification import Reliability
from keras_mhmcmc.evaluation.metrics.classification import accuracy
from keras_mhmcmc.evaluation.metrics.classification import adaptive_ece
from keras_mhmcmc.evaluation.metrics.classification import aupr
from keras_mhmcmc.evaluation.metrics.classification import aurc
from keras_mhmcmc.evaluation.metrics.classification import auroc
from keras_mhmcmc.evaluation.metrics.classification import brier
from keras_mhmcmc.evaluation.metrics.classification import classwise_ece
from keras_mhmcmc.evaluation.metrics.classification import ece
from keras_mhmcmc.evaluation.metrics.classification import mutual_information
from keras_mhmcmc.evaluation.metrics.classification import nll
from keras_mhmcmc.evaluation.metrics.classification import predictive_entropy
from keras_mhmcmc.evaluation.metrics.classification import reliability
from keras_mhmcmc.evaluation.metrics.regression import IntervalCalibration
from keras_mhmcmc.evaluation.metrics.regression import NormalMixture
from keras_mhmcmc.evaluation.metrics.regression import PredictiveMixture

__all__ = [
    "IntervalCalibration",
    "NormalMixture",
    "PredictiveMixture",
    "Reliability",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "classwise_ece",
    "ece",
    "mutual_information",
    "nll",
    "predictive_entropy",
    "reliability",
]


def __dir__() -> list[str]:
    return __all__
