"""Table 1 of the CSGLD paper: regression on four UCI data sets, six methods.

The network is a perceptron with 50 hidden units, trained with batches of 50. Each
method predicts with the mean of 50 models from the second half of its run. For the
contour samplers this mean uses the importance weights. The example prints the test
RMSE, in the target's own unit, beside the paper's (Deng, Lin and Liang, 2020).

    python examples/uci_regression.py --quick
    python examples/uci_regression.py --data-dir folder --epochs 1000 --repeats 3

`folder` has an .npz file with the arrays X and y for each data set.
docs/reproduction.md has the results, and docs/examples.md lists what the paper leaves
open.
"""

import argparse
import dataclasses
import json
import math
import os
import time
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

HIDDEN = 50
BATCH = 50
MODELS = 50  # that are averaged
FEWEST_EPOCHS = 10
# The paper's rate multiplies the gradient of the sum over all examples, and so do its
# "L2 coefficient" and its "weight decay" elsewhere.
RATE = 5e-6
L2 = 1e-4
# The paper's energy is the sum of squared errors of targets in their own unit: then its
# temperatures and its bandwidth of 100 have the right order. That is the likelihood of
# normal noise with variance 1/2.
NOISE_STD = math.sqrt(0.5)


class Task(NamedTuple):
    """A data set of the paper: its temperature, its zeta, and the RMSE it reports."""

    temperature: float = 1.0
    zeta: float = 1.0
    reported: tuple = ()  # in the order of METHODS


METHODS = ("SGD", "SGLD", "CSGLD", "M-SGD", "SGHMC", "CSGHMC")
# The plain sampler of each contour sampler: its energies tell where the partition has
# to be.
PILOTS = {"CSGLD": "SGLD", "CSGHMC": "SGHMC"}
TASKS = {
    "energy": Task(1.0, 1.0, (1.13, 1.08, 1.02, 0.95, 0.77, 0.76)),
    "concrete": Task(5.0, 1.0, (4.60, 4.12, 3.98, 4.32, 4.25, 4.15)),
    "yacht": Task(1.0, 2.5, (0.81, 0.72, 0.69, 0.73, 0.66, 0.72)),
    "wine_quality_red": Task(5.0, 10.0, (0.65, 0.63, 0.62, 0.71, 0.67, 0.65)),
}


def load(name, data_dir):
    """Features, targets, and the unit of the targets that the settings are for."""
    x, y = mh.datasets.rows(name, data_dir)
    # The noise suits the paper's sets as they are, and others by their spread.
    return x, y, 1.0 if name in TASKS else float(np.std(y))


class Data(NamedTuple):
    """A split: normalised features; targets centred, in `unit`."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    unit: float


def split(x, y, unit, seed):
    """A random tenth is for the test. Scales come from the rest."""
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = np.split(order, [round(0.1 * len(x))])
    x_train, x_test = mh.datasets.standardized(x[train], x[test])
    y = ((y - y[train].mean()) / unit).astype("float32")
    return Data(x_train, y[train], x_test, y[test], unit)


class Batches(keras.utils.PyDataset):
    """Batches of one size, drawn anew each epoch: nothing compiles a second time."""

    def __init__(self, data, seed):
        super().__init__()
        self._data = data
        self._rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return len(self._data.x) // BATCH

    def __getitem__(self, index):
        rows = self._order[index * BATCH : (index + 1) * BATCH]
        return self._data.x[rows], self._data.y[rows]

    def on_epoch_end(self):
        self._order = self._rng.permutation(len(self._data.x))


def make_optimizer(method, n, task, seed, partition=None):
    """The method's optimizer for `n` training examples."""
    options = {
        "learning_rate": RATE * n,
        "train_size": n,
        "prior": mh.priors.Gaussian(L2**-0.5),
        "seed": seed,
    }
    if method in ("SGD", "M-SGD"):
        # Without noise: descent, with the same prior.
        kind = mh.SGLD if method == "SGD" else mh.SGHMC
        return kind(temperature=0.0, **options)
    options["temperature"] = task.temperature
    if method in ("SGLD", "SGHMC"):
        return (mh.SGLD if method == "SGLD" else mh.SGHMC)(**options)
    kind = mh.CSGLD if method == "CSGLD" else mh.CSGHMC
    return kind(partition=partition, zeta=task.zeta, **options)


def make_partition(energies, task, gap):
    """The partition for the plain sampler's energies; `gap` replaces its width."""
    partition = mh.suggest_partition(energies)
    # Between the highest subregions theta falls by a third and more at first. With a
    # large zeta and a small width this would turn the gradient round up there.
    least = task.zeta * task.temperature
    gap = max(partition.energy_gap, least) if gap is None else gap
    return dataclasses.replace(partition, energy_gap=gap)


def fit(model, optimizer, batches, epochs, callbacks=()):
    """Trains as always."""
    model.compile(optimizer=optimizer, loss=mh.losses.GaussianNLL(NOISE_STD))
    model.fit(batches, epochs=epochs, callbacks=list(callbacks), verbose=0)


def train(method, data, task, partition, epochs, seed):
    """Trains a model. Returns it and its samples, 50 of the second half of the run.

    A contour sampler runs as the plain sampler for the first half. At the energies of
    new weights, far from the partition, it would learn nothing.
    """
    keras.utils.set_random_seed(seed)  # the same first weights and batches for all
    n, batches = len(data.x), Batches(data, seed)
    model = keras.Sequential(
        [
            keras.Input((data.x.shape[1],)),
            keras.layers.Dense(HIDDEN, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    skipped = epochs // 2
    kept = (epochs - skipped) * len(batches)
    if method in PILOTS and skipped > 0:
        optimizer = make_optimizer(PILOTS[method], n, task, seed)
        fit(model, optimizer, batches, skipped)
        epochs, seed = epochs - skipped, seed + 1  # of the noise, which goes on
    steps = epochs * len(batches)
    every = max(kept // MODELS, 1)
    posterior = mh.PosteriorSamples(steps - min(MODELS, kept) * every, every)
    optimizer = make_optimizer(method, n, task, seed, partition)
    fit(model, optimizer, batches, epochs, [posterior])
    return model, posterior


def rmse(posterior, model, data):
    """Test error of the weighted mean prediction, in the target's unit."""
    prediction = posterior.ensemble(model).predict(data.x_test, verbose=0)[:, 0]
    return data.unit * math.sqrt(np.mean(np.square(prediction - data.y_test)))


def run(name, args, progress):
    """A dict for each method of one data set, with the RMSE of each repeat."""
    x, y, unit = load(name, args.data_dir)
    task = TASKS.get(name, Task())
    rows = {
        method: {"dataset": name, "method": method, "rmse": [], "ess": []}
        for method in METHODS
    }
    for seed in range(args.seed, args.seed + args.repeats):
        data, energies = split(x, y, unit, seed), {}
        for method, row in rows.items():
            partition = None
            if method in PILOTS:
                partition = make_partition(
                    energies[PILOTS[method]], task, args.energy_gap
                )
            model, posterior = train(method, data, task, partition, args.epochs, seed)
            energies[method] = posterior.energies
            row["rmse"].append(rmse(posterior, model, data))
            row["ess"].append(posterior.weight_ess)
            progress(name, seed, row, model, partition)
    return list(rows.values())


class Progress:
    """A line for each fit, with the time left."""

    def __init__(self, fits):
        self._fits = fits
        self._done = 0
        self._begin = time.perf_counter()

    def __call__(self, name, seed, row, model, partition):
        self._done += 1
        spent = time.perf_counter() - self._begin
        left = spent / self._done * (self._fits - self._done)
        text = f"{name}, seed {seed}, {row['method']}: RMSE {row['rmse'][-1]:.3f}"
        if partition is not None:
            seen = int(np.count_nonzero(model.optimizer.visits()))
            low, gap = partition.energy_min, partition.energy_gap
            text += f"; {seen} subregions from {low:.0f} by {gap:.3g} nats"
        print(f"{text}; {spent:.0f} s spent, about {left:.0f} s left", flush=True)


def as_text(rows):
    """A line for each method, two columns for each data set."""
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    lines = [["method"]]
    for name in names:
        lines[0] += [name, "paper", "weights"]
    for method in METHODS:
        line = [method]
        for name in names:
            (row,) = (
                row for row in rows if (row["dataset"], row["method"]) == (name, method)
            )
            cell = f"{np.mean(row['rmse']):.2f}"
            if len(row["rmse"]) > 1:
                cell += f" ± {np.std(row['rmse'], ddof=1):.2f}"
            line.append(cell)
            reported = TASKS[name].reported if name in TASKS else None
            index = METHODS.index(method)
            line.append("—" if reported is None else f"{reported[index]:.2f}")
            line.append(f"{np.mean(row['ess']):.1f}")
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


LEGEND = f"""\
Test RMSE in the target's unit, mean ± standard deviation over the repeats, each with
its own split, first weights and noise; the paper's, after 5,000 epochs, ten repeats.
weights  effective sample size of the importance weights of the {MODELS} models"""


def main(argv=None):
    """Runs the comparison. Returns a dict for each data set and method."""
    args = parse(argv)
    print(
        f"epochs: {args.epochs}, the paper's 5000; repeats: {args.repeats}, its 10. "
        f"Keras on {keras.backend.backend()}",
        flush=True,
    )
    begin = time.perf_counter()
    progress = Progress(len(args.datasets) * args.repeats * len(METHODS))
    rows = [row for name in args.datasets for row in run(name, args, progress)]
    print(f"\n{as_text(rows)}\n\n{LEGEND}\n{time.perf_counter() - begin:.0f} s")
    if args.output is not None:
        os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
        with open(args.output, "w") as file:
            json.dump(rows, file, indent=1)
        print(f"saved {args.output}")
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-dir",
        help="folder with <dataset>.npz or uci_<dataset>.npz, each with X and y; "
        "without it, scikit-learn's diabetes set is used",
    )
    parser.add_argument(
        "--datasets",
        nargs="+",
        help="names of UCI sets, as in `mh.datasets.load`, with --data-dir; "
        f"default: {' '.join(TASKS)}",
    )
    parser.add_argument("--epochs", type=at_least_one, help="default: 300")
    parser.add_argument("--repeats", type=at_least_one, help="default: 3")
    parser.add_argument(
        "--energy-gap",
        type=float,
        help="width of a subregion in nats; default: as the energies suggest",
    )
    parser.add_argument("--quick", action="store_true", help="30 epochs, 1 repeat")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first repeat")
    parser.add_argument("--output", help="JSON file for the results")
    args = parser.parse_args(argv)
    if args.epochs is not None and args.epochs < FEWEST_EPOCHS:
        parser.error(
            f"--epochs must be at least {FEWEST_EPOCHS}, so that the plain sampler's "
            f"energies tell where the partition has to be. Received: {args.epochs}"
        )
    if args.datasets is not None and args.data_dir is None:
        parser.error("--datasets needs --data-dir, the folder with their files")
    if args.datasets is None:
        args.datasets = ["diabetes"] if args.data_dir is None else list(TASKS)
    if args.epochs is None:
        args.epochs = 30 if args.quick else 300
    if args.repeats is None:
        args.repeats = 1 if args.quick else 3
    return args


def at_least_one(text):
    """A positive integer of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return number


if __name__ == "__main__":
    main()
