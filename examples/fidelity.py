"""Which samplers draw from the posterior? Each beside stored references of NUTS.

A reference of `examples/references.py` has the mean and the standard deviation of a
small model's predictions, from NUTS in float64. Each sampler runs on the same model and
data, in three independent groups of chains. `mh.diagnostics.agreement` compares the
predictions of each group with the reference. The table also has what closed forms
predict for the spread (`fidelity_theory.py`).

    python examples/fidelity.py --data-dir folder
    KERAS_BACKEND=torch python examples/fidelity.py --problems logistic \\
        --samplers SGLD "MHBT, all data"
    python examples/fidelity.py --table --figure fidelity.png
    python examples/fidelity.py --table --page docs/fidelity.md

No rate is chosen by the distance to the reference: see `fidelity_samplers.rate_of`. The
rows go to `--out` as they come, and the same command goes on where it was stopped.
"""

import argparse
import json
import math
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import fidelity_report as report
import fidelity_samplers as samplers
import keras
import numpy as np
from fidelity_setup import SIZES
from fidelity_setup import Setup
from fidelity_setup import size_of

import keras_mhmcmc as mh

OUT = Path(__file__).parent / "results" / "fidelity.jsonl"


def scored(run, reference, task):
    """Scores of a run, and how large its Monte Carlo errors are."""
    weights = run.weights / run.weights.sum()
    flat = run.predictions.reshape(-1, *reference.mean.shape)
    chosen = resampled(run.weights) if np.ptp(run.weights) else slice(None)
    agreement = mh.diagnostics.agreement(
        predictions=flat[chosen], task=task, **reference.arguments()
    )
    shape = weights.shape + (1,) * reference.mean.ndim
    mean = np.sum(weights.reshape(shape) * run.predictions, axis=(0, 1))
    axes = tuple(range(2, run.predictions.ndim))
    squares = np.square(run.predictions - mean).mean(axis=axes)
    variance = np.sum(weights * squares)
    ratio = math.sqrt(variance / np.mean(np.square(reference.sd)))
    # Chains are independent: the error of the weighted mean of squares, over chains.
    each = np.sum(weights * (squares - variance), axis=1)
    error = math.sqrt(np.sum(each**2) * len(each) / max(len(each) - 1, 1)) / variance
    others = np.square(reference.members - reference.mean)
    others = others.mean(axis=tuple(range(1, others.ndim)))
    of_reference = others.std() / others.mean() / math.sqrt(reference.ess.mean())
    found = {key: value for key, value in agreement._asdict().items()}
    found |= {
        "sd_ratio": ratio,
        "sd_ratio_error": 0.5 * ratio * error,
        "reference_error": 0.5 * of_reference,
    }
    return found | of_chains(run, reference)


def resampled(weights):
    """Numbers of draws with equal weights, systematic."""
    steps = (np.arange(weights.size) + 0.5) / weights.size
    total = np.cumsum(weights.ravel())
    return np.minimum(np.searchsorted(total / total[-1], steps), weights.size - 1)


def of_chains(run, reference, columns=30):
    """R-hat and effective sample sizes, and the error of exact draws of this size."""
    import arviz

    k, d = run.weights.shape
    values = run.predictions.reshape(k, d, -1)
    sizes, sd = reference.ess.ravel(), reference.sd.ravel()
    chosen = np.unique(np.linspace(0, len(sizes) - 1, columns).astype(int))
    chosen = chosen[values.std(axis=(0, 1))[chosen] > 0.0]
    if d < 4:
        ess, r_hat = np.full(len(chosen), float(k * d)), None
    else:
        kept = [values[:, :, i] for i in chosen]
        r_hat = max(float(arviz.rhat(one)) for one in kept)
        ess = np.array([float(arviz.ess(one, method="mean")) for one in kept])
        ess *= run.weights.sum() ** 2 / np.sum(run.weights**2) / run.weights.size
    own, others = (np.mean(sd[chosen] ** 2 / size) for size in (ess, sizes[chosen]))
    return {
        "mean_error_if_exact": math.sqrt(1.0 + own / others),
        "r_hat": r_hat,
        "ess": float(np.median(ess)),
    }


def work(args, rows):
    """Run all that is missing."""
    backend = keras.backend.backend()
    tasks = [
        (problem, name)
        for problem in args.problems
        for name in args.samplers
        if problem in samplers.ONLY.get(name, SIZES)
        if not any(row["backend"] == backend for row in rows.of(problem, name))
    ]
    begin, ready = time.perf_counter(), None
    for done, (problem, name) in enumerate(tasks):
        start = time.perf_counter()
        if ready != problem:
            ready = problem
            size = size_of(problem, args.quick)
            setup = Setup(problem, size, data_dir=args.data_dir)
        rate = samplers.rate_of(name, setup)
        known = [row["predicted"] for row in rows.of(problem, name)]
        predicted = known[0] if known else samplers.predicted(name, setup)
        found = []
        for group, run in enumerate(samplers.SAMPLERS[name](name, setup)):
            row = {"problem": problem, "sampler": name, "group": group}
            row |= {"backend": backend, "rate": rate, "temperature": run.temperature}
            row |= {"batch_size": setup.size.batch_size, "passes": run.passes}
            row |= {"chains": len(run.weights), "acceptance": run.acceptance}
            row |= {"predicted": predicted}
            found.append(row | scored(run, setup.reference, setup.problem.task))
        seconds = round(time.perf_counter() - start, 1)
        rows.add([{k: rounded(v) for k, v in row.items()} for row in found])
        left = (time.perf_counter() - begin) / (done + 1) * (len(tasks) - done - 1)
        ratios = ", ".join(f"{row['sd_ratio']:.3f}" for row in found)
        print(
            f"{problem}, {done + 1} of {len(tasks)}: {name}, spread {ratios}, "
            f"{seconds} s; about {left / 60:.0f} min left",
            flush=True,
        )


def rounded(value):
    """Five digits, and None for NaN, which is no JSON."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.5g}") if math.isfinite(value) else None


class Rows:
    """The rows of the file."""

    def __init__(self, path):
        self._path = Path(path)
        text = self._path.read_text() if self._path.exists() else ""
        self.rows = [json.loads(line) for line in text.splitlines()]

    def of(self, problem, sampler):
        """The rows of a sampler."""
        key = (problem, sampler)
        return [r for r in self.rows if (r["problem"], r["sampler"]) == key]

    def add(self, rows):
        """Write the rows of a sampler, all groups at once."""
        self.rows += rows
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))


def main(argv=None):
    """Run what is missing, print the tables, fill the page, and draw the picture."""
    args = parse(argv)
    rows = Rows(args.out)
    if not args.table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            work(args, rows)
    tables = report.tables(rows.rows)
    for name, lines in tables.items():
        print("\n".join(["", name, *lines]))
    if args.page:
        page = Path(args.page)
        page.write_text(report.filled(page.read_text("utf-8"), tables), "utf-8")
    if args.figure:
        report.draw(rows.rows, args.figure)
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(samplers.SAMPLERS)
    parser.add_argument("--problems", nargs="+", choices=list(SIZES))
    parser.add_argument("--samplers", nargs="+", choices=names, default=names)
    parser.add_argument("--data-dir", help="folder with UCI files, for yacht")
    parser.add_argument("--out", default=OUT, help="file of the rows")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    parser.add_argument("--page", help="page whose tables to fill")
    parser.add_argument("--figure", help="file of the picture")
    parser.add_argument(
        "--quick", action="store_true", help="short runs: it only works"
    )
    args = parser.parse_args(argv)
    if args.problems is None:
        args.problems = [name for name in SIZES if name != "yacht" or args.data_dir]
        if "yacht" not in args.problems and not args.table:
            print("Without --data-dir, yacht is left out.")
    if args.quick:
        args.problems = args.problems if len(args.problems) == 1 else ["logistic"]
        args.out = "out/fidelity_quick.jsonl" if args.out == OUT else args.out
    return args


if __name__ == "__main__":
    main()
