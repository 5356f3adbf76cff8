"""Pictures of runs, samples and predictions; they need matplotlib."""

from keras_mhmcmc.plots.attacks import adversarial_grid
from keras_mhmcmc.plots.attacks import robustness
from keras_mhmcmc.plots.calibration import reliability
from keras_mhmcmc.plots.style import COLOURS
from keras_mhmcmc.plots.style import DASHES
from keras_mhmcmc.plots.style import GREY
from keras_mhmcmc.plots.style import MARKERS
from keras_mhmcmc.plots.style import WRONG

__all__ = [
    "COLOURS",
    "DASHES",
    "GREY",
    "MARKERS",
    "WRONG",
    "adversarial_grid",
    "reliability",
    "robustness",
]
