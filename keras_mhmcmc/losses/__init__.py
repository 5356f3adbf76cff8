"""Losses that are mean negative log-likelihoods, as every sampler needs.

Each is a `Likelihood`: it says how many outputs a target needs, and what the outputs
predict. `mh.predict_distribution` reads that.
"""

from keras_mhmcmc.losses.counts import NegativeBinomialNLL
from keras_mhmcmc.losses.counts import PoissonNLL
from keras_mhmcmc.losses.densities import GaussianNLL
from keras_mhmcmc.losses.densities import LearnedDeviation
from keras_mhmcmc.losses.densities import MixtureNLL
from keras_mhmcmc.losses.densities import StudentTNLL
from keras_mhmcmc.losses.likelihood import Likelihood

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
