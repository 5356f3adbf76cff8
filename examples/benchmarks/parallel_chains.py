"""The cost of K chains of `mh.ParallelChains`, as a multiple of K single fits.

The network is a perceptron 784-600-10 (477,010 weights) or 20-64-32-10 (3,754 weights),
trained with batches of 100, or ResNet20 with batches of 128. The chains and the single
model take turns, so that a busy machine slows both alike. Compilation does not count.
The program prints the medians of the rounds. With a ratio of 1 nothing is gained.

    KERAS_BACKEND=jax python examples/benchmarks/parallel_chains.py --model large
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics

import measuring
import workloads

import keras_mhmcmc as mh

# name -> (name in `workloads`, batches in a fit)
MODELS = {"large": ("mlp", 8), "small": ("small", 40), "resnet20": ("resnet20", 4)}
OPTIMIZERS = ("SGD", "Adam", "SGLD", "RSGLD")


def timed_fit(model, x, y, batch):
    """Seconds of one epoch."""
    return measuring.seconds(
        lambda: model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    )


def measure(name, workload, steps, count, rounds, strategy):
    """Milliseconds of a step of K chains and of K single models, and the strategy."""
    batch = workloads.WORKLOADS[workload].batch
    x, y = workloads.data(workload, steps)
    single, chained = (
        workloads.network(workload, workloads.optimizers(batch, len(x), seed=0)[name])
        for _ in range(2)
    )
    chains = mh.ParallelChains(chained, count, seed=0, strategy=strategy)
    chains.compile(
        optimizer=workloads.optimizers(batch, len(x), seed=0)[name], loss=single.loss
    )
    for model in (single, chains):
        for _ in range(2):
            model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)
    # Some fits of the single model, as many as take a comparable time.
    repeats = max(1, count // 5)
    tasks = {
        "chains": lambda: timed_fit(chains, x, y, batch),
        "single": lambda: sum(timed_fit(single, x, y, batch) for _ in range(repeats)),
    }
    times = measuring.alternate(tasks, rounds)
    times["single"] = [value * count / repeats for value in times["single"]]
    ratios = measuring.ratios(times["chains"], times["single"])
    return {
        "chains_ms": statistics.median(times["chains"]) / steps * 1e3,
        "single_ms": statistics.median(times["single"]) / steps * 1e3,
        "ratio": statistics.median(ratios),
        "times_one": statistics.median(ratios) * count,
        "quartiles": measuring.quartiles(ratios),
        "strategy": chains.strategy,
    }


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument(
        "--model", choices=MODELS, nargs="+", default=["large", "small"]
    )
    parser.add_argument(
        "--optimizers", choices=OPTIMIZERS, nargs="+", default=list(OPTIMIZERS)
    )
    parser.add_argument("--chains", type=int, default=30, help="number of chains")
    parser.add_argument("--steps", type=int, help="in a fit, for a fast device")
    parser.add_argument("--strategy", choices=("auto", "vmap", "loop"), default="auto")
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.chains, parsed.rounds, parsed.steps = 2, 1, 3
        parsed.optimizers = ["SGLD"]

    rows = []
    for model in parsed.model:
        workload, steps = MODELS[model]
        for name in parsed.optimizers:
            found = measure(
                name,
                workload,
                parsed.steps or steps,
                parsed.chains,
                parsed.rounds,
                parsed.strategy,
            )
            row = {"model": model, "optimizer": name, "chains": parsed.chains}
            rows.append(row | found)
            measuring.report(__file__, parsed, rows, complete=False)
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
            "times_one": "/ one chain",
            "quartiles": "quartiles",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
