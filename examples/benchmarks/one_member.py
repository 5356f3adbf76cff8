"""Is it the ensemble that is robust, or each of its members?

    python one_member.py --seeds 5

The samplers of `make demo` train its network on scikit-learn's digits. Of each run the
last state alone and the ensemble of 25 samples are attacked, by the strongest of the
demo's four attacks, which know the attacked model and the true label. SGD is attacked
after its last step, and as the mean of 25 iterates of its second half. The table has
means over the seeds, and differences to SGD's last iterate, paired by the seed, with
their standard errors.
"""

import argparse
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

METHODS = ("SGD", "PSGLD", "SGHMC", "RSGLD")


def classifiers_of(method, seed, data, settings):
    """The last state of a method, and the ensemble of its samples."""
    (x, y), _ = data
    steps = settings["epochs"] * math.ceil(len(x) / settings["batch_size"])
    keras.utils.set_random_seed(seed)  # as in the demo
    model = digits.make_model(x.shape[1:], settings["hidden"])
    methods = digits.make_methods(model, len(x), steps, settings)
    optimizer, keep = methods[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # iterates of SGD
        keep = methods["PSGLD"][1] if keep is None else keep
        ensemble, _ = digits.train(model, optimizer, keep, x, y, settings)
    last = mh.Classifier(model, from_logits=True, batch_size=digits.AT_ONCE)
    return {f"{method}, last state": last, f"{method}, ensemble": ensemble}


def scores_of(classifiers, data, epsilon, steps):
    """For each classifier accuracy, NLL, and accuracy under the strongest attack."""
    _, (x, y) = data
    options = digits.attack_options(steps)["strongest"]
    curve = adversarial.robustness_curve(
        classifiers, x, y, [epsilon], attack="strongest", verbose=0, **options
    )
    found = {}
    for name, classifier in classifiers.items():
        outputs = classifier.probabilities(x)
        strongest = float(curve.column(name, "accuracy")[0])
        accuracy, nll = (f(outputs, y) for f in (mh.metrics.accuracy, mh.metrics.nll))
        found[name] = [float(accuracy), float(nll), strongest]
    return found, curve.warnings


def table(rows):
    """The lines of the table: rows are dicts from names to scores, one for a seed."""
    lines = [
        "| network | accuracy | NLL | strongest | strongest minus SGD's |",
        "|---|---|---|---|---|",
    ]
    first = next(iter(rows[0]))
    for name in rows[0]:
        scores = np.array([row[name] for row in rows])
        difference = scores[:, 2] - np.array([row[first][2] for row in rows])
        error = difference.std(ddof=1) / len(rows) ** 0.5 if len(rows) > 1 else math.nan
        shown = "—" if name == first else f"{difference.mean():+.3f} ± {error:.3f}"
        means = " | ".join(f"{mean:.3f}" for mean in scores.mean(axis=0))
        lines.append(f"| {name} | {means} | {shown} |")
    return "\n".join(lines)


def main(argv=None):
    """Train, attack and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="default: as in the demo")
    parser.add_argument("--epsilon", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=20, help="of PGD")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", help="file for the scores of each seed")
    args = parser.parse_args(argv)
    settings = dict(digits.SETTINGS["digits"])
    settings["epochs"] = args.epochs or settings["epochs"]
    data = mh.datasets.load("digits")
    path = None if args.out is None else Path(args.out)
    done = path is not None and path.exists()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if done else []
    for seed in range(len(rows), args.seeds):
        classifiers = {}
        for method in args.methods:
            classifiers |= classifiers_of(method, seed, data, settings)
        scores, doubts = scores_of(classifiers, data, args.epsilon, args.steps)
        rows.append(scores)
        if path is not None:
            with path.open("a") as file:
                file.write(json.dumps(scores) + "\n")
        print(f"seed {seed}", *doubts, sep="\n", flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
