"""Adversarial attacks, and scores of models under attack."""

from keras_mhmcmc.adversarial.adversarial_training import training
from keras_mhmcmc.adversarial.art_estimator import art_classifier
from keras_mhmcmc.adversarial.curve import RobustnessTable
from keras_mhmcmc.adversarial.curve import TransferTable
from keras_mhmcmc.adversarial.curve import robustness_curve
from keras_mhmcmc.adversarial.curve import transfer
from keras_mhmcmc.adversarial.gradient_attacks import apgd
from keras_mhmcmc.adversarial.gradient_attacks import fgsm
from keras_mhmcmc.adversarial.gradient_attacks import pgd
from keras_mhmcmc.adversarial.named_attacks import strongest
from keras_mhmcmc.adversarial.square_search import square

__all__ = [
    "RobustnessTable",
    "TransferTable",
    "apgd",
    "art_classifier",
    "fgsm",
    "pgd",
    "robustness_curve",
    "square",
    "strongest",
    "training",
    "transfer",
]


def __dir__() -> list[str]:
    return __all__
