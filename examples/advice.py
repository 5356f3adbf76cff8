"""Which method, and with which settings? Ten methods on five problems, five seeds.

Each method has a few settings to choose from. They are chosen by the negative
log-likelihood (NLL) on a fifth of the training data, with one seed. Then each method
trains on all of the training data, with five new seeds, and is scored on the test data
once. All methods train for the same number of epochs. An ensemble averages the states
at the ends of the epochs in the second half.

    python examples/advice.py --data-dir folder --problems digits fashion
    python examples/advice.py --table

The rows go to `--out` as they come, and the same command goes on where it was stopped.
`examples/results/advice.jsonl` has the rows of all five problems.
"""

import argparse
import itertools
import json
import math
import os
import time
import warnings
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import advice_problems as problems
import keras
import numpy as np
from advice_problems import ADVISED
from advice_problems import PROBLEMS

import keras_mhmcmc as mh

SEED = 1000  # of the runs that choose; those that are scored have 0, 1, ...
MOMENTUM = 0.9
FEW = 5  # members, evenly spread, to see what more of them are worth


def grid(**values):
    """All combinations, as dicts."""
    return [
        dict(zip(values, row, strict=True))
        for row in itertools.product(*values.values())
    ]


class Method(NamedTuple):
    """The settings to choose from; which prediction counts; how many networks."""

    settings: list
    is_ensemble: bool = True
    runs: int = 1
    kin: str | None = None  # the method whose runs serve for the choice


TEMPERATURES = (1.0, 0.3, 0.1, 0.03, 0.01)
PRIORS = (1.0, 2.0)
METHODS = {
    "SGD": Method(grid(rate=(0.01, 0.03, 0.1), decay=(0.0, 1e-3)), False),
    "SGD, mean": Method([], kin="SGD"),
    "Adam": Method(grid(rate=(3e-4, 1e-3, 3e-3, 1e-2), decay=(0.0, 0.1)), False),
    "4 Adam": Method([], runs=4, kin="Adam"),
    "SGHMC": Method(grid(rate=(0.03, 0.1), temperature=TEMPERATURES, prior=PRIORS)),
    "PSGLD": Method(
        grid(rate=(0.001, 0.005), temperature=TEMPERATURES[1:], prior=(1.0, 2.0))
    ),
    "CSGHMC": Method(
        grid(rate=(0.03, 0.1), temperature=(0.3, 0.1, 0.03), prior=(1.0,))
    ),
    "RSGLD": Method(grid(rate=(0.1, 0.2, 0.5))),
    "CMINT": Method(grid(rate=(0.2, 0.4))),
    "SGHMC-SA": Method(grid(rate=(0.03, 0.1), temperature=(1.0, 0.1), spike=(1e-2,))),
}
NOISE = (0.05, 0.1, 0.2)  # of a regression's targets, in their standard deviations


def settings_of(problem, method):
    """The settings to choose from. A regression has the size of the noise as well."""
    found = METHODS[METHODS[method].kin or method].settings
    if PROBLEMS[problem].kind == "images" or method == "SGHMC-SA":
        return found
    return [{**setting, "noise": noise} for setting in found for noise in NOISE]


def make_optimizer(problem, method, setting, n, steps, model, seed):
    """The optimizer of a method for `n` training examples and `steps` iterations."""
    sizes = PROBLEMS[problem]
    rate = setting["rate"]
    # The gradient of a regression's loss has the unit 1 / noise^2.
    scaled = rate * setting.get("noise", 1.0) ** 2
    if method in ("SGD", "SGD, mean"):
        return keras.optimizers.SGD(
            scaled, momentum=MOMENTUM, weight_decay=setting["decay"] or None
        )
    if method in ("Adam", "4 Adam"):
        return keras.optimizers.Adam(rate, weight_decay=setting["decay"] or None)
    sampled = {"train_size": n, "seed": seed}
    batched = {**sampled, "batch_size": sizes.batch_size}
    if method in ("SGHMC", "PSGLD", "CSGHMC"):
        if method == "CSGHMC":  # 1000 plain steps by default, too many for a short run
            sampled["pilot_steps"] = min(1000, steps // 4)
        return getattr(mh, method)(
            rate if method == "PSGLD" else scaled,
            temperature=setting["temperature"],
            prior=mh.priors.Gaussian(setting["prior"]),
            **sampled,
        )
    if method == "RSGLD":
        return mh.RSGLD(scaled, **batched)
    if method == "SGHMC-SA":
        is_regression = sizes.kind == "regression"
        return mh.SGHMCSA(
            # sigma is learned, and with it the unit of the gradient; 0.1 is typical.
            rate * (0.1**2 if is_regression else 1.0),
            prior=mh.priors.SpikeSlab(
                "kernel",
                v0=setting["spike"],
                v1=1.0,
                b=float(model.count_params()),
                sigma=0.5 if is_regression else 1.0,
            ),
            likelihood="gaussian" if is_regression else "categorical",
            temperature=setting["temperature"],
            **sampled,
        )
    # CMINT: ten rounds, in each of which the rate halves in ten falls.
    cycle = steps // 10
    schedule = mh.schedules.GeometricCycle(
        scaled, cycle, decay=0.5**0.1, decay_steps=cycle // 10, growth=2
    )
    beta = max(4 * n * (2 * scaled / model.count_params()) ** 0.5, 1.0)
    proposal = mh.proposals.ReversibleLangevin(beta)
    return mh.MINT(schedule, proposal=proposal, **batched)


def train(problem, method, setting, seed, data):
    """Train one network. Returns it, its ensemble or None, and the noise."""
    sizes, n = PROBLEMS[problem], len(data.x)
    keras.utils.set_random_seed(seed)  # the same first weights for all methods
    model = problems.make_model(problem, data.x.shape[1:])
    steps = math.ceil(n / sizes.batch_size) * sizes.epochs
    optimizer = make_optimizer(problem, method, setting, n, steps, model, seed)
    noise = setting.get("noise")
    loss = (
        problems.make_loss(problem, noise) if noise or sizes.kind == "images" else "mse"
    )
    model.compile(optimizer=optimizer, loss=loss)
    posterior = mh.PosteriorSamples(burn_in=steps // 2)
    with warnings.catch_warnings():
        # That SGD's iterates are no samples; that a bad setting does not work.
        warnings.simplefilter("ignore")
        model.fit(
            data.x,
            data.y,
            batch_size=sizes.batch_size,
            epochs=sizes.epochs,
            callbacks=[posterior],
            verbose=0,
        )
        ensemble = posterior.ensemble(model) if len(posterior) > 0 else None
    if method == "SGHMC-SA" and sizes.kind == "regression":
        noise = float(optimizer.diagnostics()["sigma"])
    return model, ensemble, noise


def run(problem, method, setting, seed, data, robust):
    """Train and score. Returns the row."""
    begin = time.perf_counter()
    runs = METHODS[method].runs
    trained = [
        train(problem, method, setting, seed + 100 * i, data) for i in range(runs)
    ]
    seconds = time.perf_counter() - begin
    model, ensemble, noise = trained[0]
    if runs > 1:
        ensemble = together(problem, [found[0] for found in trained])
    row = {"problem": problem, "method": method, "setting": setting, "seed": seed}
    row["backend"] = keras.backend.backend()
    row["seconds"] = round(seconds, 1)
    row["steps"] = runs * int(model.optimizer.iterations.numpy())
    for name, predictor in (("last", model), ("ensemble", ensemble)):
        if predictor is None:
            continue
        outputs = problems.members(problem, predictor, data.x_test)
        weights = np.ones(1)
        if name == "ensemble":
            weights = np.asarray(ensemble.averaging_weights)
        row[name] = problems.quality(problem, outputs, weights, data, noise)
        if name == "ensemble" and len(outputs) > FEW:
            few = np.linspace(0, len(outputs) - 1, FEW).round().astype(int)
            share = weights[few] / weights[few].sum()
            scores = problems.quality(problem, outputs[few], share, data, noise)
            row["few"] = {"members": len(share), **scores}
    if robust and PROBLEMS[problem].kind == "images":
        counted = ensemble if METHODS[method].is_ensemble else model
        row["robust"] = problems.robustness(problem, counted, data)
    return row


def together(problem, models):
    """The ensemble of several networks."""
    stacked = [
        np.stack(values)
        for values in zip(*(m.get_weights() for m in models), strict=True)
    ]
    activation = "softmax" if PROBLEMS[problem].kind == "images" else None
    ensemble = mh.Ensemble(models[0], len(models), activation)
    ensemble.set_members(stacked, np.ones(len(models)))
    return ensemble


def counted_nll(method, row):
    """The score that chooses. A run that diverged has none."""
    scores = row.get("ensemble" if METHODS[method].is_ensemble else "last")
    nll = math.inf if scores is None else scores["nll"]
    return nll if math.isfinite(nll) else math.inf


class Rows:
    """The rows of the file, and how to get one that is missing."""

    def __init__(self, path):
        self._path = Path(path)
        text = self._path.read_text() if self._path.exists() else ""
        self._rows = {}
        for line in text.splitlines():
            row = json.loads(line)
            self._rows[self._key(row)] = row

    @staticmethod
    def _key(row):
        names = ("problem", "method", "setting", "seed")
        return json.dumps([row[name] for name in names], sort_keys=True)

    def find(self, problem, method, setting, seed):
        """The row, or None."""
        row = {"problem": problem, "method": method, "setting": setting, "seed": seed}
        return self._rows.get(self._key(row))

    def add(self, row):
        """Write a row."""
        self._rows[self._key(row)] = row
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def choose(rows, problem, method):
    """The setting with the lowest NLL on the held-out data, or None if one lacks."""
    kin = METHODS[method].kin or method
    if METHODS[method].runs > 1:
        method = kin  # an ensemble of several takes the settings of one
    best = None
    for setting in settings_of(problem, kin):
        row = rows.find(problem, kin, setting, SEED)
        if row is None:
            return None
        if best is None or counted_nll(method, row) < counted_nll(method, best):
            best = row
    return best["setting"]


def work(args, rows):
    """Run all that is missing, and tell how long the rest will take."""
    for problem in args.problems:
        data = problems.load(problem, args.data_dir, SEED, held_out=True)
        tasks = [
            (method, setting)
            for method in args.methods
            if METHODS[method].kin is None
            for setting in settings_of(problem, method)
            if rows.find(problem, method, setting, SEED) is None
        ]
        begin = time.perf_counter()
        for done, (method, setting) in enumerate(tasks):
            row = run(problem, method, setting, SEED, data, robust=False)
            rows.add(row)
            tell("choose", row, method, begin, done + 1, len(tasks))
        tasks = [(m, seed) for seed in range(args.seeds) for m in args.methods]
        begin, made = time.perf_counter(), 0
        for done, (method, seed) in enumerate(tasks):
            setting = choose(rows, problem, method)
            if setting is None or rows.find(problem, method, setting, seed) is not None:
                continue
            data = problems.load(problem, args.data_dir, seed, held_out=False)
            row = run(problem, method, setting, seed, data, robust=True)
            rows.add(row)
            made += 1
            tell("test", row, method, begin, made, made + len(tasks) - done - 1)


def tell(phase, row, method, begin, done, total):
    """A line about a row, with the time left."""
    spent = time.perf_counter() - begin
    left = spent / done * (total - done)
    print(
        f"{row['problem']}, {phase} {done} of {total}: {method} {row['setting']}, "
        f"NLL {counted_nll(method, row):.4f}; about {left:.0f} s left",
        flush=True,
    )


def finished(rows, problem, seeds):
    """The setting and the test rows of each method that has all of them."""
    found = {}
    for method in METHODS:
        setting = choose(rows, problem, method)
        runs = [rows.find(problem, method, setting, seed) for seed in range(seeds)]
        if setting is not None and all(run is not None for run in runs):
            found[method] = setting, runs
    return found


def table(rows, problem, seeds):
    """Lines of a table: means over the seeds, and differences to SGD in the NLL."""
    is_images = PROBLEMS[problem].kind == "images"
    names = ["accuracy", "nll", "ece"] if is_images else ["rmse", "nll", "coverage"]
    found = finished(rows, problem, seeds)
    if not found:
        return []
    kind = {m: "ensemble" if METHODS[m].is_ensemble else "last" for m in found}
    extra = list(next(iter(found.values()))[1][0].get("robust", {}))
    titles = [HEADS.get(name, name) for name in names]
    heads = ["method", "settings", *titles, "NLL less SGD's", "NLL of the last state"]
    heads += ["NLL of 5 members", *(name.upper() for name in extra), "gradients"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    base = [run["last"]["nll"] for run in found["SGD"][1]] if "SGD" in found else None
    for method, (setting, runs) in found.items():
        scores = [run[kind[method]] for run in runs]
        cells = [method, shown(setting)]
        cells += [f"{np.mean([s[name] for s in scores]):.3f}" for name in names]
        cells.append("—")
        if base is not None and method != "SGD":
            cells[-1] = paired(np.array([s["nll"] for s in scores]) - base)
        cells.append(f"{np.mean([run['last']['nll'] for run in runs]):.3f}")
        few = [run["few"]["nll"] for run in runs if "few" in run]
        is_shown = METHODS[method].is_ensemble and len(few) == len(runs)
        cells.append(f"{np.mean(few):.3f}" if is_shown else "—")
        cells += [
            f"{np.mean([run['robust'][name] for run in runs]):.3f}" for name in extra
        ]
        cells.append(f"{runs[0]['steps']:,}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(rows, problems, seeds):
    """Lines of a table: by how much each NLL exceeds that of SGD, on each problem."""
    found = {problem: finished(rows, problem, seeds) for problem in problems}
    done = [problem for problem in problems if len(found[problem]) == len(METHODS)]
    if not done:
        return []
    scores = {
        (problem, method): np.array([counted_nll(method, run) for run in runs])
        for problem in done
        for method, (_, runs) in found[problem].items()
    }
    lines = ["| method | " + " | ".join(done) + " |", "|---" * (len(done) + 1) + "|"]
    means = [f"{scores[problem, 'SGD'].mean():.3f}" for problem in done]
    lines.append(f"| NLL of SGD | {' | '.join(means)} |")
    for method in METHODS:
        if method != "SGD":
            less = [paired(scores[p, method] - scores[p, "SGD"]) for p in done]
            lines.append(f"| {method} | {' | '.join(less)} |")
    return lines


def paired(less):
    """The mean of differences, with its standard error."""
    error = less.std(ddof=1) / math.sqrt(len(less)) if len(less) > 1 else 0.0
    return f"{less.mean():+.3f} ± {error:.3f}".replace("-", "−")


HEADS = {"nll": "NLL", "ece": "ECE", "rmse": "RMSE", "coverage": "in 90%"}


def shown(setting):
    """A setting as text, such as "rate 0.1, T 0.03, prior 1"."""
    found = {{"temperature": "T"}.get(k, k): v for k, v in setting.items() if v}
    return ", ".join(f"{name} {value:g}" for name, value in found.items())


def main(argv=None):
    """Run what is missing, and print the tables."""
    args = parse(argv)
    rows = Rows(args.out)
    if not args.table:
        work(args, rows)
    for problem in args.problems:
        lines = table(rows, problem, args.seeds)
        if lines:
            print(
                f"\n{problem}, {args.seeds} seeds, Keras on {keras.backend.backend()}"
            )
            print("\n".join(lines))
    lines = summary(rows, args.problems, args.seeds)
    print("\n".join(["\nNLL less that of SGD in the same seeds", *lines]))
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=ADVISED)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--data-dir", help="folder with the .npz files")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", default="out/advice.jsonl", help="file of the rows")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
