"""Pictures of the energies of a run, and of the masses of a contour sampler."""

from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import checked_energy_partition
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.samplers.contour import ContourOptimizer
from keras_mhmcmc.sampling import Draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def energy(
    run: "PosteriorSamples | Draws | Any",
    optimizer: ContourOptimizer | None = None,
    partition: EnergyPartition | None = None,
    masses: Any = None,
    visits: Any = None,
    axes: Any = None,
) -> "Figure":
    """Draw the energies of a run, and the learned masses of their subregions.

    The first panel has the energies along the run. The second panel, for a contour
    sampler, has a bar for each subregion of the energy: the share of the steps that the
    run spent there. A line has the logarithm of theta, the learned mass. The wider the
    bars spread, the better the sampler moves between low and high energies. The first
    and the last bar stand for all energies below and above the partition.

    Args:
        run: `mh.PosteriorSamples`, `mh.Draws`, or energies U in nats of shape (draws,)
            or (chains, draws).
        optimizer: the `mh.CSGLD` or `mh.CSGHMC` that ran. Without `optimizer` and
            `partition` there is no second panel.
        partition: `mh.EnergyPartition`, instead of `optimizer`, for draws of
            `mh.kernels.csgld` and `csghmc` and for plain energies.
        masses: learned mass of each subregion, with `partition` only: shape
            (partitions,) or (chains, partitions). None takes `run.info["masses"]` of
            `mh.Draws`.
        visits: steps in each subregion, with `partition` only, in the shape of
            `masses`. None takes `run.info["visits"]` of `mh.Draws`.
        axes: one or two matplotlib `Axes`, one for each panel. None makes a figure.

    Returns:
        The matplotlib `Figure`.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: `run` has no finite energies, `optimizer` is no contour sampler or
            has not run, `masses` or `visits` are missing or have a wrong shape, or
            `axes` do not fit.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> figure = energy(
    ...     np.array([4.0, 2.5, 3.5]),
    ...     partition=mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=4),
    ...     masses=[0.1, 0.5, 0.3, 0.1],
    ...     visits=[0, 1, 2, 0],
    ... )
    >>> [round(bar.get_height()) for bar in figure.axes[1].patches]
    [0, 33, 67, 0]

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", Fig. 1.
    """
    steps, energies, unit = _energies(run)
    regions = _regions(run, optimizer, partition, masses, visits)
    count = 1 if regions is None else 2
    panels = style.many_axes(axes, (1, count), size=(5.2, 3.6))[0]
    _trace_panel(panels[0], steps, energies, unit)
    if regions is not None:
        _regions_panel(panels[1], *regions)
    return panels[0].figure


def _energies(run: Any) -> tuple[Array, Array, str]:
    """Return steps and energies (chains, draws), and the name of a step."""
    unit, steps = "draw", None
    if isinstance(run, PosteriorSamples):
        energies, steps, unit = run.energies.T, run.iterations.T, "iteration"
    elif isinstance(run, Draws):
        energies = run.info["energy"]
    else:
        energies = _validate.array("Argument `run`", run)
    energies = np.atleast_2d(energies)
    if energies.ndim != 2 or not np.isfinite(energies).any():
        raise ValueError(
            "Argument `run` must be `mh.PosteriorSamples`, `mh.Draws` or an array of "
            "energies in nats, of shape (draws,) or (chains, draws), with finite "
            f"energies. Received: energies of shape {energies.shape} from "
            f"{type(run).__name__}"
        )
    if steps is None:
        steps = np.arange(1, energies.shape[1] + 1)
    return np.broadcast_to(steps, energies.shape), energies, unit


def _regions(
    run: Any,
    optimizer: ContourOptimizer | None,
    partition: EnergyPartition | None,
    masses: Any,
    visits: Any,
) -> tuple[EnergyPartition, Array, Array] | None:
    """Return (partition, masses, visits), or None without a contour sampler."""
    if optimizer is not None and partition is not None:
        raise ValueError(
            "At most one of the arguments `optimizer` and `partition` may be given. "
            "Received: both"
        )
    if partition is None:
        for name, value in {"masses": masses, "visits": visits}.items():
            if value is not None:
                raise ValueError(
                    f"Argument `{name}` must be None without `partition`. Give the "
                    f"partition too. Received: {name}={_validate.shown(value)}"
                )
    if optimizer is not None:
        _validate.instance(
            "optimizer",
            optimizer,
            ContourOptimizer,
            "the `mh.CSGLD` or `mh.CSGHMC` that ran, such as `model.optimizer`",
        )
        if not optimizer.built:
            raise ValueError(
                "Argument `optimizer` must have run: call `model.fit` first. "
                f"Received: optimizer={optimizer!r}"
            )
        found = optimizer.partition
        if not isinstance(found, EnergyPartition):
            raise ValueError(
                "Argument `optimizer` must have one partition, but "
                + (
                    "its pilot has not ended. Train for more than `pilot_steps` steps. "
                    if found is None
                    else "each of its chains has found its own. Give `partition`, "
                    "`masses` and `visits` of one chain instead. "
                )
                + f"Received: optimizer={optimizer!r}"
            )
        partition = found
        masses, visits = optimizer.learned_masses(), optimizer.visits()
    elif partition is not None:
        checked_energy_partition(partition)
        info = run.info if isinstance(run, Draws) else {}
        masses = _counted("masses", masses, info, partition)
        visits = _counted("visits", visits, info, partition)
    else:
        return None
    masses, visits = np.atleast_2d(masses), np.atleast_2d(visits)
    if masses.shape != visits.shape or visits.sum() == 0:
        raise ValueError(
            "Arguments `masses` and `visits` must have the same shape, with at least "
            f"one visit. Received: shapes {masses.shape} and {visits.shape}, "
            f"{visits.sum():g} visits"
        )
    return partition, masses, visits.sum(0)


def _counted(
    name: str, values: Any, info: dict[str, Any], partition: EnergyPartition
) -> Array:
    """Return checked values of each subregion. None takes them from `info`."""
    values = info.get(name) if values is None else values
    if values is None:
        raise ValueError(
            f"Argument `{name}` must be given with `partition`, unless `run` is "
            f"`mh.Draws` of a contour kernel. Received: {name}=None"
        )
    values = _validate.array(f"Argument `{name}`", values)
    has_shape = values.ndim in (1, 2) and values.shape[-1] == partition.partitions
    if not has_shape or not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError(
            f"Argument `{name}` must have the shape ({partition.partitions},) or "
            f"(chains, {partition.partitions}), to fit `partition`, and finite values "
            f"of at least 0. Received: shape {values.shape}, "
            f"{name}={_validate.shown(values.tolist())}"
        )
    return values


def _trace_panel(ax: "Axes", steps: Array, energies: Array, unit: str) -> None:
    for index, chain in enumerate(energies):
        ax.plot(
            steps[index],
            chain,
            color=style.COLOURS[index % len(style.COLOURS)],
            linewidth=0.8,
            marker="." if len(chain) < 100 else None,
        )
    ax.set_title("Energies along the run" + _chains(len(energies)))
    ax.set_xlabel(unit)
    ax.set_ylabel("energy U in nats")
    ax.grid(color=style.GREY, linewidth=0.6)


def _regions_panel(
    ax: "Axes", partition: EnergyPartition, masses: Array, visits: Array
) -> None:
    low, gap = partition.energy_min, partition.energy_gap
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    centres = low + gap * (np.arange(len(visits)) - 0.5)
    bars = ax.bar(
        centres, 100 * visits / visits.sum(), gap, color=style.GREY, edgecolor="white"
    )
    ax.set_xlim(centres[seen[0]] - gap, centres[seen[-1]] + gap)
    ax.set_xlabel("energy U in nats; outermost bars may stand for all beyond")
    ax.set_ylabel("visits (% of the steps)")
    ax.set_title(
        f"Visits and mass of subregions of {gap:.3g} nats" + _chains(len(masses))
    )

    colour = style.COLOURS[0]
    density = ax.twinx()
    with np.errstate(divide="ignore"):  # a mass may underflow
        logs = np.log(masses[:, shown])
    lines = density.plot(centres[shown], logs.T, color=colour, linewidth=1.6)
    density.set_ylabel(r"log of the learned mass $\theta$ (nats)", color=colour)
    density.tick_params(axis="y", colors=colour)
    density.legend(
        [bars, lines[0]], ["visits", r"log $\theta$"], frameon=False, fontsize="small"
    )


def _chains(count: int) -> str:
    return f", {count} chains" if count > 1 else ""
