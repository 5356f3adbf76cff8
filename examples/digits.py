"""Six ways to train one small network on images, compared.

SGD and Adam find one network. PSGLD, SGHMC, RSGLD and CMINT replace them as the
optimizer, and give samples of the weights. The kept samples predict together, as an
ensemble. The example prints accuracy, calibration, robustness to attacks, and how well
uncertainty detects images of another kind. It saves three figures.

    python examples/digits.py
    KERAS_BACKEND=torch python examples/digits.py --dataset mnist --data-dir folder
"""

import argparse
import functools
import logging
import math
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc import adversarial
from keras_mhmcmc import datasets
from keras_mhmcmc import plots

# TensorFlow would remark on each ensemble that it compiles.
logging.getLogger("tensorflow").setLevel(logging.ERROR)

# The small set needs more passes. Priors and rates were chosen on a held-out part of
# the training images. PSGLD's temperature and the size of the network are those of the
# `first_steps.py`, whose choice used the test images.
SMALL = {
    "hidden": 200,
    "batch_size": 60,  # the last one of an epoch has 57
    "epochs": 200,
    "temperature": 1.0,  # of SGHMC; 1 is the posterior, and less is closer to SGD
    "prior": 1.0,  # of SGHMC: standard deviation of each weight
    "rate": 0.1,  # of RSGLD
    "psgld": 0.005,  # rate of PSGLD
}
LARGE = {
    "hidden": 600,
    "batch_size": 100,
    "epochs": 10,
    "temperature": 0.1,
    "prior": 0.1,
    "rate": 0.2,
    "psgld": 0.001,
}
# Clothes fill more of the image than digits: gradients are longer, steps shorter.
SETTINGS = {"digits": SMALL, "mnist": LARGE, "fashion_mnist": LARGE | {"rate": 0.05}}

METHODS = ("SGD", "Adam", "PSGLD", "SGHMC", "RSGLD", "CMINT")
STRENGTHS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)  # of an attack; pixels are in [0, 1]
IN_TABLE = {"fgsm": (0.05, 0.1, 0.2), "pgd": (0.05, 0.1), "strongest": (0.1,)}
ATTACKED = 1000  # test images, the first ones
AT_ONCE = 360  # images in a batch of the attacks: all digits


def make_model(input_shape, hidden):
    """An ordinary Keras model, which has no part in the sampling."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(hidden, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def make_methods(model, n, steps, settings):
    """An optimizer, and which iterations to keep as samples, for each method.

    There are `n` training images; the run takes `steps` iterations. SGD gives no
    samples: its last iterate is the network that it finds.
    """
    batch_size = settings["batch_size"]
    warm_up = min(500, steps // 4)  # 500 is the default, and too much for `--quick`
    # 25 samples, evenly spread over the second half of the run.
    second_half = {"burn_in": steps // 2, "every": math.ceil(steps / 50)}

    # CMINT: ten rounds, in each of which the rate halves in ten falls, to double for
    # the next. A sample is kept before each rise in the second half.
    cycle = max(steps // 10, 1)
    rate = mh.schedules.GeometricCycle(
        0.4, cycle, decay=0.5**0.1, decay_steps=max(cycle // 10, 1), growth=2
    )
    # With this many weights a plain Langevin proposal is hardly ever accepted, so CMINT
    # has reversible ones. Their beta is where the paper's strong-gradient regime ends
    # (proposition 1) for a gradient of length 4, a long one at the start of training.
    beta = max(4 * n * (2 * 0.4 / model.count_params()) ** 0.5, 1)

    return {
        "SGD": (keras.optimizers.SGD(0.1, momentum=0.9), None),
        "Adam": (keras.optimizers.Adam(0.001), None),
        "PSGLD": (
            mh.PSGLD(
                settings["psgld"],
                train_size=n,
                temperature=0.03,
                prior=mh.priors.Gaussian(2.0),
            ),
            second_half,
        ),
        "SGHMC": (
            mh.SGHMC(
                0.1,
                train_size=n,
                temperature=settings["temperature"],
                prior=mh.priors.Gaussian(settings["prior"]),
            ),
            second_half,
        ),
        "RSGLD": (
            mh.RSGLD(
                settings["rate"],
                train_size=n,
                batch_size=batch_size,
                warm_up=warm_up,
            ),
            second_half,
        ),
        "CMINT": (
            mh.MINT(
                rate,
                train_size=n,
                batch_size=batch_size,
                proposal=mh.proposals.ReversibleLangevin(beta),
                warm_up=warm_up,
            ),
            {"burn_in": 5 * cycle, "every": cycle},
        ),
    }


def train(model, optimizer, keep, x, y, settings):
    """Trains as always, with one more callback for a sampler.

    Returns the network or the ensemble, compiled once for all scores, and the logs.
    """
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    posterior = None if keep is None else mh.PosteriorSamples(**keep)
    history = model.fit(
        x,
        y,
        batch_size=settings["batch_size"],
        epochs=settings["epochs"],
        callbacks=[Progress()] if posterior is None else [posterior, Progress()],
        verbose=0,
    )
    if posterior is None:
        classifier = mh.Classifier(model, from_logits=True, batch_size=AT_ONCE)
    else:
        classifier = mh.Classifier(posterior.ensemble(model), batch_size=AT_ONCE)
    return classifier, history.history


def attack_options(steps):
    """The options of each attack, with `steps` steps or a multiple of them.

    The points of PGD include that of FGSM.
    """
    apgd = functools.partial(adversarial.apgd, steps=3 * steps // 2)
    several = (
        functools.partial(adversarial.pgd, steps=steps),
        apgd,
        functools.partial(apgd, loss="margin"),
        functools.partial(adversarial.square, queries=5 * steps),
    )
    return {"fgsm": {}, "pgd": {"steps": steps}, "strongest": {"attacks": several}}


class Progress(keras.callbacks.Callback):
    """Five lines for each method; Keras' own would fill the screen."""

    def on_epoch_end(self, epoch, logs=None):
        epochs = self.params["epochs"]
        if (epoch + 1) % max(epochs // 5, 1) == 0:
            shown = ("loss", "accuracy", "acceptance", "beta")
            values = [f"{name} {logs[name]:.3g}" for name in shown if name in logs]
            print(f"  epoch {epoch + 1:3d} of {epochs}:", ", ".join(values), flush=True)


def main(argv=None):
    """Runs the comparison. Returns the rows of the table, a dict for each method."""
    args = parse(argv)
    settings = dict(SETTINGS[args.dataset])
    if args.epochs is not None:
        settings["epochs"] = args.epochs
    (x_train, y_train), (x_test, y_test) = datasets.load(args.dataset, args.data_dir)
    steps = settings["epochs"] * math.ceil(len(x_train) / settings["batch_size"])
    print(
        f"{args.dataset}: {len(x_train)} images to train on, {len(x_test)} to test on; "
        f"{settings['epochs']} epochs; Keras on {keras.backend.backend()}"
    )

    rows, classifiers, probabilities = [], {}, {}
    for name in METHODS:
        print(name, flush=True)
        keras.utils.set_random_seed(args.seed)  # all start from the same weights
        model = make_model(x_train.shape[1:], settings["hidden"])
        optimizer, keep = make_methods(model, len(x_train), steps, settings)[name]
        begin = time.perf_counter()
        classifiers[name], logs = train(
            model, optimizer, keep, x_train, y_train, settings
        )
        seconds = time.perf_counter() - begin
        probabilities[name] = classifiers[name].probabilities(x_test)
        acceptance = second_half_mean(logs.get("acceptance"))
        rows.append({"method": name, "acceptance": acceptance, "seconds": seconds})

    ood, what = out_of_distribution(args, x_test, y_test)
    table = mh.evaluate(classifiers, x_test, y_test, ood=ood)
    for row, scores in zip(rows, table.rows, strict=True):
        row.update({name: scores[name] for name in SCORES})
        row["auroc"] = scores.get("auroc_ood")

    attacked = min(60 if args.quick else ATTACKED, len(x_test))
    x, y = x_test[:attacked], y_test[:attacked]
    curves = {}
    for attack, options in attack_options(args.steps).items():
        print(f"attacks: {attack}", flush=True)
        strengths = IN_TABLE[attack] if attack == "strongest" else STRENGTHS
        curves[attack] = adversarial.robustness_curve(
            classifiers, x, y, strengths, attack=attack, verbose=2, **options
        )
        for row in rows:
            accuracies = curves[attack].column(row["method"], "accuracy")
            row[attack] = dict(zip(strengths, map(float, accuracies), strict=True))
    legend = LEGEND.format(
        steps=args.steps,
        more=3 * args.steps // 2,
        queries=5 * args.steps,
        attacked=attacked,
    )
    print(f"\n{as_text(rows)}\n\n{legend}\nOOD         here: {what}\n")
    for attack, curve in curves.items():
        for sentence in curve.warnings:
            print(f"Warning: {attack} of {sentence}")
    save_pictures(args, curves, probabilities, classifiers, x_test, y_test)
    return rows


SCORES = ("members", "accuracy", "nll", "ece")


def out_of_distribution(args, x_test, y_test):
    """Images that are none of the classes, or None, and what they are."""
    if args.dataset == "digits":
        # Mirrored, 0, 1 and 8 look as before. Ink stays where training images have it.
        same = np.isin(y_test, (0, 1, 8))
        return x_test[~same][:, :, ::-1], "mirror images of the test digits 2-7 and 9"
    try:
        x, _ = datasets.load_test("kmnist", args.data_dir)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        return None, f"left out, for KMNIST cannot be loaded. {error}"
    return x, "the test images of KMNIST, handwritten Japanese characters"


LEGEND = """\
members     networks whose mean probability predicts; SGD and Adam find one
accuracy    share of the test images that is classified correctly
NLL         mean negative log-likelihood of the test labels, nats; lower is better
ECE         expected calibration error, |confidence - accuracy|; lower is better
FGSM e      accuracy when each pixel, in [0, 1], may move by e to mislead the method:
            one step along the gradient's sign, against the true label (each method is
            attacked by itself, on the first {attacked:,} of the test images)
PGD e       the same by {steps} steps, each within e of the image
strongest e the same by four attacks, of which the worst counts for each image: PGD,
            {more} steps of Auto-PGD on the cross-entropy and {more} on the margin, and
            {queries} queries of Square, which needs no gradient
OOD         area under the ROC curve of telling images of another kind by the entropy
            of the prediction: 1 is perfect, 0.5 is chance; — where there are none
acceptance  share of accepted proposals, mean of the second half of the epochs;
            — where nothing is proposed
seconds     of training, compilation included
CMINT is MINT with reversible Langevin proposals and a cyclic learning rate."""


def as_text(rows):
    """The rows as an aligned table."""
    attacks = [
        (attack, epsilon) for attack, chosen in IN_TABLE.items() for epsilon in chosen
    ]
    titles = {"fgsm": "FGSM", "pgd": "PGD", "strongest": "strongest"}
    heads = [f"{titles[attack]} {epsilon:g}" for attack, epsilon in attacks]
    head = ["method", "members", "accuracy", "NLL", "ECE", *heads, "OOD"]
    lines = [[*head, "acceptance", "seconds"]]
    for row in rows:
        numbers = [row["accuracy"], row["nll"], row["ece"]]
        numbers += [row[attack][epsilon] for attack, epsilon in attacks]
        area = "—" if row["auroc"] is None else f"{row['auroc']:.3f}"
        acceptance = "—" if row["acceptance"] is None else f"{row['acceptance']:.2f}"
        cells = [row["method"], str(row["members"])]
        cells += [*(f"{x:.3f}" for x in numbers), area]
        lines.append([*cells, acceptance, f"{row['seconds']:.1f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def robustness_picture(curves):
    """Accuracy against strength, a panel for each attack with several strengths."""
    curves = {name: curves[name] for name in ("fgsm", "pgd")}
    figure, axes = pyplot.subplots(
        1, len(curves), figsize=(11, 4.5), sharey=True, layout="constrained"
    )
    for ax, curve in zip(axes, curves.values(), strict=True):
        plots.robustness(curve, ax)
    axes[-1].set_ylabel("")
    return figure


def save_pictures(args, curves, probabilities, classifiers, x_test, y_test):
    """Saves the three pictures and says where."""
    epsilons = (0.0, 0.05, 0.1, 0.2, 0.3)
    first = [int(np.argmax(y_test == label)) for label in range(10)]
    x, y = x_test[first], y_test[first]  # the first test image of each class
    chosen = classifiers["RSGLD"]
    images = [adversarial.fgsm(chosen, x, epsilon, y=y) for epsilon in epsilons]
    predictions = [chosen.probabilities(batch) for batch in images]
    figures = {
        "robustness.png": robustness_picture(curves),
        "reliability.png": plots.reliability(probabilities, y_test),
        "adversarial.png": plots.adversarial_grid(
            np.stack(images),
            np.stack(predictions),
            y,
            epsilons,
            title=f"FGSM attacks on the RSGLD ensemble, {args.dataset}",
        ),
    }
    os.makedirs(args.out, exist_ok=True)
    for name, figure in figures.items():
        path = os.path.join(args.out, name)
        figure.savefig(path, dpi=150)
        print(f"saved {path}")


def second_half_mean(values):
    """Mean over the later epochs, or None if there are no values."""
    return None if values is None else float(np.mean(values[len(values) // 2 :]))


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=list(SETTINGS), default="digits")
    parser.add_argument("--data-dir", help="folder with <dataset>.npz; or download")
    parser.add_argument("--epochs", type=int, help="passes over the training images")
    parser.add_argument("--steps", type=int, help="steps of an attack by PGD")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and noise")
    parser.add_argument(
        "--quick", action="store_true", help="4 epochs, PGD of 5 steps, 60 images"
    )
    parser.add_argument("--out", default="out", help="folder for the figures")
    args = parser.parse_args(argv)
    if args.quick and args.epochs is None:
        args.epochs = 4
    if args.steps is None:
        args.steps = 5 if args.quick else 20
    for name in ("epochs", "steps"):
        value = getattr(args, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1. Received: {value}")
    return args


if __name__ == "__main__":
    main()
