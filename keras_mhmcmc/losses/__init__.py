"""Losses that are mean negative log-likelihoods, as every sampler needs.

Each is a `Likelihood`: it says how many outputs a target needs, and what the outputs
predict. `mh.predict_distribution` reads that.
"""

from keras_mhmcmc.losses.likelihood import GaussianNLL
from keras_mhmcmc.losses.likelihood import LearnedDeviation
from keras_mhmcmc.losses.likelihood import Likelihood
from keras_mhmcmc.losses.likelihood import MixtureNLL
from keras_mhmcmc.losses.likelihood import NegativeBinomialNLL
from keras_mhmcmc.losses.likelihood import PoissonNLL
from keras_mhmcmc.losses.likelihood import StudentTNLL

__all__ = [
    "GaussianNLL",
    "LearnedDeviation",
    "Likelihood",
    "MixtureNLL",
    "NegativeBinomialNLL",
    "PoissonNLL",
    "StudentTNLL",
]


def __dir__() -> list[str]:
    return __all__
