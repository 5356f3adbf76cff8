"""Plots of runs, samples and predictions. They need matplotlib.

Each function draws into the matplotlib `Axes` of its argument `ax` or `axes`, one for
each panel, or into a new figure if the argument is None. It returns the `Axes`, or the
`Figure` if there may be several panels. An `ImportError` tells how to install a missing
package. A `ValueError` names an argument that has another type, is outside its range or
does not fit the others.
"""

from keras_mhmcmc.plots.models import adversarial_grid
from keras_mhmcmc.plots.models import predictive
from keras_mhmcmc.plots.models import reliability
from keras_mhmcmc.plots.models import robustness
from keras_mhmcmc.plots.models import shift
from keras_mhmcmc.plots.runs import acceptance
from keras_mhmcmc.plots.runs import contours
from keras_mhmcmc.plots.runs import energy
from keras_mhmcmc.plots.runs import inclusion

__all__ = [
    "acceptance",
    "adversarial_grid",
    "contours",
    "energy",
    "inclusion",
    "predictive",
    "reliability",
    "robustness",
    "shift",
]


def __dir__() -> list[str]:
    return __all__
