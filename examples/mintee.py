"""MINTEE on a mixture whose posterior has one mode for each of its components.

Each observation comes from one of p normal distributions with means theta_1..theta_p
and variance 1, all with the same weight. The data come from theta = (2, 0, ..., 0). Any
of the p means may be the one at 2, so the posterior has p modes, far apart. A chain on
all of the data stays in the first mode that it finds. MINTEE's cold chain visits all
modes, because it jumps to states of hotter chains on smaller batches.

The example prints the rings that each chain has visited, and how often the cold chain
was in each mode. It saves a figure.

    python examples/mintee.py --quick
    KERAS_BACKEND=tensorflow python examples/mintee.py --output out/mintee.png
"""

import argparse
import math
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
from keras import ops

import keras_mhmcmc as mh

# The mixture of the paper has 50 modes and 100,000 observations. The noise of an energy
# on a mini-batch grows with the root of the observations, and jumps to the coldest
# chains become rare: 10,000 leave enough of them.
FULL = {
    "modes": 50,
    "observations": 10_000,
    "batch_size": 500,
    "growth": 1.25,
    "step_size": 0.1,
    "burn_in": 2_000,
    "num_steps": 100_000,
}
QUICK = {
    "modes": 10,
    "observations": 1_000,
    "batch_size": 50,
    "growth": 1.4,
    "step_size": 0.1,
    "burn_in": 1_000,
    "num_steps": 30_000,
}


def draw_data(modes, observations, seed):
    """Observations, and the position of one of the modes."""
    rng = np.random.default_rng(seed)
    means = np.zeros(modes, "float32")
    means[0] = 2.0
    component = rng.integers(0, modes, observations)
    return (means[component] + rng.normal(size=observations)).astype("float32"), means


def log_likelihood(means, x):
    """Log density of each observation."""
    squares = ops.square(ops.expand_dims(x, -1) - means)
    constant = math.log(means.shape[0]) + 0.5 * math.log(2 * math.pi)
    return ops.logsumexp(-0.5 * squares, axis=-1) - constant


def lowest_energy(x, means):
    """The energy of a mode, in float64."""
    exponent = -0.5 * (x[:, None].astype("float64") - means) ** 2
    each = np.log(np.exp(exponent).mean(axis=1)) - 0.5 * math.log(2 * math.pi)
    return -each.sum()


def visits(position):
    """How often each mean was the one near 2; positions between modes are left out."""
    position = position.reshape(-1, position.shape[-1])
    in_mode = position.max(axis=1) > 1.0
    return np.bincount(
        position[in_mode].argmax(axis=1), minlength=position.shape[-1]
    ), in_mode.mean()


def run(settings, seed=0, progress=True):
    """The draws of MINTEE, and of the coldest chain alone."""
    x, means = draw_data(settings["modes"], settings["observations"], seed)
    names = ("batch_size", "growth", "step_size", "burn_in", "num_steps")
    return mh.equi_energy(
        np.zeros(settings["modes"], "float32"),
        log_likelihood=log_likelihood,
        data=x,
        lowest_energy=lowest_energy(x, means),
        ring_steps=settings["burn_in"],
        every=10,
        seed=seed,
        progress=progress,
        **{name: settings[name] for name in names},
    )


def draw_figure(draws, path):
    """Where the cold chain was, and in which rings all chains were."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4), layout="constrained")
    position = draws.position[0]
    axes[0].hist(position[:, 0], bins=100, density=True, color="#4477aa")
    axes[0].set(title="first mean", xlabel=r"$\theta_1$", ylabel="density")
    modes = position.argmax(axis=1)
    axes[1].plot(modes + 1, ".", markersize=1, color="#4477aa")
    axes[1].set(title="which mean is near 2", xlabel="draw", ylabel="mode")
    bottom = np.zeros(len(draws.rings.rows))
    colors = pyplot.get_cmap("viridis")(np.linspace(0, 1, len(bottom)))
    for j, share in enumerate(draws.rings.shares.T):
        axes[2].bar(range(len(bottom)), share, bottom=bottom, color=colors[j])
        bottom += share
    axes[2].set(
        title="energy rings, low (dark) to high",
        xlabel="chain, from the coldest",
        ylabel="share of states",
    )
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments=None):
    """Runs the example; returns the draws and the visits to each mode."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="10 modes, in a minute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-steps", type=int, help="steps of the coldest chain")
    parser.add_argument("--output", default="out/mintee.png", help="the figure's file")
    options = parser.parse_args(arguments)
    settings = dict(QUICK if options.quick else FULL)
    if options.num_steps is not None:
        settings["num_steps"] = options.num_steps
    began = time.perf_counter()
    draws = run(settings, options.seed)
    seconds = time.perf_counter() - began
    counts, share = visits(draws.position)
    print("\nShares of the states of each chain in the energy rings:")
    print(draws.rings)
    print(f"\nVisits of the coldest chain to each of {len(counts)} modes:")
    print(" ".join(str(count) for count in counts))
    print(
        f"{np.sum(counts > 0)} modes were visited; {1 - share:.1%} of the draws are in "
        f"none. {seconds:.0f} seconds."
    )
    draw_figure(draws, options.output)
    print(f"Saved {options.output}")
    return draws, counts


if __name__ == "__main__":
    main()
