"""Adversarial attacks, and scores of models under attack."""

from keras_mhmcmc.adversarial.curve import robustness_curve
from keras_mhmcmc.adversarial.gradient_sign import fgsm
from keras_mhmcmc.adversarial.projected_gradient import pgd
from keras_mhmcmc.adversarial.table import RobustnessTable

__all__ = ["RobustnessTable", "fgsm", "pgd", "robustness_curve"]


def __dir__() -> list[str]:
    return __all__
