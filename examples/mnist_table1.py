"""Table 1 of Wu, Wang and Wong (2020) at its own size: RSGLD, SGD and SGLD on MNIST.

A perceptron 784-600-10, 55,000 images, batches of 100, 500 epochs, the test error of
several rounds. The rounds of a method are the chains of one `mh.ParallelChains`. RSGLD
runs twice: with this package's defaults, and with the paper's settings. The paper's SGD
breaks down at large rates. Here it does so with a softmax that overflows, which is the
method `SGD-naive`.

    python examples/mnist_table1.py --data mnist.npz --out out/table1
    python examples/mnist_table1.py --data mnist.npz --out out/table1 --rates 0.4 \
        --methods RSGLD --epochs 100

The state of each run is saved every 25 epochs, under `--out`. The same command goes on
where it was stopped, and with more `--epochs` a finished run continues. `--table` only
prints the table of what is there.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import mnist_mlp as mlp
import numpy as np

import keras_mhmcmc as mh

BATCH, HIDDEN = mlp.BATCH["table1"], mlp.HIDDEN["table1"]
# The paper's "N(0, 0.03)", read as a standard deviation. Read as a variance, RSGLD at
# 0.4 has an error of 2.14% after 75 epochs.
STDDEV = 0.03
RATES = (0.05, 0.1, 0.2, 0.4, 0.6)
METHODS = ("RSGLD", "RSGLD-paper", "SGD", "SGLD", "SGD-naive")
BLOCK = 25  # epochs between two saved states
BURN_IN, EVERY = 250, 10  # epochs before the first sample, and between two
LOGS = ("forward_acceptance", "refresh_acceptance", "beta", "learning_rate")
PAPER = {"forward_probability": 0.5, "beta_adaptation": "paper", **mlp.AT_ONCE}


@keras.saving.register_keras_serializable("mnist_table1")
class NaiveCrossEntropy(keras.losses.Loss):
    """Cross-entropy of a softmax that overflows, as early codes wrote it."""

    def call(self, y_true, y_pred):
        exponentials = keras.ops.exp(y_pred)
        shares = exponentials / keras.ops.sum(exponentials, axis=-1, keepdims=True)
        labels = keras.ops.one_hot(keras.ops.cast(y_true, "int32"), 10)
        labels = keras.ops.reshape(labels, keras.ops.shape(shares))
        return -keras.ops.sum(labels * keras.ops.log(shares), axis=-1)


def make_optimizer(method, rate, n, seed):
    """The optimizer of a method."""
    if method == "RSGLD":
        return mh.RSGLD(rate, train_size=n, batch_size=BATCH, seed=seed)
    if method == "RSGLD-paper":
        sizes = {"train_size": n, "batch_size": BATCH, "temperature": n / BATCH}
        return mh.RSGLD(rate, seed=seed, **sizes, **PAPER)
    if method == "SGLD":  # the paper's noise: 1/n of what samples the posterior
        return mh.SGLD(rate, train_size=n, temperature=1 / n, seed=seed)
    return keras.optimizers.SGD(rate)


def new_chains(method, rate, data, args):
    """The chains before the first step."""
    keras.utils.set_random_seed(args.seed)
    model = mlp.perceptron(data.x.shape[1], HIDDEN, STDDEV**2, seed=args.seed)
    chains = mh.ParallelChains(model, args.chains, seed=args.seed)
    chains.compile(
        optimizer=make_optimizer(method, rate, len(data.x), args.seed),
        loss=NaiveCrossEntropy() if method == "SGD-naive" else mlp.cross_entropy(),
        metrics=["accuracy"],
    )
    return chains


def train(method, rate, data, args):
    """Train up to `args.epochs`, from the saved state on. Returns the record."""
    folder = Path(args.out) / f"{method}_{rate:g}"
    folder.mkdir(parents=True, exist_ok=True)
    state, notes = folder / "chains.keras", folder / "record.json"
    record = {"method": method, "rate": rate, "errors": [], "logs": {}, "seconds": 0.0}
    if notes.exists():
        record = json.loads(notes.read_text())
    done = len(record["errors"])
    if done >= args.epochs:
        return record
    chains = (
        keras.saving.load_model(state) if done else new_chains(method, rate, data, args)
    )
    x, y, x_test, y_test = data.x, data.y, data.x_test, data.y_test
    while done < args.epochs:
        last = min(done + BLOCK, args.epochs)
        callbacks = [States()]
        if last > BURN_IN:
            callbacks.append(samples_of(folder, len(x)))
        keras.utils.set_random_seed(args.seed + done)  # the order of the batches
        begin = time.perf_counter()
        chains.fit(
            x,
            y,
            batch_size=BATCH,
            epochs=last,
            initial_epoch=done,
            validation_data=(x_test, y_test),
            validation_batch_size=1000,
            callbacks=callbacks,
            verbose=0,
        )
        history = chains.chain_history
        record["seconds"] += time.perf_counter() - begin
        record["errors"] += (100 * (1 - history["val_accuracy"])).tolist()
        for name in LOGS:
            if name in history:
                record["logs"].setdefault(name, []).extend(history[name].tolist())
        # First the state, then what says that it is there.
        chains.save(folder / "new.keras")
        os.replace(folder / "new.keras", state)
        done = last
        notes.write_text(json.dumps(record))
        print(line(record), f"of {args.epochs} epochs", flush=True)
    record["scores"] = scores(chains, folder, x_test, y_test)
    notes.write_text(json.dumps(record))
    return record


class States(keras.callbacks.Callback):
    """Let the test see the states of the chains, not their proposals.

    `mh.PosteriorSamples` does this as well, but keeps samples, which ends the
    adaptation of the rate.
    """

    def on_epoch_begin(self, epoch, logs=None):
        if isinstance(self.model.optimizer, (mh.RSGLD, mh.SGLD)):
            self.model.optimizer.reset_diagnostics()
            self.model.optimizer.propose()

    def on_test_begin(self, logs=None):
        if isinstance(self.model.optimizer, (mh.RSGLD, mh.SGLD)):
            self.model.optimizer.settle()


def samples_of(folder, n):
    """The callback that keeps samples of the later epochs."""
    steps = n // BATCH
    return mh.PosteriorSamples(
        burn_in=BURN_IN * steps, every=EVERY * steps, directory=folder / "samples"
    )


def scores(chains, folder, x_test, y_test):
    """Accuracy, NLL and ECE of each chain's state and of the chain's ensemble."""
    found = {"last": [], "ensemble": []}
    probabilities = keras.ops.softmax(
        chains.predict(x_test, batch_size=1000, verbose=0)
    )
    found["last"] = [three(p, y_test) for p in np.asarray(probabilities)]
    if (folder / "samples").exists():
        posterior = mh.PosteriorSamples.load(folder / "samples")
        members = posterior.ensemble(chains).predict_members(x_test, batch_size=1000)
        members = np.asarray(keras.ops.softmax(members))
        by_chain = members.reshape(-1, chains.num_chains, *members.shape[1:])
        means = by_chain.mean(axis=0)
        found["ensemble"] = [three(p, y_test) for p in means]
    return found


def three(probabilities, labels):
    """Accuracy, NLL and ECE."""
    measures = (mh.metrics.accuracy, mh.metrics.nll, mh.metrics.ece)
    return [float(measure(probabilities, labels)) for measure in measures]


def line(record):
    """Where a run is."""
    errors, logs = record["errors"], record["logs"]
    median = float(np.median(errors[-1]))
    parts = [f"{record['method']} {record['rate']:g}: {len(errors)}"]
    parts.append(f"error {median:.2f}%")
    for name in LOGS:
        if name in logs:
            parts.append(f"{name} {np.nanmean(logs[name][-1]):.3g}")
    parts.append(f"{record['seconds']:.0f} s")
    return ", ".join(parts)


def table(args):
    """Print a line for each run that is there."""
    print(
        "method        rate  epochs  test error: median (lowest to highest)  NLL  ECE"
    )
    for notes in sorted(Path(args.out).glob("*/record.json")):
        record = json.loads(notes.read_text())
        last = np.array(record["errors"][-1])
        cells = [
            f"{record['method']:12s} {record['rate']:5g} {len(record['errors']):7d}"
        ]
        cells.append(f"{np.median(last):.2f} ({last.min():.2f} to {last.max():.2f})")
        for name, found in record.get("scores", {}).items():
            if found:
                accuracy, nll, ece = np.median(found, axis=0)
                error = 100 * (1 - accuracy)
                cells.append(f"{name}: {error:.2f}% NLL {nll:.4f} ECE {ece:.4f}")
        if "forward_acceptance" in record["logs"]:
            shares = np.array(record["logs"]["forward_acceptance"], float)
            cells.append(f"forward acceptance at least {np.nanmin(shares):.2f}")
        print("  ".join(cells))


def main(argv=None):
    """Run what is missing, and print the table. Returns the records."""
    args = parse(argv)
    records = []
    if not args.table:
        data = mlp.split(mlp.load(args), "table1", args.seed)
        for rate in args.rates:
            records += [train(method, rate, data, args) for method in args.methods]
    table(args)
    return records


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="mnist.npz", help="images and labels")
    parser.add_argument("--out", default="out/table1", help="folder of the states")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--chains", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", action="store_true", help="only print the table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
