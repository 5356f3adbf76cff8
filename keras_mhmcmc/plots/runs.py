"""Plots of runs: energies, acceptance, learning rates, and weights that matter."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import checked_energy_partition
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.samplers.contour import ContourOptimizer
from keras_mhmcmc.samplers.parts.rate_adaptation import LOW
from keras_mhmcmc.samplers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.sampling import Draws
from keras_mhmcmc.tuning import PASSES
from keras_mhmcmc.tuning import TOO_SLOW
from keras_mhmcmc.tuning import LearningRateTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES = {
    "acceptance": "all proposals",
    "forward_acceptance": "forward, down the gradient",
    "backward_acceptance": "backward, up the gradient",
}
FEW = 60  # a kernel with at most this many weights gets a marker for each


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
        visits: steps in each subregion, as `masses`; None takes `run.info["visits"]`.
        axes: one or two matplotlib `Axes`, one for each panel. None makes a figure.

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
    figure, [panels] = style.many_axes(axes, (1, count), size=(5.2, 3.6))
    ax = panels[0]
    for index, chain in enumerate(energies):
        marker = "." if len(chain) < 100 else None
        looks: dict[str, Any] = dict(
            color=style.colour(index), linewidth=0.8, marker=marker
        )
        ax.plot(steps[index], chain, **looks)
    ax.set_title("Energies along the run" + _chains(len(energies)))
    ax.set_xlabel(unit)
    ax.set_ylabel("energy U in nats")
    style.grid(ax)
    if regions is not None:
        _regions_panel(panels[1], *regions)
    return figure


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
    given = {"masses": masses, "visits": visits}
    if partition is not None:
        checked_energy_partition(partition)
        info = run.info if isinstance(run, Draws) else {}
        masses, visits = (_counted(n, given[n], info, partition) for n in given)
    else:
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"Argument `{name}` must be None without `partition`. Give the "
                    f"partition too. Received: {name}={_validate.shown(value)}"
                )
        if optimizer is None:
            return None
        partition = _found_partition(optimizer)
        masses, visits = optimizer.learned_masses(), optimizer.visits()
    masses, visits = np.atleast_2d(masses), np.atleast_2d(visits)
    if masses.shape != visits.shape or visits.sum() == 0:
        raise ValueError(
            "Arguments `masses` and `visits` must have the same shape, with at least "
            f"one visit. Received: shapes {masses.shape} and {visits.shape}, "
            f"{visits.sum():g} visits"
        )
    return partition, masses, visits.sum(0)


def _found_partition(optimizer: ContourOptimizer) -> EnergyPartition:
    """Return the partition of a run, or raise a `ValueError`."""
    hint = "the `mh.CSGLD` or `mh.CSGHMC` that ran, such as `model.optimizer`"
    _validate.instance("optimizer", optimizer, ContourOptimizer, hint)
    found = optimizer.partition if optimizer.built else None
    if isinstance(found, EnergyPartition):
        return found
    if not optimizer.built:
        fix = "have run: call `model.fit` first. "
    elif found is None:
        fix = "have one partition, but its pilot has not ended. Train for more than "
        fix += "`pilot_steps` steps. "
    else:
        fix = "have one partition, but each of its chains has found its own. Give "
        fix += "`partition`, `masses` and `visits` of one chain instead. "
    raise ValueError(f"Argument `optimizer` must {fix}Received: {optimizer=!r}")


def _counted(
    name: str, values: Any, info: dict[str, Any], partition: EnergyPartition
) -> Array:
    """Return checked values of each subregion. None takes them from `info`."""
    found = info.get(name) if values is None else values
    array = _validate.array(f"Argument `{name}`", [] if found is None else found)
    has_shape = array.ndim in (1, 2) and array.shape[-1] == partition.partitions
    if not has_shape or not (np.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(
            f"Argument `{name}` must have the shape ({partition.partitions},) or "
            f"(chains, {partition.partitions}), to fit `partition`, and finite values "
            "of at least 0. Give it with `partition`, unless `run` is `mh.Draws` of a "
            f"contour kernel. Received: shape {array.shape}, "
            f"{name}={_validate.shown(found)}"
        )
    return array


def _regions_panel(
    ax: "Axes", partition: EnergyPartition, masses: Array, visits: Array
) -> None:
    low, gap = partition.energy_min, partition.energy_gap
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    centres = low + gap * (np.arange(len(visits)) - 0.5)
    percent = 100 * visits / visits.sum()
    bars = ax.bar(centres, percent, gap, color=style.GREY, edgecolor="white")
    ax.set_xlim(centres[seen[0]] - gap, centres[seen[-1]] + gap)
    ax.set_xlabel("energy U in nats; outermost bars may stand for all beyond")
    ax.set_ylabel("visits (% of the steps)")
    title = f"Visits and mass of subregions of {gap:.3g} nats"
    ax.set_title(title + _chains(len(masses)))
    colour, density = style.COLOURS[0], ax.twinx()
    with np.errstate(divide="ignore"):  # a mass may underflow
        logs = np.log(masses[:, shown])
    lines = density.plot(centres[shown], logs.T, color=colour, linewidth=1.6)
    density.set_ylabel(r"log of the learned mass $\theta$ (nats)", color=colour)
    density.tick_params(axis="y", colors=colour)
    labels = ["visits", r"log $\theta$"]
    density.legend([bars, lines[0]], labels, frameon=False, fontsize="small")


def _chains(count: int) -> str:
    return f", {count} chains" if count > 1 else ""


def acceptance(
    history: keras.callbacks.History | Mapping[str, npt.ArrayLike], axes: Any = None
) -> "Figure":
    """Plot the share of accepted proposals by epoch, and beta if it is adapted.

    Args:
        history: the result of `fit` with `mh.PosteriorSamples` among the callbacks, or
            its dict `history.history`. For an `mh.ParallelChains` pass
            `model.chain_history`, which plots a line for each chain. The entries
            `acceptance`, `forward_acceptance`, `backward_acceptance` and `beta` are
            used if they exist. Their shape is (epochs,) or (epochs, chains).
        axes: matplotlib `Axes`, two if there is a `beta`, otherwise one; or None for a
            new figure.

    Example:

    >>> figure = acceptance({"acceptance": [0.9, 0.4, 0.3], "beta": [1.0, 4.0, 6.0]})
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['accepted proposals (%)', 'beta (factor)']

    Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with
    reversible SGLD proposal", section 2.3, for beta.
    """
    logs = history
    if isinstance(history, keras.callbacks.History):
        logs = history.history
    if not isinstance(logs, Mapping) or "acceptance" not in logs:
        received = sorted(logs, key=str) if isinstance(logs, Mapping) else history
        raise ValueError(
            "Argument `history` must be the result of `model.fit`, or its dict, with "
            "an entry 'acceptance'. Train with a Metropolis-Hastings sampler and with "
            "`mh.PosteriorSamples` among the callbacks. Received: "
            f"{_validate.shown(received)}"
        )
    names = [name for name in (*SHARES, "beta") if name in logs]
    values = {name: _by_epoch(name, logs[name]) for name in names}
    lengths = {name: len(value) for name, value in values.items()}
    epochs = np.arange(1, lengths["acceptance"] + 1)
    if isinstance(history, keras.callbacks.History):
        epochs = np.array(history.epoch) + 1
    if set(lengths.values()) != {len(epochs)}:
        raise ValueError(
            f"Argument `history` must have a value for each of {len(epochs)} epochs. "
            f"Received: {lengths}"
        )
    count = 2 if "beta" in values else 1
    figure, [panels] = style.many_axes(axes, (1, count), size=(4.6, 3.8))
    for index, (name, label) in enumerate(SHARES.items()):
        if name in values:
            _lines(panels[0], epochs, 100 * values[name], index, label)
    panels[0].set_ylim(-2, 102)
    panels[0].set_ylabel("accepted proposals (%)")
    panels[0].set_title("Accepted proposals")
    style.legend_below(panels[0])
    if count == 2:
        _lines(panels[1], epochs, values["beta"], 0, None)
        panels[1].set_ylabel("beta (factor)")
        panels[1].set_title("Beta: noise of backward moves\nover that of forward moves")
    for ax in panels:
        ax.set_xlabel("epoch")
        style.grid(ax)
    return figure


def _by_epoch(name: str, values: npt.ArrayLike) -> Array:
    """Return the values as floats of shape (epochs, chains), or raise."""
    array = _validate.array(f"The entry {name!r} of `history`", values)
    if array.ndim not in (1, 2) or len(array) == 0:
        raise ValueError(
            "Argument `history` must have entries of shape (epochs,) or (epochs, "
            f"chains). Received: {name!r} of shape {array.shape}"
        )
    return array if array.ndim == 2 else array[:, None]


def _lines(
    ax: "Axes", epochs: Array, values: Array, index: int, label: str | None
) -> None:
    looks = style.of_line(index) | {"markersize": 4}
    if len(epochs) > 30:
        looks["marker"] = None
    width = 1.8 if values.shape[1] == 1 else 0.8
    lines = ax.plot(epochs, values, linewidth=width, **looks)
    lines[0].set_label(label)


def learning_rates(table: LearningRateTable, axes: Any = None) -> "Figure":
    """Plot the energy after short runs against the learning rate.

    A vertical line marks the suggested rate. A second panel, for a
    Metropolis-Hastings sampler, has the share of accepted forward moves. Triangles at
    the upper edge stand for energies that are higher or not finite.

    Args:
        table: result of `mh.suggest_learning_rate`.
        axes: matplotlib `Axes`, two for a Metropolis-Hastings sampler, otherwise one;
            or None for a new figure.

    Example:

    >>> from keras_mhmcmc.tuning import LearningRateTable
    >>> row = {"learning_rate": 0.1, "start": 2.3, "end": 0.4}
    >>> row |= {"acceptance": float("nan"), "verdict": "passes"}
    >>> figure = learning_rates(LearningRateTable([row], "SGD", "loss"))
    >>> figure.axes[0].get_ylabel()
    'loss'

    Reference: Smith (2017), "Cyclical learning rates for training neural networks",
    Fig. 3.
    """
    hint = "a result of `mh.suggest_learning_rate`"
    _validate.instance("table", table, LearningRateTable, hint)
    percent = 100 * table.column("acceptance")
    count = 1 if np.isnan(percent).all() else 2
    figure, [panels] = style.many_axes(axes, (1, count), size=(5.4, 4.0))
    _energy_panel(panels[0], table)
    if count == 2:
        ax, least = panels[1], 100 * LOW
        _points(ax, table, percent, np.zeros(len(percent), bool))
        ax.axhline(least, color="black", linestyle=":", label=f"least: {least:g}%")
        ax.set_ylim(-2, 102)
        ax.set_ylabel("accepted forward moves (%)")
        ax.set_title("Accepted moves")
    for ax in panels:
        ax.set_xscale("log")
        ax.set_xlabel("learning rate")
        style.grid(ax)
        if table.rate is not None:
            looks: dict[str, Any] = dict(color=style.COLOURS[2], linestyle="--")
            ax.axvline(table.rate, **looks, label=f"suggested rate: {table.rate:g}")
        style.legend_below(ax, columns=2)
    return figure


def _energy_panel(ax: "Axes", table: LearningRateTable) -> None:
    start, end = table.rows[0]["start"], table.column("end")
    lowest = np.min(end[np.isfinite(end)], initial=start)
    margin = 0.25 * (start - lowest) or 1.0
    high, low = start + margin, lowest - 0.4 * margin
    is_above = ~(end <= high)
    _points(ax, table, np.where(is_above, high, end), is_above)
    ax.axhline(start, color="black", linestyle=":", label="before the run")
    ax.set_ylim(low, high + 0.2 * margin)
    ax.set_ylabel(table.measure)
    ax.set_title(f"{table.optimizer}: {table.measure} after a short run")


def _points(
    ax: "Axes", table: LearningRateTable, values: Array, is_above: Array
) -> None:
    """Draw a line through the values, and a marker for what a rate is."""
    rates, verdicts = table.column("learning_rate"), table.column("verdict")
    passes, is_slow = verdicts == PASSES, verdicts == TOO_SLOW
    fails = ~passes & ~is_slow
    kinds = {
        "passes": (passes, style.COLOURS[0], "o"),
        "too slow": (is_slow, style.COLOURS[1], "s"),
        "does not pass": (fails & ~is_above, style.WRONG, "X"),
        "does not pass, higher or not finite": (fails & is_above, style.WRONG, "^"),
    }
    ax.plot(rates, values, color=style.GREY, zorder=1)
    for label, (chosen, colour, marker) in kinds.items():
        if chosen.any():
            looks: dict[str, Any] = dict(color=colour, marker=marker, s=45, zorder=2)
            ax.scatter(rates[chosen], values[chosen], **looks, label=label)


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

    Example:

    >>> import numpy as np
    >>> ax = inclusion({"dense/kernel": np.array([[0.9], [0.1], [0.2], [0.1]])})
    >>> ax.get_legend().get_texts()[0].get_text()
    'dense/kernel: 1 of 4 (25.0%)'

    Reference: Deng, Zhang, Liang and Lin (2019), "An adaptive empirical Bayesian method
    for sparse deep learning".
    """
    if isinstance(probabilities, SpikeSlabOptimizer):
        several, found = probabilities.num_chains, {}
        for name, values in probabilities.inclusion_probabilities().items():
            for number, chain in enumerate(values if several else [values]):
                found[f"{name}, chain {number}" if several else name] = chain
        probabilities = found
    if not isinstance(probabilities, Mapping) or not probabilities:
        raise ValueError(
            "Argument `probabilities` must be a spike-and-slab sampler after its first "
            "step, or its `inclusion_probabilities()`, a dict from names to arrays. "
            f"Received: probabilities={probabilities!r}"
        )
    kernels = {name: _sorted(name, values) for name, values in probabilities.items()}
    ax = style.one_axes(ax)
    for index, (name, values) in enumerate(kernels.items()):
        count, included = len(values), int(np.sum(values > 0.5))
        looks = style.of_line(index) | {"markersize": 4, "linewidth": 2}
        if count > FEW:
            looks["marker"] = ""
        label = f"{name}: {included:,} of {count:,} ({included / count:.1%})"
        ax.plot(np.arange(1, count + 1), values, **looks, label=label)
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    ax.set_xscale("log")
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlabel("rank of the weight in its kernel, the most probable first")
    ax.set_ylabel("inclusion probability")
    ax.set_title("Inclusion probabilities of the weights")
    style.grid(ax)
    ax.legend(title="kernel: weights above 1/2", frameon=False, fontsize="small")
    return ax


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
