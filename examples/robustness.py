"""Which gains in robustness survive the strongest attack? Eight methods, three seeds.

Each method trains as in `advice.py`, with the settings that had the lowest NLL there on
held-out training data. Nothing was chosen by robustness. Then six attacks with the
true labels change the first test images. "strongest" counts an image as lost if one of
the attacks makes the model predict another class.

    python examples/robustness.py --data-dir folder --problems mnist fashion
    python examples/robustness.py --table --figure robustness.png

The rows go to `--out` as they come, and the same command goes on where it was stopped.
"""

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import advice
import advice_problems
import keras
import robustness_report as report
from advice_problems import PROBLEMS

import keras_mhmcmc as mh
from keras_mhmcmc import adversarial

# Networks that `advice.py` has no settings for take those of the same network.
SETTINGS_OF = {"mnist_cnn": "fashion", "fashion_mlp": "mnist"}
ADVERSARIAL = "PGD training"  # SGD on images that 7 steps of PGD have changed
METHODS = (
    "SGD",
    "4 Adam",
    "SGHMC",
    "PSGLD",
    "RSGLD",
    "CSGHMC",
    "SGHMC-SA",
    ADVERSARIAL,
)
CHOSEN = Path(__file__).parent / "results" / "advice.jsonl"


class Attacks:
    """The attacks at one strength, as functions from a model to changed images."""

    def __init__(self, x, y, epsilon, args):
        self._x, self._y, self._epsilon, self._args = x, y, epsilon, args
        self._transferred = None

    def transfer_from(self, source):
        """Attack `source` once; the same images then go to every model."""
        self._transferred = self._pgd(source)

    def _pgd(self, model):
        steps, restarts = self._args.steps, self._args.restarts
        return adversarial.pgd(
            model, self._x, self._epsilon, y=self._y, steps=steps, restarts=restarts
        )

    def _apgd(self, model, loss):
        return adversarial.apgd(
            model, self._x, self._epsilon, y=self._y, steps=self._args.steps, loss=loss
        )

    def images(self, model):
        """The name of each attack and its images, one after the other."""
        yield "transfer", self._transferred
        yield "FGSM", adversarial.fgsm(model, self._x, self._epsilon, y=self._y)
        yield "PGD", self._pgd(model)
        yield "APGD", self._apgd(model, "cross_entropy")
        yield "APGD margin", self._apgd(model, "margin")
        queries = self._args.queries
        yield (
            "Square",
            adversarial.square(
                model, self._x, self._epsilon, y=self._y, queries=queries
            ),
        )


def train(problem, method, setting, seed, data):
    """Train a method, and return the classifier that counts."""
    if method == ADVERSARIAL:
        return mh.Classifier(trained_on_attacks(problem, setting, seed, data), True)
    runs = advice.METHODS[method].runs
    found = [
        advice.train(problem, method, setting, seed + 100 * i, data)
        for i in range(runs)
    ]
    model, ensemble, _ = found[0]
    if runs > 1:
        ensemble = advice.together(problem, [one[0] for one in found])
    if advice.METHODS[method].is_ensemble:
        return mh.Classifier(ensemble)
    return mh.Classifier(model, from_logits=True)


def trained_on_attacks(problem, setting, seed, data):
    """Train with SGD on images that PGD changes by at most the larger strength."""
    sizes = PROBLEMS[problem]
    keras.utils.set_random_seed(seed)
    model = advice_problems.make_model(problem, data.x.shape[1:])
    steps = math.ceil(len(data.x) / sizes.batch_size) * sizes.epochs
    trainer = adversarial.training(model, max(sizes.strengths), seed=seed)
    trainer.compile(
        advice.make_optimizer(problem, "SGD", setting, len(data.x), steps, model, seed),
        advice_problems.make_loss(problem, None),
    )
    trainer.fit(data.x, data.y, sizes.batch_size, sizes.epochs, verbose=0)
    return model


def scored(problem, classifier, data, attacks, count):
    """Scores on all test images, and the accuracy under each attack."""
    outputs = classifier.probabilities(data.x_test)
    found = {
        "accuracy": float(mh.metrics.accuracy(outputs, data.y_test)),
        "nll": float(mh.metrics.nll(outputs, data.y_test)),
        "ece": float(mh.metrics.ece(outputs, data.y_test)),
        "members": members_of(classifier),
    }
    labels = data.y_test[:count]
    clean = outputs[:count].argmax(-1) == labels
    found["attacks"] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for epsilon in PROBLEMS[problem].strengths:
            here = {"clean": float(clean.mean())}
            survives = clean.copy()
            for name, images in attacks[epsilon].images(classifier):
                right = classifier.probabilities(images).argmax(-1) == labels
                here[name] = float(right.mean())
                survives &= right
            here["strongest"] = float(survives.mean())
            found["attacks"][f"{epsilon:g}"] = here
    # Such as gradients of zero, which make a model look robust.
    told = [str(one.message) for one in caught if one.category is UserWarning]
    return found | {"warnings": list(dict.fromkeys(told))}


def members_of(classifier):
    """The number of networks whose probabilities are averaged."""
    return classifier.model.num_members if classifier.has_members else 1


def work(args, rows):
    """Run all that is missing. Transfer attacks the network of SGD, the first one."""
    chosen = advice.Rows(args.chosen)
    budget = {name: getattr(args, name) for name in ("images", *BUDGET)}
    rows.check_budget(budget, args.problems)
    tasks = [
        (problem, seed, method)
        for problem in args.problems
        for seed in range(args.seeds)
        for method in args.methods
        if rows.find(problem, method, seed) is None
    ]
    begin, ready = time.perf_counter(), None
    for done, (problem, seed, method) in enumerate(tasks):
        start = time.perf_counter()
        if ready != (problem, seed):
            ready = problem, seed
            data = advice_problems.load(problem, args.data_dir, seed, held_out=False)
            x, y = data.x_test[: args.images], data.y_test[: args.images]
            strengths = PROBLEMS[problem].strengths
            attacks = {epsilon: Attacks(x, y, epsilon, args) for epsilon in strengths}
            sgd = train(problem, "SGD", setting_of(chosen, problem, "SGD"), seed, data)
            for one in attacks.values():
                one.transfer_from(sgd)
        setting = setting_of(chosen, problem, method)
        if method == "SGD":
            classifier = sgd
        else:
            classifier = train(problem, method, setting, seed, data)
        row = {"problem": problem, "method": method, "seed": seed, "setting": setting}
        row |= budget
        row["backend"] = keras.backend.backend()
        row |= scored(problem, classifier, data, attacks, args.images)
        row["seconds"] = round(time.perf_counter() - start, 1)
        rows.add(row)
        print(*row["warnings"], sep="\n", end="\n" * len(row["warnings"]))
        spent = time.perf_counter() - begin
        left = spent / (done + 1) * (len(tasks) - done - 1)
        worst = [f"{one['strongest']:.3f}" for one in row["attacks"].values()]
        print(
            f"{problem}, {done + 1} of {len(tasks)}: {method}, seed {seed}, accuracy "
            f"{row['accuracy']:.3f}, strongest {', '.join(worst)}; about "
            f"{left / 60:.0f} min left",
            flush=True,
        )


def setting_of(chosen, problem, method):
    """The setting that `advice.py` chose."""
    kin = "SGD" if method == ADVERSARIAL else method
    setting = advice.choose(chosen, SETTINGS_OF.get(problem, problem), kin)
    if setting is None:
        raise SystemExit(
            f"{CHOSEN.name} has no settings of {kin} for {problem}: run advice.py first"
        )
    return setting


class Rows:
    """The rows of the file."""

    def __init__(self, path):
        self._path = Path(path)
        text = self._path.read_text() if self._path.exists() else ""
        self.rows = [json.loads(line) for line in text.splitlines()]

    def find(self, problem, method, seed):
        """The row, or None."""
        key = (problem, method, seed)
        names = ("problem", "method", "seed")
        rows = (r for r in self.rows if tuple(r[name] for name in names) == key)
        return next(rows, None)

    def check_budget(self, budget, problems):
        """Refuse rows of these problems that were attacked otherwise."""
        for row in self.rows:
            other = {name: row[name] for name in budget if row[name] != budget[name]}
            if row["problem"] in problems and other:
                raise SystemExit(
                    f"{self._path} has rows of {row['problem']} with {other}, which "
                    f"cannot be compared: give these numbers again, or another --out"
                )

    def add(self, row):
        """Write a row."""
        self.rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


BUDGET = ("steps", "restarts", "queries")


def main(argv=None):
    """Run what is missing, print the tables, and draw the picture."""
    args = parse(argv)
    rows = Rows(args.out)
    if not args.table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # SGD's iterates as samples
            work(args, rows)
    for problem in args.problems:
        for epsilon in PROBLEMS[problem].strengths:
            lines = report.table(rows.rows, problem, f"{epsilon:g}", METHODS)
            if lines:
                print(f"\n{problem}, strength {epsilon:g}")
                print("\n".join(lines))
    if args.figure:
        report.draw(rows.rows, METHODS, PROBLEMS, args.figure)
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    images = [name for name, one in PROBLEMS.items() if one.strengths]
    parser.add_argument("--problems", nargs="+", choices=images, default=images[1:])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--data-dir", help="folder with the .npz files")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--images", type=int, default=1000, help="attacked, of the test"
    )
    parser.add_argument("--steps", type=int, default=50, help="of PGD and APGD")
    parser.add_argument("--restarts", type=int, default=2, help="of PGD")
    parser.add_argument("--queries", type=int, default=1000, help="of Square")
    parser.add_argument("--chosen", default=CHOSEN, help="rows of advice.py")
    parser.add_argument(
        "--out", default="out/robustness.jsonl", help="file of the rows"
    )
    parser.add_argument("--table", action="store_true", help="only print the tables")
    parser.add_argument("--figure", help="file of the picture")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
