"""The benchmark: one call with its defaults against its peers, on UCI sets and classes.

Each method has one setting for all sets. The network of a regression predicts a mean
and its deviation. MNIST is 10,000 of its images. The breast cancer set of scikit-learn
has random splits. The methods:

- `one call`: `mh.BayesianEnsemble(network)`: 16 members and chains for regressions, 8
  for large sets, and four for classes;
- `4 AdamW`, `8 AdamW`: the same call without samples: the rate, and for classes the
  decay, are chosen on held-out data; each member of a regression stops early;
- `twice as long`, for classes: four networks with the rate and decay that held-out
  examples chose, which train twice as long;
- `dropout`, for regressions: one network with dropout after each hidden layer, early
  stopping, 100 passes; held-out data choose the rate of dropout;
- `bde` (PyPI: sklearn-contrib-bde, arXiv 2502.06335; only where it is installed) with
  the settings of its README: 8 members, 5,000 steps of warm-up, 2,000 of sampling; and
  `bde, long` with ten times its warm-up.

    pip install sklearn-contrib-bde
    python examples/benchmark.py --data-dir folder
    python examples/benchmark.py --data-dir folder --table

`folder` has an .npz file for each data set, as for `uci_regression.py`. A finished row
is a line of `--results`, and is not run again. All methods of a split run one after
the other on the same machine, each in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

SETS = {
    "yacht": 308,
    "boston_housing": 506,
    "energy": 768,
    "concrete": 1030,
    "wine_quality_red": 1599,
    "kin8nm": 8192,
    "power_plant": 9568,
    "naval_propulsion": 11934,
}  # rows
CLASSES = {"digits": "64", "mnist": "200", "breast_cancer": "64"}  # their networks
NETWORKS = {"16-16": (16, 16), "50": (50,), "64": (64,), "200": (200,)}
SCORES = "nll", "accuracy", "crps", "rmse", "coverage"
RATES = 0.02, 0.05, 0.1  # of dropout
# One device for each member of `bde`, as its README has it.
DEVICES = "--xla_force_host_platform_device_count=8"


def load(name, folder, split):
    """Standardised arrays or images, and the unit of the target."""
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer
        from sklearn.model_selection import train_test_split

        x, y = load_breast_cancer(return_X_y=True)
        parts = train_test_split(x, y, test_size=0.2, random_state=split, stratify=y)
        x, x_test = mh.datasets.standardized(*parts[:2])
        return x, parts[2], x_test, parts[3], 1.0
    if name in CLASSES:
        place = folder if name == "mnist" else None
        (x, y), (x_test, y_test) = mh.datasets.load(name, place)
        if name == "mnist":
            chosen = np.random.default_rng(100 + split).permutation(len(x))[:10_000]
            x, y = x[chosen], y[chosen]
        return x, y, x_test, y_test, 1.0
    (x, y), (x_test, y_test) = mh.datasets.load(name, folder, split=split)
    x, x_test = mh.datasets.standardized(x, x_test)
    mean, unit = np.mean(y), float(np.std(y))
    y, y_test = (
        ((part - mean) / unit).reshape(-1, 1).astype("float32") for part in (y, y_test)
    )
    return x, y, x_test, y_test, unit


def has_classes(y):
    """Whether targets are labels."""
    return y.dtype.kind in "iu"


def make_network(x, y, hidden, dropout=0.0):
    """A dense network with the logits of classes, or a mean and its deviation."""
    body = [keras.layers.Flatten()] if x.ndim > 2 else []
    for units in hidden:
        body.append(keras.layers.Dense(units, "relu"))
        if dropout:
            body.append(keras.layers.Dropout(dropout))
    head = keras.layers.Dense(int(y.max()) + 1 if has_classes(y) else 2)
    return keras.Sequential([keras.Input(x.shape[1:]), *body, head])


def loss_of(y):
    """The negative log-likelihood of the network's outputs."""
    if has_classes(y):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return mh.losses.GaussianNLL()


def one_call(x, y, x_test, hidden, split, quick, members=None, sampling="auto"):
    """`mh.BayesianEnsemble` with its defaults; `sampling=0`: a deep ensemble."""
    network = make_network(x, y, hidden)
    ensemble = mh.BayesianEnsemble(network, members, seed=split)
    ensemble.compile(loss=loss_of(y))
    epochs, sampling = (5, sampling and 0.1) if quick else (None, sampling)
    ensemble.fit(x, y, epochs=epochs, sampling=sampling, verbose=0)
    if has_classes(y):
        return ensemble.predict(x_test, verbose=0)
    return mh.predict_distribution(ensemble, x_test)


def longer(x, y, x_test, hidden, split, quick):
    """Four networks that train twice as long as the best, with its rate and decay."""
    network = make_network(x, y, hidden)
    ensemble = mh.BayesianEnsemble(network, seed=split)
    ensemble.compile(loss=loss_of(y))
    report = ensemble.fit(x, y, epochs=5 if quick else None, sampling=0, verbose=0)
    best = report.rows[-1]  # of the members that learned from all data
    setting = dict(part.split("=") for part in best["setting"].split(", "))
    keras.utils.set_random_seed(split)
    chains = mh.ParallelChains(network, 4, seed=split)
    rate = keras.optimizers.schedules.CosineDecay(
        float(setting["rate"]), 2 * best["steps"]
    )
    decay = float(setting["decay"])
    chains.compile(keras.optimizers.AdamW(rate, weight_decay=decay), loss_of(y))
    epochs = round(2 * best["steps"] / (len(x) // 32))
    chains.fit(x, y, batch_size=32, epochs=epochs, verbose=0)
    logits = chains.predict(x_test, verbose=0)
    return np.mean(keras.ops.softmax(logits), axis=0)


def dropout(x, y, x_test, hidden, split, quick):
    """MC dropout; a tenth of the data stops the training and chooses the rate."""
    order = np.random.default_rng(split).permutation(len(x))
    out, kept = np.split(order, [len(order) // 10])
    best = np.inf
    for rate in RATES:
        keras.utils.set_random_seed(split)
        network = make_network(x, y, hidden, rate)
        network.compile("adamw", mh.losses.GaussianNLL())
        stop = keras.callbacks.EarlyStopping(patience=30, restore_best_weights=True)
        network.fit(
            x[kept],
            y[kept],
            epochs=5 if quick else 300,
            validation_data=(x[out], y[out]),
            callbacks=[stop],
            verbose=0,
        )
        model = mh.MCDropout(network, 100)
        nll = mh.predict_distribution(model, x[out]).nll(y[out])
        if nll < best:
            best, chosen = nll, model
    return mh.predict_distribution(chosen, x_test)


def bde(x, y, x_test, hidden, split, quick, warm_up=5000):
    """`bde` with the settings of its README."""
    from bde import BdeRegressor
    from bde.loss import GaussianNLL

    regressor = BdeRegressor(
        hidden_layers=list(hidden),
        n_members=8,
        seed=split,
        loss=GaussianNLL(),
        epochs=200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=50 if quick else warm_up,
        n_samples=20 if quick else 2000,
        n_thinning=2,
        patience=10,
    )
    regressor.fit(x=x, y=y)
    # Members, samples, examples, (mean, output of the deviation).
    raw = np.asarray(regressor.predict(x_test, raw=True), "float64")
    raw = raw.reshape(-1, *raw.shape[-2:])
    log_deviation = np.log(np.logaddexp(0, raw[..., 1]) + 1e-6)
    outputs = np.stack([raw[..., 0], log_deviation], axis=-1)
    return mh.metrics.PredictiveMixture(
        mh.losses.GaussianNLL(min_std=1e-6).mixture(outputs)
    )


METHODS = {
    "one call": one_call,
    "4 AdamW": lambda *data: one_call(*data, sampling=0),
    "8 AdamW": lambda *data: one_call(*data, members=8, sampling=0),
    "twice as long": longer,
    "dropout": dropout,
    "bde": bde,
    "bde, long": lambda *data: bde(*data, warm_up=50_000),
}


OF_CLASSES = "one call", "4 AdamW", "8 AdamW", "twice as long"


def is_planned(name, network, method):
    """Whether a set has this network, and this method."""
    if name in CLASSES:
        return network == CLASSES[name] and method in OF_CLASSES
    return network not in CLASSES.values() and method != "twice as long"


def row(name, split, network, method, folder, quick):
    """One row of the table, in the target's own unit."""
    x, y, x_test, y_test, unit = load(name, folder, split)
    keras.utils.set_random_seed(split)
    begin = time.perf_counter()
    law = METHODS[method](x, y, x_test, NETWORKS[network], split, quick)
    seconds = time.perf_counter() - begin
    if name in CLASSES:
        scores = {
            "nll": mh.metrics.nll(law, y_test),
            "accuracy": mh.metrics.accuracy(law, y_test),
        }
    else:
        scores = {
            "nll": law.nll(y_test) + np.log(unit),
            "crps": unit * np.mean(law.crps(y_test)),
            "rmse": unit * law.rmse(y_test),
            "coverage": law.coverage(y_test, 0.9),
        }
    found = {"set": name, "split": split, "network": network, "method": method}
    found |= {score: round(float(value), 5) for score, value in scores.items()}
    return found | {"backend": keras.backend.backend(), "seconds": round(seconds, 1)}


def in_a_process(name, split, network, method, folder, quick):
    """The same from a new process."""
    flags = {"XLA_FLAGS": DEVICES} if method.startswith("bde") else {}
    words = ["--sets", name, "--splits", str(split), "--networks", network]
    words += ["--methods", method, "--here", *(["--quick"] if quick else [])]
    words += ["--data-dir", folder] if folder else []
    done = subprocess.run(
        [sys.executable, __file__, *words],
        env=os.environ | flags,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(rows, score):
    """Means over splits, with the paired difference to one call and its error."""
    methods = [name for name in METHODS if any(r["method"] == name for r in rows)]
    lines = [f"| {score} | " + " | ".join(methods) + " |", ""]
    lines[1] = "|---" * (len(methods) + 1) + "|"
    for network in NETWORKS:
        for name in (*SETS, "diabetes", *CLASSES):
            cells = []
            of = {
                method: {
                    r["split"]: r[score]
                    for r in rows
                    if (r["set"], r["network"], r["method"]) == (name, network, method)
                    and score in r
                }
                for method in methods
            }
            if not of.get("one call"):
                continue
            for method in methods:
                splits = sorted(of[method].keys() & of["one call"].keys())
                values = np.array([of[method][s] for s in splits])
                if not splits:
                    cells.append("")
                    continue
                cell = f"{values.mean():.3f}"
                if method != "one call" and len(splits) > 1:
                    gains = values - [of["one call"][s] for s in splits]
                    error = gains.std(ddof=1) / np.sqrt(len(splits))
                    cell += f" ({gains.mean():+.3f} ± {error:.3f})"
                cells.append(cell)
            lines.append(f"| {name}, {network} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments=None):
    """Run what is missing, print the tables, and return the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=(*SETS, "diabetes", *CLASSES),
        default=(*SETS, *CLASSES),
    )
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--data-dir", help="folder of the UCI sets")
    parser.add_argument("--results", default="benchmark.jsonl")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--quick", action="store_true", help="small, and no files")
    parser.add_argument("--here", action="store_true", help="one row, in this process")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.sets, asked.splits, asked.networks = ["diabetes"], [0], ["16-16"]
    plan = [
        (name, split, network, method)
        for network in asked.networks
        for split in asked.splits
        for name in asked.sets
        for method in asked.methods
        if is_planned(name, network, method)
    ]
    if asked.here:
        found = row(*plan[0], asked.data_dir, asked.quick)
        print(json.dumps(found))
        return [found]
    path = Path(asked.results)
    rows = []
    if path.exists() and not asked.quick:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(r["set"], r["split"], r["network"], r["method"]) for r in rows}
    for wanted in plan if not asked.table else []:
        if wanted in done:
            continue
        rows.append(in_a_process(*wanted, asked.data_dir, asked.quick))
        print(json.dumps(rows[-1]), flush=True)
        if not asked.quick:
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    for score in (*SCORES, "seconds"):
        print(f"\n{table(rows, score)}")
    return rows


if __name__ == "__main__":
    main()
