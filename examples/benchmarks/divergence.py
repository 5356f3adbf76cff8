"""Does a chain that ran away predict, and is a sound chain left out? A sweep of runs.

    python examples/benchmarks/divergence.py --out examples/results/divergence.jsonl

Nine samplers, six learning rates from 1e-4 to 10, and four problems: scikit-learn's
diabetes data, standardised, with a known and with a predicted noise; two moons; and a
regression with targets in their own units, y = 5000 + 2000 x + noise. Each run has 40
epochs, and keeps samples of the last 20. A row has what the package said, the scores of
the ensemble and of the best constant prediction on test data, and the energies of the
states that were kept, whether the ensemble has them or not. The rows go to `--out` as
they come, and a second call goes on where the first one stopped. `--table` only prints
what the rows say.
"""

import argparse
import itertools
import json
import math
import os
import warnings
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.datasets import make_moons

import keras_mhmcmc as mh

RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
BATCH, EPOCHS = 32, 40
BATCHED = {"batch_size": BATCH}
SAMPLERS = {
    "SGLD": (mh.SGLD, {}),
    "PSGLD": (mh.PSGLD, {}),
    "SGHMC": (mh.SGHMC, {}),
    "SGNHT": (mh.SGNHT, {}),
    "CSGLD": (mh.CSGLD, {}),
    "CSGHMC": (mh.CSGHMC, {}),
    "RSGLD": (mh.RSGLD, BATCHED),
    "MHBT": (mh.MHBT, BATCHED),
    "MINT": (mh.MINT, BATCHED),
}
# What the package says of chains that are none of the posterior: parts of sentences.
SENTENCES = (
    "accepted none",
    "has not come down",
    "far above",
    "has not settled",
    "before the chain settled",
    "float32 spacing",
)


def diabetes(outputs):
    """The standardised data, split at random."""
    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order, None]
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    loss = mh.losses.GaussianNLL(0.7 if outputs == 1 else None)
    return x, y, outputs, loss


def moons():
    """Two classes that overlap a little."""
    x, y = make_moons(442, noise=0.25, random_state=0)
    return x, y, 2, keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def raw():
    """Targets in units of their own, whose noise has the standard deviation 100."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(442, 2))
    y = 5000.0 + 2000.0 * x[:, :1] + 100.0 * rng.normal(size=(442, 1))
    return x, y, 1, mh.losses.GaussianNLL(100.0)


PROBLEMS = {
    "known noise": lambda: diabetes(1),
    "predicted noise": lambda: diabetes(2),
    "moons": moons,
    "raw targets": raw,
}


def log_likelihoods(problem, outputs, y):
    """The log likelihood of each target, for outputs (members, examples, outputs)."""
    outputs, y = np.asarray(outputs, "float64"), np.asarray(y)
    if problem == "moons":
        top = outputs.max(-1, keepdims=True)
        logs = outputs - top - np.log(np.exp(outputs - top).sum(-1, keepdims=True))
        return np.take_along_axis(logs, y[None, :, None].astype(int), -1)[..., 0]
    mean, noise = outputs[..., 0], {"known noise": 0.7, "raw targets": 100.0}
    is_predicted = problem == "predicted noise"
    log_std = outputs[..., 1] if is_predicted else np.log(noise[problem])
    errors = (y[:, 0] - mean) / np.exp(log_std)
    return -0.5 * errors**2 - log_std - 0.5 * np.log(2.0 * np.pi)


def outputs_of(weights, x):
    """The outputs (members, examples, outputs) of the network, in float64."""
    *hidden, last = zip(weights[::2], weights[1::2], strict=True)
    values = x.astype("float64")
    for kernel, bias in hidden:
        values = np.maximum(values @ kernel + bias[:, None], 0.0)
    return values @ last[0] + last[1][:, None]


def constant_outputs(problem, y):
    """The outputs of the best constant prediction."""
    if problem == "moons":
        return np.log(np.bincount(y) / len(y))
    if problem == "predicted noise":
        return np.array([y.mean(), np.log(y.std())])
    return np.array([y.mean()])


def run(sampler, rate, problem, seed):
    """Train once, and return a row."""
    x, y, outputs, loss = PROBLEMS[problem]()
    (x, x_test), (y, y_test) = np.split(x, [352]), np.split(y, [352])
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            layers.Dense(50, "relu"),
            layers.Dense(50, "relu"),
            layers.Dense(outputs),
        ]
    )
    kind, arguments = SAMPLERS[sampler]
    prior = mh.priors.Gaussian(1.0)
    arguments = {"train_size": len(x), "prior": prior, "seed": seed} | arguments
    model.compile(kind(rate, **arguments), loss)
    posterior = mh.PosteriorSamples(burn_in=EPOCHS // 2 * (len(x) // BATCH))
    states = []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: states.append(model.get_weights())
    )
    row = {"problem": problem, "sampler": sampler, "rate": rate, "seed": seed}
    row["refusal"] = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            model.fit(x, y, BATCH, EPOCHS, 0, callbacks=[posterior, keep])
            ensemble = posterior.ensemble(model)
        except ValueError as error:
            row["refusal"], ensemble = str(error)[:80], None
    said = [str(w.message) for w in told]
    row["warnings"] = [text[:40] for text in said]
    row["told"] = [part for part in SENTENCES if any(part in text for text in said)]
    constant = constant_outputs(problem, y)[None, None]
    logs = log_likelihoods(problem, constant, y_test)
    row["constant"] = -round(float(logs.mean()), 4)
    with np.errstate(all="ignore"):
        if ensemble is not None:
            row["members"] = ensemble.num_members
            weights = [w for w in ensemble.get_weights() if w.ndim > 1]
            logs = log_likelihoods(problem, outputs_of(weights, x_test), y_test)
            logs += np.log(ensemble.averaging_weights)[:, None]
            row["nll"] = -round(float(np.logaddexp.reduce(logs).mean()), 4)
        energies = []
        for state in states[EPOCHS // 2 :]:
            weights = [w[None].astype("float64") for w in state]
            likelihood = log_likelihoods(problem, outputs_of(weights, x), y).sum()
            prior = 0.5 * sum(np.sum(np.square(w)) for w in weights)
            energies.append(float(prior - likelihood))
        energies = energies or [math.nan]
        row["energy"] = [float(f"{f(energies):.6g}") for f in (np.mean, np.std)]
    return row


def table(rows):
    """Print what the rows say, and return the counts.

    A chain is sound if its mean energy is less than the best one's and twice its
    spread. The best one is a diffusion: Metropolis-Hastings on mini-batches has another
    temperature, and RSGLD hardly any spread. A sound chain is lost if a sample of it is
    left out.
    """
    best = {}
    for problem in PROBLEMS:
        rest = [row for row in rows if row["problem"] == problem]
        found = [row["energy"] for row in rest if not SAMPLERS[row["sampler"]][1]]
        best[problem] = min((u for u in found if np.isfinite(u).all()), default=[0, 0])
    names = ("runs", "refused", "predict", "worse", "silent", "sound", "sound lost")
    counts, silent = dict.fromkeys(names, 0), []
    for row in rows:
        mean, spread = best[row["problem"]]
        is_sound = row["energy"][0] - mean <= 2.0 * spread
        is_worse = not row["refusal"] and not row["nll"] <= row["constant"]
        counts["runs"] += 1
        counts["refused" if row["refusal"] else "predict"] += 1
        counts["worse"] += is_worse
        counts["silent"] += is_worse and not row["told"]
        counts["sound"] += is_sound
        counts["sound lost"] += is_sound and row.get("members", 0) < EPOCHS // 2
        if is_worse and not row["told"]:
            silent.append(row)
    for name, count in counts.items():
        print(f"{name:12} {count}")
    for row in silent:
        shown = {k: row[k] for k in ("problem", "sampler", "rate", "nll", "constant")}
        print(json.dumps(shown))
    return counts


def main(argv=None):
    """Run what the file of results lacks, and print what all rows say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS))
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--table", action="store_true", help="print the rows' table")
    out = "out/divergence.jsonl"
    parser.add_argument("--out", default=out, help="file of the rows")
    args = parser.parse_args(argv)
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    names = ("problem", "sampler", "rate", "seed")
    done = {tuple(row[name] for name in names) for row in rows}
    chosen = itertools.product(args.problems, args.samplers, args.rates)
    for problem, sampler, rate in [] if args.table else chosen:
        if (problem, sampler, rate, args.seed) not in done:
            rows.append(run(sampler, rate, problem, args.seed))
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    return table(rows)


if __name__ == "__main__":
    main()
