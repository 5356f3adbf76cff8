"""How wide the draws of gradient samplers are, with and without control variates.

The problem of tuna.py: a logistic regression in 10 dimensions with a normal prior. The
chains start in the normal approximation of the posterior. Each row has the standard
deviation of the draws, as a ratio to that of the posterior (root mean square over the
weights, around the posterior's mean), with a standard error from the chains; what the
closed form of a Gaussian with plain mini-batches says; and the time of a step of all
chains. The posterior's moments come from importance sampling in float64.

    python examples/benchmarks/control_variates.py
    python examples/benchmarks/control_variates.py --batch 10 --rates 0.01 0.1
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
import tuna
from keras import ops

import keras_mhmcmc as mh


def log_likelihood(theta, batch):
    x, sign = batch
    return -ops.softplus(sign * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    return -0.5 * ops.sum(ops.square(theta))


def moments(x, signs, mean, factor, count, rng):
    """Mean and variances of the posterior, and the effective share of the draws.

    Only the differences from the normal approximation, whose moments are known, are
    estimated.
    """
    z = rng.normal(size=(count, len(mean)))
    theta = mean + z @ factor.T
    parts = np.array_split(theta, max(1, count // 200))
    likelihood = np.concatenate(
        [-np.logaddexp(0, signs * (p @ x.T)).sum(1) for p in parts]
    )
    log_weight = likelihood - 0.5 * np.square(theta).sum(1) + 0.5 * np.square(z).sum(1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.mean()
    away = theta - mean
    shift = ((weight - 1)[:, None] * away).mean(0)
    squares = ((weight - 1)[:, None] * away**2).mean(0)
    variance = np.diag(factor @ factor.T) + squares - shift**2
    return mean + shift, variance, 1.0 / np.mean(weight**2)


def closed_form(x, signs, mean, rate, batch, momentum):
    """The ratio of standard deviations that plain mini-batches give in a Gaussian."""
    rows = len(x)
    probability = 1.0 / (1.0 + np.exp(-signs * (x @ mean)))
    precision = (x * (probability * (1 - probability))[:, None]).T @ x
    each = x * (signs * probability)[:, None]
    # Nearly one precision and one noise for all directions.
    noise = each.var(axis=0, ddof=1).mean() * (1 / batch - 1 / rows)
    curvature = 1.0 + np.trace(precision) / len(mean)
    heat = 1.0 + 0.5 * rate * rows * noise / (1.0 - momentum)
    return np.sqrt(heat / (1.0 - 0.5 * rate / rows * curvature / (1.0 + momentum)))


def main(arguments=None):
    """Run the chains, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.01, 0.1, 0.5])
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--draws", type=int, default=10_000, help="of the reference")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(options.seed)
    x, signs, mode, factor = tuna.problem(options.rows, rng)
    mean, variance, share = moments(x, signs, mode, factor, options.draws, rng)
    print(f"reference: {options.draws} draws, effective share {share:.3f}")
    print("| kernel | learning rate | control variates | sd ratio | formula | ms |")
    print("|---|---|---|---|---|---|")
    found = []
    for rate in options.rates:
        for name, kernel, momentum in (
            ("SGLD", mh.kernels.sgld(rate), 0.0),
            ("SGHMC", mh.kernels.sghmc(0.1 * rate, momentum=0.9), 0.9),
        ):
            step = rate * (1.0 - momentum)
            formula = closed_form(x, signs, mode, step, options.batch, momentum)
            for reference in (None, mode):
                start = mode + rng.normal(size=(options.chains, len(mode))) @ factor.T
                began = time.perf_counter()
                draws = mh.sample(
                    kernel,
                    start,
                    log_likelihood=log_likelihood,
                    log_prior=log_prior,
                    data=(x, signs),
                    batch_size=options.batch,
                    control_variates=reference,
                    num_steps=options.steps,
                    burn_in=options.steps // 4,
                    num_chains=options.chains,
                    seed=options.seed,
                    progress=False,
                )
                elapsed = 1e3 * (time.perf_counter() - began) / options.steps
                away = np.square(draws.position.astype("float64") - mean) / variance
                each = away.mean(axis=(1, 2))  # of each chain
                ratio = np.sqrt(each.mean())
                error = each.std(ddof=1) / np.sqrt(len(each)) / (2 * ratio)
                found.append((name, rate, reference is not None, ratio, error))
                print(
                    f"| {name} | {step:g} | {'no' if reference is None else 'yes'} | "
                    f"{ratio:.3f} ± {error:.3f} | "
                    f"{'' if reference is not None else f'{formula:.3f}'} | "
                    f"{elapsed:.2f} |",
                    flush=True,
                )
    return found


if __name__ == "__main__":
    main()
