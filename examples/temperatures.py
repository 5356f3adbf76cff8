"""Which temperature? The sampler of `first_steps.py` at several, on held-out images.

    python examples/temperatures.py

A fifth of the training images is held out. For each temperature the example prints the
accuracy, the negative log-likelihood (NLL) and the calibration error (ECE) of the last
sample and of the ensemble, means over the seeds.
"""

import argparse

import first_steps  # first: it sets the backend
import keras
import numpy as np

import keras_mhmcmc as mh

TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)


def held_out_run(seed, epochs, **options):
    """Train on four fifths of the training images. `options` are the sampler's.

    Returns the model, its samples, and the images and labels that are held out.
    """
    (x, y), _ = mh.datasets.load("digits")
    order = np.random.default_rng(0).permutation(len(x))
    held_out, kept = np.split(order, [len(x) // 5])
    keras.utils.set_random_seed(seed)
    steps = -(-len(kept) // first_steps.BATCH) * epochs
    posterior = mh.PosteriorSamples(burn_in=steps // 2)
    sampler = first_steps.sampler(len(kept), seed, **options)
    model = first_steps.train(sampler, x[kept], y[kept], epochs, [posterior])
    return model, posterior, x[held_out], y[held_out]


def run(temperature, seed, epochs):
    """Train once. Returns the scores of the last sample and of the ensemble."""
    model, posterior, x, y = held_out_run(seed, epochs, temperature=temperature)
    models = {"last": model, "ensemble": posterior.ensemble(model)}
    rows = mh.evaluate(models, x, y).rows
    return [float(row[score]) for row in rows for score in first_steps.SCORES]


def main(argv=None):
    """Run all temperatures, and print a table. Returns the means."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=first_steps.EPOCHS)
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
