"""How fast mini-batch chains reach the tempered posterior: Fig. 2a of the MHBT paper.

The target is the mean of n = 100,000 normal examples of d = 2 and 5 dimensions.
Mini-batch Metropolis-Hastings (MHBT, m = 1000, c_n = 20) and full-batch
Metropolis-Hastings on the posterior at temperature T = n/c_n make the same random walk.
Many chains start at the prior's mean. After every few iterations the example compares
the distribution of the chains with the exact one. It computes the total variation
distance over cells of equal exact probability. (The paper compares with as many exact
draws; here the probabilities are known.) A finite number of exact draws also has a
distance, which is the floor.

    python examples/tempered_gaussian.py
    KERAS_BACKEND=torch python examples/tempered_gaussian.py --quick

On JAX, 10,000 chains, 7 minutes on two busy CPU cores; total variation distance:

     d  method       step 20   step 50  step 100  step 200  exact draws
     2  MHBT           0.516     0.040     0.041     0.038        0.041
     2  full batch     0.501     0.041     0.039     0.040        0.041
     5  MHBT           0.980     0.783     0.139     0.062        0.062
     5  full batch     0.980     0.745     0.087     0.069        0.062

Both end at the distance of exact draws. MHBT needs about as many iterations (d = 2), or
a few more (d = 5), and each iteration uses a hundredth of the data.

Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible
SGLD proposal", section 3.1 and Fig. 2a.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc import plots

WEIGHT = 20  # c_n: the tempered posterior is that of as many examples
# The random walk's standard deviation, the same for both, so that 0.3 to 0.4 of the
# moves are accepted; and cells along each axis: 100 cells, and 243.
SETTINGS = {2: {"step": 0.37, "cells": 10}, 5: {"step": 0.18, "cells": 3}}
EVERY = 10  # iterations between two comparisons


def total_variation(points, mean, deviation, cells):
    """Total variation between points, shape (K, d), and N(mean, deviation^2 I).

    Each axis is cut at the quantiles, which gives cells^d cells of equal probability.
    """
    cuts = [statistics.NormalDist().inv_cdf(k / cells) for k in range(1, cells)]
    places = np.searchsorted(cuts, (points - mean) / deviation)
    index = places @ (cells ** np.arange(points.shape[1]))
    shares = np.bincount(index, minlength=cells ** points.shape[1]) / len(points)
    return 0.5 * np.abs(shares - 1 / len(shares)).sum()


def floor(rng, chains, dimension, cells):
    """Mean distance of `chains` exact draws to their own distribution."""
    draws = rng.standard_normal((20, chains, dimension))
    return np.mean([total_variation(x, 0.0, 1.0, cells) for x in draws])


def compare(dimension, args):
    """The rows of the table for one dimension: MHBT and full batch."""
    target = mh.targets.GaussianMean(args.train_size, dimension, seed=args.seed)
    temperature = args.train_size / WEIGHT
    mean, covariance = target.moments(temperature)
    deviation = covariance[0, 0] ** 0.5
    step, cells = SETTINGS[dimension].values()
    kernel = mh.kernels.mhbt(step, temperature=temperature)
    densities = {
        "MHBT": {
            "log_likelihood": target.log_likelihood,
            "log_prior": target.log_prior,
            "data": target.data,
            "batch_size": args.batch_size,
        },
        "full batch": {"log_density": target.log_density},
    }
    rng = np.random.default_rng(args.seed)
    lowest = floor(rng, args.chains, dimension, cells)
    rows = []
    for name, density in densities.items():
        begin = time.perf_counter()
        draws = mh.sample(
            kernel,
            np.zeros(dimension),
            **density,
            num_steps=args.steps,
            num_chains=args.chains,
            every=EVERY,
            seed=args.seed,
            progress=not args.quick,
        )
        last = draws.position[:, -1]
        rows.append(
            {
                "dimension": dimension,
                "method": name,
                "distances": [
                    total_variation(draws.position[:, i], mean, deviation, cells)
                    for i in range(len(draws))
                ],
                "floor": lowest,
                "variance": last.var(0).mean() / deviation**2,
                "acceptance": draws.info["acceptance"].mean(),
                "seconds": time.perf_counter() - begin,
            }
        )
    return rows


def main(argv=None):
    """Runs the comparison. Returns the rows of the table."""
    args = parse(argv)
    print(
        f"n = {args.train_size:,}, m = {args.batch_size:,}, c_n = {WEIGHT}; "
        f"{args.chains:,} chains; Keras on {keras.backend.backend()}"
    )
    rows = [row for dimension in SETTINGS for row in compare(dimension, args)]
    print(f"\nTotal variation distance to the tempered posterior\n{as_text(rows)}\n")
    for dimension in SETTINGS:
        mini, full = (r for r in rows if r["dimension"] == dimension)
        print(
            f"d = {dimension}: after {args.steps} iterations MHBT is "
            f"{mini['distances'][-1] - full['distances'][-1]:+.3f} from full batch, "
            f"with {args.batch_size / args.train_size:.1%} of its data a step."
        )
    save_picture(rows, args)
    return rows


def as_text(rows):
    """The rows as an aligned table."""
    count = len(rows[0]["distances"])
    shown = sorted({max(1, round(count * part)) for part in (0.1, 0.25, 0.5, 1.0)})
    head = " d  method    " + "".join(f"{f'step {EVERY * i}':>10}" for i in shown)
    lines = [f"{head}  exact draws  variance  acceptance  seconds"]
    for row in rows:
        cells = "".join(f"{row['distances'][i - 1]:10.3f}" for i in shown)
        lines.append(
            f"{row['dimension']:2d}  {row['method']:10}{cells}{row['floor']:13.3f}"
            f"{row['variance']:10.3f}{row['acceptance']:12.2f}{row['seconds']:9.1f}"
        )
    return "\n".join([*lines, "variance: of the last positions, over the exact one"])


def save_picture(rows, args):
    """Saves the figure and says where."""
    figure, axes = pyplot.subplots(
        1, len(SETTINGS), figsize=(9, 4), sharey=True, layout="constrained"
    )
    for ax, dimension in zip(axes, SETTINGS, strict=True):
        chosen = [row for row in rows if row["dimension"] == dimension]
        for index, row in enumerate(chosen):
            steps = EVERY * np.arange(1, len(row["distances"]) + 1)
            ax.plot(
                steps,
                row["distances"],
                color=plots.style.COLOURS[index],
                linestyle=plots.style.DASHES[index],
                marker=plots.style.MARKERS[index],
                markersize=5,
                label=f"{row['method']} ({len(steps) * EVERY} iterations)",
            )
        ax.axhline(chosen[0]["floor"], color="0.4", linestyle=":")
        ax.text(
            steps[-1], chosen[0]["floor"] + 0.02, "exact draws", ha="right", color="0.3"
        )
        ax.set_title(f"d = {dimension}")
        ax.set_xlabel("iteration")
        ax.set_ylim(0, 1)
        ax.grid(color=plots.style.GREY, linewidth=0.6)
    labels = [
        f"MHBT, {args.batch_size:,} examples a step",
        f"full batch, {args.train_size:,} examples a step",
    ]
    axes[0].legend(axes[0].get_lines()[:2], labels, frameon=False)
    axes[0].set_ylabel("total variation distance\nto the tempered posterior")
    figure.suptitle(
        f"{args.chains:,} chains approach the posterior of a Gaussian mean, tempered "
        f"to the weight of {WEIGHT} examples"
    )
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, help="independent chains")
    parser.add_argument(
        "--steps", type=int, default=200, help="iterations of each chain"
    )
    parser.add_argument("--train-size", type=int, default=100_000, help="n")
    parser.add_argument("--batch-size", type=int, default=1000, help="m")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and chains")
    parser.add_argument("--quick", action="store_true", help="400 chains")
    parser.add_argument("--output", default="out/tempered_gaussian.png")
    args = parser.parse_args(argv)
    if args.chains is None:
        args.chains = 400 if args.quick else 10_000
    if args.steps < EVERY:
        parser.error(f"--steps must be at least {EVERY}. Received: {args.steps}")
    return args


if __name__ == "__main__":
    main()
