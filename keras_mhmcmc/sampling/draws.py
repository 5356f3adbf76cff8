"""`Draws`: what `mh.sample` returns, and the state to go on from."""

import warnings
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc.algorithms import importance


class ChainState(NamedTuple):
    """Where chains stopped: pass it as `init` to go on, as if they had not.

    It is made of numpy arrays and numbers, so that it can be pickled.
    """

    values: list  # the leaves of the kernel's state
    structure: Any  # of a position
    shapes: list  # of the position's tensors, the chain axis first
    steps: int  # so far
    seed: int


class Draws:
    """Draws of many chains.

    Attributes:
        position: the draws, in the structure of a position; arrays of shape
            (chain, draw, ...).
        weights: importance weights with mean 1 over all draws, shape (chain, draw).
        info: dict of arrays: `energy`, U in nats of each draw (on its mini-batch),
            shape (chain, draw); and for each chain, over the steps after the burn-in,
            `acceptance` and whatever else the kernel counts, shape (chain,). Contour
            kernels add `masses`, the learned mass of each subregion, and `visits`, the
            draws in each subregion, shape (chain, partitions).
        state: a `ChainState` to go on from.
        interrupted: whether the run was stopped by Ctrl-C.
        levels: of `mh.replica_exchange` and `mh.equi_energy` with `keep_all`: a tuple
            of `Draws`, one for each temperature, the coldest first.
        rings: of `mh.equi_energy`: a `RingTable`.
    """

    def __init__(
        self,
        position,
        log_weights,
        info,
        state,
        interrupted=False,
        levels=(),
        rings=None,
    ):
        self.position = position
        self.weights = normalized_weights(log_weights, info["energy"].shape)
        self.info = info
        self.state = state
        self.interrupted = interrupted
        self.levels = levels
        self.rings = rings

    @property
    def num_chains(self):
        """Number of chains."""
        return self.weights.shape[0]

    def __len__(self):
        """Number of draws of each chain."""
        return self.weights.shape[1]

    def __repr__(self):
        shapes = keras.tree.map_structure(lambda x: x.shape, self.position)
        parts = [
            f"chains={self.num_chains}",
            f"draws={len(self)}",
            f"position={shapes}",
        ]
        if "acceptance" in self.info:
            parts.append(f"acceptance={np.mean(self.info['acceptance']):.3f}")
        return f"Draws({', '.join(parts)})"

    def by_name(self):
        """The draws as a dict of arrays (chain, draw, ...), named by their place."""
        return named_leaves(self.position)

    @property
    def weight_ess(self):
        """Effective sample size of the weights: 1 to the number of all draws.

        How many equally weighted draws the weighted ones are worth; that neighbours
        depend on each other is not part of it.
        """
        return importance.effective_sample_size(self.weights)

    def resample(self, num_draws=None, seed=0):
        """Draws of all chains with equal weights, in the structure of a position.

        Systematic resampling: each draw is taken as often as its weight says, rounded
        up or down.

        Args:
            num_draws: how many to take; None is as many as there are.
            seed: integer in [0, 2**31).

        Returns:
            arrays of shape (num_draws, ...).

        Reference: Kitagawa (1996), "Monte Carlo filter and smoother for non-Gaussian
        nonlinear state space models".
        """
        uniform = np.random.default_rng(_validate.seed(seed)).uniform()
        if num_draws is None:
            num_draws = self.weights.size
        num_draws = _validate.integer("num_draws", num_draws, 1)
        chosen = importance.systematic(self.weights, uniform, num_draws)
        chosen = np.unravel_index(chosen, self.weights.shape)
        return keras.tree.map_structure(lambda x: x[chosen], self.position)

    def summary(self, names=None):
        """Mean, sd, R-hat and effective sample sizes; see `mh.diagnostics.summary`.

        Of the draws as they are: with importance weights, take `resample` for what
        depends on the law.
        """
        if np.ptp(self.weights) > 0:
            warnings.warn(
                "The draws have importance weights, which the summary does not use: it "
                "is that of the flattened law. Take `draws.resample()` for moments of "
                "the posterior.",
                stacklevel=2,
            )
        return diagnostics.summary(self.by_name(), names)

    def to_arviz(self):
        """The draws as an ArviZ object; energy and weight are sample statistics.

        Raises:
            ImportError: ArviZ is not installed.
        """
        statistics = {"energy": self.info["energy"], "weight": self.weights}
        return diagnostics.to_arviz(self.by_name(), statistics)


def named_leaves(position):
    """Leaves of a structure by name: its keys, or `position` for a single tensor."""
    if not keras.tree.is_nested(position):
        return {"position": position}
    if isinstance(position, dict):
        return {
            (str(name) if leaf_name == "position" else f"{name}.{leaf_name}"): leaf
            for name, part in position.items()
            for leaf_name, leaf in named_leaves(part).items()
        }
    parts = {str(i): part for i, part in enumerate(position)}
    return {f"position.{k}": v for k, v in named_leaves(parts).items()}


def normalized_weights(log_weights, shape):
    """Weights with mean 1 from their logarithms; None are equal weights."""
    if log_weights is None or log_weights.size == 0:
        return np.broadcast_to(1.0, shape)
    weights = np.exp(np.asarray(log_weights, "float64") - log_weights.max())
    return weights / weights.mean()
