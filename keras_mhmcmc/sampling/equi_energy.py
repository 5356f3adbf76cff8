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
from keras_mhmcmc.samplers.base import bound
from keras_mhmcmc.samplers.base import share
from keras_mhmcmc.sampling import faults
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.draws import ChainState
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.draws import of_levels
from keras_mhmcmc.sampling.log_density import LogDensity

tree = keras.tree

_ABOVE_ONE = _validate.Interval(1.0, low_open=True)
_FINITE = _validate.Interval(-3e38)


@loop.in_float32()
def equi_energy(
    init: Any,
    *,
    log_likelihood: Callable[..., Tensor],
    data: Any,
    log_prior: Callable[..., Tensor] | None = None,
    batch_size: int,
    growth: float = 1.4,
    num_levels: int | None = None,
    alpha: float = 0.995,
    reference: Any = None,
    lowest_energy: float | None = None,
    jump_probability: float = 0.1,
    step_size: float,
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
        num_levels: number of chains K, at least 2. Defaults to the largest number whose
            mini-batches are all smaller than the data.
        alpha: in (0, 1]; smaller is hotter. Defaults to 0.995.
        reference: the position that energies are compared with, between the modes or at
            one of them: differences are less noisy than energies. Defaults to `init`.
        lowest_energy: H_0 in nats, about the energy of the lowest mode. Defaults to
            the energy of `reference`. The next levels are H_{k+1} = H_k + 10 T_k.
        jump_probability: p_ee, in [0, 1). Defaults to 0.1.
        step_size: eps_0, the standard deviation of the coldest chain's moves in each
            direction, about the width of a mode. The hotter chains start with
            eps_0 sqrt(T_k). Each 50 moves of the burn-in may change it by a quarter, so
            that 0.2 to 0.5 of the local moves are accepted.
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
    target = LogDensity(None, log_likelihood, log_prior, data)
    sizes = ladder_sizes(target.train_size, batch_size, growth, num_levels)
    kernel = rules.EquiEnergy(
        batch_sizes=sizes,
        alpha=alpha,
        step_size=step_size,
        jump_probability=jump_probability,
        burn_in=burn_in,
        ring_steps=ring_steps,
        ring_capacity=ring_capacity,
    )
    resumes = isinstance(init, ChainState)
    loop.checked_plan(num_steps, 0 if resumes else burn_in, every)
    _validate.choice("progress", progress, (True, False))
    kept = len(sizes) if _validate.choice("keep_all", keep_all, (True, False)) else 1
    start = starts.begin(init, num_chains, seed, target.check)
    count = len(start.shapes)
    # The energies and the rings of a state belong to its batches.
    name = f"equi_energy, batches of {sizes}, rings of {kernel.ring_capacity}"
    if start.saved is not None:
        # The reference comes first in the values of a state.
        start.check_kernel(name)
        values = start.saved.values
        start = start._replace(saved=start.saved._replace(values=values[count:]))
        reference = values[:count]
    else:
        if reference is None:
            position = [x[0] for x in start.position]
            reference = tree.pack_sequence_as(start.structure, position)
        reference = start.one_position(reference, "reference")
    each, base, energy = _reference_terms(target, start.structure, reference)
    temperatures = kernel.temperatures
    lowest = energy if lowest_energy is None else lowest_energy
    lowest = _validate.number("lowest_energy", lowest, _FINITE)
    levels = rules.default_levels(lowest, temperatures)
    # Log-likelihoods are differences from the reference's. The log prior is not.
    faults.check_resolution(np.array([energy - base]), temperatures[0], "log_prior")
    kernel = bound(kernel, levels=[level - base for level in levels], reference=each)
    recorded = kept * start.shapes[0][0]
    at, first = start.number, kernel.starts[0]  # the coldest chain starts at `first`
    wait, left = max(first - at, 0), max(first + kernel.burn_in - max(at, first), 0)
    loop.checked_plan(num_steps, left, every)
    plan = loop.Plan(wait + num_steps, wait + left, every)
    program = loop.Program(kernel, target, start, recorded=recorded)
    run = program.run(plan, name, progress)
    info = run.summary() | {"energy_levels": np.array(levels)}
    visits = ops.convert_to_numpy(run.state.visits).sum(axis=1)
    table = RingTable.of_run(info, run.counts, visits)
    arrays = [*run.leaves, run.others[0] + np.float64(base)]
    saved = run.saved._replace(values=[*reference, *run.saved.values])
    return of_levels(arrays, [info] * kept, saved, run.interrupted, (), table)


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

    @classmethod
    def of_run(
        cls, info: dict[str, Array], counts: dict[str, Any], visits: Array
    ) -> "RingTable":
        """Return the table of a run; `visits` are those of the rings, (K, K)."""
        sums = {name: x.sum(axis=1) for name, x in counts.items()}
        shares = share(visits, visits.sum(axis=1, keepdims=True))
        columns = {
            "chain": np.arange(len(visits)),
            "temperature": info["temperatures"],
            "batch_size": info["batch_sizes"],
            "level": info["energy_levels"],
            "step_size": info["step_sizes"].mean(axis=0),
            "acceptance": share(sums["accepted"], sums["proposed"]),
            "jump_acceptance": share(sums["jump_accepted"], sums["jump_proposed"]),
            **{f"ring {j}": column for j, column in enumerate(shares.T)},
        }
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return cls([dict(zip(columns, row, strict=True)) for row in rows])

    @property
    def shares(self) -> Array:
        """Share of each chain's states in each ring, shape (K, K)."""
        rings = range(len(self.rows))
        return np.array([[row[f"ring {j}"] for j in rings] for row in self.rows])

    def _printed(self) -> _table.Printed:
        last = len(self.rows) - 1
        rings = [f"[H{j},H{j + 1})" for j in range(1, last)]
        head = ["chain", "T", "m", "step", "accept", "jump", "<H1", *rings]
        lines = [[*head, f">=H{last}"]]
        for row, shares in zip(self.rows, self.shares, strict=True):
            cells = [
                f"{row['chain']:5d}",
                f"{row['temperature']:.2f}",
                str(row["batch_size"]),
                f"{row['step_size']:.3g}",
                f"{row['acceptance']:.2f}",
                f"{row['jump_acceptance']:.2f}",
            ]
            lines.append([*cells, *(f"{100 * share:.1f}%" for share in shares)])
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


def ladder_sizes(
    train_size: int, batch_size: Any, growth: Any, num_levels: Any
) -> list[int]:
    """Return the batch sizes of all chains, decreasing from `train_size`."""
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
    size = len(above) + 1
    are_different = len(set(above)) == len(above)
    if not are_different or above[-1] >= train_size or size != (num_levels or size):
        raise ValueError(
            "Arguments `batch_size`, `growth` and `num_levels` must give batches of "
            f"different sizes, below the {train_size} examples of `data`: only the "
            f"coldest chain takes all of them. Received: batch_size={batch_size}, "
            f"growth={growth:g}, num_levels={num_levels}, which give {above}"
        )
    return [train_size, *reversed(above)]
