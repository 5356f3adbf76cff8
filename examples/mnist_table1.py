"""Table 1 of Wu, Wang and Wong (2020) at its own size: RSGLD, SGD and SGLD on MNIST.

A perceptron 784-600-10, 55,000 images, batches of 100, 500 epochs, the test error of
several rounds. The rounds of a method are the chains of one `mh.ParallelChains`. The
images are the paper's: the last 55,000 of MNIST's 60,000, as in the TensorFlow tutorial
of its time; with `--held-out last` the first 55,000. RSGLD runs with this package's
defaults, with warm-ups of other lengths, with more refreshes at a higher temperature,
and with the paper's settings. The paper's SGD breaks down at large rates. Here it does
so with a softmax that overflows, which is the method `SGD-naive`. RMSprop and Adam, at
a rate of 0.001, are for the curves of figure 3b. The ensemble averages 25 states of a
chain from the second half of the epochs, for SGD as well.

    python examples/mnist_table1.py --data mnist.npz --out out/table1
    python examples/mnist_table1.py --data mnist.npz --out out/short --rates 0.4 \
        --methods RSGLD --epochs 100
    python examples/mnist_table1.py --table \
        --results examples/results/table1_500_epochs.jsonl

The state of each run is saved every 25 epochs, under `--out`. The same command goes on
where it was stopped, and with more `--epochs` a finished run continues. A finished run
is a line of `--results`, and is not run again. `--minutes` stops a run after the block
of epochs in which the time is over. `--table` only prints the lines that are there, and
draws their curves with `--picture`. `--quick` runs two epochs on random images.
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
from matplotlib import pyplot
from matplotlib import ticker

import keras_mhmcmc as mh

BATCH, HIDDEN = 100, 600
# The paper's "N(0, 0.03)", read as a standard deviation. Read as a variance, RSGLD at
# 0.4 has an error of 2.14% after 75 epochs.
STDDEV = 0.03
RATES = (0.05, 0.1, 0.2, 0.4, 0.6)
METHODS = (
    "RSGLD",
    "RSGLD-500-steps",
    "RSGLD-5-epochs",
    "RSGLD-20-epochs",
    "RSGLD-refreshes",
    "RSGLD-paper",
    "SGD",
    "SGLD",
    "SGD-naive",
    "RMSprop",
    "Adam",
)
OWN_RATES = {"RMSprop": (0.001,), "Adam": (0.001,)}
RUN = ("method", "rate", "epochs", "chains", "seed", "held_out")  # one line each
SHOWN = 10  # epochs between two errors in the file of results
BLOCK = 25  # epochs between two saved states
SAMPLES = 25  # of the second half of the epochs
LOGS = ("forward_acceptance", "refresh_acceptance", "beta", "learning_rate")
# More refreshes, at a temperature that lets nearly all of them through: see the page on
# Metropolis-Hastings.
REFRESHES = {"refresh_probability": 0.3}
PAPER = {
    "forward_probability": 0.5,
    "refresh_probability": 0.0,
    "beta_adaptation": "paper",
    "warm_up": 0,
    "rate_adaptation": False,
}


@keras.saving.register_keras_serializable("mnist_table1")
class NaiveCrossEntropy(keras.losses.Loss):
    """Cross-entropy of a softmax that overflows, as early codes wrote it."""

    def call(self, y_true, y_pred):
        exponentials = keras.ops.exp(y_pred)
        shares = exponentials / keras.ops.sum(exponentials, axis=-1, keepdims=True)
        labels = keras.ops.one_hot(keras.ops.cast(y_true, "int32"), 10)
        labels = keras.ops.reshape(labels, keras.ops.shape(shares))
        return -keras.ops.sum(labels * keras.ops.log(shares), axis=-1)


def split(arrays, held_out="first"):
    """Hold out the first twelfth of the training images, 5,000 of MNIST's 60,000.

    The paper took its data from the TensorFlow tutorial, which split them like this.
    With `held_out="last"` it is the last twelfth.
    """
    x, y, x_test, y_test = arrays
    held = len(x) // 12
    train, rest = slice(held, None), slice(held)
    if held_out == "last":
        train, rest = slice(-held), slice(-held, None)
    return mlp.Data(x[train], y[train], x[rest], y[rest], x_test, y_test)


def make_optimizer(method, rate, n, seed, epochs, **options):
    """The optimizer of a method, for a run of so many epochs. `options` are RSGLD's."""
    if method.startswith("RSGLD"):
        settings = {"train_size": n, "batch_size": BATCH}
        if method.endswith("-epochs"):  # of warm-up
            settings["warm_up"] = int(method.split("-")[1]) * n // BATCH
        if method == "RSGLD-refreshes":
            settings |= REFRESHES | {"temperature": 2 * n / BATCH**0.5}
        if method == "RSGLD-paper":
            settings |= PAPER | {"temperature": n / BATCH}
        optimizer = mh.RSGLD(rate, seed=seed, **(settings | options))
        if method == "RSGLD":
            # As in one `fit` that keeps samples of its second half. The run here is
            # several fits, and the first ones keep no samples.
            optimizer.plan_warm_up(epochs // 2 * (n // BATCH))
        return optimizer
    if method in ("RMSprop", "Adam"):
        return getattr(keras.optimizers, method)(rate)
    if method == "SGLD":  # the paper's noise: 1/n of what samples the posterior
        return mh.SGLD(rate, train_size=n, temperature=1 / n, seed=seed)
    return keras.optimizers.SGD(rate)


def new_chains(method, rate, data, args):
    """The chains before the first step."""
    keras.utils.set_random_seed(args.seed)
    model = mlp.perceptron(data.x.shape[1], HIDDEN, STDDEV, seed=args.seed)
    chains = mh.ParallelChains(model, args.chains, seed=args.seed)
    # A quick run is shorter than the warm-up.
    options = {"warm_up": 0} if args.quick else {}
    sizes = len(data.x), args.seed, args.epochs
    chains.compile(
        optimizer=make_optimizer(method, rate, *sizes, **options),
        loss=NaiveCrossEntropy() if method == "SGD-naive" else mlp.cross_entropy(),
        metrics=["accuracy"],
    )
    return chains


def train(method, rate, data, args):
    """Train up to `args.epochs`, from the saved state on.

    Returns the record, or None if the time was over before.
    """
    about = {"seed": args.seed} if args.seed else {}
    about |= {"held_out": "last"} if args.held_out == "last" else {}
    values = (method, rate, args.epochs, args.chains)
    wanted = dict(zip(RUN, values, strict=False)) | about
    for record in mlp.read_results(args.results):
        if {key: record[key] for key in RUN if key in record} == wanted:
            return record
    words = [method, f"{rate:g}", *map(str, about.values())]
    folder = Path(args.out) / "_".join(words)
    folder.mkdir(parents=True, exist_ok=True)
    state, notes = folder / "chains.keras", folder / "record.json"
    record = {"method": method, "rate": rate, "errors": [], "logs": {}, "seconds": 0.0}
    if notes.exists():
        record = json.loads(notes.read_text())
    done = len(record["errors"])
    if done > args.epochs or (done and len(record["errors"][0]) != args.chains):
        raise SystemExit(
            f"{folder} has a run of {done} epochs with {len(record['errors'][0])} "
            f"chains, not one of {args.epochs} with {args.chains}: give another --out"
        )
    chains = (
        keras.saving.load_model(state) if done else new_chains(method, rate, data, args)
    )
    fresh = make_optimizer(method, rate, len(data.x), args.seed, args.epochs)
    if method == "RSGLD" and done and chains.optimizer.warm_up != fresh.warm_up:
        raise SystemExit(f"{folder} has a run of another default warm-up: move it away")
    x_test, y_test = data.x_test, data.y_test
    while done < args.epochs:
        if time.perf_counter() > args.deadline:
            return None
        last = min(done + BLOCK, args.epochs)
        callbacks = [States()]
        if last > args.epochs // 2:
            callbacks.append(samples_of(folder, len(data.x), args.epochs))
        keras.utils.set_random_seed(args.seed + done)  # the order of the batches
        begin = time.perf_counter()
        chains.fit(
            data.x,
            data.y,
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
    samples = samples_in(folder, args.epochs)
    found = result(record, scores(chains, samples, x_test, y_test)) | about
    mlp.add_result(args.results, found)
    return found


def result(record, scored):
    """What is kept of a finished run: one line of the file of results."""
    errors = np.array(record["errors"])  # epochs, chains
    shown = errors[min(SHOWN, len(errors)) - 1 :: SHOWN]
    found = {"method": record["method"], "rate": record["rate"]}
    found |= {"epochs": len(errors), "chains": errors.shape[1]}
    found["errors"] = [[round(error, 2) for error in row] for row in shown.tolist()]
    for name, summary in (("forward_acceptance", np.nanmin), ("beta", np.nanmedian)):
        values = np.array(record["logs"].get(name, []), float)
        if np.isfinite(values).any():  # NaN: warming up
            found[name] = float(summary(values))
    return {**found, **scored, "seconds": round(record["seconds"])}


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


def samples_of(folder, n, epochs):
    """The callback that keeps samples of the second half of the epochs."""
    steps = n // BATCH
    return mh.PosteriorSamples(
        burn_in=epochs // 2 * steps,
        every=max(1, epochs // (2 * SAMPLES)) * steps,
        directory=samples_in(folder, epochs),
    )


def samples_in(folder, epochs):
    """Where the samples are. A longer run has others."""
    return folder / f"samples_{epochs}"


def scores(chains, samples, x_test, y_test):
    """Accuracy, NLL and ECE of each chain's state and of the chain's ensemble."""
    found = {"last": [], "ensemble": []}
    probabilities = keras.ops.softmax(
        chains.predict(x_test, batch_size=1000, verbose=0)
    )
    found["last"] = [mlp.three(p, y_test) for p in np.asarray(probabilities)]
    is_whole = np.isfinite(found["last"]).all()
    if samples.exists() and is_whole:
        posterior = mh.PosteriorSamples.load(samples)
        ensemble = posterior.ensemble(chains, activation="softmax")
        members = ensemble.predict_members(x_test, batch_size=1000)
        members = np.asarray(members)
        by_chain = members.reshape(-1, chains.num_chains, *members.shape[1:])
        means = by_chain.mean(axis=0)
        found["ensemble"] = [mlp.three(p, y_test) for p in means]
    return found


def line(record):
    """Where a run is."""
    errors, logs = record["errors"], record["logs"]
    median = float(np.median(errors[-1]))
    parts = [f"{record['method']} {record['rate']:g}: {len(errors)}"]
    parts.append(f"error {median:.2f}%")
    for name in LOGS:
        if name in logs and np.isfinite(logs[name][-1]).any():  # NaN: warming up
            parts.append(f"{name} {np.nanmean(logs[name][-1]):.3g}")
    parts.append(f"{record['seconds']:.0f} s")
    return ", ".join(parts)


def label(record):
    """The method, and what is not as in the paper's runs."""
    seed = f", seed {record['seed']}" if "seed" in record else ""
    return record["method"] + seed + ", last held out" * ("held_out" in record)


def table(records):
    """A line for each finished run: median (lowest to highest) of the chains."""
    lines = [
        "| method | rate | epochs | test error, % | NLL, ECE of the last state | "
        "error, NLL, ECE of the ensemble | lowest forward acceptance | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = {method: place for place, method in enumerate(METHODS)}
    for record in sorted(records, key=lambda r: (r["rate"], order[r["method"]])):
        last = np.array(record["errors"][-1])
        cells = [label(record), f"{record['rate']:g}", str(record["epochs"])]
        cells.append(f"{np.median(last):.2f} ({last.min():.2f} to {last.max():.2f})")
        _, nll, ece = np.median(record["last"], axis=0)
        cells.append(f"{nll:.4f}, {ece:.4f}" if np.isfinite(nll) else "NaN")
        cells.append("—")
        if record["ensemble"]:
            accuracy, nll, ece = np.median(record["ensemble"], axis=0)
            cells[-1] = f"{100 * (1 - accuracy):.2f}, {nll:.4f}, {ece:.4f}"
        share = record.get("forward_acceptance")
        cells.append("—" if share is None else f"{share:.2f}")
        cells.append(f"{record['seconds'] / 60:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(records, path):
    """Draw the test error by epoch: the median of the chains, and their range."""
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for place, record in enumerate(records):
        errors = np.array(record["errors"])
        epochs = SHOWN * np.arange(1, len(errors) + 1)
        name, color = f"{label(record)}, {record['rate']:g}", f"C{place}"
        axes.plot(epochs, np.median(errors, axis=1), color=color, label=name)
        axes.fill_between(
            epochs, errors.min(axis=1), errors.max(axis=1), color=color, alpha=0.2, lw=0
        )
    axes.set(xlabel="epoch", ylabel="test error, %", yscale="log")
    axes.yaxis.set_major_formatter(ticker.ScalarFormatter())
    axes.yaxis.set_minor_formatter(ticker.ScalarFormatter())
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(argv=None):
    """Run what is missing, and print the table. Returns the finished runs."""
    args = parse(argv)
    is_complete = True
    if not args.table:
        images = mlp.random_images() if args.quick else mlp.load(args.data)
        data = split(images, args.held_out)
        runs = [(m, r) for r in args.rates for m in args.methods if m not in OWN_RATES]
        runs += [(m, r) for m in args.methods for r in OWN_RATES.get(m, ())]
        for method, rate in runs:
            is_complete &= train(method, rate, data, args) is not None
    records = mlp.read_results(args.results)
    print(table(records))
    if args.picture is not None:
        rates = {*args.rates, *sum(OWN_RATES.values(), ())}
        draw([record for record in records if record["rate"] in rates], args.picture)
    if not is_complete:
        print(f"stopped after {args.minutes:g} minutes; the same command goes on")
    elif args.json is not None:
        Path(args.json).write_text(json.dumps({"rows": records}, indent=1) + "\n")
    return records


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="mnist.npz", help="images and labels")
    parser.add_argument("--out", default="out/table1", help="folder of the states")
    parser.add_argument("--results", help="file of finished runs, default under --out")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--chains", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--held-out", choices=("first", "last"), default="first", help="5,000 images"
    )
    parser.add_argument("--minutes", type=float, default=np.inf, help="then stop")
    parser.add_argument("--json", help="file for the runs, once all are finished")
    parser.add_argument("--quick", action="store_true", help="shows that it works")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--picture", help="file for the curves of --rates")
    args = parser.parse_args(argv)
    args.deadline = time.perf_counter() + 60 * args.minutes
    if args.quick:
        args.methods, args.rates = ["RSGLD", "SGD"], [0.4]
        args.epochs, args.chains = 2, 2
    if args.results is None:
        args.results = str(Path(args.out) / "results.jsonl")
    return args


if __name__ == "__main__":
    main()
