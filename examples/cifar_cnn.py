"""A small convolutional network on CIFAR-10: Table 2 of the MHBT paper.

RSGLD, SGD and SGLD train the network at several learning rates. Each round starts from
new weights. The example prints the median and the lowest test error of the rounds, in
%. The network is the one of the paper's supplement: three convolutions and a dense
layer. It differs in two points. Keras has no local response normalisation, and the
initial weights are Keras' instead of N(0, 0.02). (The network has 89,578 weights; the
paper's text says 4 million.)

    python examples/cifar_cnn.py --data-dir folder    # folder/cifar10.npz
    python examples/cifar_cnn.py --quick              # synthetic images of 8 x 8

The paper runs 20 rounds of 100,000 steps with batches of 100.

Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible
SGLD proposal", section 3.2 and Table 2.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # the fastest one on a CPU here

import cifar_resnet_data as images
import keras
import numpy as np
from keras import layers

import keras_mhmcmc as mh

# Median / lowest error in % of RSGLD, SGD and SGLD after 100,000 steps.
PAPER = {
    0.005: ("26.93/26.29", "27.03/26.55", "27.00/26.60"),
    0.008: ("26.81/26.01", "27.03/26.43", "26.88/26.19"),
    0.02: ("26.95/26.36", "27.27/26.85", "27.31/26.70"),
    0.04: ("27.34/26.75", "27.85/27.14", "27.85/27.08"),
}
BATCH = 100


def network(shape, classes, filters=(32, 32, 64)):
    """Three convolutions with pooling, and a dense layer of logits."""
    stack = [keras.Input(shape)]
    for count in filters:
        stack += [
            layers.Conv2D(count, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(3, strides=2, padding="same"),
        ]
    return keras.Sequential([*stack, layers.Flatten(), layers.Dense(classes)])


def optimizers(examples, seed):
    """For each method a function of the learning rate."""
    sizes = {"train_size": examples, "seed": seed}
    return {
        "RSGLD": lambda rate: mh.RSGLD(  # with the paper's settings
            rate,
            batch_size=BATCH,
            temperature=examples / BATCH,
            forward_probability=0.5,
            refresh_probability=0.0,
            warm_up=0,
            rate_adaptation=False,
            **sizes,
        ),
        "SGD": lambda rate: keras.optimizers.SGD(rate),
        # The paper's noise: 1/N of what samples the posterior.
        "SGLD": lambda rate: mh.SGLD(rate, temperature=1 / examples, **sizes),
    }


def test_errors(name, rate, train, test, args):
    """Test errors in % of the last state of each round, and the last acceptance."""
    (x, y), (x_test, y_test) = train, test
    errors, acceptance = [], None
    for seed in np.random.default_rng(args.seed).integers(2**31, size=args.rounds):
        keras.utils.set_random_seed(int(seed))  # the same start for each method
        model = network(x.shape[1:], int(y.max()) + 1)
        model.compile(
            optimizer=optimizers(len(x), int(seed))[name](rate),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        # PosteriorSamples puts the state back into the model after each epoch.
        callbacks = [mh.PosteriorSamples(max_samples=1)]
        history = model.fit(
            x, y, batch_size=BATCH, epochs=args.epochs, callbacks=callbacks, verbose=0
        ).history
        result = model.evaluate(x_test, y_test, batch_size=500, verbose=0)
        errors.append(100 * (1 - result[1]))
        acceptance = history.get("forward_acceptance", [None])[-1]
    return np.array(errors), acceptance


def main(argv=None):
    """Runs all methods and rates. Returns the rows of the table."""
    args = parse(argv)
    name = "synthetic" if args.quick else "cifar10"
    sets = images.load(name, args.data_dir)
    train, test = images.normalized(*sets, args.examples, args.seed)
    x, y = train
    full = len(x) // BATCH * BATCH
    train = x[:full], y[:full]
    print(
        f"{name}: {full:,} images, {args.epochs} epochs, {args.rounds} rounds; Keras "
        f"on {keras.backend.backend()}; median/lowest test error in %\n\n"
        f"{'rate':>6}  {'method':8}{'here':>12}{'paper':>14}{'accepted':>10}{'s':>7}"
    )
    rows = []
    for rate in args.rates:
        for place, method in enumerate(optimizers(full, 0)):
            begin = time.perf_counter()
            errors, acceptance = test_errors(method, rate, train, test, args)
            here = f"{np.median(errors):.2f}/{errors.min():.2f}"
            paper = "—" if args.quick else PAPER.get(rate, ["—"] * 3)[place]
            accepted = "—" if acceptance is None else f"{acceptance:.2f}"
            seconds = time.perf_counter() - begin
            print(
                f"{rate:6g}  {method:8}{here:>12}{paper:>14}{accepted:>10}"
                f"{seconds:7.0f}",
                flush=True,
            )
            row = {"rate": rate, "method": method, "errors": errors}
            rows.append(row | {"seconds": seconds, "accepted": acceptance})
    print("\naccepted: share of accepted forward proposals in the last epoch")
    if args.json is not None:
        written = [{**row, "errors": row["errors"].tolist()} for row in rows]
        text = json.dumps({"epochs": args.epochs, "rows": written}, indent=1)
        Path(args.json).write_text(text + "\n")
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder with cifar10.npz")
    parser.add_argument("--examples", type=int, help="images to train on; all")
    parser.add_argument("--rates", type=float, nargs="+", default=list(PAPER))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="file for the rows")
    parser.add_argument("--quick", action="store_true", help="synthetic images")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
