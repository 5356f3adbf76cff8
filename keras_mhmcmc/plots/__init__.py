"""Plots of runs, samples and predictions. They need matplotlib."""

from keras_mhmcmc.plots.attacks import adversarial_grid
from keras_mhmcmc.plots.attacks import robustness
from keras_mhmcmc.plots.attacks import transfer
from keras_mhmcmc.plots.calibration import interval_calibration
from keras_mhmcmc.plots.calibration import reliability
from keras_mhmcmc.plots.chains import rank
from keras_mhmcmc.plots.chains import trace
from keras_mhmcmc.plots.corruptions import shift
from keras_mhmcmc.plots.densities import contours
from keras_mhmcmc.plots.energies import energy
from keras_mhmcmc.plots.intervals import predictive
from keras_mhmcmc.plots.rates import learning_rates
from keras_mhmcmc.plots.sparsity import inclusion
from keras_mhmcmc.plots.training import acceptance

__all__ = [
    "acceptance",
    "adversarial_grid",
    "contours",
    "energy",
    "inclusion",
    "interval_calibration",
    "learning_rates",
    "predictive",
    "rank",
    "reliability",
    "robustness",
    "shift",
    "trace",
    "transfer",
]


def __dir__() -> list[str]:
    return __all__
