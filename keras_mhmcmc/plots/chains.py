"""Trace and rank plots: whether chains agree. R-hat and ESS come from ArviZ."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.sampling import Draws

BINS = 20  # of ranks


def trace(draws, names=None, max_chains=8, max_rows=8, axes=None):
    """Histogram and path of each scalar, a colour for each chain.

    Where chains have found the same law, their histograms lie on one another, and
    their paths look like noise around one level. The title has R-hat, near 1 where
    chains agree, and the effective sample size of the mean.

    Args:
        draws: `mh.Draws`, `mh.PosteriorSamples`, a dict of arrays of shape
            (chain, draw, ...), such as {"p": posterior.predictions(model, x)}, or an
            object of ArviZ. Importance weights are not used.
        names: names of the quantities to draw; None draws all.
        max_chains: number of chains that are drawn, the first ones; R-hat and the
            sample size are of all.
        max_rows: largest number of scalars that is drawn, each in a row.
        axes: matplotlib `Axes`, two for each scalar; None makes a figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib or ArviZ is not installed.
        ValueError: `draws` is something else, a name is unknown, there are more
            scalars than `max_rows`, or `axes` do not fit.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> trace({"x": x}).axes[0].get_title()
    'x: R-hat 1.00, ESS 2003 of 2000'
    """
    scalars, titles = _scalars(draws, names, max_chains, max_rows)
    panels = style.many_axes(axes, (len(scalars), 2), size=(4.6, 2.3))
    for (left, right), values, title in zip(
        panels, scalars.values(), titles, strict=True
    ):
        shown = values[:max_chains]
        edges = np.histogram_bin_edges(shown, bins=40)
        for index, chain in enumerate(shown):
            look = {
                "color": style.COLOURS[index % len(style.COLOURS)],
                "linestyle": style.DASHES[index // len(style.COLOURS)],
            }
            density, _ = np.histogram(chain, edges, density=True)
            left.stairs(density, edges, linewidth=1.3, **look)
            right.plot(np.arange(1, len(chain) + 1), chain, linewidth=0.6, **look)
        left.set_title(title, fontsize=10)
        left.set_ylabel("density")
        left.set_xlabel("value")
        right.set_title(f"{_chains(values, max_chains)}, a colour each", fontsize=10)
        right.set_ylabel("value")
        right.set_xlabel("draw")
    return panels[0, 0].figure


def rank(draws, names=None, max_chains=8, max_rows=8, axes=None):
    """Histograms of the ranks of each chain's draws among those of all chains.

    Where chains have found the same law, every histogram is flat, at the dashed line.
    A slope is a chain that lies too low or too high; a hill or a valley is one whose
    spread is too small or too large. Rank plots show what traces of thousands of draws
    hide.

    Args:
        draws: as in `trace`; at least two chains.
        names: names of the quantities to draw; None draws all.
        max_chains: number of chains that are drawn, the first ones; ranks are among
            the draws of all.
        max_rows: largest number of scalars that is drawn, each in a panel.
        axes: matplotlib `Axes`, one for each scalar; None makes a figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib or ArviZ is not installed.
        ValueError: as in `trace`, or there is one chain.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> rank({"x": x}).axes[0].get_xlabel()
    'rank among all 2,000 draws'

    Reference: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021),
    "Rank-normalization, folding, and localization: an improved R-hat".
    """
    scalars, titles = _scalars(draws, names, max_chains, max_rows)
    if min(len(values) for values in scalars.values()) < 2:
        raise ValueError(
            "Argument `draws` must have at least 2 chains, whose ranks are compared. "
            "Take `mh.ParallelChains`, or `num_chains` of `mh.sample`. Received: 1 "
            "chain"
        )
    panels = style.many_axes(axes, (1, len(scalars)), size=(3.6, 3.6))[0]
    for ax, values, title in zip(panels, scalars.values(), titles, strict=True):
        ranks = _ranks(values)
        expected = values.shape[1] / BINS
        edges = np.linspace(0, values.size, BINS + 1)
        counts = [np.histogram(chain, edges)[0] for chain in ranks[:max_chains]]
        height = 1.15 * max(np.max(counts), 2 * expected)  # of a chain's row
        for index, count in enumerate(counts):
            colour = style.COLOURS[index % len(style.COLOURS)]
            ax.bar(
                edges[:-1],
                count / height,
                np.diff(edges),
                bottom=index,
                align="edge",
                color=colour,
                edgecolor="white",
                linewidth=0.5,
            )
            ax.axhline(
                index + expected / height, color="0.2", linewidth=1, linestyle="--"
            )
        chains = _chains(values, max_chains)
        ax.set_title(f"{title}\n{chains}; dashed: where they agree", fontsize=10)
        ax.set_xlabel(f"rank among all {values.size:,} draws")
        ax.set_yticks(
            np.arange(len(counts)) + expected / height,
            [f"chain {i + 1}" for i in range(len(counts))],
        )
        ax.set_ylim(0, len(counts))
    return panels[0].figure


def _scalars(draws, names, max_chains, max_rows):
    """The arrays (chain, draw) by name, and their titles with R-hat and ESS."""
    _validate.integer("max_chains", max_chains, 1)
    _validate.integer("max_rows", max_rows, 1)
    if isinstance(draws, Draws):
        draws = draws.by_name()
    elif isinstance(draws, PosteriorSamples):
        draws = draws.to_arviz()
    scalars = diagnostics.scalars(draws, names, max_rows)
    for name, values in scalars.items():
        lost = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(lost):
            raise ValueError(
                "Argument `draws` must be finite. Leave out the chains that ran away, "
                f"and run them anew with a lower learning rate. Received: {name!r} "
                f"with values that are not finite in the chains {lost.tolist()}"
            )
    table = diagnostics.summary(scalars, max_rows=max_rows)
    titles = [
        f"{name}: R-hat {row.r_hat:.2f}, ESS {row.ess_bulk:.0f} of {values.size}"
        for (name, values), row in zip(scalars.items(), table.itertuples(), strict=True)
    ]
    return scalars, titles


def _ranks(values):
    """Ranks among all values, from 0 to their number; equal values share theirs."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - 0.5 * counts)[index]).reshape(values.shape)


def _chains(values, max_chains):
    count = len(values)
    if count > max_chains:
        return f"{max_chains} of {count} chains"
    return "1 chain" if count == 1 else f"{count} chains"
