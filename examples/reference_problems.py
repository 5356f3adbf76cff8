"""The problems of examples/references.py: data, likelihood and prediction.

Every weight and bias has the prior N(0, 1), independently. A position is a dict from
names to tensors: `w1` of shape (inputs, outputs) and `b1` of shape (outputs,) for the
first layer, `w2` and `b2` for the second. The functions are written with `keras.ops`,
so `mh.sample` on any backend and NUTS in float64 share one definition.

| name     | model                           | data                         |
|----------|---------------------------------|------------------------------|
| logistic | logistic regression, 30-1       | breast cancer, standardised  |
| softmax  | softmax regression, 32-10       | digits, random tanh features |
| sine     | network 1-16-1, tanh, noise 0.1 | 40 points of a sine, seeded  |
| yacht    | network 6-50-1, tanh, noise 0.1 | UCI yacht hydrodynamics      |
| digits   | network 64-16-10, tanh, softmax | digits                       |
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable

import numpy as np
from keras import ops

import keras_mhmcmc as mh

NAMES = ("logistic", "softmax", "sine", "yacht", "digits")
NOISE_STD = 0.1  # of both regressions, in units of the standardised target
FEATURES = 32  # of the softmax regression
TEST_DIGITS = 100  # test images whose predictions are kept


@dataclasses.dataclass(frozen=True)
class Problem:
    """A posterior of weights: its data, its likelihood and its predictions.

    Attributes:
        name: one of `NAMES`.
        task: "classification" or "regression", as `mh.diagnostics.agreement` takes it.
        data: dict of the training arrays "x" (N, inputs) and "y", float32. `y` is one
            target an example, or a one-hot row.
        x_test: test inputs, shape (examples, inputs), float32.
        y_test: labels or targets of the test inputs, shape (examples,).
        shapes: dict from names of weights to shapes.
        log_likelihood: function of (position, batch) of one chain. It returns the
            log-likelihood of each example in nats, shape (batch,).
        predict: function of (position, x). The position may have leading axes for
            chains and draws. It returns probabilities (..., examples, classes), or the
            mean of the target (..., examples).
        is_identifiable: whether the weights have one mode, so that their moments mean
            something. Hidden units can be exchanged, and their signs turned.
    """

    name: str
    task: str
    data: dict
    x_test: np.ndarray
    y_test: np.ndarray
    shapes: dict
    log_likelihood: Callable
    predict: Callable
    is_identifiable: bool

    def fingerprint(self):
        """A text that changes with the data, rounded to six decimals."""
        digest = hashlib.sha256()
        for array in (self.data["x"], self.data["y"], self.x_test, self.y_test):
            rounded = np.round(np.asarray(array, "float64"), 6) + 0.0  # no minus zero
            digest.update(repr(rounded.shape).encode() + rounded.tobytes())
        return digest.hexdigest()[:16]


def log_prior(position):
    """Log density of N(0, 1) for every weight, up to a constant."""
    return -0.5 * sum(ops.sum(ops.square(value)) for value in position.values())


def problem(name, data_dir=None):
    """Return a `Problem`; `data_dir` is the folder with UCI files, for "yacht"."""
    if name not in NAMES:
        raise ValueError(f"Argument `name` must be one of {NAMES}. Received: {name!r}")
    return _yacht(data_dir) if name == "yacht" else BUILDERS[name]()


def _dense(position, layer, x):
    """A layer's outputs; the weights may have leading axes."""
    bias = ops.expand_dims(position[f"b{layer}"], -2)
    return ops.matmul(x, position[f"w{layer}"]) + bias


def _linear(position, x):
    return _dense(position, 1, x)


def _network(position, x):
    return _dense(position, 2, ops.tanh(_dense(position, 1, x)))


def _shapes(*sizes):
    pairs = list(zip(sizes, sizes[1:], strict=False))
    kernels = {f"w{i}": pair for i, pair in enumerate(pairs, 1)}
    return kernels | {f"b{i}": (pair[1],) for i, pair in enumerate(pairs, 1)}


def _softmax_problem(name, train, test, shapes, outputs):
    """Classes 0 to 9, with one-hot targets."""
    (x, y), (x_test, y_test) = train, test

    def log_likelihood(position, batch):
        logs = ops.log_softmax(outputs(position, batch["x"]), axis=-1)
        return ops.sum(batch["y"] * logs, axis=-1)

    def predict(position, x):
        return ops.softmax(outputs(position, x), axis=-1)

    data = {"x": x.astype("float32"), "y": np.eye(10, dtype="float32")[y]}
    return Problem(
        name,
        "classification",
        data,
        x_test[:TEST_DIGITS].astype("float32"),
        y_test[:TEST_DIGITS],
        shapes,
        log_likelihood,
        predict,
        is_identifiable=outputs is _linear,
    )


def _network_problem(name, train, test, hidden):
    """A regression on a network, with normal noise of a known size."""
    (x, y), (x_test, y_test) = train, test
    constant = -math.log(NOISE_STD * math.sqrt(2.0 * math.pi))

    def predict(position, x):
        return _network(position, x)[..., 0]

    def log_likelihood(position, batch):
        residual = (batch["y"] - predict(position, batch["x"])) / NOISE_STD
        return constant - 0.5 * ops.square(residual)

    return Problem(
        name,
        "regression",
        {"x": x.astype("float32"), "y": y.astype("float32")},
        x_test.astype("float32"),
        y_test.astype("float32"),
        _shapes(x.shape[1], hidden, 1),
        log_likelihood,
        predict,
        is_identifiable=False,
    )


def _logistic():
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    test, train = np.split(np.random.default_rng(0).permutation(len(x)), [114])
    x_train, x_test = mh.datasets.standardized(x[train], x[test])

    def log_likelihood(position, batch):
        logit = _linear(position, batch["x"])[..., 0]
        return -ops.softplus(ops.where(batch["y"] > 0.5, -logit, logit))

    def predict(position, x):
        logit = _linear(position, x)
        return ops.concatenate([ops.sigmoid(-logit), ops.sigmoid(logit)], axis=-1)

    return Problem(
        "logistic",
        "classification",
        {"x": x_train, "y": y[train].astype("float32")},
        x_test,
        y[test],
        _shapes(30, 1),
        log_likelihood,
        predict,
        is_identifiable=True,
    )


def _pixels():
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    return (x.reshape(-1, 64), y), (x_test.reshape(-1, 64), y_test)


def _softmax():
    rng = np.random.default_rng(0)
    kernel, bias = rng.normal(size=(64, FEATURES)) / 4.0, rng.normal(size=FEATURES)
    train, test = ((np.tanh(x @ kernel + bias), y) for x, y in _pixels())
    return _softmax_problem("softmax", train, test, _shapes(FEATURES, 10), _linear)


def _digits():
    return _softmax_problem("digits", *_pixels(), _shapes(64, 16, 10), _network)


def _sine():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2.0, -0.5, 20), rng.uniform(0.5, 2.0, 20)])
    y = np.sin(2.0 * x) + NOISE_STD * rng.normal(size=40)
    x_test = np.linspace(-2.5, 2.5, 51)
    test = x_test[:, None], np.sin(2.0 * x_test)
    return _network_problem("sine", (x[:, None], y), test, 16)


def _yacht(data_dir):
    (x, y), (x_test, y_test) = mh.datasets.load("yacht", data_dir, split=0)
    x, x_test = mh.datasets.standardized(x, x_test)
    y, y_test = mh.datasets.standardized(y, y_test)
    return _network_problem("yacht", (x, y), (x_test, y_test), 50)


BUILDERS = {
    "logistic": _logistic,
    "softmax": _softmax,
    "sine": _sine,
    "digits": _digits,
}
