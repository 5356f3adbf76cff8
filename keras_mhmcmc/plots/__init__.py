"""Plots of runs, samples and predictions. They need matplotlib.

Each function draws into the matplotlib `Axes` of its argument `ax` or `axes`, one for
each panel, or into a new figure if the argument is None. It returns the `Axes`, or the
`Figure` if there may be several panels. An `ImportError` tells how to install a missing
package. A `ValueError` names an argument that has another type, is outside its range or
does not fit the others.
"""

from keras_mhmcmc.plots.attacks import adversarial_grid
from keras_mhmcmc.plots.attacks import robustness
from keras_mhmcmc.plots.attacks import shift
from keras_mhmcmc.plots.attacks import transfer
from keras_mhmcmc.plots.chains import contours
from keras_mhmcmc.plots.predictions import interval_calibration
from keras_mhmcmc.plots.predictions import predictive
from keras_mhmcmc.plots.predictions import reliability
from keras_mhmcmc.plots.runs import acceptance
from keras_mhmcmc.plots.runs import energy
from keras_mhmcmc.plots.runs import inclusion
from keras_mhmcmc.plots.runs import learning_rates

__all__ = [
    "acceptance",
    "adversarial_grid",
    "contours",
    "energy",
    "inclusion",
    "interval_calibration",
    "learning_rates",
    "predictive",
    "reliability",
    "robustness",
    "shift",
    "transfer",
]


def __dir__() -> list[str]:
    return __all__
