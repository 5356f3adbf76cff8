"""R-hat and effective sample sizes of chains, and agreement with a reference."""

from keras_mhmcmc.diagnostics.chains import scalars
from keras_mhmcmc.diagnostics.chains import summary
from keras_mhmcmc.diagnostics.chains import to_arviz
from keras_mhmcmc.diagnostics.reference import Agreement
from keras_mhmcmc.diagnostics.reference import agreement

__all__ = ["Agreement", "agreement", "scalars", "summary", "to_arviz"]


def __dir__() -> list[str]:
    return __all__
