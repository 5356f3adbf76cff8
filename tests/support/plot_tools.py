"""Draws for the tests of pictures."""

import numpy as np

import keras_mhmcmc as mh


def chains(shape=(4, 200), seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def draws_of(position, log_weights=None):
    """`mh.Draws` of given positions (chain, draw, ...)."""
    energy = 0.5 * np.sum(position**2, axis=-1)
    return mh.Draws(position, log_weights, {"energy": energy}, None)
