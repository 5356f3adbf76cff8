"""Samplers and cheap baselines in one table: digits, the network of `make demo`.

    python baselines.py --seeds 5 --out examples/results/baselines.jsonl

SGD, Adam and three samplers are those of `make demo`. The tuned Adam is that of
`first_steps.py`: a rate of 0.01 and a weight decay of 0.1. SWAG and last-layer Laplace
begin with SGD's run, MC dropout with Adam and a layer of dropout, and the deep ensemble
has five networks of Adam. PGD training sees images that seven steps of PGD have
changed, by at most 0.1. The prior of Laplace and the rate of dropout have the lowest
negative log-likelihood (NLL) on a fifth of the training images. The other settings are
those of the demo or defaults. *strongest* is the demo's column at a strength of 0.1:
four attacks on the 360 test images. OOD is the area under the ROC curve for mirror
images. A second call goes on where the first one stopped.
"""

import argparse
import functools
import json
import math
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import digits
import keras
import numpy as np

import keras_mhmcmc as mh
from keras_mhmcmc import adversarial

MEMBERS, STRENGTH, STEPS = 25, 0.1, 20
DIGITS = argparse.Namespace(dataset="digits")
# The settings to choose from: a standard deviation, and a share.
CHOICES = {"Laplace": (0.1, 0.3, 1.0, 3.0), "MC dropout": (0.1, 0.3, 0.5)}
SCORES = ("accuracy", "nll", "ece", "ood", "strongest")


def network(x, hidden, dropout=0.0):
    """The network of the demo, with logits; `dropout` adds a layer before the last."""
    model = digits.make_model(x.shape[1:], hidden)
    if dropout:
        *body, last = model.layers
        layers = [*body, keras.layers.Dropout(dropout), last]
        model = keras.Sequential([keras.Input(x.shape[1:]), *layers])
    return model


def fitted(model, optimizer, x, y, settings, callbacks=()):
    """Train as always. Returns the model."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    sizes = {"batch_size": settings["batch_size"], "epochs": settings["epochs"]}
    model.fit(x, y, **sizes, verbose=0, callbacks=list(callbacks))
    return model


def train(method, x, y, settings, setting, seed):
    """Train a method. Returns a classifier."""
    keras.utils.set_random_seed(seed)
    n, hidden = len(x), settings["hidden"]
    steps = settings["epochs"] * math.ceil(n / settings["batch_size"])
    fit = functools.partial(fitted, x=x, y=y, settings=settings)
    model = network(x, hidden, setting if method == "MC dropout" else 0.0)
    optimizers = digits.make_methods(model, n, steps, settings)
    if method in ("PSGLD", "SGHMC", "RSGLD"):
        optimizer, keep = optimizers[method]
        posterior = mh.PosteriorSamples(**keep)
        fit(model, optimizer, callbacks=[posterior])
        return mh.Classifier(posterior.ensemble(model))
    if method == "SWAG":
        posterior = mh.PosteriorSamples(burn_in=steps // 2)
        fit(model, optimizers["SGD"][0], callbacks=[posterior])
        return mh.Classifier(mh.swag(posterior, model, MEMBERS, seed=seed))
    if method == "deep ensemble":
        chains = mh.ParallelChains(model, num_chains=5, seed=seed)
        return mh.Classifier(mh.deep_ensemble(fit(chains, optimizers["Adam"][0])))
    if method == "Adam, tuned":
        fit(model, keras.optimizers.Adam(0.01, weight_decay=0.1))
        return mh.Classifier(model, from_logits=True)
    if method == "PGD training":
        robust = adversarial.training(model, STRENGTH, seed=seed)
        fit(robust, optimizers["Adam"][0])
        return mh.Classifier(model, from_logits=True)
    fit(model, optimizers["SGD" if method in ("SGD", "Laplace") else "Adam"][0])
    if method == "Laplace":
        prior = mh.priors.Gaussian(setting)
        return mh.Classifier(
            mh.last_layer_laplace(model, x, y, prior=prior, members=MEMBERS, seed=seed)
        )
    if method == "MC dropout":
        return mh.Classifier(mh.MCDropout(model, MEMBERS, seed=seed))
    return mh.Classifier(model, from_logits=True)


METHODS = (
    "SGD",
    "Adam",
    "Adam, tuned",
    "SWAG",
    "Laplace",
    "MC dropout",
    "deep ensemble",
    "PGD training",
    "PSGLD",
    "SGHMC",
    "RSGLD",
)


def chosen(method, x, y, settings):
    """The setting with the lowest NLL on a fifth of the training images, or None."""
    if method not in CHOICES:
        return None
    order = np.random.default_rng(0).permutation(len(x))
    held_out, kept = np.split(order, [len(x) // 5])
    scores = {}
    for setting in CHOICES[method]:
        classifier = train(method, x[kept], y[kept], settings, setting, seed=1000)
        outputs = classifier.probabilities(x[held_out])
        scores[setting] = float(mh.metrics.nll(outputs, y[held_out]))
    return min(scores, key=scores.get)


def scores_of(classifier, x, y):
    """The scores of a classifier on test images."""
    mirrored, _ = digits.out_of_distribution(DIGITS, x, y)
    (row,) = mh.evaluate({"m": classifier}, x, y, ood=mirrored).rows
    options = digits.attack_options(STEPS)["strongest"]
    curve = adversarial.robustness_curve(
        {"m": classifier}, x, y, [STRENGTH], attack="strongest", **options
    )
    found = {name: float(row[name]) for name in ("accuracy", "nll", "ece")}
    found |= {"ood": float(row["auroc_ood"]), "members": row["members"]}
    found["strongest"] = float(curve.column("m", "accuracy")[0])
    return found


def table(rows):
    """The lines of the table: means over the seeds, and paired differences to SGD."""
    lines = [
        "| method | networks | accuracy | NLL | ECE | OOD | strongest | NLL minus "
        "SGD's | strongest minus SGD's |",
        "|" + "---|" * 9,
    ]
    by_method = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    for method, found in by_method.items():
        means = [np.mean([row[name] for row in found]) for name in SCORES]
        setting = found[0]["setting"]
        name = method if setting is None else f"{method}, {setting:g}"
        cells = [name, str(found[0]["members"]), *(f"{mean:.3f}" for mean in means)]
        for score in ("nll", "strongest"):
            pairs = zip(found, by_method["SGD"], strict=False)
            difference = np.array([a[score] - b[score] for a, b in pairs])
            error = np.std(difference, ddof=len(found) > 1) / len(difference) ** 0.5
            shown = f"{difference.mean():+.3f} ± {error:.3f}".replace("-", "−")
            cells.append("—" if method == "SGD" else shown)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Train, score and print what is missing. Returns the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="default: as in the demo")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", default="out/baselines.jsonl", help="file of the rows")
    args = parser.parse_args(argv)
    settings = dict(digits.SETTINGS["digits"])
    settings["epochs"] = args.epochs or settings["epochs"]
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    path = Path(args.out)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for method in args.methods:
        known = {row["seed"]: row for row in rows if row["method"] == method}
        setting = next(iter(known.values()))["setting"] if known else None
        missing = [seed for seed in range(args.seeds) if seed not in known]
        if missing and not known:
            setting = chosen(method, x, y, settings)
        for seed in missing:
            with warnings.catch_warnings():
                # Iterates of SGD, and what attacks doubt: the table shows the result.
                warnings.simplefilter("ignore", UserWarning)
                classifier = train(method, x, y, settings, setting, seed)
                row = {"method": method, "setting": setting, "seed": seed}
                row |= scores_of(classifier, x_test, y_test)
            rows.append(row)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{method}, seed {seed}: NLL {row['nll']:.3f}", flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
