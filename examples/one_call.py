"""`mh.BayesianEnsemble` with its defaults on UCI regressions and on digits.

Each row has the test NLL in the target's own unit, of the four trained members alone
and of what `fit` chose to average, and the seconds of both. The network of a regression
has two layers of 16 units and predicts its noise.

    python examples/one_call.py --data-dir folder
    python examples/one_call.py --quick

`folder` has an .npz file for each data set, as for `uci_regression.py`. A finished row
is a line of `--results`, and is not run again.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

SETS = ("yacht", "boston_housing", "energy", "concrete", "kin8nm", "digits")


def regression(name, folder, split):
    """Data, network, loss, and what to add to the NLL for the target's own unit."""
    train, test = mh.datasets.load(name, folder, split=split)
    x, x_test = mh.datasets.standardized(train[0], test[0])
    mean, unit = np.mean(train[1]), float(np.std(train[1]))
    y, y_test = (
        ((part[1] - mean) / unit)[:, None].astype("float32") for part in (train, test)
    )
    network = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(2),
        ]
    )
    return (x, y, x_test, y_test), network, mh.losses.GaussianNLL(), np.log(unit)


def digits():
    """The same for the images of handwritten digits."""
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    network = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return (x, y, x_test, y_test), network, loss, 0.0


def nll(ensemble, x, y):
    """Mean negative log-likelihood of the prediction, in nats."""
    if isinstance(ensemble.loss, keras.losses.SparseCategoricalCrossentropy):
        probabilities = ensemble.predict(x, verbose=0)
        return -np.mean(np.log(probabilities[np.arange(len(y)), y]))
    return -np.mean(mh.predict_distribution(ensemble, x).log_prob(y))


def row(name, folder, split, quick):
    """One row of the table."""
    keras.utils.set_random_seed(split)
    data = digits() if name == "digits" else regression(name, folder, split)
    (x, y, x_test, y_test), network, loss, shift = data
    found = {"set": name, "split": split, "backend": keras.backend.backend()}
    # Both train the same members: they have one seed.
    for column, sampling in (("members", 0), ("ensemble", 0.1 if quick else "auto")):
        keras.utils.set_random_seed(split)
        ensemble = mh.BayesianEnsemble(network, 4, seed=split)
        ensemble.compile(loss=loss)
        begin = time.perf_counter()
        epochs = 5 if quick else None
        ensemble.fit(x, y, epochs=epochs, sampling=sampling, verbose=0)
        found[f"{column} seconds"] = round(time.perf_counter() - begin, 1)
        found[column] = round(float(nll(ensemble, x_test, y_test) + shift), 4)
    return found


def main(arguments=None):
    """Run what is missing, print the table, and return its rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=(*SETS, "diabetes"), default=SETS)
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data-dir", help="folder of the UCI sets")
    parser.add_argument("--results", default="one_call.jsonl")
    parser.add_argument("--quick", action="store_true", help="small, and no files")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.sets, asked.splits = ["diabetes"], [0]
    path = Path(asked.results)
    rows = []
    if path.exists() and not asked.quick:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(r["set"], r["split"], r["backend"]) for r in rows}
    for split in asked.splits:
        for name in asked.sets:
            if (name, split, keras.backend.backend()) in done:
                continue
            rows.append(row(name, asked.data_dir, split, asked.quick))
            print(json.dumps(rows[-1]), flush=True)
            if not asked.quick:
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    for name in asked.sets:
        mine = [r for r in rows if r["set"] == name]
        gains = [r["members"] - r["ensemble"] for r in mine]
        error = np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
        means = [np.mean([r[key] for r in mine]) for key in ("members", "ensemble")]
        seconds = np.mean([r["ensemble seconds"] for r in mine])
        print(
            f"{name:16} members {means[0]:7.3f}  ensemble {means[1]:7.3f}  gain "
            f"{np.mean(gains):.3f} ± {error:.3f}  {seconds:.0f} s"
        )
    return rows


if __name__ == "__main__":
    main()
