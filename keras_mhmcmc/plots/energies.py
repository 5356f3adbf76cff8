"""Pictures of a run's energies, and of what a contour sampler learns of them."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.optimizers.contour import ContourSampler
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.sampling import Draws

KEYS = ("energy_min", "energy_gap", "pdf", "visits")


def energy(run, optimizer=None, partition=None, axes=None):
    """The energies of a run, and the mass of their subregions that it learned.

    The first panel has the energies along the run. The second, of a contour sampler,
    has a bar for each subregion of the energy, the share of the steps that the run
    spent there, and the logarithm of theta, its learned mass. The wider the bars
    spread, the better the sampler moves between low and high energies. The first and
    the last bar stand for everything below and above the partition.

    Args:
        run: `mh.PosteriorSamples`, `mh.Draws`, or energies U in nats of shape (draws,)
            or (chains, draws).
        optimizer: the `mh.CSGLD` or `mh.CSGHMC` that ran; None draws no second panel,
            unless there is a `partition`.
        partition: for draws of `mh.kernels.csgld` and `csghmc`, in place of
            `optimizer`: a dict with `energy_min` and `energy_gap` in nats. For plain
            arrays it has `pdf` and `visits` as well, of shape (partitions,) or
            (chains, partitions). Other keys are ignored.
        axes: one or two matplotlib `Axes`; None makes a figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `run` has no finite energies, `optimizer` is no contour sampler or
            has not run, `partition` lacks something, or `axes` do not fit.

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
    return panels[0].figure


def _energies(run):
    """(steps, energies of shape (chains, draws), what a step is)."""
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
            "energies in nats, of shape (draws,) or (chains, draws), some of them "
            f"finite. Received: energies of shape {energies.shape} from "
            f"{type(run).__name__}"
        )
    if steps is None:
        steps = np.arange(1, energies.shape[1] + 1)
    return steps, energies, unit


def _regions(run, optimizer, partition):
    """(energy_min, energy_gap, pdf, visits), or None without a contour sampler."""
    if optimizer is None and partition is None:
        return None
    if optimizer is not None and partition is not None:
        raise ValueError(
            "Arguments `optimizer` and `partition`: at most one of them may be given. "
            "Received: both"
        )
    known = {}
    if optimizer is not None:
        _validate.instance(
            "optimizer",
            optimizer,
            ContourSampler,
            "the `mh.CSGLD` or `mh.CSGHMC` that ran, such as `model.optimizer`",
        )
        if not optimizer.built:
            raise ValueError(
                "Argument `optimizer` must have run: call `model.fit` first. "
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
            "Argument `partition` must be a dict with energy_min and energy_gap, and, "
            "unless `run` is `mh.Draws` of a contour kernel, pdf and visits. "
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
            "(chains, partitions), finite values that are at least 0, and a visit at "
            f"least. Received: shapes {pdf.shape} and {visits.shape}, {visits.sum():g} "
            "visits"
        )
    return low, gap, pdf, visits.sum(0)


def _trace_panel(ax, steps, energies, unit):
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


def _regions_panel(ax, low, gap, pdf, visits):
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    centres = low + gap * (np.arange(len(visits)) - 0.5)
    bars = ax.bar(
        centres, 100 * visits / visits.sum(), gap, color=style.GREY, edgecolor="white"
    )
    ax.set_xlim(centres[seen[0]] - gap, centres[seen[-1]] + gap)
    ax.set_xlabel("energy U in nats; outermost bars may stand for all beyond")
    ax.set_ylabel("visits (% of the steps)")
    ax.set_title(f"Visits and mass of subregions of {gap:.3g} nats" + _chains(len(pdf)))

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


def _chains(count):
    return f", {count} chains" if count > 1 else ""
