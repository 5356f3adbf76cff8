"""`equi_energy`: MINTEE, chains on batches of growing size that jump between modes."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import equi_energy as rules
from keras_mhmcmc.samplers.base import share as share_of
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import of_levels
from keras_mhmcmc.sampling.log_density import LogDensity
from keras_mhmcmc.sampling.run import Program

tree = keras.tree

_SHARE = _validate.Interval(0.0, 1.0)
_CLOSED = _validate.Interval(0.0, 1.0, high_open=False)
_ALPHA = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
_ABOVE_ONE = _validate.Interval(1.0, low_open=True)
_FINITE = _validate.Interval(-3e38)

_ORIGIN = "`mh.equi_energy` with the same batch sizes and `ring_capacity`"


@loop.in_float32
def equi_energy(
    init: Any,
    *,
    log_likelihood: Callable[..., Tensor],
    data: Any,
    log_prior: Callable[..., Tensor] | None = None,
    batch_size: int | None = None,
    growth: float = 1.4,
    num_levels: int | None = None,
    batch_sizes: Sequence[int] | None = None,
    alpha: float = 0.995,
    reference: Any = None,
    lowest_energy: float | None = None,
    energy_levels: Sequence[float] | None = None,
    jump_probability: float = 0.1,
    step_size: float,
    target_acceptance: tuple[float, float] = (0.2, 0.5),
    num_steps: int,
    num_chains: int = 1,
    burn_in: int = 1000,
    ring_steps: int = 1000,
    ring_capacity: int = 1000,
    every: int = 1,
    seed: int = 0,
    keep_all: bool = False,
    progress: bool = True,
) -> Draws:
    """Run MINTEE: hot chains on small batches show a cold chain where the modes are.

    The coldest chain, k = 0, samples exp(-U) on all of the n examples. U in nats is
    -(sum of log-likelihoods + log prior). The hotter chains k = 1..K-1 sample
    exp(-max(U, H_k)/T_k) at T_k = n / m_k^alpha, with U estimated from m_k examples.
    Each chain keeps its past states in rings of similar energy. With
    `jump_probability` the next colder chain proposes a state from the ring that its own
    energy belongs to.

    The hottest chain starts first. A chain adapts its step size for `burn_in` steps,
    then fills its rings for `ring_steps` steps, and then the next chain starts. All
    rings take 4 num_chains (K - 1) K (ring_capacity + 1) (d + 8) bytes for d values in
    a position: 10 MB for K = 7 and d = 50.

    Args:
        init: as in `mh.sample`.
        log_likelihood: as in `mh.sample`.
        data: as in `mh.sample`.
        log_prior: as in `mh.sample`.
        batch_size: of the hottest chain, m_{K-1}. From chain to chain, batches grow by
            the factor `growth`. The coldest chain takes all of the data.
        growth: factor between batch sizes, greater than 1. Defaults to 1.4.
        num_levels: number of chains K, at least 2, with `batch_size`. Defaults to the
            largest number whose mini-batches are all smaller than the data.
        batch_sizes: all sizes instead of these three, decreasing from n.
        alpha: in (0, 1]; smaller is hotter. Defaults to 0.995.
        reference: the position that energies are compared with, between the modes or at
            one of them: differences are less noisy than energies. Defaults to `init`.
        lowest_energy: H_0 in nats, about the energy of the lowest mode. Defaults to
            the energy of `reference`. The next levels are H_{k+1} = H_k + 10 T_k.
        energy_levels: all levels H_0 < ... < H_{K-1} in nats, instead.
        jump_probability: p_ee, in [0, 1). Defaults to 0.1.
        step_size: eps_0, the standard deviation of the coldest chain's moves in each
            direction, about the width of a mode. The hotter chains start with
            eps_0 sqrt(T_k). Each 50 moves of the burn-in may change it by a quarter.
        target_acceptance: (lowest, highest) share of accepted local moves.
        num_steps: steps of the coldest chain, at least `burn_in` + `every`. With a
            `state` in `init`, the number of further steps, at least what is left of
            `burn_in` + `every`. Steps before the coldest chain begins come on top.
        num_chains: number of independent ladders of K chains. Defaults to 1.
        burn_in: steps of each chain before it fills its rings or keeps draws.
        ring_steps: further steps of each chain before the next colder chain starts.
        ring_capacity: number of states that one ring holds, at least 1.
        every: as in `mh.sample`.
        seed: as in `mh.sample`.
        keep_all: whether to keep the draws of all chains, in `levels`.
        progress: whether to show a bar, which counts the steps of the hottest chain.

    Returns:
        `Draws` of the coldest chain. `rings` is a `RingTable` of all chains. `info` has
        `energy` of each draw; for each temperature `acceptance`, `jump_acceptance` (NaN
        for the hottest), `refresh_acceptance` (of the same position on another batch),
        `nonfinite` (proposals without a finite energy) and `step_sizes`, shape (chain,
        K), over the steps after the coldest chain's burn-in; and `temperatures`,
        `batch_sizes` and `energy_levels`, shape (K,).

    Raises:
        ValueError: an argument is outside its range, a function returns a wrong shape,
            or the log-likelihood at `init` or `reference` is not finite. Raised before
            the chains are compiled.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> from keras import ops
    >>> x = np.random.default_rng(0).normal(size=1000)
    >>> draws = mh.equi_energy(
    ...     0.0,
    ...     log_likelihood=lambda mean, x: -0.5 * ops.square(x - mean),
    ...     data=x,
    ...     batch_size=250,
    ...     num_levels=3,
    ...     step_size=0.03,
    ...     num_steps=150,
    ...     burn_in=50,
    ...     ring_steps=50,
    ...     progress=False,
    ... )
    >>> draws.position.shape, draws.info["batch_sizes"]
    ((1, 100), array([1000,  350,  250]))

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", algorithm 2 and
    appendix D.
    """
    burn_in = _validate.integer("burn_in", burn_in, 0)
    ring_steps = _validate.integer("ring_steps", ring_steps, 1)
    resumes = isinstance(init, ChainState)
    loop.checked_plan(num_steps, 0 if resumes else burn_in, every)
    _validate.choice("progress", progress, (True, False))
    target = LogDensity(None, log_likelihood, log_prior, data)
    train_size = target.train_size or 1
    sizes = checked_sizes(train_size, batch_size, growth, num_levels, batch_sizes)
    alpha = _validate.number("alpha", alpha, _ALPHA)
    temperatures = rules.ladder(train_size, sizes, alpha)
    step_size = _validate.number("step_size", step_size, _validate.POSITIVE)
    hint = "two increasing numbers in [0, 1], such as (0.2, 0.5)"
    low, high = starts.increasing(
        "target_acceptance", target_acceptance, hint, _CLOSED, 2
    )
    capacity = _validate.integer("ring_capacity", ring_capacity, 1)
    jump_probability = _validate.number("jump_probability", jump_probability, _SHARE)
    keep_all = _validate.choice("keep_all", keep_all, (True, False))
    start = starts.begin(init, num_chains, seed, target.check)
    count = len(start.shapes)
    # The energies and the rings of a state belong to its batches.
    name = f"equi_energy, batches of {list(sizes)}, rings of {capacity}"
    if start.saved is not None:
        # The reference comes first in the values of a state.
        start.check_kernel(name, _ORIGIN)
        values = start.saved.values
        start = start._replace(saved=start.saved._replace(values=values[count:]))
        reference = values[:count]
    else:
        if reference is None:
            reference = tree.pack_sequence_as(
                start.structure, [x[0] for x in start.position]
            )
        reference = start.one_position(reference, "reference")
    each, base, energy = _reference_terms(target, start.structure, reference)
    levels = _checked_levels(energy_levels, lowest_energy, energy, temperatures)
    # Log-likelihoods are differences from the reference's. The log prior is not.
    faults.check_resolution(np.array([energy - base]), temperatures[0], "log_prior")
    kernel = rules.EquiEnergy(
        batch_sizes=sizes,
        temperatures=temperatures,
        levels=[level - base for level in levels],
        starts=[k * (burn_in + ring_steps) for k in reversed(range(len(sizes)))],
        step_sizes=[step_size * temperature**0.5 for temperature in temperatures],
        burn_in=burn_in,
        capacity=capacity,
        jump_probability=jump_probability,
        target_acceptance=(low, high),
        keep_all=keep_all,
        reference=each,
    )
    kept = len(sizes) if keep_all else 1
    program = Program(kernel, target, start, recorded=kept * start.shapes[0][0])
    at, first = start.number, kernel.starts[0]  # the coldest chain starts at `first`
    wait, left = max(first - at, 0), max(first + burn_in - max(at, first), 0)
    loop.checked_plan(num_steps, left, every)
    plan = loop.Plan(wait + num_steps, wait + left, every)
    outcome = program.run(plan, name, _ORIGIN, progress)
    saved = program.saved(outcome)
    saved = saved._replace(values=[*reference, *saved.values])
    info, table = _report(outcome, kernel, levels)
    arrays = program.records(outcome)
    arrays[-1] = arrays[-1] + np.float64(base)
    return of_levels(arrays, [info] * kept, saved, outcome.interrupted, (), table)


def _report(
    outcome: loop.Outcome, kernel: rules.EquiEnergy, levels: Sequence[float]
) -> tuple[dict[str, Array], "RingTable"]:
    """Return what `Draws` tell of a run: `info` and `rings`."""
    chains, _, visits = outcome.state
    steps = [ops.convert_to_numpy(chain.step_size) for chain in chains]
    none = np.zeros((len(steps[0]), kernel.size))
    counts = {name: none + np.transpose(x) for name, x in outcome.counts.items()}

    def share(name: str, counts: dict[str, Array]) -> Array:
        return share_of(counts[f"{name}accepted"], counts[f"{name}proposed"])

    info = {
        "acceptance": share("", counts),
        "jump_acceptance": share("jump_", counts),
        "refresh_acceptance": share("refresh_", counts),
        "nonfinite": counts["nonfinite"],
        "step_sizes": np.stack(steps, axis=1),
        "temperatures": np.array(kernel.temperatures),
        "batch_sizes": np.array(kernel.batch_sizes),
        "energy_levels": np.array(levels),
    }
    totals = {name: x.sum(axis=0) for name, x in counts.items()}
    visits = ops.convert_to_numpy(visits).sum(axis=1)
    shares = share_of(visits, visits.sum(axis=1, keepdims=True))
    columns = {
        "temperature": kernel.temperatures,
        "batch_size": kernel.batch_sizes,
        "level": levels,
        "step_size": info["step_sizes"].mean(axis=0),
        "acceptance": share("", totals),
        "jump_acceptance": share("jump_", totals),
        **{f"ring {j}": column for j, column in enumerate(shares.T)},
    }
    rows = [
        {"chain": k} | {name: _plain(column[k]) for name, column in columns.items()}
        for k in range(kernel.size)
    ]
    return info, RingTable(rows)


def _plain(value: Any) -> Any:
    """Return a number as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


class RingTable(_table.PrintedTable):
    """A table with a row for each chain of `mh.equi_energy`, the coldest first.

    `print` shows the table. Independent ladders share a row.

    Args:
        rows: list of dicts. `chain` is the number of the chain, k. `temperature`,
            `batch_size`, `step_size` and `level`, H_k in nats, are its settings.
            `acceptance` is the share of accepted local moves, `jump_acceptance` the
            share of accepted jumps; NaN if none was proposed. `ring 0`, `ring 1` and so
            on are the shares of its states after the burn-in with an energy below H_1,
            in [H_1, H_2) and so on.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = list(rows)

    @property
    def shares(self) -> Array:
        """Share of each chain's states in each ring, shape (K, K)."""
        rings = range(len(self.rows))
        return np.array([[row[f"ring {j}"] for j in rings] for row in self.rows])

    def _printed(self) -> _table.Printed:
        last = len(self.rows) - 1
        rings = [f"[H{j},H{j + 1})" for j in range(1, last)]
        head = ["chain", "T", "m", "step", "accept", "jump", "<H1", *rings]
        head.append(f">=H{last}")
        lines = [head]
        for row, shares in zip(self.rows, self.shares, strict=True):
            lines.append(
                [
                    str(row["chain"]).rjust(len(head[0])),
                    f"{row['temperature']:.2f}",
                    str(row["batch_size"]),
                    f"{row['step_size']:.3g}",
                    f"{row['acceptance']:.2f}",
                    f"{row['jump_acceptance']:.2f}",
                    *(f"{100 * share:.1f}%" for share in shares),
                ]
            )
        return _table.Printed(lines)


def _reference_terms(
    target: LogDensity, structure: Any, reference: list[Array]
) -> tuple[Array, float, float]:
    """Return the reference's log-likelihoods (n,), minus their sum, and its U, nats."""

    def terms(position: list[Tensor], constants: list[Tensor]) -> tuple[Tensor, Tensor]:
        position = tree.pack_sequence_as(structure, position)
        each = target.log_likelihoods(position, [], constants)
        return each, ops.convert_to_tensor(target.log_prior(position), "float32")

    position = [ops.convert_to_tensor(x) for x in reference]
    each, log_prior = _backend.compile_function(terms)(position, target.constants)
    each = ops.convert_to_numpy(each)
    total = each.sum(dtype="float64")
    energy = -float(total) - float(ops.convert_to_numpy(log_prior))
    if not np.isfinite(energy):
        raise ValueError(
            "Argument `reference` (or `init`, its default) must be where the "
            f"log-likelihood and log prior are finite. Received: energy {energy}"
        )
    return each, -float(total), energy


def checked_sizes(
    train_size: int, batch_size: Any, growth: Any, num_levels: Any, batch_sizes: Any
) -> list[int]:
    """Return the batch sizes of all chains, decreasing from `train_size`."""
    if (batch_size is None) == (batch_sizes is None):
        raise ValueError(
            "Exactly one of the arguments `batch_size` and `batch_sizes` must be "
            "given: the hottest chain's size, or all sizes. Received: "
            f"batch_size={batch_size!r}, batch_sizes={batch_sizes!r}"
        )
    if batch_sizes is not None:
        hint = "a list of at least two sizes, which decrease from the number of "
        hint += f"examples in `data`, {train_size}: the coldest chain takes all of them"
        rising = batch_sizes
        if isinstance(batch_sizes, list | tuple) or np.ndim(batch_sizes) == 1:
            rising = batch_sizes[::-1]
        sizes = starts.increasing("batch_sizes", rising, hint, None)[::-1]
        if sizes[0] != train_size:
            raise ValueError(
                f"Argument `batch_sizes` must be {hint}. Received: batch_sizes={sizes}"
            )
        return sizes
    batch_size = _validate.integer("batch_size", batch_size, 1)
    growth = _validate.number("growth", growth, _ABOVE_ONE)
    if num_levels is not None:
        num_levels = _validate.integer("num_levels", num_levels, 2)
    above: list[int] = []  # the hottest chain's first
    while not above or batch_size * growth ** len(above) < train_size:
        above.append(int(batch_size * growth ** len(above)))
        # Stop at equal sizes: with a growth of nearly 1 the loop would take long.
        if len(above) + 1 == num_levels or above[-1:] == above[-2:-1]:
            break
    if len(set(above)) < len(above):
        raise ValueError(
            "Arguments `batch_size` and `growth` must give batches of different sizes. "
            f"Received: batch_size={batch_size}, growth={growth:g}, which give {above}"
        )
    if above[-1] >= train_size or len(above) + 1 != (num_levels or len(above) + 1):
        raise ValueError(
            "Arguments `batch_size`, `growth` and `num_levels` must give batches "
            f"smaller than the {train_size} examples of `data`: only the coldest chain "
            f"takes all of them. Received: batch_size={batch_size}, "
            f"growth={growth:g}, num_levels={num_levels}"
        )
    return [train_size, *reversed(above)]


def _checked_levels(
    energy_levels: Any, lowest: Any, energy: float, temperatures: Sequence[float]
) -> list[float]:
    """Return the energy levels H_0..H_{K-1} in nats."""
    if energy_levels is None:
        lowest = energy if lowest is None else lowest
        lowest = _validate.number("lowest_energy", lowest, _FINITE)
        return rules.default_levels(lowest, temperatures)
    if lowest is not None:
        raise ValueError(
            "Argument `lowest_energy` must be None with `energy_levels`, which begin "
            f"with it. Received: lowest_energy={lowest!r} and energy_levels"
        )
    size = len(temperatures)
    hint = f"a list of {size} increasing numbers, the coldest chain's first"
    return starts.increasing("energy_levels", energy_levels, hint, _FINITE, size)
