"""The problems of `advice.py`: data, models, losses and scores."""

from typing import NamedTuple

import keras
import numpy as np
from scipy import special

import keras_mhmcmc as mh
from keras_mhmcmc import adversarial

ATTACKED = 500  # test examples, the first ones
PGD_STEPS = 10


class Problem(NamedTuple):
    """Sizes of a problem. `strengths` are those of the attacks, in units of a pixel."""

    kind: str  # "images" or "regression"
    batch_size: int
    epochs: int
    train: int | None = None  # examples; None: all that the split leaves
    hidden: int = 50
    convolutions: bool = False
    strengths: tuple[float, ...] = ()
    others: str | None = None  # images of another kind


PROBLEMS = {
    "digits": Problem("images", 96, 80, None, 64, strengths=(0.05, 0.1)),
    "mnist": Problem("images", 100, 20, 10_000, 200, False, (0.05, 0.1), "fashion"),
    "fashion": Problem("images", 100, 20, 5_000, 64, True, (0.02, 0.05), "mnist"),
    # The networks of the other data: for `robustness.py`, with its settings.
    "mnist_cnn": Problem("images", 100, 20, 5_000, 64, True, (0.05, 0.1), "fashion"),
    "fashion_mlp": Problem(
        "images", 100, 20, 10_000, 200, False, (0.02, 0.05), "mnist"
    ),
    "energy": Problem("regression", 32, 200),
    "concrete": Problem("regression", 32, 200),
}
ADVISED = ("digits", "mnist", "fashion", "energy", "concrete")
TESTS = 5  # tenths of a regression's rows that are in a test
FILES = {
    "mnist": "mnist",
    "mnist_cnn": "mnist",
    "fashion": "fashion_mnist",
    "fashion_mlp": "fashion_mnist",
}


class Data(NamedTuple):
    """Arrays to train on and to score on. `unit` is the scale of a regression's y."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    ood: np.ndarray | None = None
    unit: float = 1.0


def load(name, data_dir, seed, held_out):
    """The data of a run.

    With `held_out`, a fifth of the training data takes the place of the test data: the
    settings are chosen there. No test data of any seed are among them.
    """
    if PROBLEMS[name].kind == "images":
        data = _images(name, data_dir)
    else:
        data = _rows(name, data_dir, seed, held_out)
    if held_out:
        order = np.random.default_rng(seed).permutation(len(data.x))
        out, kept = np.split(order, [len(order) // 5])
        x, y = data.x, data.y
        return data._replace(x=x[kept], y=y[kept], x_test=x[out], y_test=y[out])
    return data


def _images(name, data_dir):
    """The same examples for every seed: seeds differ in weights, order and noise."""
    problem = PROBLEMS[name]
    (x, y), (x_test, y_test) = mh.datasets.load(FILES.get(name, name), data_dir)
    if problem.train is not None:
        chosen = np.random.default_rng(0).permutation(len(x))[: problem.train]
        x, y = x[chosen], y[chosen]
    if problem.others is None:  # digits whose mirror image is no digit
        ood = x_test[np.isin(y_test, (2, 3, 4, 5, 6, 7, 9))][:, :, ::-1]
    else:
        ood = mh.datasets.load(FILES[problem.others], data_dir)[1][0][:2000]
    return Data(x, y, x_test, y_test, ood)


def _rows(name, data_dir, seed, held_out):
    """A tenth is for the test, another one for each of five seeds.

    The other five tenths are in no test. With `held_out` the training data are these.
    """
    x, y = mh.datasets.rows(name, data_dir)
    order = np.random.default_rng(0).permutation(len(x))
    tenths = np.array_split(order, 10)
    test = tenths.pop(seed % TESTS)
    train = np.concatenate(tenths[TESTS - 1 :] if held_out else tenths)
    x_train, x_test = mh.datasets.standardized(x[train], x[test])
    center, unit = y[train].mean(), float(y[train].std())
    y = ((y - center) / unit).astype("float32")
    return Data(x_train, y[train], x_test, y[test], unit=unit)


def make_model(name, input_shape):
    """An ordinary Keras model, with logits or one mean as its output."""
    problem, layers = PROBLEMS[name], keras.layers
    body = []
    if problem.convolutions:
        for filters in (16, 32):
            body.append(layers.Conv2D(filters, 3, padding="same", activation="relu"))
            body.append(layers.MaxPooling2D())
    outputs = 10 if problem.kind == "images" else 1
    return keras.Sequential(
        [
            keras.Input(input_shape),
            *body,
            layers.Flatten(),
            layers.Dense(problem.hidden, "relu"),
            layers.Dense(outputs),
        ]
    )


def make_loss(name, noise):
    """The mean negative log-likelihood. `noise` is for regressions, in units of y."""
    if PROBLEMS[name].kind == "images":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return mh.losses.GaussianNLL(noise)


def members(name, model, x):
    """Outputs of the members: probabilities or means, shape (S, N, ...)."""
    if isinstance(model, mh.Ensemble):
        outputs = np.asarray(model.predict_members(x, batch_size=500), "float64")
    else:
        outputs = model.predict(x, verbose=0, batch_size=500)[None].astype("float64")
        if PROBLEMS[name].kind == "images":
            outputs = special.softmax(outputs, axis=-1)
    return outputs if PROBLEMS[name].kind == "images" else outputs[..., 0]


def quality(name, outputs, weights, data, noise):
    """Scores of the weighted mean of the members' predictions."""
    if PROBLEMS[name].kind == "images":
        mean = np.einsum("s,snc->nc", weights, outputs)
        measures = {"accuracy": mh.metrics.accuracy, "nll": mh.metrics.nll}
        measures["ece"] = mh.metrics.ece
        return {key: float(f(mean, data.y_test)) for key, f in measures.items()}
    prediction = mh.metrics.NormalMixture(
        data.unit * outputs, data.unit * noise, weights
    )
    y = data.unit * data.y_test
    return {
        "rmse": prediction.rmse(y),
        "nll": prediction.nll(y),
        "coverage": prediction.coverage(y, 0.9),
    }


def robustness(name, model, data):
    """AUROC of other images by the entropy, and accuracy under attack."""
    problem = PROBLEMS[name]
    is_logits = not isinstance(model, mh.Ensemble)
    classifier = mh.Classifier(model, from_logits=is_logits)
    x, y = data.x_test, data.y_test
    (row,) = mh.evaluate({"": classifier}, x[:2000], y[:2000], ood=data.ood).rows
    found = {"ood": float(row["auroc_ood"])}
    for attack, options in (("fgsm", {}), ("pgd", {"steps": PGD_STEPS})):
        curve = adversarial.robustness_curve(
            {"": classifier},
            x[:ATTACKED],
            y[:ATTACKED],
            problem.strengths,
            attack=attack,
            true_label=True,
            **options,
        )
        for strength, accuracy in zip(
            problem.strengths, curve.column("", "accuracy"), strict=True
        ):
            found[f"{attack} {strength:g}"] = float(accuracy)
    return found
