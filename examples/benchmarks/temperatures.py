"""Which temperature? The README's network and sampler at several, on held-out images.

    python examples/benchmarks/temperatures.py

A fifth of the training images is held out. For each temperature the example prints the
accuracy, the negative log-likelihood (NLL) and the calibration error (ECE) of the last
sample and of the ensemble, means over the seeds.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
SCORES = ("accuracy", "nll", "ece")
BATCH = 96


def run(temperature, seed, epochs):
    """Train once. Returns the scores of the last sample and of the ensemble."""
    (x, y), _ = mh.datasets.load("digits")
    order = np.random.default_rng(0).permutation(len(x))
    held_out, kept = np.split(order, [len(x) // 5])
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )
    sampler = mh.PSGLD(
        0.005,
        train_size=len(kept),
        temperature=temperature,
        prior=mh.priors.Gaussian(2.0),
        seed=seed,
    )
    model.compile(optimizer=sampler, loss="sparse_categorical_crossentropy")
    posterior = mh.PosteriorSamples(burn_in=-(-len(kept) // BATCH) * epochs // 2)
    model.fit(
        x[kept],
        y[kept],
        batch_size=BATCH,
        epochs=epochs,
        verbose=0,
        callbacks=[posterior],
    )
    models = {"last": model, "ensemble": posterior.ensemble(model)}
    rows = mh.evaluate(models, x[held_out], y[held_out]).rows
    return [float(row[score]) for row in rows for score in SCORES]


def main(argv=None):
    """Run all temperatures, and print a table. Returns the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=300)
    args = parser.parse_args(argv)
    print("| temperature | last sample: accuracy, NLL, ECE | ensemble |\n|---|---|---|")
    means = {}
    for temperature in TEMPERATURES:
        found = [run(temperature, seed, args.epochs) for seed in range(args.seeds)]
        means[temperature] = np.mean(found, axis=0)
        last, ensemble = (
            ", ".join(f"{score:.3f}" for score in half)
            for half in np.split(means[temperature], 2)
        )
        print(f"| {temperature:g} | {last} | {ensemble} |", flush=True)
    return means


if __name__ == "__main__":
    main()
