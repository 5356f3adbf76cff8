"""What `ParallelChains` holds and Keras must not track as part of it."""

from dataclasses import dataclass
from dataclasses import field
from typing import Literal

import keras

from keras_mhmcmc.parallel.history import ChainHistory
from keras_mhmcmc.parallel.history import ChainMetrics

Strategy = Literal["auto", "vmap", "loop"]


@dataclass
class Untracked:
    """The network, and what changes without being a weight."""

    template: keras.Model
    variables: list[keras.Variable]  # of the template: the trainable ones, the others
    metrics: ChainMetrics | None = None
    history: ChainHistory = field(default_factory=ChainHistory)
    strategy: Literal["vmap", "loop"] = "vmap"
