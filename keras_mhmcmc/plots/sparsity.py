"""Pictures of spike-and-slab priors: which weights count."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.plots import style

FEW = 60  # weights of a kernel up to which each gets a marker


def inclusion(probabilities, ax=None):
    """Inclusion probabilities of each sparse kernel, the largest first.

    A line that falls in one step has sorted its weights: those at the top count, those
    at the bottom may be pruned. A line that slopes has not decided. The legend has the
    share of weights above 1/2.

    Args:
        probabilities: the `mh.SGLDSA`, `mh.SGHMCSA` or `mh.ESM` that ran, or what its
            `inclusion_probabilities()` returned: a dict from names to arrays in [0, 1].
        ax: matplotlib `Axes`; None makes a figure.

    Returns:
        The `Axes`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `probabilities` is something else or empty, as before the first
            step, or `ax` is no `Axes`.

    Example:

    >>> import numpy as np
    >>> ax = inclusion({"dense/kernel": np.array([[0.9], [0.1], [0.2], [0.1]])})
    >>> ax.get_legend().get_texts()[0].get_text()
    'dense/kernel: 1 of 4 (25.0%)'

    Reference: Deng, Zhang, Liang and Lin (2019), "An adaptive empirical Bayesian method
    for sparse deep learning".
    """
    if isinstance(probabilities, SpikeSlabOptimizer):
        probabilities = probabilities.inclusion_probabilities()
    if not isinstance(probabilities, dict) or not probabilities:
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
            color=style.COLOURS[index % len(style.COLOURS)],
            linestyle=style.DASHES[index % len(style.DASHES)],
            marker=style.MARKERS[index % len(style.MARKERS)]
            if len(values) <= FEW
            else None,
            markersize=4,
            linewidth=2,
            label=f"{name}: {included:,} of {len(values):,} ({share:.1%})",
        )
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("rank of the weight in its kernel, the most probable first")
    ax.set_ylabel("inclusion probability")
    ax.set_title("Which weights count: inclusion probabilities")
    ax.grid(color=style.GREY, linewidth=0.6)
    ax.legend(title="kernel: weights above 1/2", frameon=False, fontsize="small")
    return ax


def _sorted(name, values):
    """The probabilities in a row, the largest first."""
    values = _validate.array(f"The entry {name!r} of `probabilities`", values)
    values = np.sort(values, axis=None)[::-1]
    if values.size == 0 or not (values[-1] >= 0.0 and values[0] <= 1.0):
        raise ValueError(
            "Argument `probabilities` must have values in [0, 1], one for each weight. "
            f"Received: the entry {name!r}, with {values.size} values"
            + (f" from {values[-1]:g} to {values[0]:g}" if values.size else "")
        )
    return values
