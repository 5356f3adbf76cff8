"""Pictures of runs: energies, acceptance, weights that matter, draws on contours."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import checked_energy_partition
from keras_mhmcmc.plots import style
from keras_mhmcmc.posterior.callback import PosteriorSamples
from keras_mhmcmc.samplers.contour import ContourOptimizer
from keras_mhmcmc.samplers.spike_slab import SpikeSlabOptimizer
from keras_mhmcmc.sampling import Draws

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES = {
    "acceptance": "all proposals",
    "forward_acceptance": "forward, down the gradient",
    "backward_acceptance": "backward, up the gradient",
}
FEW = 60  # a kernel with at most this many weights gets a marker for each
MASSES = (0.99, 0.9, 0.5, 0.1)  # of a target inside contours, the outer line first
CHUNK = 1000  # points of contours to evaluate at once
MARGIN = 0.15  # of contours on each side, as a share of the draws' range


def energy(
    run: "PosteriorSamples | Draws | Any",
    optimizer: ContourOptimizer | None = None,
    partition: EnergyPartition | None = None,
    axes: Any = None,
) -> "Figure":
    """Draw the energies of a run, and the learned masses of their subregions.

    The first panel has the energies along the run. The second panel, for a contour
    sampler, has a bar for each subregion of the energy: the share of the steps that the
    run spent there. A line has the logarithm of theta, the learned mass. The wider the
    bars spread, the better the sampler moves between low and high energies.

    Args:
        run: `mh.PosteriorSamples`, `mh.Draws`, or energies U in nats of shape (draws,)
            or (chains, draws).
        optimizer: the `mh.CSGLD` or `mh.CSGHMC` that ran, with one partition for all
            chains. Without `optimizer` and `partition` there is no second panel.
        partition: the `mh.EnergyPartition` of `mh.kernels.csgld` or `csghmc`, whose
            `mh.Draws` are `run`.
        axes: one or two matplotlib `Axes`, one for each panel. None makes a figure.

    Example:

    >>> figure = energy([[4.0, 2.5, 3.5], [3.0, 4.5, 2.0]])
    >>> figure.axes[0].get_title()
    'Energies along the run, 2 chains'

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", Fig. 1.
    """
    if isinstance(run, PosteriorSamples):
        energies = np.atleast_2d(run.energies.T)
        steps, unit = run.iterations.T, "iteration"
    else:
        values = run.info["energy"] if isinstance(run, Draws) else run
        energies = np.atleast_2d(_validate.array("Argument `run`", values))
        steps, unit = np.arange(1, energies.shape[-1] + 1), "draw"
    if energies.ndim != 2 or not np.isfinite(energies).any():
        raise ValueError(
            "Argument `run` must be `mh.PosteriorSamples`, `mh.Draws` or an array of "
            "energies in nats, of shape (draws,) or (chains, draws), with finite "
            f"energies. Received: energies of shape {energies.shape} from "
            f"{type(run).__name__}"
        )
    regions = _regions(run, optimizer, partition)
    count = 1 if regions is None else 2
    figure, [panels] = style.many_axes(axes, (1, count), size=(5.2, 3.6))
    ax = panels[0]
    steps = np.broadcast_to(steps, energies.shape)
    for index, chain in enumerate(energies):
        looks: dict[str, Any] = {"marker": "." if len(chain) < 100 else None}
        looks |= {"color": style.colour(index), "linewidth": 0.8}
        ax.plot(steps[index], chain, **looks)
    chains = f", {len(energies)} chains" if len(energies) > 1 else ""
    title = "Energies along the run" + chains
    style.frame(ax, unit, "energy U in nats", title=title)
    if regions is not None:
        _regions_panel(panels[1], *regions)
    return figure


def _regions(
    run: Any, optimizer: ContourOptimizer | None, partition: EnergyPartition | None
) -> tuple[EnergyPartition, Array, Array] | None:
    """Return (partition, masses, visits), or None without a contour sampler."""
    if optimizer is not None:
        hint = "the `mh.CSGLD` or `mh.CSGHMC` that ran, such as `model.optimizer`"
        _validate.instance("optimizer", optimizer, ContourOptimizer, hint)
        found = optimizer.partition if optimizer.built else None
        if not isinstance(found, EnergyPartition):
            raise ValueError(
                "Argument `optimizer` must have run past its `pilot_steps`, with one "
                "partition: call `model.fit` first, and pass a `partition` to the "
                f"optimizer of several chains. Received: {optimizer=!r}"
            )
        masses, visits = optimizer.learned_masses(), optimizer.visits()
    elif partition is not None:
        found = checked_energy_partition(partition)
        info = run.info if isinstance(run, Draws) else {}
        masses, visits = (np.asarray(info.get(n, ())) for n in ("masses", "visits"))
        if masses.shape[-1:] != (found.partitions,):
            raise ValueError(
                "Argument `partition` must be that of the contour kernel whose "
                f"`mh.Draws` are `run`. Received: partition={found}, and masses of "
                f"shape {masses.shape} from {type(run).__name__}"
            )
    else:
        return None
    return found, np.atleast_2d(masses), np.atleast_2d(visits).sum(0)


def _regions_panel(
    ax: "Axes", partition: EnergyPartition, masses: Array, visits: Array
) -> None:
    low, gap = partition.energy_min, partition.energy_gap
    seen = np.flatnonzero(visits)
    shown = slice(seen[0], seen[-1] + 1)
    centres = low + gap * (np.arange(len(visits)) - 0.5)
    percent = 100 * visits / visits.sum()
    bars = ax.bar(centres, percent, gap, color=style.GREY, edgecolor="white")
    chains = f", {len(masses)} chains" if len(masses) > 1 else ""
    ax.set(
        xlim=(centres[seen[0]] - gap, centres[seen[-1]] + gap),
        xlabel="energy U in nats; outermost bars may stand for all beyond",
        ylabel="visits (% of the steps)",
        title=f"Visits and mass of subregions of {gap:.3g} nats" + chains,
    )
    colour, density = style.COLOURS[0], ax.twinx()
    with np.errstate(divide="ignore"):  # a mass may underflow
        logs = np.log(masses[:, shown])
    lines = density.plot(centres[shown], logs.T, color=colour, linewidth=1.6)
    density.set_ylabel(r"log of the learned mass $\theta$ (nats)", color=colour)
    density.tick_params(axis="y", colors=colour)
    labels = ["visits", r"log $\theta$"]
    density.legend([bars, lines[0]], labels, frameon=False, fontsize="small")


def acceptance(
    history: keras.callbacks.History | Mapping[str, npt.ArrayLike], axes: Any = None
) -> "Figure":
    """Plot the share of accepted proposals by epoch, and beta if it is adapted.

    Args:
        history: the result of `fit` with `mh.PosteriorSamples` among the callbacks, or
            its dict `history.history`. For an `mh.ParallelChains` pass
            `model.chain_history`, which plots a line for each chain. The entries
            `acceptance`, `forward_acceptance`, `backward_acceptance` and `beta`, of
            shape (epochs,) or (epochs, chains), are used if they exist.
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
    values = {
        name: np.atleast_1d(_validate.array(f"Entry {name!r} of `history`", logs[name]))
        for name in (*SHARES, "beta")
        if name in logs
    }
    epochs = np.arange(1, len(values["acceptance"]) + 1)
    if isinstance(history, keras.callbacks.History):
        epochs = np.array(history.epoch) + 1
    shapes = {name: value.shape for name, value in values.items()}
    if any(len(s) > 2 or s[0] != len(epochs) for s in shapes.values()):
        raise ValueError(
            "Argument `history` must have entries of shape (epochs,) or (epochs, "
            f"chains), here of {len(epochs)} epochs. Received: the shapes {shapes}"
        )
    count = 2 if "beta" in values else 1
    figure, [panels] = style.many_axes(axes, (1, count), size=(4.6, 3.8))
    for index, (name, label) in enumerate(SHARES.items()):
        if name in values:
            _lines(panels[0], epochs, 100 * values[name], index, label)
    options: dict[str, Any] = {"title": "Accepted proposals", "ylim": (-2, 102)}
    style.frame(panels[0], "epoch", "accepted proposals (%)", **options)
    style.legend_below(panels[0])
    if count == 2:
        _lines(panels[1], epochs, values["beta"], 0, None)
        title = "Beta: noise of backward moves\nover that of forward moves"
        style.frame(panels[1], "epoch", "beta (factor)", title=title)
    return figure


def _lines(
    ax: "Axes", epochs: Array, values: Array, index: int, label: str | None
) -> None:
    looks = style.of_line(index) | {"markersize": 4}
    if len(epochs) > 30:
        looks["marker"] = None
    width = 1.8 if values.ndim == 1 else 0.8
    lines = ax.plot(epochs, values, linewidth=width, **looks)
    lines[0].set_label(label)


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
    ax = style.one_axes(ax)
    for index, (name, given) in enumerate(probabilities.items()):
        subject = f"Entry {name!r} of `probabilities`"
        values = np.sort(_validate.array(subject, given), axis=None)[::-1]
        if values.size == 0 or not (values[-1] >= 0.0 and values[0] <= 1.0):
            raise ValueError(
                f"{subject} must have values in [0, 1], one for each weight. "
                f"Received: {_validate.shown(given)}"
            )
        count, included = len(values), int(np.sum(values > 0.5))
        looks = style.of_line(index) | {"markersize": 4, "linewidth": 2}
        if count > FEW:
            looks["marker"] = ""
        label = f"{name}: {included:,} of {count:,} ({included / count:.1%})"
        ax.plot(np.arange(1, count + 1), values, **looks, label=label)
    ax.axhline(0.5, color="0.5", linewidth=0.8, linestyle=":")
    title, ends = "Inclusion probabilities of the weights", (-0.02, 1.02)
    ranks = "rank of the weight in its kernel, the most probable first"
    options: dict[str, Any] = {"title": title, "ylim": ends, "xscale": "log"}
    style.frame(ax, ranks, "inclusion probability", **options)
    ax.legend(title="kernel: weights above 1/2", frameon=False, fontsize="small")
    return ax


def contours(
    log_density: Any,
    draws: Draws | npt.ArrayLike | None = None,
    *,
    extent: npt.ArrayLike | None = None,
    temperature: float = 1.0,
    points: int = 100,
    max_draws: int = 3000,
    color: Any = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Plot contours of a two-dimensional target, with draws on top.

    The lines enclose 10%, 50%, 90% and 99% of the target's mass within the plot. A
    good sampler places the same shares of its draws inside them. Draws with importance
    weights are resampled.

    Args:
        log_density: function that returns the log density of one position, a tensor of
            shape (2,), up to a constant. It uses `keras.ops`, as for `mh.sample`. Or
            an object with the method `log_density`, such as one of `mh.targets`.
        draws: `mh.Draws` whose position is a tensor of shape (2,), or an array of shape
            (..., 2) with the draws of all chains. None plots no draws.
        extent: ((low, high), (low, high)) of the two coordinates. Defaults to None: the
            range of the central 99.8% of the draws, and 15% more on each side.
        temperature: the target is exp(log_density / temperature). Greater than 0.
            Defaults to 1.
        points: number of grid points along each axis, at least 2. Defaults to 100.
        max_draws: largest number of draws to plot. More draws are thinned. Defaults to
            3000.
        color: matplotlib colour of the draws. Defaults to None, light blue.
        ax: matplotlib `Axes`. None makes a figure.

    Example:

    >>> from keras import ops
    >>> ax = contours(
    ...     lambda x: -0.5 * ops.sum(ops.square(x)), extent=((-3, 3), (-3, 3))
    ... )
    >>> ax.get_xlabel()
    'first coordinate'
    """
    temperature = _validate.number("temperature", temperature, _validate.POSITIVE)
    points = _validate.integer("points", points, 2)
    max_draws = _validate.integer("max_draws", max_draws, 1)
    dots = None if draws is None else _positions(draws)
    sides = _sides(extent, dots)
    ax = style.one_axes(ax)
    function = log_density
    if not callable(log_density):
        function = getattr(log_density, "log_density", None)
    if function is None:
        raise ValueError(
            "Argument `log_density` must be a function of a position, or an object "
            "with the method `log_density`. "
            f"Received: log_density={_validate.shown(log_density)}"
        )
    grid = [np.linspace(low, high, points) for low, high in sides]
    values = _on_grid(function, grid) / temperature
    if dots is not None:
        dots = dots[:: max(-(-len(dots) // max_draws), 1)]
        looks: dict[str, Any] = dict(
            color=color or style.COLOURS[4], markersize=3, alpha=0.6
        )
        ax.plot(*dots.T, ".", **looks, label=f"{len(dots):,} draws")
    falling = np.sort(values, axis=None)[::-1]
    mass = np.cumsum(np.exp(falling - falling[0]))
    places = np.searchsorted(mass, np.array(MASSES) * mass[-1])
    heights = falling[np.minimum(places, falling.size - 1)].tolist()
    # A target narrower than a grid cell has several shares at one level; one is kept.
    levels = {x: f"{share:.0%}" for x, share in zip(heights, MASSES, strict=True)}
    black: dict[str, Any] = {"colors": "black", "linestyles": "solid"}
    drawn = ax.contour(*grid, values.T, list(levels), linewidths=0.9, **black)
    ax.clabel(drawn, fmt=levels, fontsize=8)
    label = "lines enclose these shares of the target"
    ax.plot([], [], color="black", linewidth=0.9, label=label)
    title = "Draws and the target" if draws is not None else "The target"
    ax.set(xlim=sides[0], ylim=sides[1], title=title)
    ax.set(xlabel="first coordinate", ylabel="second coordinate")
    style.legend_below(ax, columns=2)
    return ax


def _positions(draws: Any) -> Array:
    """Return draws with equal weights, shape (draws, 2), or raise a `ValueError`."""
    position = draws
    if isinstance(draws, Draws):
        position = draws.resample() if np.ptp(draws.weights) > 0 else draws.position
    position = _validate.array("Argument `draws`", position)
    others = np.sum(~np.isfinite(position))
    if position.ndim < 2 or position.shape[-1] != 2 or position.size == 0 or others:
        raise ValueError(
            "Argument `draws` must be `mh.Draws` with positions of shape (2,), or an "
            "array of shape (..., 2), and be finite. Received: shape "
            f"{position.shape}, {others} values that are not finite"
        )
    return position.reshape(-1, 2)


def _sides(extent: npt.ArrayLike | None, draws: Array | None) -> Array:
    """Return the limits of both axes, ((low, high), (low, high)), shape (2, 2)."""
    if extent is None and draws is not None:
        low, high = np.quantile(draws, [0.001, 0.999], axis=0)
        margin = np.where(high > low, MARGIN * (high - low), 1.0)
        return np.stack([low - margin, high + margin], axis=1)
    sides = _validate.array("Argument `extent`", [] if extent is None else extent)
    is_range = sides.shape == (2, 2) and np.isfinite(sides).all()
    if not is_range or not (sides[:, 0] < sides[:, 1]).all():
        raise ValueError(
            "Argument `extent` must be ((low, high), (low, high)), low less than high, "
            f"also if there are no `draws`. Received: extent={extent!r}"
        )
    return sides


def _on_grid(function: Callable[[Tensor], Tensor], grid: list[Array]) -> Array:
    """Return the log density on a grid, float64, shape (points, points)."""
    first, second = np.meshgrid(*grid, indexing="ij")
    positions = np.stack([first.ravel(), second.ravel()], 1).astype("float32")
    value = function(ops.convert_to_tensor(positions[0]))
    shape = tuple(ops.shape(value)) if ops.is_tensor(value) else None
    if shape != ():
        given = _validate.shown(value) if shape is None else f"shape {shape}"
        raise ValueError(
            "Argument `log_density` must return one number for a position of shape "
            f"(2,), as a tensor. Received: a function that returns {given}"
        )
    chunks = [positions[i : i + CHUNK] for i in range(0, len(positions), CHUNK)]
    parts = [
        ops.convert_to_numpy(ops.vectorized_map(function, ops.convert_to_tensor(chunk)))
        for chunk in chunks
    ]
    values = np.concatenate(parts).astype("float64").reshape(first.shape)
    values = np.where(np.isnan(values), -np.inf, values)
    if not np.isfinite(values).any():
        raise ValueError(
            "Argument `log_density` must be finite somewhere in the plot. Choose "
            "another `extent`. Received: a function that is not finite at any of "
            f"{values.size} points"
        )
    return values
