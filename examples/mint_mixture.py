"""MINT visits both modes of a mixture, SGLD and SGHMC stay in one: MINT paper, Fig. 1.

The data are a million examples of a mixture of two Gaussians with tied means. The
posterior has two modes of equal weight, (0, 1) and (1, -1). MINT makes a random walk on
the tempered posterior, with batches of 1000 and lambda = 0.5 tau. SGLD and SGHMC sample
the posterior with annealed steps. All chains start in the first mode. They estimate the
ratio of the masses near the two modes, from the draws within a distance of 0.2 of each
mode. The exact ratio is 1.00.

A run is 20 chains of 10,000 steps. Ten runs show how far the estimate varies. (The
paper has runs of 1,000,000 steps and a distance of 0.01.)

    python examples/mint_mixture.py

On JAX, 2 minutes on two busy CPU cores:

    method         ratio  in range  changes     sd
    MINT    0.99 +- 0.06  10 of 10    192.9  1.288
    SGLD            none    0 of 1      0.0  0.008
    SGHMC           none    0 of 1      0.0  0.019

Reference: Li and Wong (2017), "Mini-batch tempered MCMC", section 4.1 and Fig. 1.
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

RADIUS = 0.2  # of the neighbourhood of a mode
ALPHA = 0.5  # lambda / tau
CHAINS = 20  # of a run
EVERY = 5


def make_kernels():
    """The samplers by name."""
    # Steps that fall as in Welling and Teh (2011): from 0.5 to 0.04 in 10,000 steps.
    rate = mh.schedules.PowerDecay(0.5 * 100**0.55, offset=100.0, power=0.55)
    return {
        "MINT": mh.kernels.mint(0.6, alpha=ALPHA, proposal=mh.proposals.RandomWalk()),
        "SGLD": mh.kernels.sgld(rate),
        "SGHMC": mh.kernels.sghmc(rate, momentum=0.9),
    }


def ratios(draws, modes, runs):
    """The estimate of each run after each draw, shape (runs, draws).

    Not a number where no draw was near the second mode yet.
    """
    counts = []
    for mode in modes:
        near = np.sum(np.square(draws - mode), -1) < RADIUS**2
        near = near.reshape(runs, -1, near.shape[1]).sum(1)
        counts.append(near.cumsum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(counts[1] > 0, counts[0] / counts[1], np.nan)


def main(argv=None):
    """Runs all samplers. Returns the rows of the table."""
    args = parse(argv)
    target = mh.targets.TiedMeans(args.train_size, seed=args.seed)
    print(
        f"n = {args.train_size:,}, m = {args.batch_size:,}; {args.runs} runs of "
        f"{CHAINS} chains of {args.steps:,} steps; Keras on {keras.backend.backend()}"
    )
    rows, results = [], {}
    for name, kernel in make_kernels().items():
        print(name, flush=True)
        # A sampler that never leaves its mode shows that in one run.
        runs = args.runs if name == "MINT" else 1
        begin = time.perf_counter()
        draws = mh.sample(
            kernel,
            np.tile(target.modes[0], (CHAINS * runs, 1)),
            log_likelihood=target.log_likelihood,
            log_prior=target.log_prior,
            data=target.data,
            batch_size=args.batch_size,
            num_steps=args.steps,
            num_chains=CHAINS * runs,
            burn_in=args.steps // 10,
            every=EVERY,
            seed=args.seed,
            progress=not args.quick,
        )
        position = draws.position
        estimates = ratios(position, target.modes, runs)
        is_second = position[..., 1] < 0
        rows.append(
            {
                "method": name,
                "ratios": estimates[:, -1],
                "changes": (is_second[:, 1:] != is_second[:, :-1]).sum(1).mean(),
                "deviation": position[..., 1].std(1).mean(),
                "seconds": time.perf_counter() - begin,
            }
        )
        results[name] = position, estimates
    print(f"\n{as_text(rows)}\n\n{LEGEND}")
    save_picture(target, results, args)
    return rows


LEGEND = f"""\
ratio     draws within {RADIUS} of the first mode over those near the second, exactly 1:
          mean and standard deviation over the runs; none: no draw near the second
in range  runs whose ratio is between 0.8 and 1.25
changes   of mode, for each chain, between draws that are kept
sd        standard deviation of theta_2 along a chain
MINT estimates the ratio; SGLD and SGHMC see one mode alone."""


def as_text(rows):
    """The rows as an aligned table."""
    lines = ["method         ratio  in range  changes     sd  seconds"]
    for row in rows:
        values = row["ratios"]
        if np.isnan(values).any():
            ratio = "none"
        else:
            ratio = f"{values.mean():.2f} +- {values.std():.2f}"
        good = f"{np.sum((values > 0.8) & (values < 1.25))} of {len(values)}"
        lines.append(
            f"{row['method']:6}{ratio:>14}{good:>10}{row['changes']:9.1f}"
            f"{row['deviation']:7.3f}{row['seconds']:9.1f}"
        )
    return "\n".join(lines)


def save_picture(target, results, args):
    """Saves the figure and says where."""
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    colours = dict(zip(results, plots.style.COLOURS, strict=False))
    position, estimates = results["MINT"]
    steps = args.steps // 10 + EVERY * np.arange(1, estimates.shape[1] + 1)

    shown = position.reshape(-1, 2)
    shown = shown[:: max(len(shown) // 4000, 1)]
    plots.contours(
        target,
        shown,
        extent=np.stack([shown.min(0), shown.max(0)], axis=1),
        temperature=args.train_size / args.batch_size**ALPHA,
        max_draws=len(shown),
        color=colours["MINT"],
        ax=axes[0],
    )
    axes[0].plot(*target.modes.T, "x", color=plots.style.WRONG, markersize=9, mew=2.5)
    axes[0].set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$")
    axes[0].set_title(
        "draws of MINT, both modes (crosses),\nand the tempered posterior"
    )

    axes[1].plot(steps, estimates.T, color=colours["MINT"], linewidth=0.8)
    axes[1].axhline(1.0, color="black", linestyle="--")
    axes[1].axhspan(0.8, 1.25, color=plots.style.GREY, alpha=0.5)
    axes[1].set(xlabel="step", ylabel="estimated ratio", ylim=(0, 2.5))
    axes[1].set_title(
        f"ratio of the modes: {len(estimates)} runs of MINT\n"
        "(dashed: the truth; grey: 0.8 to 1.25)"
    )

    for name, (draws, _) in results.items():
        axes[2].plot(
            steps,
            draws[0, :, 1],
            color=colours[name],
            linewidth=0.6 if name == "MINT" else 2,
            label=name,
            zorder=1 if name == "MINT" else 2,
        )
    axes[2].set(xlabel="step", ylabel=r"$\theta_2$")
    axes[2].set_title(
        "one chain of each sampler:\nMINT changes modes, the others do not"
    )
    for line in axes[2].legend(loc="lower right").get_lines():
        line.set_linewidth(2)
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="runs of MINT")
    parser.add_argument("--steps", type=int, help="iterations of each chain")
    parser.add_argument("--train-size", type=int, default=1_000_000, help="n")
    parser.add_argument("--batch-size", type=int, default=1000, help="m")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and chains")
    parser.add_argument("--quick", action="store_true", help="1000 steps")
    parser.add_argument("--output", default="out/mint_mixture.png")
    args = parser.parse_args(argv)
    if args.steps is None:
        args.steps = 1000 if args.quick else 10_000
    if args.runs is None:
        args.runs = 2 if args.quick else 10
    if args.steps < 10 * EVERY:
        parser.error(f"--steps must be at least {10 * EVERY}. Received: {args.steps}")
    return args


if __name__ == "__main__":
    main()
