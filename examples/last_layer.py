"""The last layer of a network, sampled exactly: Laplace and HMC.

Adam trains a small network on scikit-learn's digits. Its last layer then gets a
posterior in two ways: the Gaussian of `mh.last_layer_laplace`, and the exact samples of
`mh.sample_last_layer` with Hamiltonian Monte Carlo on all features. The width of the
prior is the one with the lowest negative log-likelihood (NLL) of HMC on a fifth of the
training images, which is held out for it.

    python examples/last_layer.py --seeds 3

The example prints the scores of the test images, the standard errors of the NLL's
differences to HMC over the seeds, and how far the predictions are from those of HMC
(`mh.diagnostics.agreement`). The rows go to `--out` as they come, and the same command
goes on where it was stopped.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

FEATURES, EPOCHS, BATCH = 8, 60, 100
PRIORS = (0.3, 1.0, 3.0)
CHOICE = 1000  # the seed of the runs that choose the prior
NETWORK, LAPLACE, HMC = "network", "Laplace", "HMC"


def network(x, y, args, seed):
    """Train a small network as always."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(FEATURES, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=BATCH, epochs=args.epochs, verbose=0)
    return model


def sampled(model, x, y, prior, seed):
    """An ensemble of exact samples, its diagnostics, and the seconds."""
    begin = time.perf_counter()
    ensemble, found = mh.sample_last_layer(
        model,
        x,
        y,
        prior=mh.priors.Gaussian(prior),
        seed=seed,
        progress=False,
    )
    return ensemble, {**found, "seconds": round(time.perf_counter() - begin, 1)}


def choose(rows, data, args):
    """The width of the prior with the lowest NLL on held-out training images."""
    x, y = data[:2]
    order = np.random.default_rng(0).permutation(len(x))
    held_out, kept = np.split(order, [len(x) // 5])
    nlls = {row["prior"]: row["nll"] for row in rows.of(CHOICE)}
    missing = [prior for prior in PRIORS if prior not in nlls]
    if missing:
        model = network(x[kept], y[kept], args, CHOICE)
    for prior in missing:
        ensemble, _ = sampled(model, x[kept], y[kept], prior, CHOICE)
        probabilities = ensemble.predict(x[held_out], verbose=0)
        nlls[prior] = float(mh.metrics.nll(probabilities, y[held_out]))
        rows.add(seed=CHOICE, prior=prior, nll=nlls[prior])
    return min(PRIORS, key=nlls.get)


def run(prior, data, args, seed):
    """Rows of every method for a seed."""
    x, y, x_test, y_test = data
    model = network(x, y, args, seed)
    width = mh.priors.Gaussian(prior)
    models = {NETWORK: model}
    models[LAPLACE] = mh.last_layer_laplace(
        model, x, y, prior=width, members=200, seed=seed
    )
    extra = {NETWORK: {}, LAPLACE: {}}
    models[HMC], extra[HMC] = sampled(model, x, y, prior, seed)
    scored = mh.evaluate(models, x_test, y_test).rows
    reference = models[HMC].predict_members(x_test)
    # Other draws of the same sampler: what the Monte Carlo error alone gives.
    second = sampled(model, x, y, prior, seed + 1)[0]
    members = {
        "HMC, again": second.predict_members(x_test),
        LAPLACE: models[LAPLACE].predict_members(x_test),
    }
    rows = []
    for row in scored:
        values = {key: float(row[key]) for key in ("accuracy", "nll", "ece")}
        rows.append({"method": row["model"], **values, **extra[row["model"]]})
    for name, found in members.items():
        agreement = mh.diagnostics.agreement(reference=reference, predictions=found)
        distances = {"total_variation": agreement.total_variation, "w1": agreement.w1}
        rows.append({"method": f"agreement of {name}", **distances})
    return rows


class Rows:
    """The rows of a file, and those that are added to it."""

    def __init__(self, path, key):
        self._path, self._key = Path(path), key
        text = self._path.read_text() if self._path.exists() else ""
        rows = [json.loads(line) for line in text.splitlines()]
        self._rows = [row for row in rows if key.items() <= row.items()]

    def of(self, seed, method=None):
        """The rows of a seed, and of a method."""
        rows = [row for row in self._rows if row["seed"] == seed]
        return [row for row in rows if method is None or row["method"] == method]

    def add(self, **entries):
        """Keep a row, also in the file."""
        self._rows.append({**self._key, **entries})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(self._rows[-1]) + "\n")
        print(entries, flush=True)


def table(rows, seeds):
    """Means over the seeds, differences of the NLL, and distances to HMC."""
    lines = ["| method | accuracy | NLL | ECE | NLL minus that of HMC | seconds |"]
    lines.append("|---|---|---|---|---|---|")
    hmc = np.array([rows.of(seed, HMC)[0]["nll"] for seed in range(seeds)])
    for method in (NETWORK, LAPLACE, HMC):
        own = [rows.of(seed, method)[0] for seed in range(seeds)]
        scores = ("accuracy", "nll", "ece")
        means = [np.mean([row[key] for row in own]) for key in scores]
        less = np.array([row["nll"] for row in own]) - hmc
        error = less.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
        shown = "—" if method == HMC else f"{less.mean():+.4f} ± {error:.4f}"
        seconds = np.mean([row.get("seconds", math.nan) for row in own])
        cells = [method, *(f"{mean:.4f}" for mean in means), shown, f"{seconds:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    for name in ("HMC, again", LAPLACE):
        own = [rows.of(seed, f"agreement of {name}")[0] for seed in range(seeds)]
        keys = ("total_variation", "w1")
        distances = [np.mean([row[key] for row in own]) for key in keys]
        lines.append("{}: total variation {:.4f}, W1 {:.4f}".format(name, *distances))
    for seed in range(seeds):
        row = rows.of(seed, HMC)[0]
        keys = ("acceptance", "num_steps", "r_hat", "ess")
        shown = ", ".join(f"{key} {row[key]:.4g}" for key in keys)
        lines.append(f"{HMC}, seed {seed}: {shown}")
    return "\n".join(lines)


def main(argv=None):
    """Run what is missing, and print the table. Returns the rows."""
    args = parse(argv)
    key = {"backend": keras.backend.backend(), "epochs": args.epochs}
    rows = Rows(args.out, key)
    train, test = mh.datasets.load("digits")
    data = (*train, *test)
    prior = choose(rows, data, args)
    for seed in range(args.seeds):
        if not rows.of(seed):
            for row in run(prior, data, args, seed):
                rows.add(seed=seed, prior=prior, **row)
    print(f"\nprior {prior}, {args.seeds} seeds, {key['backend']}")
    print(table(rows, args.seeds))
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", default="out/last_layer.jsonl", help="the rows")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
