"""How good are the rates that `mh.suggest_learning_rate` suggests?

    python examples/benchmarks/learning_rates.py

For each optimizer: the suggestions from three first weights of a perceptron on digits,
and the test accuracy and negative log-likelihood (NLL) of longer fits at the suggested
rate, at the best one, and at the next larger one.
"""

import argparse
import math
import os
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

RATES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
BATCH = 96


def make_model(seed):
    """A perceptron with logits as outputs."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10),
        ]
    )


def makers(n):
    """How to make each optimizer at a rate."""
    sizes = {"train_size": n, "seed": 0}
    tight = mh.priors.Gaussian(0.3)
    return {
        "SGD": keras.optimizers.SGD,
        "Adam": keras.optimizers.Adam,
        "SGHMC": lambda rate: mh.SGHMC(rate, **sizes),
        "SGHMC, Gaussian(0.3)": lambda rate: mh.SGHMC(rate, prior=tight, **sizes),
        "RSGLD": lambda rate: mh.RSGLD(rate, batch_size=BATCH, **sizes),
    }


def fit(make, rate, data, steps):
    """Accuracy and NLL of the ensemble of a sampler, or of the last weights."""
    (x, y), (x_test, y_test) = data
    model, optimizer = make_model(0), make(rate)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    an_epoch = math.ceil(len(x) / BATCH)
    is_sampler = make not in (keras.optimizers.SGD, keras.optimizers.Adam)
    posterior = mh.PosteriorSamples(burn_in=steps * 5 // 8, every=max(steps // 60, 1))
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=math.ceil(steps / an_epoch),
        verbose=0,
        callbacks=[posterior] if is_sampler else [],
    )
    predictor = posterior.ensemble(model) if is_sampler else model
    classifier = mh.Classifier(predictor, from_logits=not is_sampler)
    (row,) = mh.evaluate({"": classifier}, x_test, y_test).rows
    return row["accuracy"], row["nll"]


def main(argv=None):
    """Run all optimizers, and print a table. Returns the suggestions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1800, help="steps of a fit")
    args = parser.parse_args(argv)
    data = mh.datasets.load("digits")
    x, y = data[0]
    print(
        "| optimizer | suggested | accuracy, NLL there | best NLL | one rate higher |"
    )
    print("|---|---|---|---|---|")
    found = {}
    for name, make in makers(len(x)).items():
        suggested = []
        for seed in range(3):
            model = make_model(seed)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss)
            rates = mh.suggest_learning_rate(
                model, x, y, make(RATES[0]), rates=RATES, batch_size=BATCH
            )
            suggested.append(rates.rate)
        found[name] = suggested
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a rate is too large
            scores = {rate: fit(make, rate, data, args.steps) for rate in RATES}
        nlls = [scores[rate][1] for rate in RATES]
        best = int(np.nanargmin(nlls))
        place = RATES.index(suggested[0])
        cells = [", ".join(f"{rate:g}" for rate in suggested)]
        cells.append("{:.3f}, {:.3g}".format(*scores[suggested[0]]))
        cells.append(f"{nlls[best]:.3f} at {RATES[best]:g}")
        is_last = place + 1 == len(RATES)
        higher = (math.nan, math.nan) if is_last else scores[RATES[place + 1]]
        cells.append("—" if is_last else "{:.3f}, {:.3g}".format(*higher))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    return found


if __name__ == "__main__":
    main()
