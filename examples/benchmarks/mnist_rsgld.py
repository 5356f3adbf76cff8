"""RSGLD on 20,000 MNIST digits: acceptance and accuracy by epoch, over seeds.

A plain `keras.Sequential` perceptron 784-600-10, weights N(0, 0.03^2), learning rate
0.2, batches of 100: the network of the MHBT paper's Table 1 on a third of the data.

    KERAS_BACKEND=jax python examples/benchmarks/mnist_rsgld.py --data-dir folder
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import beta_adaptation


def run(seed, epochs, data):
    """History of one fit, validated on the test images."""
    (x, y), test = data
    x, y = x[:20_000], y[:20_000]
    keras.utils.set_random_seed(seed)
    normal = keras.initializers.RandomNormal(stddev=0.03)
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(600, "relu", kernel_initializer=normal),
            keras.layers.Dense(10, "softmax", kernel_initializer=normal),
        ]
    )
    model.compile(
        optimizer=mh.RSGLD(
            0.2,
            train_size=len(x),
            batch_size=100,
            temperature=len(x) / 100,
            forward_probability=0.5,
            refresh_probability=0.0,
            warm_up=0,
            rate_adaptation=False,
            seed=seed,
        ),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model.fit(
        x,
        y,
        batch_size=100,
        epochs=epochs,
        validation_data=test,
        callbacks=[mh.PosteriorSamples()],
        verbose=0,
    ).history


def main():
    """Prints a block of three lines for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", help="folder with mnist.npz; or download")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument(
        "--margin", type=float, help="of the replayed beta, to see what it is for"
    )
    arguments = parser.parse_args()
    if arguments.margin is not None:
        beta_adaptation.REPLAY_MARGIN = arguments.margin
    data = mh.datasets.load("mnist", arguments.data_dir)
    print(keras.backend.backend())
    for seed in range(1, arguments.seeds + 1):
        history = run(seed, arguments.epochs, data)
        for name in ("acceptance", "beta", "val_accuracy"):
            values = " ".join(f"{value:7.3f}" for value in np.array(history[name]))
            print(f"seed {seed} {name:>12} {values}", flush=True)


if __name__ == "__main__":
    main()
