"""Plots of a run's energies, and of the masses that a contour sampler learns."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.optimizers.contour import ContourSampler
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.sampling import Draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KEYS = ("energy_min", "energy_gap", "pdf", "visits")


def energy(
    run: PosteriorSamples | Draws | npt.ArrayLike,
    optimizer: ContourSampler | None = None,
    partition: dict[str, Any] | None = None,
    axes: Any = None,
) -> "Figure":
    """Plot the energies of a run, and the visits and masses of a contour sampler.

    The first panel shows the energies along the run. The second panel is for contour
    samplers. Each bar is a bin of the energy, and its height is the share of steps
    that the run spent there. The line is log theta, the learned log mass of the bin.
    The wider the bars spread, the better the sampler moves between low and high
    energies. The first and the last bin also hold everything below and above the
    partition.

    Args:
        run: `mh.PosteriorSamples`, `mh.Draws`, or energies U in nats, an array of shape
            (draws,) or (chains, draws).
        optimizer: an `mh.CSGLD` or `mh.CSGHMC` after training, for the second panel.
        partition: for draws of `mh.kernels.csgld` and `csghmc`, instead of
            `optimizer`: a dict with `energy_min` and `energy_gap` in nats. If `run` is
            an array, the dict also has `pdf` and `visits`, of shape (partitions,) or
            (chains, partitions). Other keys are ignored.
        axes: one or two matplotlib `Axes`, or None for a new figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `run` has no finite energies, `optimizer` is not a contour sampler
            or has not run, `partition` lacks a key, or the number of `axes` is wrong.

    Example:

    >>> import numpy as np
    >>> figure = energy(
    ...     np.array([4.0, 2.5, 3.5]),
    ...     partition={
    ...         "energy_min": 2.0,
    ...         "energy_gap": 1.0,
    ...         "pdf": [0.1, 0.5, 0.3, 0.1],
    ...         "visits": [0, 1, 2, 0],
    ...     },
    ... )
    >>> [round(bar.get_height()) for bar in figure.axes[1].patches]
    [0, 33, 67, 0]

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", Fig. 1.
    """
    steps, energies, unit = _energies(run)
    regions = _regions(run, optimizer, partition)
    count = 1 if regions is None else 2
    panels = style.many_axes(axes, (1, count), size=(5.2, 3.6))[0]
    _trace_panel(panels[0], steps, energies, unit)
    if regions is not None:
        _regions_panel(panels[1], *regions)
    figure: Figure = panels[0].figure
    return figure


def _energies(run: Any) -> tuple[Array, Array, str]:
    """Return steps (draws,), energies (chains, draws) and the unit of a step."""
    unit, steps = "draw", None
    if isinstance(run, PosteriorSamples):
        energies, steps, unit = run.energies.T, run.iterations, "iteration"
    elif isinstance(run, Draws):
        energies = run.info["energy"]
    else:
        energies = _validate.array("Argument `run`", run)
    energies = np.atleast_2d(energies)
    if energies.ndim != 2 or not np.isfinite(energies).any():
        raise ValueError(
            "Argument `run` must be `mh.PosteriorSamples`, `mh.Draws` or an array of "
            "energies in nats, of shape (draws,) or (chains, draws), at least one of "
            f"them finite. Received: energies of shape {energies.shape} from "
            f"{type(run).__name__}"
        )
    if steps is None:
        steps = np.arange(1, energies.shape[1] + 1)
    return steps, energies, unit


def _regions(
    run: Any, optimizer: Any, partition: Any
) -> tuple[float, float, Array, Array] | None:
    """Return energy_min, energy_gap, masses (chains, bins) and visits (bins,).

    Return None if there is no contour sampler.
    """
    if optimizer is None and partition is None:
        return None
    if optimizer is not None and partition is not None:
        raise ValueError(
            "Arguments `optimizer` and `partition` exclude each other: pass at most "
            "one of them. Received: both"
        )
    if optimizer is not None:
        _validate.instance(
            "optimizer",
            optimizer,
            ContourSampler,
            "an `mh.CSGLD` or `mh.CSGHMC`, such as `model.optimizer`",
        )
        if not optimizer.built:
            raise ValueError(
                "Argument `optimizer` must have made steps: call `model.fit` first. "
                f"Received: optimizer={optimizer!r}"
            )
        known = optimizer.get_config() | {
            "pdf": optimizer.learned_pdf(),
            "visits": optimizer.visits(),
        }
    else:
        _validate.instance("partition", partition, dict, f"a dict with {KEYS}")
        info = run.info if isinstance(run, Draws) else {}
        known = {key: info[key] for key in ("pdf", "visits") if key in info}
        known |= partition
    missing = [key for key in KEYS if known.get(key) is None]
    if missing:
        raise ValueError(
            "Argument `partition` must be a dict with energy_min and energy_gap, and "
            "with pdf and visits unless `run` is `mh.Draws` of a contour kernel. "
            f"Received: a dict that lacks {', '.join(missing)}"
        )
    low = _validate.number(
        "energy_min", known["energy_min"], _validate.Interval(-np.inf)
    )
    gap = _validate.number("energy_gap", known["energy_gap"], _validate.POSITIVE)
    pdf = np.atleast_2d(_validate.array("The entry `pdf`", known["pdf"]))
    visits = np.atleast_2d(_validate.array("The entry `visits`", known["visits"]))
    are_masses = all((x >= 0).all() and np.isfinite(x).all() for x in (pdf, visits))
    fit = pdf.ndim == 2 and pdf.shape == visits.shape
    if not fit or not are_masses or visits.sum() == 0:
        raise ValueError(
            "The entries `pdf` and `visits` must have the same shape, (partitions,) or "
            "(chains, partitions), finite values that are at least 0, and at least one "
            f"visit. Received: shapes {pdf.shape} and {visits.shape}, {visits.sum():g} "
            "visits"
        )
    return low, gap, pdf, visits.sum(0)


def _trace_panel(ax: "Axes", steps: Array, energies: Array, unit: str) -> None:
    for index, chain in enumerate(energies):
        ax.plot(
            steps,
            chain,
            color=style.COLOURS[index % len(style.COLOURS)],
            linewidth=0.8,
            marker="." if len(steps) < 100 else None,
        )
    ax.set_title("Energies along the run" + _chains(len(energies)))
    ax.set_xlabel(unit)
    ax.set_ylabel("energy U in nats")
    ax.grid(color=style.GREY, linewidth=0.6)


def _regions_panel(
    ax: "Axes", low: float, gap: float, pdf: Array, visits: Array
) -> None:
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    centres = low + gap * (np.arange(len(visits)) - 0.5)
    bars = ax.bar(
        centres, 100 * visits / visits.sum(), gap, color=style.GREY, edgecolor="white"
    )
    ax.set_xlim(centres[seen[0]] - gap, centres[seen[-1]] + gap)
    ax.set_xlabel("energy U in nats; outermost bars may hold all beyond")
    ax.set_ylabel("visits (% of the steps)")
    ax.set_title(f"Visits and mass of bins of {gap:.3g} nats" + _chains(len(pdf)))

    colour = style.COLOURS[0]
    density = ax.twinx()
    with np.errstate(divide="ignore"):  # a mass may underflow
        logs = np.log(pdf[:, shown])
    lines = density.plot(centres[shown], logs.T, color=colour, linewidth=1.6)
    density.set_ylabel(r"log of the learned mass $\theta$ (nats)", color=colour)
    density.tick_params(axis="y", colors=colour)
    density.legend(
        [bars, lines[0]], ["visits", r"log $\theta$"], frameon=False, fontsize="small"
    )


def _chains(count: int) -> str:
    return f", {count} chains" if count > 1 else ""
