"""Which 3 of 1000 predictors matter? Table 1 and figure 2 of the SG-MCMC-SA paper.

There are 100 examples and 1000 correlated predictors. Only the first three predictors
have an effect. With a spike-and-slab prior, SGLD-SA samples the weights, and learns at
the same time which of them are small. The example compares it with EMVS, the EM
algorithm with the same prior, and with SGLD with the prior N(0, 1). `--logistic` is the
paper's appendix C (table 3, figure 4): 500 labels instead of numbers, and ESM (Adam)
instead of EMVS.

    python examples/sparse_regression.py --quick
    python examples/sparse_regression.py --pairs 1e-3,0.5
    python examples/sparse_regression.py               # four pairs of v0 and sigma
    python examples/sparse_regression.py --logistic

The example saves a figure of the first pair. docs/reproduction.md has the results, and
docs/examples.md lists what the paper leaves open.

Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
gradient MCMC with a stochastic approximation adaptation".
"""

import argparse
import math
import os
import time
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import sparse_regression_report as report
from scipy import special

import keras_mhmcmc as mh

PREDICTORS = 1000
TRUE = 3  # the predictors with an effect, which come first
TEST = 1000
BATCH = 50
EPOCH = 200  # steps; a fit of few long epochs spends little time between them
# Larger ones compile for longer and are no faster; torch does not compile.
STEPS_PER_EXECUTION = 1 if keras.backend.backend() == "torch" else 10
KEPT = 2000  # samples that are averaged, at most
ESM_START = 0.3  # standard deviation of its first weights
WITHOUT_PAIR = ("SGLD", "ridge")  # which have neither v0 nor a sigma to learn
V1, A, B, NU, LAM, DELTA = 100.0, 1.0, float(PREDICTORS), 1.0, 1.0, 0.5


class Problem(NamedTuple):
    """A simulation of the paper."""

    name: str
    examples: int
    correlation: float  # of neighbouring predictors
    noise: float  # its variance
    rate: float  # times k^(-1/3)
    steps: int
    methods: tuple
    paper: dict  # (MAE, MSE) by method, by pair of v0 and the first sigma


LINEAR = Problem(
    name="linear",
    examples=100,
    correlation=0.6,
    noise=3.0,
    rate=0.01,
    steps=200_000,
    methods=("SGLD-SA", "EMVS", "SGLD", "ridge"),
    paper={
        (1e-3, 0.4): {"SGLD-SA": (1.32, 2.85), "EMVS": (1.43, 3.19)},
        (1e-3, 0.5): {"SGLD-SA": (1.34, 2.90), "EMVS": (3.04, 13.6)},
        (1e-2, 0.4): {"SGLD-SA": (1.34, 2.92), "EMVS": (3.40, 18.8)},
        (1e-2, 0.5): {"SGLD-SA": (1.37, 2.93), "EMVS": (1.33, 2.95)},
        None: {"SGLD": (4.98, 42.6)},
    },
)
LOGISTIC = Problem(
    name="logistic",
    examples=500,
    correlation=0.3,
    noise=0.5,
    rate=1.0,
    steps=60_000,
    methods=("SGLD-SA", "ESM", "SGLD"),
    paper={
        (1e-2, 0.6): {"SGLD-SA": (0.182, 0.0949), "ESM": (0.240, 0.0982)},
        (1e-1, 0.6): {"SGLD-SA": (0.195, 0.1039), "ESM": (0.454, 0.2080)},
        (1e-2, 2.0): {"SGLD-SA": (0.146, 0.1049), "ESM": (0.182, 0.0882)},
        (1e-3, 2.0): {"SGLD-SA": (0.165, 0.0890), "ESM": (0.172, 0.1102)},
        # Its four cells differ, though it has neither v0 nor sigma: their means.
        None: {"SGLD": (0.320, 0.2861)},
    },
)


class Data(NamedTuple):
    """Training and test set, and the weights that made them."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    beta: np.ndarray


def simulate(problem, seed):
    """The paper's data; labels of the logistic problem are 0 and 1."""
    rng = np.random.default_rng(seed)
    count = problem.examples + TEST
    x = rng.normal(size=(count, PREDICTORS))
    fresh = math.sqrt(1.0 - problem.correlation**2)
    for j in range(1, PREDICTORS):
        x[:, j] = problem.correlation * x[:, j - 1] + fresh * x[:, j]
    beta = np.zeros(PREDICTORS)
    beta[:TRUE] = rng.normal([3.0, 2.0, 1.0], 0.2)
    y = x @ beta + rng.normal(0.0, math.sqrt(problem.noise), count)
    if problem.name == "logistic":
        y = (rng.uniform(size=count) < special.expit(y)).astype("float64")
    train, test = slice(problem.examples), slice(problem.examples, None)
    return Data(x[train], y[train], x[test], y[test], beta)


def ridge(x, y, variances):
    """The mode of weights with prior variances `variances` times the noise's.

    (X'X + D^-1)^-1 X'y = D X' (X D X' + I)^-1 y, a system of the size of the examples.
    """
    gram = (x * variances) @ x.T
    gram[np.diag_indices_from(gram)] += 1.0
    return variances * (x.T @ np.linalg.solve(gram, y))


def emvs(data, v0, sigma, iterations=1000):
    """EM with the spike-and-slab prior, eq. (13) to (16), from rho = delta.

    Returns the weights and rho, their probability to belong to the slab.
    """
    n, p = data.x.shape
    delta, rho = DELTA, np.full(p, DELTA)
    kappa = (1.0 - rho) / v0 + rho / V1
    for _ in range(iterations):
        old = rho
        beta = ridge(data.x, data.y, 1.0 / kappa)
        # Eq. (13) in logarithms: a / (a + b) itself is 0/0 for large weights.
        log_odds = special.logit(max(delta, 1e-300)) + 0.5 * (
            math.log(v0 / V1) + np.square(beta / sigma) * (1.0 / v0 - 1.0 / V1)
        )
        rho = special.expit(log_odds)
        kappa = (1.0 - rho) / v0 + rho / V1
        rss = np.sum(np.square(data.y - data.x @ beta))
        total = rss + np.sum(kappa * np.square(beta)) + NU * LAM
        sigma = math.sqrt(total / (n + p + NU))
        delta = (rho.sum() + A - 1.0) / (A + B + p - 2.0)
        if np.abs(rho - old).max() < 1e-10:
            break
    return beta, rho


def make_optimizer(method, problem, pair, rate, seed):
    """The method's optimizer; `pair` is v0 and the first sigma, None for SGLD."""
    schedule = mh.schedules.PowerDecay(rate, 1.0, 1 / 3)
    if method == "SGLD":
        prior = mh.priors.Gaussian(1.0)
        return mh.SGLD(schedule, train_size=problem.examples, prior=prior, seed=seed)
    v0, sigma = pair
    options = {
        "train_size": problem.examples,
        "prior": mh.priors.SpikeSlab(
            "kernel", v0=v0, v1=V1, a=A, b=B, nu=NU, lam=LAM, sigma=sigma, delta=DELTA
        ),
        "likelihood": "gaussian" if problem.name == "linear" else "categorical",
        "seed": seed,
    }
    if method == "ESM":
        return mh.ESM(0.001, **options)
    return mh.SGLDSA(schedule, **options)


def make_loss(method, problem):
    """SGLD needs the noise, and is given the true one; SGLD-SA learns it."""
    if problem.name == "logistic":
        return keras.losses.BinaryCrossentropy(from_logits=True)
    return "mse" if method == "SGLD-SA" else mh.losses.GaussianNLL(problem.noise**0.5)


def fit(method, problem, data, pair, args, seed):
    """Trains by `fit`. Returns outputs, their weights, and rho where it is learned."""
    keras.utils.set_random_seed(seed)  # of the batches
    # At zero ESM would stay: its sigma falls at once, and with it the spike's width.
    start = keras.initializers.RandomNormal(0.0, ESM_START if method == "ESM" else 0.0)
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer=start)
    model = keras.Sequential([keras.Input((PREDICTORS,)), dense])
    optimizer = make_optimizer(method, problem, pair, args.rate, seed)
    model.compile(
        optimizer=optimizer,
        loss=make_loss(method, problem),
        steps_per_execution=STEPS_PER_EXECUTION,
    )
    # Many copies of the data in random order make a long epoch, whose batches are
    # nearly the paper's random draws.
    copies = EPOCH * BATCH // problem.examples
    x = np.tile(data.x.astype("float32"), (copies, 1))
    y = np.tile(data.y.astype("float32"), copies)
    burn_in = args.steps // 2 if method != "ESM" else args.steps - 10
    every = max(10, (args.steps - burn_in) // KEPT // 10 * 10)
    posterior = mh.PosteriorSamples(burn_in, every)
    model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=args.steps // EPOCH,
        callbacks=[posterior, report.Progress(method, args.steps, EPOCH)],
        verbose=0,
    )
    outputs = posterior.predictions(model, inputs_of(data), "linear", batch_size=256)
    outputs = outputs[0, ..., 0].astype("float64")
    # Section 3.4: a sample counts as much as the rate of the step that made it.
    weights = args.rate * posterior.iterations ** (-1 / 3)
    rho = None
    if method != "SGLD":
        (rho,) = optimizer.inclusion_probabilities().values()
        rho = rho[:, 0]
    return outputs, weights / weights.sum(), rho


def inputs_of(data):
    """Both sets, and unit vectors, at which the output is one of the first weights."""
    return np.concatenate([data.x, data.x_test, np.eye(TRUE, PREDICTORS)])


def evaluate(problem, data, outputs, weights):
    """Mean predictions, their error on the test set, and what is known of the weights.

    `outputs` are those of each sample, (samples, inputs).
    """
    beta = outputs[:, -TRUE:]
    mean = weights @ beta
    predictions = outputs[:, :-TRUE]
    plug_in = weights @ predictions
    if problem.name == "logistic":
        predictions, plug_in = special.expit(predictions), special.expit(plug_in)
    predictions = weights @ predictions
    n = problem.examples
    return {
        "train": predictions[:n],
        "test": predictions[n:],
        "mae": np.abs(predictions[n:] - data.y_test).mean(),
        "mse": np.square(predictions[n:] - data.y_test).mean(),
        # Of the mean weights: another thing where the model is not linear, and close to
        # what the paper reports.
        "plug_in_mae": np.abs(plug_in[n:] - data.y_test).mean(),
        "plug_in_mse": np.square(plug_in[n:] - data.y_test).mean(),
        "beta": beta,
        "weights": weights,
        "beta_mean": mean,
        "beta_sd": np.sqrt(weights @ np.square(beta - mean)),
    }


def run(method, problem, data, pair, args, seed):
    """A row: one method, one pair, one data set."""
    begin = time.perf_counter()
    if method in ("EMVS", "ridge"):
        if method == "EMVS":
            point, rho = emvs(data, *pair)
        else:
            variances = np.full(PREDICTORS, 1.0 / problem.noise)
            point, rho = ridge(data.x, data.y, variances), None
        outputs, weights = (inputs_of(data) @ point)[None], np.ones(1)
    else:
        outputs, weights, rho = fit(method, problem, data, pair, args, seed)
    return {
        "method": method,
        "pair": pair,
        "seed": seed,
        "rho": rho,
        "seconds": time.perf_counter() - begin,
        **evaluate(problem, data, outputs, weights),
    }


def main(argv=None):
    """Runs the comparison. Returns a dict for each method, pair and data set."""
    args = parse(argv)
    problem = args.problem
    print(
        f"{problem.examples} examples, {PREDICTORS} predictors, {TEST} test examples; "
        f"{args.steps:,} steps, the paper's 500,000. Keras on "
        f"{keras.backend.backend()}",
        flush=True,
    )
    if args.steps < problem.steps:
        print("This run is short: SGLD-SA is still learning at its end.", flush=True)
    rows, datasets = [], {}
    for seed in range(args.seed, args.seed + args.seeds):
        data = datasets[seed] = simulate(problem, seed)
        print(f"data set {seed}: {report.scale_text(data, problem)}", flush=True)
        adaptive = [m for m in args.methods if m not in WITHOUT_PAIR]
        todo = [(method, pair) for pair in args.pairs for method in adaptive]
        todo += [(method, None) for method in args.methods if method in WITHOUT_PAIR]
        for method, pair in todo:
            rows.append(run(method, problem, data, pair, args, seed))
            print(report.row_text(rows[-1]), flush=True)
    print(f"\n{report.table(rows, problem)}\n\n{report.LEGEND[problem.name]}")
    first = [r for r in rows if r["seed"] == args.seed]
    first = [r for r in first if r["pair"] in (args.pairs[0], None)]
    print(f"\n{report.estimates(first, datasets[args.seed])}")
    report.save_picture(first, datasets[args.seed], problem, args)
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logistic", action="store_true", help="appendix C")
    parser.add_argument(
        "--pairs",
        nargs="+",
        type=two_positive,
        help="v0 and the first sigma, as in 1e-3,0.5; default: the paper's four",
    )
    parser.add_argument(
        "--methods", nargs="+", help="some of SGLD-SA, EMVS, ESM, SGLD, ridge"
    )
    parser.add_argument("--seeds", type=int, default=1, help="data sets; default: 1")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first data set"
    )
    parser.add_argument(
        "--steps",
        type=int,
        help=f"default: {LINEAR.steps}, or {LOGISTIC.steps} with --logistic; made a "
        f"multiple of {EPOCH}",
    )
    parser.add_argument("--rate", type=float, help="learning rate, times k^(-1/3)")
    parser.add_argument("--long", action="store_true", help="the paper's 500,000 steps")
    parser.add_argument("--quick", action="store_true", help="one pair, 20,000 steps")
    parser.add_argument(
        "--output", default="out/sparse_regression.png", help="file of the figure"
    )
    args = parser.parse_args(argv)
    args.problem = LOGISTIC if args.logistic else LINEAR
    if args.methods is None:
        args.methods = args.problem.methods
    if not set(args.methods) <= set(args.problem.methods):
        parser.error(
            f"--methods must be some of {', '.join(args.problem.methods)} for the "
            f"{args.problem.name} problem. Received: {' '.join(args.methods)}"
        )
    if args.pairs is None:
        pairs = [pair for pair in args.problem.paper if pair is not None]
        args.pairs = pairs[1:2] if args.quick else pairs
    if args.steps is None:
        args.steps = 500_000 if args.long else args.problem.steps
        args.steps = 20_000 if args.quick else args.steps
    for name in ("steps", "seeds"):
        if getattr(args, name) < 1:
            parser.error(
                f"--{name} must be at least 1. Received: {getattr(args, name)}"
            )
    args.steps = math.ceil(args.steps / EPOCH) * EPOCH
    if args.rate is None:
        args.rate = args.problem.rate
    return args


def two_positive(text):
    """v0 and sigma of the command line."""
    try:
        v0, sigma = map(float, text.split(","))
    except ValueError:
        v0 = sigma = 0.0
    if not (0.0 < v0 < V1 and sigma > 0.0):
        raise argparse.ArgumentTypeError(
            f"must be two positive numbers, v0,sigma, with v0 below {V1:g}. "
            f"Received: {text}"
        )
    return v0, sigma


if __name__ == "__main__":
    main()
