"""Plots of spike-and-slab priors, which show the weights that matter."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.plots import style
from keras_mhmcmc.samplers.spike_slab import SpikeSlabOptimizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 60  # a kernel with at most this many weights gets a marker for each


def inclusion(
    probabilities: SpikeSlabOptimizer | Mapping[str, npt.ArrayLike],
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot the sorted inclusion probabilities of each sparse kernel.

    A line that falls in one step separates the weights: keep those at the top, and
    prune those at the bottom. A line with a slope has not separated them yet. The
    legend shows the share of weights above 1/2. Each chain of an `mh.ParallelChains`
    has a line of its own.

    Args:
        probabilities: an `mh.SGLDSA`, `mh.SGHMCSA` or `mh.ESM` after training, or the
            `inclusion_probabilities` of one chain, a dict from names to arrays in
            [0, 1].
        ax: matplotlib `Axes`. None makes a figure.

    Returns:
        The `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `probabilities` has another type or is empty, as before the first
            step, or `ax` is not an `Axes`.

    Example:

    >>> import numpy as np
    >>> ax = inclusion({"dense/kernel": np.array([[0.9], [0.1], [0.2], [0.1]])})
    >>> ax.get_legend().get_texts()[0].get_text()
    'dense/kernel: 1 of 4 (25.0%)'

    Reference: Deng, Zhang, Liang and Lin (2019), "An adaptive empirical Bayesian method
    for sparse deep learning".
    """
    if isinstance(probabilities, SpikeSlabOptimizer):
        probabilities = _by_chain(probabilities)
    if not isinstance(probabilities, Mapping) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a spike-and-slab sampler after its first "
            "step, or its `inclusion_probabilities()`, a dict from names to arrays. "
            f"Received: probabilities={probabilities!r}"
        )
    kernels = {name: _sorted(name, values) for name, values in probabilities.items()}
    ax = style.one_axes(ax)
    for index, (name, values) in enumerate(kernels.items()):
        included = int(np.sum(values > 0.5))
        share = included / len(values)
        ax.plot(
            np.arange(1, len(values) + 1),
            values,
            **style.of_line(index) | ({} if len(values) <= FEW else {"marker": ""}),
            markersize=4,
            linewidth=2,
            label=f"{name}: {included:,} of {len(values):,} ({share:.1%})",
        )
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("rank of the weight in its kernel, the most probable first")
    ax.set_ylabel("inclusion probability")
    ax.set_title("Inclusion probabilities of the weights")
    ax.grid(color=style.GREY, linewidth=0.6)
    ax.legend(title="kernel: weights above 1/2", frameon=False, fontsize="small")
    return ax


def _by_chain(optimizer: SpikeSlabOptimizer) -> dict[str, Array]:
    """Return the probabilities of each sparse kernel, in each chain."""
    found = optimizer.inclusion_probabilities()
    if optimizer.num_chains is None:
        return found
    return {
        f"{name}, chain {number}": chain
        for name, values in found.items()
        for number, chain in enumerate(values)
    }


def _sorted(name: str, values: npt.ArrayLike) -> Array:
    """Return the probabilities sorted, the largest first, shape (weights,)."""
    array = _validate.array(f"The entry {name!r} of `probabilities`", values)
    array = np.sort(array, axis=None)[::-1]
    if array.size == 0 or not (array[-1] >= 0.0 and array[0] <= 1.0):
        raise ValueError(
            "Argument `probabilities` must have values in [0, 1], one for each weight. "
            f"Received: the entry {name!r}, with {array.size} values"
            + (f" from {array[-1]:g} to {array[0]:g}" if array.size else "")
        )
    return array
