"""Figure 3 of Li and Wong (2017) at its own size: MINT and CMINT on MNIST.

A perceptron 784-200-10, batches of 200, 500 epochs: test error by epoch of SGD, SGD
with momentum, SGLD, SGHMC, MINT and CMINT, each with several seeds. A seed chooses the
10,000 of 60,000 training images that are held out, the first weights, the batches and
the noise. All methods of a seed have the same ones.

    python examples/mnist_fig3.py --data mnist.npz --out out/fig3
    python examples/mnist_fig3.py --results examples/results/mint_fig3.jsonl --table

Rates and penalties are the paper's. SGLD, SGHMC and MINT predict with the mean over the
samples of the second half of the epochs so far, CMINT over the ends of its ten rounds,
SGD with its last iterate; the mean of SGD's iterates over the second half is shown as
well, since it costs no sampler. MINT and CMINT have reversible Langevin proposals: the
paper's plain ones are hardly ever accepted with this many weights.

A finished run of one method and seed is a line of `--results`, and is not run again.
The same command goes on where it was stopped, with the next run. `--table` only prints
the lines that are there, and draws them with `--picture`. `--quick` runs ten epochs of
random images.
"""

import argparse
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
from keras_mhmcmc import plots

HIDDEN, BATCH, EPOCHS, ROUNDS = 200, 200, 500, 10
METHODS = ("SGD", "SGD-M", "SGLD", "SGHMC", "MINT", "CMINT")
NEWEST = ("SGD", "SGD-M")  # predict with one state
POINTS = 100  # samples of a run, but CMINT's: one for each round
RATE = 0.22  # of MINT, and CMINT's first
RUN = ("method", "seed", "epochs")  # what one line is for


def split(arrays, seed):
    """Hold out a random sixth of the training images, 10,000 of MNIST's 60,000."""
    x, y, x_test, y_test = arrays
    order = np.random.default_rng(seed).permutation(len(x))
    used, held = np.split(order, [len(x) * 5 // 6 // BATCH * BATCH])
    return mlp.Data(x[used], y[used], x[held], y[held], x_test, y_test)


def make_optimizer(method, n, round_steps, weights, seed):
    """The optimizer of a method, and the L2 penalty of the kernels."""
    if method == "SGD":
        return keras.optimizers.SGD(0.09), 2e-5
    if method == "SGD-M":
        return keras.optimizers.SGD(0.012, momentum=0.9), 3e-5
    options = {"train_size": n, "seed": seed}
    if method in ("SGLD", "SGHMC"):
        # The paper draws the scale of the prior as well; here 1 did best of 0.1, 0.3
        # and 1 on the images held out.
        options["prior"] = mh.priors.Gaussian(1.0)
        if method == "SGLD":
            return mh.SGLD(0.03, **options), 0.0
        return mh.SGHMC(0.012, **options), 0.0
    # Where the strong-gradient regime of reversible proposals ends (Wu, Wang and Wong,
    # proposition 1) for a gradient of length 4, a long one at the start of training.
    beta = max(4 * n * (2 * RATE / weights) ** 0.5, 1)
    options |= {"batch_size": BATCH, "refresh_probability": 0.0, "warm_up": 0}
    options |= {"proposal": mh.proposals.ReversibleLangevin(beta)}
    rate = RATE
    if method == "CMINT":
        rate = mh.schedules.GeometricCycle(
            RATE,
            round_steps,
            decay=0.9,
            decay_steps=max(round_steps // 10, 1),
            growth=2,
        )
    return mh.MINT(rate, rate_adaptation=False, **options), 0.0


def train(method, seed, data, args):
    """Train one network, and return its line of the results."""
    steps = len(data.x) // BATCH
    round_steps = max(steps * args.epochs // ROUNDS, 1)
    every = steps * max(args.epochs // POINTS, 1)
    keras.utils.set_random_seed(seed)  # the same first weights and batches
    weights = mlp.perceptron(data.x.shape[1], HIDDEN).count_params()
    optimizer, l2 = make_optimizer(method, len(data.x), round_steps, weights, seed)
    model = mlp.perceptron(data.x.shape[1], HIDDEN, l2=l2)
    model.compile(optimizer=optimizer, loss=mlp.cross_entropy())
    posterior = mh.PosteriorSamples(every=round_steps if method == "CMINT" else every)
    begin = time.perf_counter()
    history = model.fit(
        data.x,
        data.y,
        batch_size=BATCH,
        epochs=args.epochs,
        callbacks=[posterior, Progress(f"{method}, seed {seed}")],
        verbose=0,
    ).history
    record = dict(zip(RUN, (method, seed, args.epochs), strict=True))
    record["seconds"] = round(time.perf_counter() - begin)
    record["at"] = (posterior.iterations / steps).tolist()  # epochs
    # In one pass, so that the prediction is compiled for one shape.
    both = np.concatenate([data.x_test, data.x_held])
    ensemble = posterior.ensemble(model, activation="softmax")
    members = np.asarray(ensemble.predict_members(both, batch_size=1000))
    test, held = np.split(members, [len(data.x_test)], axis=1)
    burn_in = 0.0 if method == "CMINT" else 0.5
    shown = None if method in NEWEST else burn_in
    record["errors"] = errors(test, data.y_test, shown)
    record["held_out"] = errors(held, data.y_held, shown)[-1]
    record["last"] = mlp.three(test[-1], data.y_test)
    record["mean"] = mlp.three(average(test, burn_in), data.y_test)
    if "forward_acceptance" in history:
        record["acceptance"] = float(np.mean(history["forward_acceptance"]))
    return record


def average(probabilities, burn_in):
    """The mean prediction over the samples, less the share `burn_in` of the first."""
    return probabilities[int(len(probabilities) * burn_in) :].mean(axis=0)


def errors(probabilities, labels, burn_in):
    """Error in % after each sample, probabilities (samples, examples, classes).

    The prediction is the mean over the samples so far, less the share `burn_in` of
    them, the first ones; None takes the newest sample alone.
    """
    found = []
    for last in range(1, len(probabilities) + 1):
        mean = probabilities[last - 1]
        if burn_in is not None:
            mean = average(probabilities[:last], burn_in)
        found.append(round(100 * float(np.mean(mean.argmax(axis=-1) != labels)), 2))
    return found


class Progress(keras.callbacks.Callback):
    """Ten lines for each fit, with the share of accepted proposals and the time."""

    def __init__(self, label):
        super().__init__()
        self._label, self._begin = label, time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        done, epochs = epoch + 1, self.params["epochs"]
        if done % max(epochs // 10, 1):
            return
        shown = ("loss", "forward_acceptance", "learning_rate")
        values = [f"{name} {logs[name]:.3g}" for name in shown if name in logs]
        spent = time.perf_counter() - self._begin
        left = spent / done * (epochs - done)
        print(
            f"{self._label}: epoch {done} of {epochs}: {', '.join(values)}; "
            f"{spent:.0f} s spent, about {left:.0f} s left",
            flush=True,
        )


def table(records):
    """A line for each method: median (lowest to highest) of the seeds."""
    lines = [
        "| method | epochs | seeds | test error, % | held-out error, % | "
        "error, NLL, ECE of the last state | error, NLL, ECE of the mean | "
        "accepted | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for epochs in sorted({record["epochs"] for record in records}):
        for method in METHODS:
            mine = [
                r for r in records if (r["method"], r["epochs"]) == (method, epochs)
            ]
            if not mine:
                continue
            cells = [method, str(epochs), str(len(mine))]
            cells.append(spread([record["errors"][-1] for record in mine]))
            cells.append(f"{np.median([record['held_out'] for record in mine]):.2f}")
            for name in ("last", "mean"):
                accuracy, nll, ece = np.median([r[name] for r in mine], axis=0)
                cells.append(f"{100 * (1 - accuracy):.2f}, {nll:.4f}, {ece:.4f}")
            accepted = [r["acceptance"] for r in mine if "acceptance" in r]
            cells.append(f"{np.median(accepted):.2f}" if accepted else "—")
            cells.append(f"{np.median([r['seconds'] for r in mine]) / 60:.0f}")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def spread(values):
    """The median of some errors, and between which numbers they are."""
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def draw(records, path):
    """Draw the error by epoch, the median of the seeds; of CMINT the last as a line."""
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for place, method in enumerate(METHODS):
        mine = [record for record in records if record["method"] == method]
        if not mine:
            continue
        curves = np.array([record["errors"] for record in mine])  # seeds, samples
        if method == "CMINT":
            last = np.median(curves[:, -1])
            axes.axhline(last, color="black", linestyle="--", label="CMINT, at the end")
            continue
        axes.plot(
            mine[0]["at"],
            np.median(curves, axis=0),
            color=plots.style.COLOURS[place],
            marker=plots.style.MARKERS[place],
            markevery=max(curves.shape[1] // 10, 1),
            markersize=5,
            label=method,
        )
    axes.set(xlabel="epoch", ylabel="test error, %", yscale="log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.grid(alpha=0.3)
    axes.legend()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(argv=None):
    """Run what is missing, and print the table. Returns the finished runs."""
    args = parse(argv)
    if not args.table:
        arrays = mlp.random_images() if args.quick else mlp.load(args.data)
        Path(args.results).parent.mkdir(parents=True, exist_ok=True)
        for seed in args.seeds:
            data = split(arrays, seed)
            for method in args.methods:
                run = (method, seed, args.epochs)
                found = mlp.read_results(args.results)
                if run not in [tuple(record[name] for name in RUN) for record in found]:
                    mlp.add_result(args.results, train(method, seed, data, args))
    records = mlp.read_results(args.results)
    print(table(records))
    if args.picture is not None:
        draw([r for r in records if r["epochs"] == args.epochs], args.picture)
    return records


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="images and labels; else MNIST is downloaded")
    parser.add_argument("--out", default="out/fig3", help="folder of the results")
    parser.add_argument("--results", help="file of finished runs, default under --out")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--quick", action="store_true", help="shows that it works")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--picture", help="file for the curves")
    args = parser.parse_args(argv)
    if args.quick:
        args.epochs, args.seeds = 10, [0]
    if args.results is None:
        args.results = str(Path(args.out) / "results.jsonl")
    return args


if __name__ == "__main__":
    main()
