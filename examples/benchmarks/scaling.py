"""How the cost of a step grows with the weights, the chains and the kept samples.

`weights`: a layer of d numbers whose loss is their mean square, from 10^3 to 10^8 if
the memory suffices. `chains`: K chains of a perceptron with 3,754 weights, as one
`mh.ParallelChains`. `samples`: a perceptron 784-600-10 without `PosteriorSamples`, and
with a callback that keeps a sample every ten steps, in memory or on the disk. This part
compares the first quarter of the run with the last one. All optimizers take turns. The
program prints medians, and the exponents of the growth: 1 is linear, 0 is no growth.

    KERAS_BACKEND=jax python examples/benchmarks/scaling.py --what weights chains
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gc
import math
import statistics
import tempfile
import time

import keras
import measuring
import numpy as np
import workloads
from keras import ops

import keras_mhmcmc as mh

BATCH = 100
SAMPLERS = {
    "SGD": "SGD",
    "SGLD": "SGLD",
    "CSGLD": "CSGLD, 200 bins",
    "RSGLD": "RSGLD",
}
BYTES = 100  # for each weight: four models, their slots, and what a step needs
CHAINS = (1, 4, 16, 64, 256)


@keras.saving.register_keras_serializable("benchmarks")
class MeanSquare(keras.layers.Layer):
    """A layer of `count` weights that answers their mean square, whatever comes in."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def build(self, shape):
        self.theta = self.add_weight(shape=(self.count,), initializer="ones")

    def call(self, inputs):
        return inputs * 0.0 + ops.mean(ops.square(self.theta))


def of_epochs(model, x, y, batch):
    """A function that fits for an epoch and returns the milliseconds of a step."""

    def fit():
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)

    return lambda: measuring.seconds(fit) / (len(x) // batch) * 1e3


def exponents(rows, size):
    """The rows, each with the exponent of its growth since the row before."""
    last = {}
    for row in rows:
        before = last.get(row["optimizer"])
        if before:
            growth = math.log(row["ms"] / before["ms"])
            row["exponent"] = growth / math.log(row[size] / before[size])
        last[row["optimizer"]] = row
    return rows


def rows_of(figures, size, value):
    """A row for each optimizer at one size."""
    return [
        {"optimizer": name, size: value, "ms": statistics.median(times)}
        for name, times in figures.items()
    ]


def against_weights(sizes, rounds):
    """Milliseconds of a step by sampler and number of weights."""
    rows = []
    for count in sizes:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        if BYTES * count > free:
            print(
                f"{count:,} weights are left out: they need {BYTES * count:.0e} bytes"
            )
            continue
        steps = int(min(100, max(2, 1e8 / count)))
        x = np.ones((steps * BATCH, 1), "float32")
        every = workloads.optimizers(BATCH)
        tasks = {}
        for name, key in SAMPLERS.items():
            model = keras.Sequential([keras.Input((1,)), MeanSquare(count)])
            model.compile(optimizer=every[key], loss=lambda y, value: ops.mean(value))
            tasks[name] = of_epochs(model, x, x, BATCH)
            tasks[name]()  # compiles
        rows += rows_of(measuring.alternate(tasks, rounds), "weights", count)
        del tasks, model, every
        gc.collect()
    return exponents(rows, "weights")


def against_chains(counts, rounds):
    """Milliseconds of a step by sampler and number of chains."""
    widths, steps = (20, 64, 32, 10), 40
    rng = np.random.default_rng(0)
    x = rng.random((steps * BATCH, widths[0]), dtype="float32")
    y = rng.integers(0, widths[-1], len(x))
    rows = []
    for count in counts:
        every = workloads.optimizers(BATCH)
        tasks = {}
        for name in ("SGD", "SGLD", "RSGLD"):
            model = mh.ParallelChains(workloads.perceptron(widths), count, seed=0)
            model.compile(
                optimizer=every[SAMPLERS[name]], loss="sparse_categorical_crossentropy"
            )
            tasks[name] = of_epochs(model, x, y, BATCH)
            tasks[name]()  # compiles
        rows += rows_of(measuring.alternate(tasks, rounds), "chains", count)
    return exponents(rows, "chains")


class Clock(keras.callbacks.Callback):
    """Milliseconds of a step, epoch by epoch."""

    def __init__(self, steps):
        super().__init__()
        self.times = []
        self._steps = steps

    def on_epoch_begin(self, epoch, logs=None):
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.times.append((time.perf_counter() - self._began) / self._steps * 1e3)


def against_samples(model_name, steps, rounds, epochs=9, every=10):
    """Milliseconds of a step early and late in a run, by where samples go."""
    x, y = workloads.data(model_name, steps)
    batch = workloads.WORKLOADS[model_name].batch
    model = workloads.network(model_name, workloads.optimizers(batch)["SGLD"])

    def run(place):
        clock = Clock(steps)
        with tempfile.TemporaryDirectory() as folder:
            where = {"memory": None, "disk": folder}
            callbacks = [clock]
            if place != "nowhere":
                keeper = mh.PosteriorSamples(every=every, directory=where[place])
                callbacks = [keeper, clock]
            model.fit(
                x,
                y,
                batch_size=batch,
                epochs=epochs,
                shuffle=False,
                verbose=0,
                callbacks=callbacks,
            )
        return clock.times[1:]  # the first one compiles, or fills the caches

    run("nowhere")
    places = ("nowhere", "memory", "disk")
    figures = measuring.alternate(
        {place: lambda place=place: run(place) for place in places}, rounds
    )
    quarter = (epochs - 1) // 4
    rows = []
    for place, turns in figures.items():
        first = [statistics.mean(times[:quarter]) for times in turns]
        last = [statistics.mean(times[-quarter:]) for times in turns]
        rows.append(
            {
                "samples": place,
                "kept": 0 if place == "nowhere" else epochs * steps // every,
                "first_ms": statistics.median(first),
                "last_ms": statistics.median(last),
                "ratio": statistics.median(measuring.ratios(last, first)),
            }
        )
    return rows


def main(arguments=None):
    """Measures, prints the tables, and returns their rows."""
    parser = measuring.parser(__doc__, rounds=3)
    parts = ("weights", "chains", "samples")
    parser.add_argument("--what", choices=parts, nargs="+", default=parts)
    parser.add_argument("--largest", type=int, default=8, help="power of ten")
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.rounds, parsed.largest = 1, 4
    figures = {"ms": "ms/step", "exponent": "exponent"}
    everything = []
    if "weights" in parsed.what:
        sizes = [10**power for power in range(3, parsed.largest + 1)]
        rows = against_weights(sizes, parsed.rounds)
        measuring.print_table(
            "a step against the number of weights",
            {"optimizer": "", "weights": "weights"} | figures,
            rows,
        )
        everything += rows
    if "chains" in parsed.what:
        rows = against_chains(CHAINS[:2] if parsed.quick else CHAINS, parsed.rounds)
        measuring.print_table(
            "a step against the number of chains",
            {"optimizer": "", "chains": "chains"} | figures,
            rows,
        )
        everything += rows
    if "samples" in parsed.what:
        rows = against_samples(
            "tiny" if parsed.quick else "mlp",
            steps=10 if parsed.quick else 100,
            rounds=parsed.rounds,
        )
        measuring.print_table(
            "a step early and late in a run, by where samples are kept",
            {
                "samples": "samples",
                "kept": "kept",
                "first_ms": "first quarter",
                "last_ms": "last quarter",
                "ratio": "ratio",
            },
            rows,
        )
        everything += rows
    measuring.report(__file__, parsed, everything)
    return everything


if __name__ == "__main__":
    main()
