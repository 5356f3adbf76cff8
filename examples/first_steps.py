"""One network's ensemble of PSGLD over several seeds: does it pay?

One small network learns scikit-learn's digits four times: with SGD, with Adam, with
Adam and weight decay, and with PSGLD, whose samples make an ensemble. docs/choosing.md
says how the settings were chosen. The scores are those of the test images.

    python examples/first_steps.py --seeds 5
    KERAS_BACKEND=torch python examples/first_steps.py --seeds 5

The example prints the mean scores over the seeds, and by how much the negative
log-likelihood (NLL) of each method exceeds that of the ensemble, with its standard
error. The rows go to `--out` as they come, and the same command goes on where it was
stopped.
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

HIDDEN, EPOCHS, BATCH = 200, 200, 96
TEMPERATURE = 0.03
SCORES = ("accuracy", "nll", "ece")
LAST, ENSEMBLE = "PSGLD, last sample", "PSGLD, ensemble"


def train(optimizer, x, y, epochs, callbacks=()):
    """Train a small network as always."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(HIDDEN, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    model.fit(
        x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )
    return model


def optimizers(n, seed):
    """The optimizer of each method."""
    return {
        "SGD": keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-3),
        "Adam": keras.optimizers.Adam(0.001),
        "Adam, weight decay": keras.optimizers.Adam(0.01, weight_decay=0.1),
        "PSGLD": sampler(n, seed),
    }


def sampler(n, seed, temperature=TEMPERATURE, rate=0.005):
    """The sampler for `n` training images."""
    prior = mh.priors.Gaussian(2.0)
    return mh.PSGLD(rate, train_size=n, temperature=temperature, prior=prior, seed=seed)


def run(seed, epochs):
    """The scores of every method for a seed, a dict for each."""
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    models, seconds = {}, []
    for name, optimizer in optimizers(len(x), seed).items():
        keras.utils.set_random_seed(seed)  # the same first weights, the same batches
        steps = math.ceil(len(x) / BATCH) * epochs
        posterior = mh.PosteriorSamples(burn_in=steps // 2)
        begin = time.perf_counter()
        if name == "PSGLD":
            model = train(optimizer, x, y, epochs, [posterior])
            models[LAST], models[ENSEMBLE] = model, posterior.ensemble(model)
        else:
            models[name] = train(optimizer, x, y, epochs)
        spent = round(time.perf_counter() - begin, 1)
        seconds += [spent] * (len(models) - len(seconds))
    rows = []
    scored = mh.evaluate(models, x_test, y_test).rows
    for row, spent in zip(scored, seconds, strict=True):
        scores = {score: round(float(row[score]), 5) for score in SCORES}
        rows.append({"backend": keras.backend.backend(), "epochs": epochs})
        rows[-1] |= {"seed": seed, "method": row["model"], **scores, "seconds": spent}
    return rows


def table(rows):
    """Means over the seeds, and what each method has less than the ensemble."""
    seeds = sorted({row["seed"] for row in rows})
    found = {(row["method"], row["seed"]): row for row in rows}
    ensemble = np.array([found[ENSEMBLE, seed]["nll"] for seed in seeds])
    lines = [
        "| method | accuracy | NLL | ECE | NLL minus the ensemble's | "
        "ensemble better in | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [found[method, seed] for seed in seeds]
        cells = [method, *(f"{np.mean([row[s] for row in own]):.3f}" for s in SCORES)]
        less = np.array([row["nll"] for row in own]) - ensemble
        error = less.std(ddof=1) / math.sqrt(len(less)) if len(less) > 1 else math.nan
        if method == ENSEMBLE:
            cells += ["—", "—"]
        else:
            cells.append(f"{less.mean():+.3f} ± {error:.3f}")
            cells.append(f"{np.sum(less > 0)} of {len(less)} seeds")
        cells.append(f"{np.mean([row['seconds'] for row in own]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Run the seeds that are missing, and print the table. Returns the rows."""
    args = parse(argv)
    path = Path(args.out)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    key = {"backend": keras.backend.backend(), "epochs": args.epochs}
    rows = [row for row in rows if key.items() <= row.items()]
    for seed in range(args.seeds):
        if any(row["seed"] == seed for row in rows):
            continue
        new = run(seed, args.epochs)
        rows += new
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in new)
        scores = [f"{row['method']} {row['nll']:.4f}" for row in new]
        print(f"seed {seed}, NLL:", "; ".join(scores), flush=True)
    rows = [row for row in rows if row["seed"] < args.seeds]
    print(f"\nKeras on {key['backend']}, {args.epochs} epochs, {args.seeds} seeds")
    print(table(rows))
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--out", default="out/first_steps.jsonl", help="the rows")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
