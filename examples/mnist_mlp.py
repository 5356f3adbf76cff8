"""MNIST and the perceptron of `mnist_table1.py` and `mnist_fig3.py`; nothing to run."""

import json
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

import keras_mhmcmc as mh


class Data(NamedTuple):
    """Flat images and their labels: to train on, held out of training, to test on."""

    x: np.ndarray
    y: np.ndarray
    x_held: np.ndarray
    y_held: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(path):
    """The images of an .npz file as rows of pixels in [0, 1].

    Without a file MNIST is downloaded. Returns x_train, y_train, x_test, y_test.
    """
    if path is None:
        train, test = mh.datasets.load("mnist")
        arrays = [*train, *test]
    else:
        with np.load(path, allow_pickle=False) as file:
            keys = mh.datasets.KEYS
            missing = [key for key in keys if key not in file.files]
            if missing:
                raise ValueError(
                    "Argument `--data` must be an .npz file with the arrays "
                    f"{', '.join(keys)}. Received: {path!r}, which "
                    f"lacks {', '.join(missing)}"
                )
            arrays = [file[key] for key in keys]
    x_train, y_train, x_test, y_test = arrays
    return as_rows(x_train), y_train.astype("int32"), as_rows(x_test), y_test


def as_rows(images):
    """Images as rows; bytes become numbers in [0, 1]."""
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    return images.reshape(len(images), -1).astype("float32") / scale


def random_images():
    """Images and labels that teach nothing."""
    rng = np.random.default_rng(0)
    x, y = rng.random((1200, 784), dtype="float32"), rng.integers(10, size=1200)
    return x, y, x[:100], y[:100]


def perceptron(features, hidden, stddev=None, l2=0.0, seed=0):
    """One hidden layer; all parameters N(0, stddev²), or Keras' start."""
    start = [{}, {}]
    if stddev is not None:
        normal = keras.initializers.RandomNormal
        seeds = np.random.default_rng(seed).integers(2**31, size=(2, 2)).tolist()
        start = [
            {
                "kernel_initializer": normal(stddev=stddev, seed=kernel),
                "bias_initializer": normal(stddev=stddev, seed=bias),
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


def three(probabilities, labels):
    """Accuracy, NLL and ECE; of a network that broke down, NaN but for the accuracy."""
    if not np.isfinite(probabilities).all():
        accuracy = np.mean(np.argmax(probabilities, axis=-1) == labels)
        return [float(accuracy), np.nan, np.nan]
    measures = (mh.metrics.accuracy, mh.metrics.nll, mh.metrics.ece)
    return [float(measure(probabilities, labels)) for measure in measures]


def read_results(path):
    """The finished runs: one line of JSON each."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def add_result(path, record):
    """Add a finished run to its file."""
    with Path(path).open("a") as file:
        file.write(json.dumps(record) + "\n")
