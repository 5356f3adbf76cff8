"""Models that average predictions over posterior samples or dropout masks."""

from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.mc_dropout import MCDropout
from keras_mhmcmc.ensemble.pruning import prune

__all__ = ["Ensemble", "MCDropout", "prune"]
