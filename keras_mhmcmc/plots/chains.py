"""Trace and rank plots of ArviZ, with R-hat and ESS in the titles."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc._types import Array
from keras_mhmcmc.diagnostics.chains import Scalars
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.sampling import Draws

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 20  # of ranks


def trace(
    draws: Any,
    names: str | Sequence[str] | None = None,
    max_chains: int = 8,
    max_rows: int = 8,
    axes: Any = None,
) -> "Figure":
    """Plot the density and the path of each scalar, with a colour for each chain.

    If the chains sample the same distribution, their densities coincide, and their
    paths look like noise around one level. The title shows R-hat, which is near 1 if
    the chains agree, and the effective sample size of the mean.

    Args:
        draws: `mh.Draws`, `mh.PosteriorSamples`, a dict from names to arrays of shape
            (chain, draw, ...), such as {"p": posterior.predictions(model, x)}, or an
            ArviZ object. Importance weights are ignored.
        names: names of the quantities to plot, or None for all.
        max_chains: largest number of chains to plot, the first ones. R-hat and the
            sample size use all chains. Defaults to 8.
        max_rows: largest number of scalars, one in each row. Defaults to 8.
        axes: matplotlib `Axes`, two for each scalar, or None for a new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib or ArviZ is not installed.
        ValueError: `draws` has another type, a name is unknown, there are more scalars
            than `max_rows`, or the number of `axes` is wrong.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> trace({"x": x}).axes[0].get_title()
    'x: R-hat 1.00, ESS 2003 of 2000'
    """
    scalars, titles = _scalars(draws, names, max_chains, max_rows)
    panels = style.many_axes(axes, (len(scalars), 2), size=(4.6, 2.3))
    looks = {
        "chain_prop": {"color": style.of_chains(max_chains), "linestyle": style.DASHES},
        "trace_kwargs": {"alpha": 1.0, "linewidth": 0.6},
    }
    shown = _shown(scalars, max_chains)
    _arviz().plot_trace(shown, axes=panels, compact=False, combined=False, **looks)
    for (left, right), values, title in zip(
        panels, scalars.values(), titles, strict=True
    ):
        left.set_title(title, fontsize=10)
        left.set(ylabel="density", xlabel="value")
        right.set_title(f"{_chains(values, max_chains)}, a colour each", fontsize=10)
        right.set(ylabel="value", xlabel="draw")
    figure: Figure = panels[0, 0].figure
    return figure


def rank(
    draws: Any,
    names: str | Sequence[str] | None = None,
    max_chains: int = 8,
    max_rows: int = 8,
    axes: Any = None,
) -> "Figure":
    """Plot histograms of each chain's ranks among the draws of all chains.

    If the chains sample the same distribution, every histogram is flat, at the dashed
    line. A slope shows that a chain's values are too low or too high. A hill shows
    that its spread is too small, and a valley that it is too large. Rank plots show
    such differences better than traces of thousands of draws.

    Args:
        draws: as in `trace`, with at least two chains.
        names: names of the quantities to plot, or None for all.
        max_chains: largest number of chains to plot, the first ones. Defaults to 8.
        max_rows: largest number of scalars, one in each panel. Defaults to 8.
        axes: matplotlib `Axes`, one for each scalar, or None for a new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib or ArviZ is not installed.
        ValueError: as in `trace`, or there is only one chain.

    Example:

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> rank({"x": x}).axes[0].get_xlabel()
    'rank among 2,000 draws'

    Reference: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021),
    "Rank-normalization, folding, and localization: an improved R-hat".
    """
    scalars, titles = _scalars(draws, names, max_chains, max_rows)
    if min(len(values) for values in scalars.values()) < 2:
        raise ValueError(
            "Argument `draws` must have at least 2 chains, to compare their ranks. "
            "Use `mh.ParallelChains`, or `num_chains` of `mh.sample`. Received: 1 "
            "chain"
        )
    panels = style.many_axes(axes, (1, len(scalars)), size=(3.6, 3.6))[0]
    shown = _shown(scalars, max_chains)
    colours = style.of_chains(max_chains)
    _arviz().plot_rank(shown, ax=panels, kind="bars", bins=BINS, colors=colours)
    for ax, values, title in zip(panels, scalars.values(), titles, strict=True):
        chains = _chains(values, max_chains)
        ax.set_title(f"{title}\n{chains}; dashed: where they agree", fontsize=10)
        ranked = values[:max_chains].size
        ax.set_xlabel(f"rank among {ranked:,} draws", fontsize=10)
        ax.set_ylabel("chain", fontsize=10)
    figure: Figure = panels[0].figure
    return figure


def _scalars(
    draws: Any, names: str | Sequence[str] | None, max_chains: int, max_rows: int
) -> tuple[Scalars, list[str]]:
    """Return the scalars, shape (chain, draw), and their titles with R-hat and ESS."""
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
                "Argument `draws` must be finite. Leave out the chains that diverged, "
                f"or run them again with a lower learning rate. Received: {name!r} "
                f"with values that are not finite in the chains {lost.tolist()}"
            )
    table = diagnostics.summary(scalars, max_rows=max_rows)
    titles = [
        f"{name}: R-hat {row.r_hat:.2f}, ESS {row.ess_bulk:.0f} of {values.size}"
        for (name, values), row in zip(scalars.items(), table.itertuples(), strict=True)
    ]
    return scalars, titles


def _shown(scalars: Scalars, max_chains: int) -> Any:
    """Return the first chains as ArviZ reads them."""
    return _arviz().from_dict({name: v[:max_chains] for name, v in scalars.items()})


def _arviz() -> Any:
    import arviz

    return arviz


def _chains(values: Array, max_chains: int) -> str:
    count = len(values)
    if count > max_chains:
        return f"{max_chains} of {count} chains"
    return "1 chain" if count == 1 else f"{count} chains"
