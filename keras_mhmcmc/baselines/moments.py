"""Moments of the weights along a run, and draws from the Gaussian that has them.

Paper: Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), "A simple baseline for
Bayesian uncertainty in deep learning", section 3 and algorithm 1. With the mean m, the
mean of the squares s and the last K deviations D, a matrix with K columns:

    N(m, (diag(s - m^2) + D D^T / (K - 1)) / 2)    SWAG
    N(m, diag(s - m^2))                            SWAG-Diagonal
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from keras_mhmcmc._types import Array

Floats = npt.NDArray[np.float64]


class WeightMoments:
    """Running moments of a list of arrays, one for each weight, in float64.

    Args:
        rank: number of deviations to keep; the newest stay.
    """

    def __init__(self, rank: int) -> None:
        self.count = 0
        self.mean: list[Floats] = []
        self.mean_square: list[Floats] = []
        self.deviations: deque[list[Floats]] = deque(maxlen=rank)

    def add(self, values: Sequence[Array]) -> None:
        """Add one state of the weights."""
        new = [np.asarray(value, "float64") for value in values]
        if self.count == 0:
            self.mean = [np.zeros_like(x) for x in new]
            self.mean_square = [np.zeros_like(x) for x in new]
        self.count += 1
        share = 1.0 / self.count
        self.mean = [m + share * (x - m) for m, x in zip(self.mean, new, strict=True)]
        self.mean_square = [
            s + share * (x**2 - s) for s, x in zip(self.mean_square, new, strict=True)
        ]
        # From the mean that includes this state, as in algorithm 1.
        self.deviations.append([x - m for x, m in zip(new, self.mean, strict=True)])

    def variance(self) -> list[Floats]:
        """Return the variance of each weight, without those that rounding made < 0."""
        return [
            np.maximum(s - m**2, 0.0)
            for s, m in zip(self.mean_square, self.mean, strict=True)
        ]

    def draw(
        self, members: int, seed: int, scale: float, diagonal: bool
    ) -> list[Floats]:
        """Return draws from the Gaussian, one array (members, ...) for each weight.

        Args:
            members: number of draws.
            seed: of NumPy's generator, so that all backends have the same draws.
            scale: factor of the covariance.
            diagonal: whether to leave out the correlations, as SWAG-Diagonal does.
        """
        rng = np.random.default_rng(seed)
        share = 1.0 if diagonal else 0.5
        # (members, K): the same for all weights, which correlates them.
        common = rng.standard_normal((members, len(self.deviations)))
        common *= np.sqrt(scale * share / max(len(self.deviations) - 1, 1))
        draws = []
        for i, (mean, variance) in enumerate(
            zip(self.mean, self.variance(), strict=True)
        ):
            draw = rng.standard_normal((members, *mean.shape))
            draw *= np.sqrt(scale * share * variance)
            if not diagonal:
                columns = np.stack([deviation[i] for deviation in self.deviations])
                draw += np.tensordot(common, columns, axes=1)
            draws.append(mean + draw)
        return draws
