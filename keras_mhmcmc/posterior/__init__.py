"""Samples of a posterior: the callback that keeps them, and their files."""

from keras_mhmcmc.posterior.callback import PosteriorSamples

__all__ = ["PosteriorSamples"]
