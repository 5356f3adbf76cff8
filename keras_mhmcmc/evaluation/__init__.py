"""Class probabilities of models, and scores of them."""

from keras_mhmcmc.evaluation.classifier import Classifier
from keras_mhmcmc.evaluation.evaluate import evaluate

__all__ = ["Classifier", "evaluate"]
