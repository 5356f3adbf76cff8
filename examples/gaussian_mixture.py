"""Tempering lets a chain cross between two modes: Fig. 2b-f of the MHBT paper.

The data are n = 100,000 examples of a mixture of two Gaussians with the means theta_1
and theta_1 + theta_2. The components may change places, so the posterior has two modes,
(0, t) and (t, -t), for t = 0.5, 2 and 4. Mini-batch Metropolis-Hastings (MHBT,
m = 1000) samples the posterior tempered to the weight of c_n examples. This joins the
modes. Full-batch Metropolis-Hastings samples the posterior itself. Both make a random
walk from the first mode. The paper has c_n = 20, or any number from 5 to 30. With t = 4
and c_n = 20 the barrier between the modes is 10 nats high, and a walk of 100,000 steps
crosses it once or not at all. The example therefore also shows this case with c_n = 8.

    python examples/gaussian_mixture.py

On JAX, 100,000 iterations, 2 minutes on two busy CPU cores:

    theta_2  method         c_n  share  crossings     sd  exact  accepted
        0.5  MHBT            20   0.49      4,705   1.40   1.40      0.30
        0.5  full batch 100,000   0.00          0   0.04   0.51      0.32
        2.0  MHBT            20   0.50      1,847   2.09   2.13      0.31
        2.0  full batch 100,000   0.00          0   0.01   1.99      0.31
        4.0  MHBT            20   0.29          1   3.69   4.08      0.30
        4.0  full batch 100,000   0.00          0   0.01   3.70      0.31
        4.0  MHBT             8   0.50        201   4.20   4.21      0.33

share is the share of the draws in the second mode. Its exact value is 0.50.

Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible
SGLD proposal", section 3.1 and Fig. 2b-f.
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc import plots

CASES = ((0.5, 20), (2.0, 20), (4.0, 20), (4.0, 8))  # theta_2 of the data, and c_n
METHODS = ("MHBT", "full batch")


def run(target, weight, name, args):
    """The draws of one method, shape (steps, 2), and a row of the table."""
    if name == "MHBT":
        step = 4.2 / weight**0.5  # for an acceptance of about 0.3
        density = {
            "log_likelihood": target.log_likelihood,
            "log_prior": target.log_prior,
            "data": target.data,
            "batch_size": args.batch_size,
        }
    else:
        weight = args.train_size
        step = 4.4 / weight**0.5
        density = {"log_density": target.log_density}
    temperature = args.train_size / weight
    begin = time.perf_counter()
    draws = mh.sample(
        mh.kernels.mhbt(step, temperature=temperature),
        target.modes[0],
        **density,
        num_steps=args.steps,
        seed=args.seed,
        progress=not args.quick,
    )
    theta = draws.position[0]
    is_second = theta[:, 1] < 0
    row = {
        "distance": target.modes[0, 1],
        "method": name,
        "weight": weight,
        "share": is_second.mean(),
        "crossings": int(np.sum(is_second[1:] != is_second[:-1])),
        "deviation": theta[:, 1].std(),
        "exact": target.moments(temperature)[1][1, 1] ** 0.5,
        "acceptance": draws.info["acceptance"].mean(),
        "seconds": time.perf_counter() - begin,
    }
    return theta, row


def main(argv=None):
    """Runs the comparison. Returns the rows of the table."""
    args = parse(argv)
    print(
        f"n = {args.train_size:,}, m = {args.batch_size:,}; "
        f"{args.steps:,} iterations; Keras on {keras.backend.backend()}"
    )
    rows, results = [], []
    for distance, weight in CASES:
        target = mh.targets.TiedMeans(args.train_size, (0.0, distance), args.seed)
        draws = {}
        for name in METHODS:
            draws[name], row = run(target, weight, name, args)
            rows.append(row)
        results.append((target, weight, draws))
    print(f"\n{as_text(rows)}\n\n{LEGEND}")
    save_picture(results, args)
    return rows


LEGEND = """\
c_n         weight of the data in the target; n for the posterior itself
share       of the draws with theta_2 < 0, near the second mode; exactly 0.50
crossings   how often theta_2 changed its sign
sd          standard deviation of theta_2, and the exact one of the target
MHBT visits both modes if the weight is low enough for their distance. Full batch on the
posterior stays where it started."""


def as_text(rows):
    """The rows as an aligned table."""
    lines = ["theta_2  method         c_n  share  crossings     sd  exact  accepted"]
    for row in rows:
        lines.append(
            f"{row['distance']:7.1f}  {row['method']:10}{row['weight']:8,d}"
            f"{row['share']:7.2f}{row['crossings']:11,d}{row['deviation']:7.2f}"
            f"{row['exact']:7.2f}{row['acceptance']:10.2f}"
        )
    return "\n".join(lines)


def save_picture(results, args):
    """Saves the figure and says where."""
    figure, axes = pyplot.subplots(
        2, len(results), figsize=(13, 6.5), layout="constrained"
    )
    colours = dict(zip(METHODS, plots.style.COLOURS, strict=False))
    for column, (target, weight, draws) in enumerate(results):
        top, bottom = axes[:, column]
        contours(top, target, weight, draws["MHBT"], colours["MHBT"])
        (a, b), (c, d) = target.modes
        top.set_title(f"modes ({a:g}, {b:g}), ({c:g}, {d:g}); $c_n$ = {weight}")
        every = max(args.steps // 4000, 1)
        for name, theta in draws.items():
            bottom.plot(
                np.arange(len(theta))[::every],
                theta[::every, 1],
                color=colours[name],
                linewidth=0.5 if name == "MHBT" else 2,
                label=name,
            )
        bottom.set_xlabel("iteration")
        bottom.ticklabel_format(axis="x", style="plain")
        bottom.set_xticks([0, args.steps // 2, args.steps])
    axes[0, 0].set_ylabel(r"$\theta_2$")
    axes[1, 0].set_ylabel(r"trajectory of $\theta_2$")
    for line in axes[0, 0].legend(loc="upper right", fontsize=9).get_lines():
        line.set_markersize(4)
    for line in axes[1, 0].legend(loc="upper right", fontsize=9).get_lines():
        line.set_linewidth(2)
    figure.suptitle(
        f"Mixture of two Gaussians, n = {args.train_size:,}. Above: draws of MHBT on "
        "the posterior, tempered to $c_n$ examples; lines enclose 10% to 99% of it."
        "\nBelow: MHBT "
        "crosses between the modes where tempering joins them; full batch on the "
        "posterior itself stays in the mode where it started",
        fontsize=11,
    )
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def contours(ax, target, weight, theta, colour):
    """Draws of MHBT over contours of the tempered log posterior."""
    mirror = mh.targets.mirrored(theta)  # the other half of the target, visited or not
    low, high = np.quantile([*theta, *mirror], [0.001, 0.999], axis=0)
    low, high = (
        np.minimum(low, target.modes.min(0)),
        np.maximum(high, target.modes.max(0)),
    )
    margin = 0.15 * (high - low)
    plots.contours(
        target,
        theta,
        extent=np.stack([low - margin, high + margin], axis=1),
        temperature=len(target.data) / weight,
        color=colour,
        ax=ax,
    )
    ax.get_legend().remove()  # one panel has the legend of all
    ax.get_lines()[0].set_label("draws of MHBT")
    ax.get_lines()[1].set_label("_contours")  # which have labels of their own
    ax.plot(
        *target.modes.T,
        "x",
        color=plots.style.WRONG,
        markersize=9,
        mew=2.5,
        label="modes",
    )
    ax.set(xlabel=r"$\theta_1$", ylabel="")


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, help="iterations of each chain")
    parser.add_argument("--train-size", type=int, default=100_000, help="n")
    parser.add_argument("--batch-size", type=int, default=1000, help="m")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and chains")
    parser.add_argument("--quick", action="store_true", help="10,000 steps")
    parser.add_argument("--output", default="out/gaussian_mixture.png")
    args = parser.parse_args(argv)
    if args.steps is None:
        args.steps = 10_000 if args.quick else 100_000
    return args


if __name__ == "__main__":
    main()
