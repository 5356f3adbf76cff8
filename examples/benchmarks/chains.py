"""Time of a step of `mh.sample` beside blackjax's kernel in `lax.scan`, on JAX.

The kernels are SGLD, and contour SGLD with 50 subregions of the energy. The target is a
mixture of two normals in one dimension. Both libraries run the same number of steps and
chains in one process, by turns, and keep every position, and contour SGLD keeps the log
weight of every draw. `mh.sample` also returns the energy of each draw and the number of
energies that are not finite. For contour SGLD it returns normalised weights and the
number of draws in each subregion as well. The column "same results" is blackjax's
kernel with all of this. The time of a step is the time of a run minus the time of a
short run, divided by the difference in steps. So compilation and set-up do not count.

    python examples/benchmarks/chains.py            # needs blackjax (the `dev` extra)
    python examples/benchmarks/chains.py --kernels csgld
    KERAS_BACKEND=torch python examples/benchmarks/chains.py      # only ours
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import importlib.util
import statistics
import time

import keras
import measuring
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import contour

STEP = 0.05
PARTITIONS, GAP, LOWEST, ZETA, STEP_SIZE = 50, 0.25, 0.5, 0.75, 1e-3


def kernel_of(name):
    """Our kernel."""
    if name == "sgld":
        return mh.kernels.sgld(STEP)
    return mh.kernels.csgld(
        STEP,
        partition=mh.EnergyPartition(LOWEST, GAP, PARTITIONS),
        zeta=ZETA,
        step_size=STEP_SIZE,
    )


def log_density(x):
    """Log density of 0.4 N(-1.5, 0.6^2) + 0.6 N(1, 0.9^2), up to a constant."""
    left = np.log(0.4 / 0.6) - 0.5 * ops.square((x + 1.5) / 0.6)
    right = np.log(0.6 / 0.9) - 0.5 * ops.square((x - 1.0) / 0.9)
    return ops.logaddexp(left, right)


def run_ours(kernel, chains, steps):
    """Seconds of a run, and the draws."""
    began = time.perf_counter()
    run = mh.sample(
        kernel,
        np.zeros((chains, 1)),
        log_density=lambda x: log_density(x[0]),
        num_steps=steps,
        num_chains=chains,
        progress=False,
    )
    return time.perf_counter() - began, run.position


def make_blackjax(name, chains, same=False):
    """A function of the number of steps that runs blackjax's kernel of this name.

    Args:
        name: of the kernel.
        chains: number of chains.
        same: whether it returns everything that `mh.sample` returns.
    """
    import blackjax
    import jax

    def value(position, batch):
        return log_density(position[0])

    def gradient(position, batch):
        return jax.grad(value)(position, batch)

    if name == "sgld":
        kernel = blackjax.sgld(gradient)
        state = np.zeros((chains, 1), "float32")

        def one(key, state):
            new = kernel.step(key, state, None, STEP)
            # The energy of the point before the step: its gradient is computed anyway.
            return new, ((state, -value(state, None)) if same else new)
    else:
        kernel = blackjax.csgld(value, gradient, ZETA, PARTITIONS, GAP, LOWEST)
        state = jax.vmap(kernel.init)(np.zeros((chains, 1), "float32"))

        def one(key, state):
            state = kernel.step(key, state, None, STEP, STEP_SIZE)
            # The position and its weight, as ours gives them.
            weight = ZETA * jax.numpy.log(state.energy_pdf[state.energy_idx])
            kept = (state.position, weight)
            # XLA takes this energy from the step, which evaluates it too.
            return state, ((*kept, -value(state.position, None)) if same else kept)

    @jax.jit
    def scan(keys, state):
        def step(state, key):
            return jax.vmap(one)(jax.random.split(key, chains), state)

        return jax.lax.scan(step, state, keys)[1]

    def run(steps):
        began = time.perf_counter()
        keys = jax.random.split(jax.random.key(0), steps)
        kept = jax.tree.map(np.asarray, scan(keys, state))
        if same:
            kept = (*kept, *report_of(name, kept))
        return time.perf_counter() - began, kept

    return run


def report_of(name, kept):
    """What `mh.sample` makes of the records, computed in the same way.

    Args:
        name: of the kernel.
        kept: records of positions, log weights with contour SGLD, and energies.
    """
    energy = kept[-1].T
    yield np.sum(~np.isfinite(energy), axis=1)
    if name == "csgld":
        weights = np.exp(kept[1].T.astype("float64") - kept[1].max())
        yield weights / weights.mean()
        yield contour.visits_of(energy, kernel_of(name).contour)


def measure(name, chains, rounds, is_short):
    """A row: microseconds of a step, ours and theirs."""
    long = int(1e7 / max(chains, 20) ** 0.8)
    # On PyTorch a step takes long enough for fewer of them to be timed.
    is_slow = keras.config.backend() == "torch"
    long = max(long // (1000 if is_short else 100 if is_slow else 1), 200)
    short = long // 10
    kernel = kernel_of(name)
    runs = {"ours": lambda steps: run_ours(kernel, chains, steps)[0]}
    if keras.config.backend() == "jax" and importlib.util.find_spec("blackjax"):
        for key, same in (("blackjax", False), ("same", True)):
            peer = make_blackjax(name, chains, same)
            runs[key] = lambda steps, peer=peer: peer(steps)[0]
    for run in runs.values():
        run(short), run(long)  # compiles for both lengths

    def microseconds(run):
        return 1e6 * (run(long) - run(short)) / (long - short)

    times = measuring.alternate(
        {key: lambda run=run: microseconds(run) for key, run in runs.items()}, rounds
    )
    row = {"kernel": name, "chains": chains}
    row["ours_us"] = statistics.median(times["ours"])
    if "blackjax" in times:
        ratios = measuring.ratios(times["ours"], times["blackjax"])
        row["blackjax_us"] = statistics.median(times["blackjax"])
        row["ratio"] = statistics.median(ratios)
        row["quartiles"] = measuring.quartiles(ratios)
        ratios = measuring.ratios(times["ours"], times["same"])
        row["same_us"] = statistics.median(times["same"])
        row["same_ratio"] = statistics.median(ratios)
    return row


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=5)
    kernels = ("sgld", "csgld")
    parser.add_argument("--kernels", choices=kernels, nargs="+", default=kernels)
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 100, 10000])
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.rounds = 2
    rows = [
        measure(name, chains, parsed.rounds, parsed.quick)
        for name in parsed.kernels
        for chains in parsed.chains
    ]
    measuring.print_table(
        f"microseconds of a step, medians of {parsed.rounds} rounds",
        {
            "kernel": "kernel",
            "chains": "chains",
            "ours_us": "mh.sample",
            "blackjax_us": "blackjax",
            "ratio": "ratio",
            "quartiles": "quartiles",
            "same_us": "same results",
            "same_ratio": "ratio",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows, ("blackjax",))
    return rows


if __name__ == "__main__":
    main()
