"""The cost of K chains of `mh.ParallelChains`, as a multiple of K single fits.

The network is a perceptron 784-600-10 (477,010 weights) or 20-64-32-10 (3,754 weights),
trained with batches of 100. The chains and the single model take turns, so that a busy
machine slows both alike. Compilation does not count. The program prints the medians of
the rounds. With a ratio of 1 nothing is gained.

    KERAS_BACKEND=jax python examples/benchmarks/parallel_chains.py --model large
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics

import keras
import measuring
import numpy as np
import workloads

import keras_mhmcmc as mh

BATCH = 100
# name -> (widths of the layers, batches in a fit)
MODELS = {"large": ((784, 600, 10), 8), "small": ((20, 64, 32, 10), 40)}
OPTIMIZERS = {
    "SGD": lambda size: keras.optimizers.SGD(0.1),
    "Adam": lambda size: keras.optimizers.Adam(1e-3),
    "SGLD": lambda size: mh.SGLD(0.1, train_size=size, seed=0),
    "RSGLD": lambda size: mh.RSGLD(
        0.1, train_size=size, batch_size=BATCH, warm_up=0, seed=0
    ),
}


def timed_fit(model, x, y):
    """Seconds of one epoch."""
    return measuring.seconds(
        lambda: model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    )


def measure(name, widths, steps, count, rounds, strategy):
    """Milliseconds of a step of K chains and of K single models, and the strategy."""
    rng = np.random.default_rng(0)
    size = steps * BATCH
    x = rng.random((size, widths[0]), dtype="float32")
    y = rng.integers(0, widths[-1], size)
    single = workloads.perceptron(widths)
    chains = mh.ParallelChains(
        workloads.perceptron(widths), count, seed=0, strategy=strategy
    )
    for model in (single, chains):
        model.compile(
            optimizer=OPTIMIZERS[name](size), loss="sparse_categorical_crossentropy"
        )
        for _ in range(2):
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    # Some fits of the single model, as many as take a comparable time.
    repeats = max(1, count // 5)
    tasks = {
        "chains": lambda: timed_fit(chains, x, y),
        "single": lambda: sum(timed_fit(single, x, y) for _ in range(repeats)),
    }
    times = measuring.alternate(tasks, rounds)
    times["single"] = [value * count / repeats for value in times["single"]]
    ratios = measuring.ratios(times["chains"], times["single"])
    return {
        "chains_ms": statistics.median(times["chains"]) / steps * 1e3,
        "single_ms": statistics.median(times["single"]) / steps * 1e3,
        "ratio": statistics.median(ratios),
        "quartiles": measuring.quartiles(ratios),
        "strategy": chains.strategy,
    }


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument(
        "--optimizers", choices=OPTIMIZERS, nargs="+", default=list(OPTIMIZERS)
    )
    parser.add_argument("--chains", type=int, default=30, help="number of chains")
    parser.add_argument("--strategy", choices=("auto", "vmap", "loop"), default="auto")
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.chains, parsed.rounds = 2, 1
        parsed.optimizers = ["SGLD"]

    rows = []
    for model in parsed.model:
        widths, steps = MODELS[model]
        for name in parsed.optimizers:
            row = {"model": model, "optimizer": name, "chains": parsed.chains}
            rows.append(
                row
                | measure(
                    name, widths, steps, parsed.chains, parsed.rounds, parsed.strategy
                )
            )
    measuring.print_table(
        f"milliseconds of a step of {parsed.chains} chains, and of as many single "
        f"models, medians of {parsed.rounds} rounds",
        {
            "model": "model",
            "optimizer": "optimizer",
            "strategy": "strategy",
            "chains_ms": "chains",
            "single_ms": "single * K",
            "ratio": "ratio",
            "quartiles": "quartiles",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
