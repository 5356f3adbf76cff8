"""Table 1 of the CSGLD paper: regression on four UCI data sets, six methods.

The network is a perceptron with 50 hidden units, trained with batches of 50. Each
method predicts with the mean of 50 models from the second half of its run. For the
contour samplers this mean uses the importance weights. The example prints the test
RMSE, in the target's own unit, beside the paper's (Deng, Lin and Liang, 2020), and the
paired difference of each contour sampler from its plain sampler.

    python examples/uci_regression.py --quick
    python examples/uci_regression.py --data-dir folder --epochs 5000 --repeats 10
    python examples/uci_regression.py --epochs 5000 --table \
        --results examples/results/uci.jsonl --data-dir folder

`folder` has an .npz file with the arrays X and y for each data set. Repeat k uses row k
of its array `test_index`, or a random tenth for the test. A finished repeat is a line
of `--results`, and is not run again. docs/reproduction.md has the results, and
docs/examples.md lists what the paper leaves open.
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


class Data(NamedTuple):
    """A split: normalised features; targets centred, in `unit`."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    unit: float


def load(name, data_dir, repeat):
    """A split of a data set. Scales come from its training part."""
    train, test = mh.datasets.load(name, data_dir, split=repeat)
    x, x_test = mh.datasets.standardized(train[0], test[0])
    # The noise suits the paper's sets as they are, and others by their spread.
    unit = 1.0 if name in TASKS else float(np.std(train[1]))
    y, y_test = ((part[1] - train[1].mean()) / unit for part in (train, test))
    return Data(x, y, x_test, y_test, unit)


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


def run(name, repeat, args):
    """The row of a repeat: the RMSE of each method, and the weights' sample size."""
    data, task = load(name, args.data_dir, repeat), TASKS.get(name, Task())
    row = {"dataset": name, "repeat": repeat, "epochs": args.epochs}
    row |= {"energy_gap": args.energy_gap, "rmse": {}, "ess": {}, "subregions": {}}
    energies = {}
    for method in METHODS:
        partition = None
        if method in PILOTS:
            partition = make_partition(energies[PILOTS[method]], task, args.energy_gap)
        model, posterior = train(method, data, task, partition, args.epochs, repeat)
        energies[method] = posterior.energies
        row["rmse"][method] = rmse(posterior, model, data)
        row["ess"][method] = float(posterior.weight_ess)
        if partition is not None:
            seen = int(np.count_nonzero(model.optimizer.visits()))
            row["subregions"][method] = [seen, round(partition.energy_gap, 3)]
    return row


def work(args, rows):
    """Run the repeats that are missing, with the time left."""
    missing = [
        (name, repeat)
        for name in args.datasets
        for repeat in range(args.seed, args.seed + args.repeats)
        if not any(is_row(row, name, repeat, args) for row in rows)
    ]
    begin = time.perf_counter()
    for done, (name, repeat) in enumerate(missing, 1):
        row = run(name, repeat, args)
        rows.append(row)
        if args.results is not None:
            os.makedirs(os.path.dirname(args.results) or ".", exist_ok=True)
            with open(args.results, "a") as file:
                file.write(json.dumps(row) + "\n")
        spent = time.perf_counter() - begin
        errors = ", ".join(f"{key} {value:.3f}" for key, value in row["rmse"].items())
        left = spent / done * (len(missing) - done)
        print(f"{name} {repeat}: {errors}; about {left / 60:.0f} min left", flush=True)


def is_row(row, name, repeat, args):
    """Whether a row is of this repeat, with these settings."""
    found = row["dataset"], row["repeat"], row["epochs"], row["energy_gap"]
    return found == (name, repeat, args.epochs, args.energy_gap)


def read(path):
    """The rows of a file, if there is one."""
    if path is None or not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def table(rows):
    """The lines of a Markdown table. Each data set has two columns.

    The second is the effective sample size of the importance weights.
    """
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    of = {name: [row for row in rows if row["dataset"] == name] for name in names}
    methods = list(rows[0]["rmse"])
    heads = [f"{name}, {len(of[name])} splits | weights" for name in names]
    lines = [
        "| method | " + " | ".join(heads) + " |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for method in methods:
        cells = [method]
        for name in names:
            task = TASKS.get(name, Task())
            values = [row["rmse"][method] for row in of[name]]
            cell = mean_and_error(values)
            if task.reported:
                cell += f" ({task.reported[METHODS.index(method)]:.2f})"
            cells += [cell, f"{np.mean([row['ess'][method] for row in of[name]]):.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    for method, pilot in PILOTS.items():
        if method not in methods:
            continue
        cells = [f"{method} minus {pilot}"]
        for name in names:
            pairs = [(row["rmse"][method], row["rmse"][pilot]) for row in of[name]]
            cells += [mean_and_error([a - b for a, b in pairs], "+.3f"), ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def mean_and_error(values, form=".3f"):
    """The mean, and its standard error if there are several values."""
    text = format(np.mean(values), form)
    if len(values) > 1:
        text += f" ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"
    return text


LEGEND = f"""\
Test RMSE in the target's unit: mean ± standard error over the splits, and in brackets
the paper's mean after 5,000 epochs, ten repeats. The last lines are paired differences.
weights: effective sample size of the importance weights of the {MODELS} models"""


def main(argv=None):
    """Run the comparison, and print the table. Return the rows."""
    args = parse(argv)
    rows = read(args.results)
    if not args.table:
        print(
            f"epochs: {args.epochs}, the paper's 5000; repeats: {args.repeats}, its "
            f"10. Keras on {keras.backend.backend()}",
            flush=True,
        )
        work(args, rows)
    wanted = (args.epochs, args.energy_gap)
    rows = [row for row in rows if (row["epochs"], row["energy_gap"]) == wanted]
    rows = [row for row in rows if row["dataset"] in args.datasets]
    if not rows:
        raise SystemExit(
            f"{args.results} has no rows of {args.epochs} epochs of "
            f"{', '.join(args.datasets)}. The UCI sets need --data-dir"
        )
    print("\n".join(["", *table(rows), "", LEGEND]))
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
    parser.add_argument("--results", help="file of the finished repeats")
    parser.add_argument("--table", action="store_true", help="only print --results")
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
