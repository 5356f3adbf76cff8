"""Samplers that Keras finds by their names, at usual learning rates."""

import keras

from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.samplers.contour import CSGHMC
from keras_mhmcmc.samplers.contour import CSGLD
from keras_mhmcmc.samplers.psgld import PSGLD
from keras_mhmcmc.samplers.sghmc import SGHMC
from keras_mhmcmc.samplers.sgld import SGLD
from keras_mhmcmc.samplers.sgmclmc import SGMCLMC
from keras_mhmcmc.samplers.sgnht import SGNHT

# The others need more than a rate, or another model than most.
NAMED: dict[str, type[Sampler]] = {
    kind.__name__.lower(): kind
    for kind in (SGLD, PSGLD, SGHMC, SGNHT, SGMCLMC, CSGLD, CSGHMC)
}
# `keras.optimizers.get` looks here. It changes the case of its own names alone.
keras.saving.get_custom_objects().update(
    NAMED | {kind.__name__: kind for kind in NAMED.values()}
)
