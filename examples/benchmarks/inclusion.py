"""Inclusion probabilities of SGLD-SA beside exact ones, for ten predictors.

The model is a linear regression with 100 examples, noise 1, and the prior of
`mh.SGLDSA`: each weight is N(0, v0) or N(0, v1), with probability a half each. sigma
and delta are fixed at 1 and 0.5, so that the posterior probability of the slab is a sum
over 1,024 models, in closed form. The program compares it with the rho of `mh.SGLDSA`
from two starts, with the weights at least squares. It also prints the fixed points of
the recursion, computed in float64 without sampling.

    KERAS_BACKEND=jax python examples/benchmarks/inclusion.py
"""

import argparse
import itertools
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

EXAMPLES, PREDICTORS = 100, 10
V0, V1 = 1e-3, 10.0
WEIGHTS = np.array([1.0, 0.37, *[0.0] * 8])
STARTS = (None, 0.99)
PINNED = 1e7  # prior counts of sigma and delta, beside which the data say nothing


def data(seed=10):
    """Inputs (100, 10) and targets (100,), float64; the first two inputs count."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(EXAMPLES, PREDICTORS))
    return x, x @ WEIGHTS + rng.normal(size=EXAMPLES)


def exact_inclusion(x, y):
    """The posterior probability of the slab of each weight, by enumeration."""
    models = np.array(list(itertools.product((0, 1), repeat=x.shape[1])))
    gram, moment = x.T @ x, x.T @ y
    log_evidence = []
    for model in models:
        variance = np.where(model == 1, V1, V0)
        # Weights given the model are normal: their integral, up to a constant.
        precision = gram + np.diag(1.0 / variance)
        _, log_determinant = np.linalg.slogdet(precision)
        fit = moment @ np.linalg.solve(precision, moment)
        prior = np.log(variance).sum()
        log_evidence.append(0.5 * (fit - log_determinant - prior))
    mass = np.exp(np.array(log_evidence) - max(log_evidence))
    return mass @ models / mass.sum()


def fixed_point(x, y, start, rounds=2000):
    """The limit of rho. rho is the mean of eq. (13) over the weights given rho."""
    nodes, masses = np.polynomial.hermite_e.hermegauss(61)
    masses = masses / masses.sum()
    rho = np.full(x.shape[1], 0.5 if start is None else start)
    for _ in range(rounds):
        kappa = (1.0 - rho) / V0 + rho / V1
        covariance = np.linalg.inv(x.T @ x + np.diag(kappa))
        mean, deviation = covariance @ x.T @ y, np.sqrt(np.diag(covariance))
        weights = mean[:, None] + deviation[:, None] * nodes
        odds = 0.5 * (1.0 / V0 - 1.0 / V1) * weights**2 + 0.5 * np.log(V0 / V1)
        fresh = (1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0)))) @ masses
        rho = rho + 0.05 * (fresh - rho)
    return rho


def learned_inclusion(x, y, start, steps, seed=10):
    """rho of `mh.SGLDSA` after so many steps on all of the data."""
    prior = mh.priors.SpikeSlab(
        "kernel",
        v0=V0,
        v1=V1,
        a=PINNED,
        b=PINNED,
        nu=PINNED,
        lam=1.0,
        initial_inclusion=start,
    )
    optimizer = mh.SGLDSA(
        0.02,
        train_size=EXAMPLES,
        prior=prior,
        likelihood="gaussian",
        step_size=mh.schedules.PowerDecay(5.0, 1000.0, 1.0),
        seed=seed,
    )
    layer = keras.layers.Dense(1, use_bias=False)
    model = keras.Sequential([keras.Input((PREDICTORS,)), layer])
    # From zero, the first averages of rho would fall before the weights have grown.
    layer.set_weights([np.linalg.lstsq(x, y[:, None])[0]])
    model.compile(optimizer, loss="mean_squared_error")
    # All of the data in each batch, many batches in an epoch.
    repeats = min(steps, 500)
    inputs = np.tile(x, (repeats, 1)).astype("float32")
    targets = np.tile(y[:, None], (repeats, 1)).astype("float32")
    model.fit(
        inputs,
        targets,
        batch_size=EXAMPLES,
        epochs=max(steps // repeats, 1),
        shuffle=False,
        verbose=0,
    )
    (rho,) = optimizer.inclusion_probabilities().values()
    return rho[:, 0]


def main(argv=None):
    """Prints the table; returns its columns by their heads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=10, help="seed of data and noise")
    args = parser.parse_args(argv)
    x, y = data(args.seed)
    columns = {"exact": exact_inclusion(x, y)}
    for start in STARTS:
        name = "delta = 0.5" if start is None else f"{start}"
        columns[f"fixed point from {name}"] = fixed_point(x, y, start)
        rho = learned_inclusion(x, y, start, args.steps, args.seed)
        columns[f"SGLDSA from {name}"] = rho
    print(f"{keras.backend.backend()}, {args.steps} steps")
    print("  ".join(["weight", *columns]))
    for i in range(PREDICTORS):
        cells = [f"{WEIGHTS[i]:6.2f}"]
        cells += [f"{c[i]:{len(name)}.3f}" for name, c in columns.items()]
        print("  ".join(cells))
    return columns


if __name__ == "__main__":
    main()
