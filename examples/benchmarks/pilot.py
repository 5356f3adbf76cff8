"""How long must the pilot of a contour sampler be, and how far its partition reach?

    python examples/benchmarks/pilot.py

Plain chains of a perceptron with 100 hidden units on 1,380 digits. A part of each chain
is taken for the pilot, whose energies give a partition. The table has the largest share
of an epoch's energies, after the pilot, above the last subregion.
"""

import argparse
import dataclasses
import os
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

TRAIN, BATCH = 1380, 60
PILOTS = (500, 1000, 2000)
# Where the last subregion begins, relative to the height of the pilot's energies.
REACHES = (2, 4)  # of `mh.suggest_partition`, and of partition="auto"
CHAINS = (
    ("SGHMC", 0.1, 1.0),
    ("SGHMC", 0.03, 1.0),
    ("SGHMC", 0.01, 1.0),
    ("SGLD", 0.3, 1.0),
    ("SGHMC", 0.1, 0.1),
    ("SGHMC", 0.1, None),
)


def energies_of(sampler, rate, scale, epochs):
    """The energies of all steps of a plain chain at T = 1, in nats."""
    (x, y), _ = mh.datasets.load("digits")
    x, y = x[:TRAIN], y[:TRAIN]
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(100, "relu"),
            keras.layers.Dense(10),
        ]
    )
    prior = None if scale is None else mh.priors.Gaussian(scale)
    optimizer = getattr(mh, sampler)(rate, train_size=TRAIN, prior=prior, seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    energies = Energies()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the energy rises: it is what is measured
        model.fit(
            x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[energies]
        )
    return np.array(energies.values)


class Energies(keras.callbacks.Callback):
    """Record the energy of each mini-batch: nats of all data, with the prior."""

    def on_train_begin(self, logs=None):
        self.values = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.reset_diagnostics()

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(self.model.optimizer.diagnostics()["energy"])


def shares(energies, pilot, reach):
    """The largest shares of an epoch above the last subregion, and in the first one."""
    found = mh.suggest_partition(energies[pilot // 2 : pilot])
    gap = found.energy_gap * reach / REACHES[0]
    found = dataclasses.replace(found, energy_gap=gap)
    last = found.energy_min + (found.partitions - 2) * found.energy_gap
    steps = TRAIN // BATCH
    rest = energies[pilot : pilot + (len(energies) - pilot) // steps * steps]
    by_epoch = rest.reshape(-1, steps)
    above = (by_epoch > last).mean(axis=1).max()
    return above, (by_epoch <= found.energy_min).mean(axis=1).max()


def main(argv=None):
    """Run the chains, and print the table. Returns the shares above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args(argv)
    cases = [
        (p, r) for p in PILOTS for r in REACHES if p < args.epochs * TRAIN // BATCH
    ]
    heads = [f"{pilot} steps, {reach} times" for pilot, reach in cases]
    print("| chain | " + " | ".join(heads) + " | most in the first |")
    print("|---" * (len(heads) + 2) + "|")
    table = {}
    for chain in CHAINS:
        energies = energies_of(*chain, args.epochs)
        found = np.array([shares(energies, *case) for case in cases])
        table[chain] = found[:, 0]
        cells = [f"{100 * above:.0f}%" for above in found[:, 0]]
        sampler, rate, scale = chain
        prior = "flat" if scale is None else f"N(0, {scale:g}²)"
        below = f"{100 * found[:, 1].max():.0f}%"
        print(f"| {sampler}, {rate:g}, {prior} | " + " | ".join([*cells, below]) + " |")
    return table


if __name__ == "__main__":
    main()
