"""What K chains of `mh.ParallelChains` cost, as a multiple of K single fits.

A multilayer perceptron 784-600-10 (476,410 weights) or 20-64-32-10 (3,754 weights) is
trained with batches of 100. The chains and the single model take turns, so that a busy
machine slows both alike; compilation is left out, and medians of the rounds are
printed. A ratio of 1 means that nothing is gained.

    KERAS_BACKEND=jax python examples/benchmarks/parallel_chains.py --model large
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_mhmcmc as mh

BATCH = 100
# name -> (widths of the layers, batches in a fit)
MODELS = {"large": ((784, 600, 10), 8), "small": ((20, 64, 32, 10), 40)}
OPTIMIZERS = {
    "SGD": lambda size: keras.optimizers.SGD(0.1),
    "Adam": lambda size: keras.optimizers.Adam(1e-3),
    "SGLD": lambda size: mh.SGLD(0.1, train_size=size, seed=0),
    "RSGLD": lambda size: mh.RSGLD(0.1, train_size=size, batch_size=BATCH, seed=0),
}


def perceptron(widths):
    """The network with these widths."""
    features, *hidden, classes = widths
    return keras.Sequential(
        [
            keras.Input((features,)),
            *(keras.layers.Dense(width, "relu") for width in hidden),
            keras.layers.Dense(classes, "softmax"),
        ]
    )


def timed_fit(model, x, y):
    """Seconds of one epoch."""
    start = time.perf_counter()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return time.perf_counter() - start


def measure(name, widths, steps, count, rounds, strategy):
    """Milliseconds of a step of K chains and of K single models, and the strategy."""
    rng = np.random.default_rng(0)
    size = steps * BATCH
    x = rng.random((size, widths[0]), dtype="float32")
    y = rng.integers(0, widths[-1], size)
    single = perceptron(widths)
    chains = mh.ParallelChains(perceptron(widths), count, seed=0, strategy=strategy)
    for model in (single, chains):
        model.compile(
            optimizer=OPTIMIZERS[name](size), loss="sparse_categorical_crossentropy"
        )
        for _ in range(2):
            model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    times = {"chains": [], "single": []}
    for _ in range(rounds):
        times["chains"].append(timed_fit(chains, x, y))
        # Some fits of the single model, as many as take a comparable time.
        repeats = max(1, count // 5)
        spent = sum(timed_fit(single, x, y) for _ in range(repeats))
        times["single"].append(spent * count / repeats)
    medians = {key: statistics.median(values) for key, values in times.items()}
    return {
        "chains": medians["chains"] / steps * 1e3,
        "single": medians["single"] / steps * 1e3,
        "ratio": medians["chains"] / medians["single"],
        "strategy": chains.strategy,
    }


def main(arguments=None):
    """Measures, prints the table, and writes it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, nargs="+", default=list(MODELS))
    parser.add_argument(
        "--optimizers", choices=OPTIMIZERS, nargs="+", default=list(OPTIMIZERS)
    )
    parser.add_argument("--chains", type=int, default=30, help="number of chains")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--strategy", choices=("auto", "vmap", "loop"), default="auto")
    parser.add_argument("--quick", action="store_true", help="2 chains, 1 round")
    parser.add_argument("--json", help="file to write the results to")
    given = parser.parse_args(arguments)
    if given.quick:
        given.chains, given.rounds = 2, 1

    print(
        f"{keras.backend.backend()}, {os.cpu_count()} cores, {given.chains} chains, "
        f"medians of {given.rounds} rounds, milliseconds of a step"
    )
    print(f"{'model':8}{'optimizer':10}{'strategy':>9}", end="")
    print(f"{'chains':>9}{'single*K':>10}{'ratio':>7}")
    rows = []
    for model in given.model:
        widths, steps = MODELS[model]
        for name in given.optimizers:
            row = measure(
                name, widths, steps, given.chains, given.rounds, given.strategy
            )
            rows.append({"model": model, "optimizer": name, **row})
            print(
                f"{model:8}{name:10}{row['strategy']:>9}{row['chains']:9.1f}"
                f"{row['single']:10.1f}{row['ratio']:7.2f}",
                flush=True,
            )
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(
                {"backend": keras.backend.backend(), "rows": rows}, file, indent=1
            )
    return rows


if __name__ == "__main__":
    main()
