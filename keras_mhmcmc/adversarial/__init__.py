"""Adversarial attacks, and scores of models under attack."""

from keras_mhmcmc.adversarial.adversarial_training import training
from keras_mhmcmc.adversarial.art_estimator import art_classifier
from keras_mhmcmc.adversarial.auto_gradient import apgd
from keras_mhmcmc.adversarial.curve import robustness_curve
from keras_mhmcmc.adversarial.gradient_sign import fgsm
from keras_mhmcmc.adversarial.projected_gradient import pgd
from keras_mhmcmc.adversarial.square_search import square
from keras_mhmcmc.adversarial.strongest_of import strongest
from keras_mhmcmc.adversarial.table import RobustnessTable
from keras_mhmcmc.adversarial.transferred import TransferTable
from keras_mhmcmc.adversarial.transferred import transfer

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
