"""Samples of a posterior: the callback that keeps them, and the files they are in."""

from keras_mhmcmc.posterior.callback import PosteriorSamples

__all__ = ["PosteriorSamples"]
