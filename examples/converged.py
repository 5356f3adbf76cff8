"""A run that has converged: four chains, a level energy, and predictions that agree.

SGHMC samples the posterior (temperature 1) of a small network on scikit-learn's digits
with four chains. The example prints the energy in each quarter of the run, R-hat of the
probability that each test image's label gets, and the scores of the members, of their
average, and of SGD. The picture shows the energy, and that the average is better than
every member.

    python examples/converged.py --picture converged.png

It took four minutes on one CPU core of a busy machine with JAX. `--epochs 200` is a
short run, in which the chains do not agree yet.
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh

EPOCHS, BATCH = 5000, 100
RATE, PRIOR, CHAINS, EVERY = 0.2, 0.7, 4, 150
SGD_EPOCHS = 300


def build():
    """An ordinary Keras model."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )


def sample(x, y, epochs, prior, seed):
    """Run the chains. Returns them, their samples, and the energy (epochs, chains)."""
    keras.utils.set_random_seed(seed)
    chains = mh.ParallelChains(build(), CHAINS, seed=seed)
    sizes = {"train_size": len(x), "prior": mh.priors.Gaussian(prior)}
    chains.compile(
        optimizer=mh.SGHMC(RATE, seed=seed, **sizes),
        loss="sparse_categorical_crossentropy",
    )
    steps = -(-len(x) // BATCH) * epochs
    posterior = mh.PosteriorSamples(burn_in=steps // 10, every=EVERY)
    chains.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=epochs,
        callbacks=[posterior, Progress(epochs)],
        verbose=0,
    )
    return chains, posterior, np.asarray(chains.chain_history["energy"])


class Progress(keras.callbacks.Callback):
    """Ten lines for the run, with the time left."""

    def __init__(self, epochs):
        super().__init__()
        self._epochs = epochs
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % max(self._epochs // 10, 1) == 0:
            spent = time.perf_counter() - self._begin
            left = spent / (epoch + 1) * (self._epochs - epoch - 1)
            print(
                f"epoch {epoch + 1} of {self._epochs}: energy {logs['energy']:.0f}, "
                f"about {left:.0f} s left",
                flush=True,
            )


def scores(probabilities, labels):
    """Accuracy, NLL and calibration error."""
    measures = (mh.metrics.accuracy, mh.metrics.nll, mh.metrics.ece)
    return [float(measure(probabilities, labels)) for measure in measures]


def report(posterior, chains, energy, data):
    """Print what the run gives. Returns the numbers, and those of the picture."""
    x, y, x_test, y_test = data
    members = posterior.predictions(chains, x_test, batch_size=360)
    of_label = members[:, :, np.arange(len(y_test)), y_test]
    table = mh.diagnostics.summary({"p": of_label})
    r_hat = table["r_hat"].to_numpy()
    quarters = [float(np.mean(part)) for part in np.array_split(energy, 4)]
    print("energy by quarter of the run", [round(value) for value in quarters])
    print(
        f"R-hat of {len(r_hat)} probabilities: median {np.median(r_hat):.4f}, largest "
        f"{r_hat.max():.4f}; {np.mean(r_hat < 1.01):.1%} below 1.01"
    )
    # All chains together, draw by draw.
    draws = np.swapaxes(members, 0, 1)  # (draws, chains, images, classes)
    single = [[scores(member, y_test) for member in draw] for draw in draws]
    so_far = np.cumsum(draws.mean(axis=1, dtype="float64"), axis=0)
    so_far /= np.arange(1, len(draws) + 1)[:, None, None]
    average = [scores(mean, y_test) for mean in so_far]
    keras.utils.set_random_seed(0)
    model = build()
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=1e-3),
        "sparse_categorical_crossentropy",
    )
    model.fit(x, y, batch_size=BATCH, epochs=SGD_EPOCHS, verbose=0)
    sgd = scores(model.predict(x_test, verbose=0), y_test)
    rows = {"one member, mean": np.mean(single, axis=(0, 1))}
    rows["best member"] = np.array(single)[..., 1].min()
    rows |= {f"average of {draws.shape[0] * CHAINS}": average[-1], "SGD": sgd}
    for name, row in rows.items():
        if name == "best member":
            print(f"{name:18s} NLL {row:.3f}")
        else:
            accuracy, nll, ece = row
            print(f"{name:18s} accuracy {accuracy:.3f}, NLL {nll:.3f}, ECE {ece:.3f}")
    return {
        "energy": energy,
        "r_hat": r_hat,
        "members": np.array(single)[..., 1],
        "average": np.array(average)[:, 1],
        "sgd": sgd[1],
        "iterations": np.asarray(posterior.iterations),
    }


def draw(found, path):
    """Draw the energy of the chains, and the NLL of the members and their average."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    window = max(len(found["energy"]) // 200, 1)
    count = len(found["energy"]) // window
    energy = found["energy"][: count * window].reshape(count, window, CHAINS).mean(1)
    epochs = window * (np.arange(count) + 0.5)
    for chain in range(CHAINS):
        left.plot(epochs, energy[:, chain], lw=0.8, label=f"chain {chain + 1}")
    left.set(xlabel="epoch", ylabel="energy, nats", title="The energy is level")
    left.legend(ncols=2)
    iterations = found["iterations"]
    for chain in range(CHAINS):
        right.plot(iterations, found["members"][:, chain], ".", ms=2, color=f"C{chain}")
    right.plot([], [], ".", color="C0", label="one member (a colour for each chain)")
    right.plot(iterations, found["average"], "k", lw=2, label="average so far")
    right.axhline(found["sgd"], color="0.4", ls="--", label="SGD")
    right.set(xlabel="iteration", ylabel="NLL of the test labels", ylim=(0, None))
    right.set(title="The average is better than every member")
    right.legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main(argv=None):
    """Run the chains, print the report, draw the picture. Returns the numbers."""
    args = parse(argv)
    begin = time.perf_counter()
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    chains, posterior, energy = sample(x, y, args.epochs, args.prior, args.seed)
    seconds = time.perf_counter() - begin
    print(f"{seconds:.0f} s on {keras.backend.backend()}")
    found = report(posterior, chains, energy, (x, y, x_test, y_test))
    if args.picture is not None:
        draw(found, args.picture)
    return found


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--prior", type=float, default=PRIOR, help="its width")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", help="file for the picture")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
