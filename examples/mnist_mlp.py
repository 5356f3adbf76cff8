"""Test errors of a perceptron on images, as in two papers on mini-batch MCMC.

`--figure table1` is table 1 and figure 3 of Wu, Wang and Wong (2020): RSGLD, SGD and
SGLD at several learning rates. The rounds of a method are the chains of one
`mh.ParallelChains`. `--figure fig3` is figure 3 of Li and Wong (2017): test error by
epoch of SGD, SGD with momentum, SGLD, SGHMC, MINT and CMINT. The example prints the
tables and saves one figure.

    python examples/mnist_mlp.py --quick
    KERAS_BACKEND=jax python examples/mnist_mlp.py --data mnist.npz

The second command took 759 s on 2 busy CPU cores. It is far from the papers' size (30
rounds, or one, of 500 epochs), and does not show the papers' results. Test errors in %
on MNIST, after 5 epochs, mean (sd) of 3 chains:

    rate  RSGLD          SGD          SGLD
    0.05   6.33 (0.30)   4.47 (0.25)  4.47 (0.25)
    0.1    5.04 (0.22)   3.55 (0.31)  3.57 (0.32)
    0.2    4.54 (0.49)   2.93 (0.20)  2.95 (0.21)
    0.4   32.75 (49.82)  2.66 (0.14)  2.67 (0.20)

At most half of RSGLD's steps go down the gradient, so RSGLD is behind in so short a
run. One of its three chains at 0.4 never left its start. The other two ended at 3.93
and 4.04. At 0.2 the share of accepted forward proposals fell to 3% by the last epoch.
In the paper SGD breaks down at high rates. Here it does not, since Keras' cross-entropy
from logits cannot overflow. Figure 3 of MINT after 50 epochs: SGD 2.43, SGD-M 2.29,
SGLD 4.34, SGHMC 3.22, MINT 2.42, CMINT 4.44. In a tenth of the paper's epochs, CMINT's
rate becomes small too early, and its first snapshots are poor.
"""

import argparse
import logging
import os
import time
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import mnist_mlp_report as report
import numpy as np

import keras_mhmcmc as mh

# TensorFlow would remark on each ensemble that it compiles.
logging.getLogger("tensorflow").setLevel(logging.ERROR)

PAPER_RATES = (0.01, 0.02, 0.05, 0.08, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
PAPER = {
    "table1": {"rates": PAPER_RATES, "chains": 30, "epochs": 500},
    "fig3": {"epochs": 500},
}
# What two CPU cores can do in a quarter of an hour, and what `--quick` does on digits.
DEFAULT = {
    "table1": {"rates": (0.05, 0.1, 0.2, 0.4), "chains": 3, "epochs": 5},
    "fig3": {"epochs": 50},
}
QUICK = {
    "table1": {"rates": (0.05, 0.2), "chains": 3, "epochs": 15},
    "fig3": {"epochs": 20},
}
HIDDEN = {"table1": 600, "fig3": 200}
BATCH = {"table1": 100, "fig3": 200}
SMALL_BATCH = 50  # for sets of less than 10,000 images
HELD_OUT = {"table1": 1 / 12, "fig3": 1 / 6}  # of 60,000 images: 5,000 and 10,000
METHODS = ("RSGLD", "SGD", "SGLD")
# The papers' chains, but for RSGLD's rule for beta.
AT_ONCE = {"refresh_probability": 0.0, "warm_up": 0, "rate_adaptation": False}


class Data(NamedTuple):
    """Flat images and their labels: to train on, held out of training, to test on."""

    x: np.ndarray
    y: np.ndarray
    x_held: np.ndarray
    y_held: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(args):
    """The images as rows of pixels in [0, 1]: x_train, y_train, x_test, y_test."""
    if args.data is None:
        train, test = mh.datasets.load(args.dataset)
        arrays = [*train, *test]
    else:
        with np.load(args.data, allow_pickle=False) as file:
            keys = mh.datasets.files.KEYS
            missing = [key for key in keys if key not in file.files]
            if missing:
                raise ValueError(
                    "Argument `--data` must be an .npz file with the arrays "
                    f"{', '.join(keys)}. Received: {args.data!r}, which "
                    f"lacks {', '.join(missing)}"
                )
            arrays = [file[key] for key in keys]
    x_train, y_train, x_test, y_test = arrays
    return as_rows(x_train), y_train.astype("int32"), as_rows(x_test), y_test


def as_rows(images):
    """Images as rows; bytes become numbers in [0, 1]."""
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    return images.reshape(len(images), -1).astype("float32") / scale


def split(arrays, figure, seed):
    """Holds out a random part of the training images; full batches are left."""
    x, y, x_test, y_test = arrays
    batch = batch_size(figure, len(x))
    size = int(len(x) * (1 - HELD_OUT[figure])) // batch * batch
    order = np.random.default_rng(seed).permutation(len(x))
    used, held = order[:size], order[size:]
    return Data(x[used], y[used], x[held], y[held], x_test, y_test)


def batch_size(figure, examples):
    """The paper's size, and a smaller one for a small set."""
    return BATCH[figure] if examples >= 10_000 else SMALL_BATCH


def perceptron(features, hidden, variance=None, l2=0.0, seed=0):
    """One hidden layer; all parameters normal with this variance, or Keras' start."""
    start = [{}, {}]
    if variance is not None:
        normal = keras.initializers.RandomNormal
        seeds = np.random.default_rng(seed).integers(2**31, size=(2, 2)).tolist()
        start = [
            {
                "kernel_initializer": normal(stddev=variance**0.5, seed=kernel),
                "bias_initializer": normal(stddev=variance**0.5, seed=bias),
            }
            for kernel, bias in seeds
        ]
    penalty = keras.regularizers.L2(l2) if l2 > 0 else None
    return keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(hidden, "relu", kernel_regularizer=penalty, **start[0]),
            keras.layers.Dense(10, kernel_regularizer=penalty, **start[1]),
        ]
    )


def cross_entropy():
    """The loss of all runs: minus the log likelihood of a label."""
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Progress(keras.callbacks.Callback):
    """Three lines for each fit, with what the sampler did and the time left."""

    def __init__(self, epochs):
        super().__init__()
        self.label = ""
        self._epochs = epochs  # of all fits together
        self._done = 0
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self._done += 1
        epochs = self.params["epochs"]
        if (epoch + 1) % max(-(-epochs // 3), 1) and epoch + 1 < epochs:
            return
        shown = ("loss", "acceptance", "beta")
        values = [f"{name} {logs[name]:.3g}" for name in shown if name in logs]
        if "val_accuracy" in logs:
            values.append(f"test error {100 * (1 - logs['val_accuracy']):.2f}%")
        spent = time.perf_counter() - self._begin
        left = spent / self._done * (self._epochs - self._done)
        print(
            f"{self.label}: epoch {epoch + 1} of {epochs}: {', '.join(values)}; "
            f"{spent:.0f} s spent, about {left:.0f} s left",
            flush=True,
        )


# Table 1 and figure 3 of Wu, Wang and Wong (2020).


def table1(data, sizes, seed):
    """A dict for each learning rate and method: errors in %, acceptance, beta."""
    n, batch = len(data.x), batch_size("table1", len(data.x))
    optimizers = {
        "RSGLD": lambda rate: mh.RSGLD(
            rate,
            train_size=n,
            batch_size=batch,
            temperature=n / batch,
            seed=seed,
            forward_probability=0.5,
            **AT_ONCE,
        ),
        "SGD": lambda rate: keras.optimizers.SGD(rate),
        # The paper's noise: 1/N of what samples the posterior.
        "SGLD": lambda rate: mh.SGLD(rate, train_size=n, temperature=1 / n, seed=seed),
    }
    progress = Progress(len(METHODS) * len(sizes["rates"]) * sizes["epochs"])
    rows = []
    for rate in sizes["rates"]:
        for name in METHODS:
            progress.label = f"{name}, rate {rate:g}"
            keras.utils.set_random_seed(seed)  # all see the same batches
            model = perceptron(
                data.x.shape[1], HIDDEN["table1"], variance=0.03, seed=seed
            )
            chains = mh.ParallelChains(model, sizes["chains"], seed=seed)
            chains.compile(
                optimizer=optimizers[name](rate),
                loss=cross_entropy(),
                metrics=["accuracy"],
            )
            # PosteriorSamples lets the test see each chain's state, not its proposal.
            chains.fit(
                data.x,
                data.y,
                batch_size=batch,
                epochs=sizes["epochs"],
                validation_data=(data.x_test, data.y_test),
                validation_batch_size=1000,
                callbacks=[mh.PosteriorSamples(max_samples=1), progress],
                verbose=0,
            )
            held = chains.evaluate_chains(data.x_held, data.y_held, batch_size=1000)
            history = chains.chain_history
            rows.append(
                {
                    "rate": rate,
                    "method": name,
                    "errors": 100 * (1 - history["val_accuracy"]),  # epochs, chains
                    "held_out": 100 * (1 - float(np.mean(held["accuracy"]))),
                    "acceptance": last_mean(history, "forward_acceptance"),
                    "beta": last_mean(history, "beta"),
                }
            )
    return rows


def last_mean(history, name):
    """Mean over the chains in the last epoch, or None."""
    return float(np.mean(history[name][-1])) if name in history else None


# Figure 3 of Li and Wong (2017).


def fig3(data, sizes, seed):
    """A dict for each method: epochs, test error in % at each, held-out error."""
    n, batch, epochs = len(data.x), batch_size("fig3", len(data.x)), sizes["epochs"]
    steps = n // batch
    cycle = max(steps * epochs // 10, 1)
    progress = Progress(6 * epochs)
    rows = []
    weights = perceptron(data.x.shape[1], HIDDEN["fig3"]).count_params()
    methods = fig3_optimizers(n, batch, cycle, weights, seed)
    for name, (optimizer, l2) in methods.items():
        progress.label = name
        keras.utils.set_random_seed(seed)  # the same first weights and batches
        model = perceptron(data.x.shape[1], HIDDEN["fig3"], l2=l2)
        model.compile(optimizer=optimizer, loss=cross_entropy())
        posterior = mh.PosteriorSamples(every=cycle if name == "CMINT" else None)
        history = model.fit(
            data.x,
            data.y,
            batch_size=batch,
            epochs=epochs,
            callbacks=[posterior, progress],
            verbose=0,
        ).history
        ensemble = posterior.ensemble(model)
        first = {"SGD": None, "SGD-M": None, "CMINT": 0}.get(name, 0.5)
        # In one pass, so that the prediction is compiled for one shape.
        both = np.concatenate([data.x_test, data.x_held])
        probabilities = ensemble.predict_members(both, batch_size=1000)
        tested = len(data.x_test)
        test = errors(probabilities[:, :tested], data.y_test, first)
        held = errors(probabilities[:, tested:], data.y_held, first)
        acceptance = history.get("forward_acceptance")
        rows.append(
            {
                "method": name,
                "epochs": posterior.iterations / steps,
                "errors": test,
                "held_out": held[-1],
                "acceptance": None if acceptance is None else np.mean(acceptance),
            }
        )
    return rows


def fig3_optimizers(n, batch, cycle, weights, seed):
    """For each method an optimizer, and the L2 penalty of the kernels."""
    options = {"train_size": n, "seed": seed}
    # All rates and penalties are the paper's. It draws the scale of the prior as well;
    # here 1 did best of 0.1, 0.3 and 1 on the images held out.
    prior = mh.priors.Gaussian(1.0)
    # Where the strong-gradient regime of reversible proposals ends (Wu, Wang and Wong,
    # proposition 1) for a gradient of length 4, a long one at the start of training.
    beta = max(4 * n * (2 * 0.22 / weights) ** 0.5, 1)
    mint = options | {
        "batch_size": batch,
        "proposal": mh.proposals.ReversibleLangevin(beta),
        **AT_ONCE,
    }
    cyclic = mh.schedules.GeometricCycle(
        0.22, cycle, decay=0.9, decay_steps=max(cycle // 10, 1), growth=2
    )
    return {
        "SGD": (keras.optimizers.SGD(0.09), 2e-5),
        "SGD-M": (keras.optimizers.SGD(0.012, momentum=0.9), 3e-5),
        "SGLD": (mh.SGLD(0.03, prior=prior, **options), 0.0),
        "SGHMC": (mh.SGHMC(0.012, prior=prior, **options), 0.0),
        "MINT": (mh.MINT(0.22, **mint), 0.0),
        "CMINT": (mh.MINT(cyclic, **mint), 0.0),
    }


def errors(probabilities, labels, burn_in):
    """Error in % after each sample, probabilities (samples, examples, classes).

    The prediction is the mean over the samples so far, less the share `burn_in` of
    them, the first ones; None takes the newest sample alone.
    """
    values = []
    for last in range(len(probabilities)):
        first = last if burn_in is None else int((last + 1) * burn_in)
        mean = probabilities[first : last + 1].mean(axis=0)
        values.append(100 * float(np.mean(mean.argmax(axis=-1) != labels)))
    return np.array(values)


# Both.

FIGURES = {
    "table1": (table1, report.table1_text, report.TABLE1_LEGEND),
    "fig3": (fig3, report.fig3_text, report.FIG3_LEGEND),
}


def main(argv=None):
    """Runs the comparisons. Returns for each figure its rows, a list of dicts."""
    args = parse(argv)
    arrays = load(args)
    begin, results = time.perf_counter(), {}
    wanted = list(FIGURES) if args.figure == "both" else [args.figure]
    for name in wanted:
        run, as_text, legend = FIGURES[name]
        sizes = dict((QUICK if args.quick else DEFAULT)[name])
        for key in sizes:
            given = getattr(args, key)
            sizes[key] = sizes[key] if given is None else given
        data = split(arrays, name, args.seed)
        print(f"{name}: {len(data.x)} images to train on, {len(data.x_test)} to test")
        print(f"This run: {sizes}.\nThe paper: {PAPER[name]}, on MNIST.", flush=True)
        results[name] = run(data, sizes, args.seed)
        print(f"\n{as_text(results[name])}\n\n{legend}\n")
    print(f"{time.perf_counter() - begin:.0f} s on {keras.backend.backend()}")
    source = args.dataset if args.data is None else os.path.basename(args.data)
    report.draw(results, f"Test error on {source}", args.output)
    return results


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", choices=[*FIGURES, "both"], default="both")
    parser.add_argument("--quick", action="store_true", help="small, on digits")
    parser.add_argument("--data", help=".npz file with the images and labels")
    parser.add_argument(
        "--dataset",
        choices=["digits", "mnist", "fashion_mnist"],
        help="without --data; mnist, or digits with --quick",
    )
    parser.add_argument("--epochs", type=at_least_one, help="epochs of each fit")
    parser.add_argument("--chains", type=at_least_one, help="rounds in table 1")
    parser.add_argument("--rates", type=float, nargs="+", help="rates in table 1")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and noise")
    parser.add_argument(
        "--output", default="out/mnist_mlp.png", help="file of the figure"
    )
    args = parser.parse_args(argv)
    if args.dataset is None:
        args.dataset = "digits" if args.quick else "mnist"
    return args


def at_least_one(text):
    """A positive integer of the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1. Received: {text}")
    return number


if __name__ == "__main__":
    main()
