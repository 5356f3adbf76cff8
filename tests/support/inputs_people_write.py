"""Data for the models of `models_people_write`: functions that make x and y."""

import keras
import numpy as np

EXAMPLES, FEATURES, CLASSES, STEPS, WORDS = 48, 5, 3, 6, 11


def rng():
    return np.random.default_rng(0)


def table():
    """Rows of numbers, and a class for each."""
    x = rng().normal(size=(EXAMPLES, FEATURES)).astype("float32")
    return x, (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0.5)


def target(columns=1):
    x = table()[0]
    return x, x[:, :columns] + 0.1 * rng().normal(size=(EXAMPLES, columns))


def yes_or_no():
    x, y = table()
    return x, (y > 0).astype("float32")[:, None]


def labels():
    """Three labels, each of which an example may have."""
    x = table()[0]
    return x, (x[:, :CLASSES] > 0).astype("float32")


def one_hot():
    x, y = table()
    return x, keras.utils.to_categorical(y, CLASSES)


def images(size=8, channels=1):
    x = rng().uniform(size=(EXAMPLES, size, size, channels)).astype("float32")
    y = rng().integers(0, CLASSES, EXAMPLES)
    return x * (0.5 + 0.25 * y[:, None, None, None]).astype("float32"), y


def photographs():
    """Colours as they come from a file, 0 to 255."""
    x, y = images(32, 3)
    return (255 * x).astype("uint8"), y


def sentences():
    """Word numbers, padded with 0 at the end."""
    x = rng().integers(1, WORDS, (EXAMPLES, STEPS))
    y = x[:, 0] % CLASSES
    x[np.arange(STEPS) >= rng().integers(2, STEPS + 1, EXAMPLES)[:, None]] = 0
    return x, y


def signals():
    x = rng().normal(size=(EXAMPLES, STEPS, 2)).astype("float32")
    return x, rng().integers(0, CLASSES, EXAMPLES)


def two_inputs():
    x, y = table()
    return [x, x[:, :2] ** 2], y


def named_inputs():
    x, y = table()
    return {"age": x[:, :1], "income": x[:, 1:3]}, y


def pairs():
    x, y = table()
    other = rng().permutation(EXAMPLES)
    return [x, x[other]], (y == y[other]).astype("float32")[:, None]


def two_outputs():
    x, y = table()
    return x, [y, x[:, :1]]


def named_outputs():
    x, y = table()
    return x, {"kind": y, "size": x[:, :1]}


def each_step():
    x, _ = sentences()
    return x, x % CLASSES
