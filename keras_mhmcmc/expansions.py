"""Taylor expansions of single log-likelihoods at the mode, for `mh.kernels.smh`."""

from keras_mhmcmc.samplers.parts.taylor import Expansion
from keras_mhmcmc.samplers.parts.taylor import logistic_regression

__all__ = ["Expansion", "logistic_regression"]


def __dir__() -> list[str]:
    return __all__
