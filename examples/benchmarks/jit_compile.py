"""Time of a step of `mh.sample` on PyTorch, eager and with `jit_compile=True`.

Four kernels run on a curved density in two dimensions. Two kernels read mini-batches of
50 rows of a logistic regression with 1,000 rows and 3 features. Each run keeps every
draw. Both ways take turns in one process, with a density of `mh.log_density`, so that
the loop is compiled once. The time of a step is the time of a run minus the time of a
run of a tenth of the steps, divided by the difference in steps. The first run with
`jit_compile=True` compiles, and its seconds are printed. PyTorch keeps compiled
programs on the disk. The benchmark uses an empty folder for them, because the first run
of a user has none.

    OMP_NUM_THREADS=1 python examples/benchmarks/jit_compile.py
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import statistics
import tempfile
import time

import measuring
import numpy as np
from keras import ops

import keras_mhmcmc as mh

ROWS, BATCH = 1000, 50
KERNELS = {
    "sgld": mh.kernels.sgld(0.01),
    "sghmc": mh.kernels.sghmc(0.01),
    "csgld": mh.kernels.csgld(
        0.01, partition=mh.EnergyPartition(0.5, 0.25, 50), step_size=1e-3
    ),
    "mhbt": mh.kernels.mhbt(0.1),
    "sgld, mini-batches": mh.kernels.sgld(0.1),
    "mhbt, mini-batches": mh.kernels.mhbt(0.1),
}


def log_density(x):
    return -0.5 * ops.square(x[0]) - 10.0 * ops.square(x[1] - 0.3 * ops.square(x[0]))


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def target_of(name):
    """The arguments of `mh.sample` that give the target."""
    if "mini-batches" not in name:
        return dict(init=[0.1, 0.2], log_density=mh.log_density(log_density))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3)).astype("float32")
    return dict(
        init=[0.1, 0.0, 0.0],
        log_likelihood=mh.log_density(log_likelihood),
        data=(x, (x[:, 0] > 0).astype("float32")),
        batch_size=BATCH,
    )


def measure(name, chains, rounds, steps):
    """A row: microseconds of a step both ways, and the seconds of compilation."""
    target = target_of(name)

    def seconds(jit_compile, num_steps):
        began = time.perf_counter()
        mh.sample(
            KERNELS[name],
            num_steps=num_steps,
            num_chains=chains,
            progress=False,
            jit_compile=jit_compile,
            **target,
        )
        return time.perf_counter() - began

    def microseconds(jit_compile):
        short = steps // 10
        difference = seconds(jit_compile, steps) - seconds(jit_compile, short)
        return 1e6 * difference / (steps - short)

    compilation = seconds(True, steps // 10)
    for jit_compile in (False, True):
        microseconds(jit_compile)
    times = measuring.alternate(
        {way: lambda way=way: microseconds(way) for way in (False, True)}, rounds
    )
    ratios = measuring.ratios(times[False], times[True])
    return {
        "kernel": name,
        "chains": chains,
        "eager_us": statistics.median(times[False]),
        "least_eager_us": min(times[False]),
        "compiled_us": statistics.median(times[True]),
        "least_compiled_us": min(times[True]),
        "ratio": statistics.median(ratios),
        "quartiles": measuring.quartiles(ratios),
        "compilation_s": compilation,
    }


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--kernels", choices=KERNELS, nargs="+", default=list(KERNELS))
    parser.add_argument("--chains", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--steps", type=int, default=1000)
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.kernels, parsed.chains = parsed.kernels[:1], [4]
        parsed.rounds, parsed.steps = 2, 100
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)
        rows = [
            measure(name, chains, parsed.rounds, parsed.steps)
            for name in parsed.kernels
            for chains in parsed.chains
        ]
    measuring.print_table(
        f"microseconds of a step, medians of {parsed.rounds} rounds",
        {
            "kernel": "kernel",
            "chains": "chains",
            "eager_us": "eager",
            "least_eager_us": "least",
            "compiled_us": "compiled",
            "least_compiled_us": "least",
            "ratio": "ratio",
            "quartiles": "quartiles",
            "compilation_s": "seconds to compile",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
