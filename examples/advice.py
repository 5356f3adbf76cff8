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
import math
import os
import time
import warnings

os.environ.setdefault("KERAS_BACKEND", "jax")

import advice_problems as problems
import keras
import numpy as np
from advice_choice import METHODS
from advice_choice import SEED
from advice_choice import Rows
from advice_choice import choose
from advice_choice import counted_nll
from advice_choice import settings_of
from advice_problems import ADVISED
from advice_problems import PROBLEMS
from advice_report import summary
from advice_report import table

import keras_mhmcmc as mh

MOMENTUM = 0.9
FEW = 5  # members, evenly spread, to see what more of them are worth


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
    print("\n".join(["\nNLL minus that of SGD in the same seeds", *lines]))
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
