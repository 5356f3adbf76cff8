"""Tables of `advice.py`: the scores of each problem, and a summary of the NLL."""

import math

import numpy as np
from advice_choice import METHODS
from advice_choice import choose
from advice_choice import counted_nll
from advice_problems import PROBLEMS

HEADS = {"nll": "NLL", "ece": "ECE", "rmse": "RMSE", "coverage": "in 90%"}


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
    heads = ["method", "settings", *titles, "NLL minus SGD's", "NLL of the last state"]
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


def shown(setting):
    """A setting as text, such as "rate 0.1, T 0.03, prior 1"."""
    found = {{"temperature": "T"}.get(k, k): v for k, v in setting.items() if v}
    return ", ".join(f"{name} {value:g}" for name, value in found.items())
