"""`BayesianEnsemble`: networks that are trained, sampled from, and averaged."""

from keras_mhmcmc.bayesian.ensemble import BayesianEnsemble

__all__ = ["BayesianEnsemble"]
