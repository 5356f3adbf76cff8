"""Optimise, then sample: does it pay, for the same number of gradients?

Adam trains four networks from different first weights. SGHMC then goes on from each of
them, and the kept samples of the four chains make one ensemble. It is compared with the
four networks alone, and with three ways to spend the same number of gradients: 20 Adam
networks, one long chain of SGHMC, and the iterates of one long run of SGD with
momentum. The settings of Adam, of the four chains and of SGD are those with the lowest
negative log-likelihood (NLL) on a fifth of the training data, which is held out for it.
The long chain has the settings of the four. The scores are those of the test images,
after training on all training data.

    python examples/optimise_then_sample.py
    python examples/optimise_then_sample.py --dataset mnist --data-dir folder

The second command trains on the first 10,000 images of MNIST. The example prints the
mean scores over the seeds, by how much the NLL of each method exceeds that of "SGHMC
from each", with the standard error of the paired differences, and R-hat of the
predictions. The rows go to `--out` as they come, and the same command goes on where it
was stopped.
"""

import argparse
import itertools
import json
import math
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

HIDDEN, BATCH, MEMBERS, EPOCHS = 32, 100, 4, 20
SAMPLING = 4  # epochs of sampling for each epoch of Adam
DRAWS = 30  # of each of the four chains
LARGEST, SHOWN = 10_000, 1000  # training images; images whose predictions R-hat has
CHOICE = 1000  # the seed of the runs that choose the settings
SCORES = ("accuracy", "nll", "ece")
ADAM, EACH, MORE = "4 Adam", "SGHMC from each", "20 Adam"
CHAIN, SGD = "one SGHMC chain", "SGD iterates"


def grid(**values):
    """All combinations of the values of settings."""
    rows = itertools.product(*values.values())
    return [dict(zip(values, row, strict=True)) for row in rows]


SAMPLER = {"rate": (0.2,), "prior": (0.7, 2.0)}
GRIDS = {
    ADAM: grid(rate=(0.003, 0.01), decay=(0.1,)),
    EACH: grid(**SAMPLER, temperature=(1.0, 0.1)),
    # SGHMC at temperature 0 makes the steps of SGD with momentum.
    SGD: grid(**SAMPLER, temperature=(0.0,)),
}


def build(shape, hidden):
    """An ordinary Keras model."""
    return keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Flatten(),
            keras.layers.Dense(hidden, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )


def optimise(data, count, setting, args, seed):
    """Train `count` networks with Adam, each from first weights of its own."""
    x, y = data[:2]
    keras.utils.set_random_seed(seed)
    members = mh.ParallelChains(build(x.shape[1:], args.hidden), count, seed=seed)
    decay = setting["decay"] or None
    members.compile(
        keras.optimizers.Adam(setting["rate"], weight_decay=decay),
        "sparse_categorical_crossentropy",
    )
    members.fit(x, y, batch_size=BATCH, epochs=args.epochs, verbose=0)
    return members


def sample(chains, data, setting, epochs, draws, seed):
    """Run SGHMC. A quarter of the run is burn-in, then `draws` samples are kept."""
    x, y = data[:2]
    steps = math.ceil(len(x) / BATCH) * epochs
    optimizer = mh.SGHMC(
        setting["rate"],
        train_size=len(x),
        prior=mh.priors.Gaussian(setting["prior"]),
        temperature=setting["temperature"],
        seed=seed,
    )
    chains.compile(optimizer, "sparse_categorical_crossentropy")
    every = max(steps * 3 // 4 // draws, 1)
    posterior = mh.PosteriorSamples(burn_in=steps - draws * every, every=every)
    chains.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[posterior])
    return posterior


def scores(probabilities, labels):
    """Accuracy, NLL and calibration error."""
    values = [getattr(mh.metrics, name)(probabilities, labels) for name in SCORES]
    return {name: float(value) for name, value in zip(SCORES, values, strict=True)}


def r_hat(posterior, chains, x, y):
    """R-hat of the probability of each label: its median, and the share below 1.01."""
    members = posterior.predictions(chains, x[:SHOWN])
    of_label = members[:, :, np.arange(len(members[0, 0])), y[:SHOWN]]
    # A probability that is 1 in all draws has no R-hat.
    of_label = of_label[:, :, of_label.std(axis=(0, 1)) > 0.0]
    found = mh.diagnostics.summary({"p": of_label})["r_hat"].to_numpy()
    return {"r_hat": float(np.median(found)), "agree": float(np.mean(found < 1.01))}


def run(method, setting, data, args, seed, members=None):
    """The scores of a method. `members` are the four Adam networks to start from."""
    x, y, x_test, y_test = data
    begin = time.perf_counter()
    extra, total = {}, (1 + SAMPLING) * args.epochs * MEMBERS
    if method in (ADAM, MORE):
        count = MEMBERS if method == ADAM else MEMBERS * (1 + SAMPLING)
        networks = optimise(data, count, setting, args, seed)
        ensemble = mh.deep_ensemble(networks)
    elif method == EACH:
        template = build(x.shape[1:], args.hidden)
        chains = mh.ParallelChains(template, MEMBERS, seed=seed, start=members)
        epochs = SAMPLING * args.epochs
        posterior = sample(chains, data, setting, epochs, args.draws, seed)
        ensemble = posterior.ensemble(chains)
        extra = r_hat(posterior, chains, x_test, y_test)
    else:
        keras.utils.set_random_seed(seed)
        model = build(x.shape[1:], args.hidden)
        draws = MEMBERS * args.draws
        posterior = sample(model, data, setting, total, draws, seed)
        ensemble = posterior.ensemble(model)
    found = scores(ensemble.predict(x_test, batch_size=1000, verbose=0), y_test)
    seconds = round(time.perf_counter() - begin, 1)
    return {**found, **extra, "seconds": seconds}, networks if method == ADAM else None


class Rows:
    """The rows of a file, and those that are added to it."""

    def __init__(self, path, key):
        self._path, self._key = Path(path), key
        text = self._path.read_text() if self._path.exists() else ""
        rows = [json.loads(line) for line in text.splitlines()]
        self._rows = [row for row in rows if key.items() <= row.items()]

    def find(self, **wanted):
        """The row with these entries, or None."""
        rows = [row for row in self._rows if wanted.items() <= row.items()]
        return rows[0] if rows else None

    def add(self, **entries):
        """Keep a row, also in the file."""
        self._rows.append({**self._key, **entries})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(self._rows[-1]) + "\n")
        shown = [entries[name] for name in ("seed", "method", "setting", "nll")]
        print(*shown, flush=True)


def choose(rows, data, args):
    """The setting of each method with the lowest NLL on held-out training data."""
    chosen, members = {}, None
    for method, settings in GRIDS.items():
        for setting in settings:
            if rows.find(seed=CHOICE, method=method, setting=setting):
                continue
            if method == EACH and members is None:
                members = run(ADAM, chosen[ADAM], data, args, CHOICE)[1]
            found, _ = run(method, setting, data, args, CHOICE, members)
            rows.add(seed=CHOICE, method=method, setting=setting, **found)
        tried = [rows.find(seed=CHOICE, method=method, setting=s) for s in settings]
        best = min(tried, key=lambda row: (math.isnan(row["nll"]), row["nll"]))
        chosen[method] = best["setting"]
    chosen[MORE], chosen[CHAIN] = chosen[ADAM], chosen[EACH]
    return chosen


def score(rows, chosen, data, args, seed):
    """Add the rows of a seed that are missing."""
    members = None
    for method in (ADAM, EACH, MORE, CHAIN, SGD):
        setting = chosen[method]
        if rows.find(seed=seed, method=method):
            continue
        if method == EACH and members is None:
            members = run(ADAM, chosen[ADAM], data, args, seed)[1]
        found, networks = run(method, setting, data, args, seed, members)
        members = networks if method == ADAM else members
        if method == EACH:  # its networks were trained before
            found["seconds"] += rows.find(seed=seed, method=ADAM)["seconds"]
        rows.add(seed=seed, method=method, setting=setting, **found)


def table(rows, seeds):
    """Means over the seeds, and what each method has more than `EACH`."""
    lines = [
        f"| method | accuracy | NLL | ECE | NLL minus that of {EACH} | seconds |",
        "|---|---|---|---|---|---|",
    ]
    each = np.array([rows.find(seed=s, method=EACH)["nll"] for s in range(seeds)])
    for method in (ADAM, EACH, MORE, CHAIN, SGD):
        own = [rows.find(seed=s, method=method) for s in range(seeds)]
        cells = [method, *(f"{np.mean([row[s] for row in own]):.4f}" for s in SCORES)]
        less = np.array([row["nll"] for row in own]) - each
        error = less.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
        shown = f"{less.mean():+.4f} ± {error:.4f}"
        cells.append("—" if method == EACH else shown)
        cells.append(f"{np.mean([row['seconds'] for row in own]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def load(args):
    """Training and test images; and the training images, split to choose settings."""
    (x, y), test = mh.datasets.load(args.dataset, args.data_dir)
    x, y = x[:LARGEST], y[:LARGEST]
    order = np.random.default_rng(0).permutation(len(x))
    held_out, kept = np.split(order, [len(x) // 5])
    return (x, y, *test), (x[kept], y[kept], x[held_out], y[held_out])


def main(argv=None):
    """Run what is missing, and print the table. Returns the rows."""
    args = parse(argv)
    key = {"backend": keras.backend.backend(), "dataset": args.dataset}
    key |= {"epochs": args.epochs, "hidden": args.hidden, "draws": args.draws}
    rows = Rows(args.out, key)
    data, split = load(args)
    chosen = choose(rows, split, args)
    for seed in range(args.seeds):
        score(rows, chosen, data, args, seed)
    print(f"\n{args.dataset} on {key['backend']}, {args.seeds} seeds")
    print(table(rows, args.seeds))
    for seed in range(args.seeds):
        row = rows.find(seed=seed, method=EACH)
        print(
            f"seed {seed}: R-hat of the probability of the label, median "
            f"{row['r_hat']:.3f}, below 1.01 for {row['agree']:.1%} of the images"
        )
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="digits", help="or mnist, ...")
    parser.add_argument("--data-dir", help="folder of the file, such as mnist.npz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of Adam")
    parser.add_argument("--hidden", type=int, default=HIDDEN)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of a chain")
    parser.add_argument("--out", default="out/optimise_then_sample.jsonl")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
