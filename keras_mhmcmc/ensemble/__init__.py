"""Models whose predictions are means over posterior samples."""

from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.ensemble.pruning import prune

__all__ = ["Ensemble", "MCDropout", "prune"]
