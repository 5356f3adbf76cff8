"""CSGLD weighs nine modes where SGLD stays near its start: CSGLD paper, Fig. 3.

The energy is the sum over x_1 and x_2 of (x_i^2 - 10 cos(1.2 pi x_i)) / 3, plus the
positive part of |x|^2 - 7. Nine modes matter, and the one in the middle is the deepest.
All chains start in one corner. The barriers around the middle divide the plane into
nine cells. Each chain estimates the share of each cell from its draws, with weights for
CSGLD. The error is the total variation distance between the estimated and the true
shares.

As in appendix D.3, energy and gradient have Gaussian noise of variance 0.1. The noise
is the data of this example: N rows (e_i, z_i) with mean 0, one of them drawn for each
step, with the log-likelihood

    (-U(x) + e_i + z_i . (x - stop_gradient(x))) / N,

so that the estimate of the energy is U(x) - e_i, and the estimate of the gradient is
the gradient of U minus z_i. The learning rate multiplies the gradient of U/N, so the
paper's 0.001 is 0.001 N here. Each iteration evaluates one gradient. reSGLD runs two
temperatures, and evaluates two gradients.

    python examples/contour_modes.py

On JAX, 10 chains, 2 minutes on two busy CPU cores:

    iterations  method     TV   from     to  together  ess
       200,000  SGLD     0.51   0.23   0.74      0.11  100
       200,000  cycSGLD  0.35   0.16   0.54      0.07  100
       200,000  reSGLD   0.09   0.06   0.14      0.04  100
       200,000  CSGLD    0.19   0.13   0.26      0.10   46
     2,000,000  SGLD     0.21   0.14   0.34      0.04  100
     2,000,000  cycSGLD  0.14   0.09   0.23      0.03  100
     2,000,000  reSGLD   0.03   0.01   0.04      0.01  100
     2,000,000  CSGLD    0.07   0.04   0.12      0.04   49

Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin dynamics
algorithm for simulations of multi-modal distributions", section 4.1, Fig. 3, and
appendix D.3.
"""

import argparse
import math
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc import plots

# The lowest energies of the modes are -6.67 in the middle, -5.75 at the sides and -4.83
# in the corners. The first boundary lies above the first of them, with 14% of the mass
# below. A first boundary at -4.75, above all modes, would have 56% of the mass below,
# and 9% in the next subregion: log Psi would fall by 2 nats within 0.25, which is less
# than the noise of the energy.
PARTITION = mh.EnergyPartition(energy_min=-6.0, energy_gap=0.25, partitions=100)
RATE, CYCLIC_RATE = 1e-3, 5e-3
CYCLES = 20
TEMPERATURES = (1.0, 3.0)
VARIANCE = 0.1  # of the energy's noise, and of each gradient's
ROWS = 1000  # N, of the noise
EVERY = 20
START = (1.6, 1.6)
METHODS = ("SGLD", "cycSGLD", "reSGLD", "CSGLD")


def energy(x, library=ops):
    """U of a point (..., 2); `library` is `keras.ops` or numpy."""
    squares = library.square(x)
    waves = library.cos(1.2 * math.pi * x)
    outside = library.sum(squares, axis=-1) - 7.0
    wells = library.sum(squares - 10.0 * waves, axis=-1) / 3.0
    return wells + library.maximum(outside, 0.0)


def log_likelihood(x, batch):
    """The log density as one of N rows, with noise on its value and its gradient."""
    of_energy, of_gradient = batch
    noise = of_energy + ops.sum(of_gradient * (x - ops.stop_gradient(x)), axis=-1)
    return (noise - energy(x)) / ROWS


def make_noise(seed):
    """The N rows of noise, with mean 0: of the energy and of the gradient."""
    rows = np.random.default_rng(seed).normal(0.0, VARIANCE**0.5, (ROWS, 3))
    rows = (rows - rows.mean(0)).astype("float32")
    return rows[:, 0], rows[:, 1:]


class Truth:
    """The target on a grid, and the shares of the nine cells, by quadrature."""

    def __init__(self):
        self.axis = np.linspace(-6.0, 6.0, 2401)
        x = np.stack(np.meshgrid(self.axis, self.axis, indexing="ij"), -1)
        self.energy = energy(x, np)
        density = np.exp(-self.energy)
        self.density = density / density.sum()
        # Where the energy of one coordinate is highest between two modes.
        inner = (self.axis > 0.4) & (self.axis < 1.2)
        on_axis = self.energy[:, len(self.axis) // 2]
        self.barrier = self.axis[inner][np.argmax(on_axis[inner])]
        self.shares = self.shares_of(x, self.density)

    def shares_of(self, x, weights):
        """The share of each of the nine cells, from points (..., 2) and weights."""
        column, row = np.moveaxis(np.digitize(x, [-self.barrier, self.barrier]), -1, 0)
        cells = np.ravel(3 * column + row)
        return np.bincount(cells, np.ravel(weights), minlength=9) / weights.sum()

    def distance(self, x, weights):
        """Total variation between estimated and true shares of the cells."""
        return 0.5 * np.abs(self.shares_of(x, weights) - self.shares).sum()


def run(name, steps, args):
    """Draws of all chains of a sampler."""
    rate = RATE * ROWS
    cyclic = mh.schedules.CyclicalCosine(CYCLIC_RATE * ROWS, max(steps // CYCLES, 1))
    kernel = {
        "SGLD": mh.kernels.sgld(rate),
        "cycSGLD": mh.kernels.sgld(cyclic),
        "reSGLD": mh.kernels.sgld(rate),
        "CSGLD": mh.kernels.csgld(rate, partition=PARTITION, zeta=0.75),
    }[name]
    settings = {
        "log_likelihood": log_likelihood,
        "data": make_noise(args.seed),
        "batch_size": 1,
        "replacement": True,
        "num_steps": steps,
        "num_chains": args.chains,
        "burn_in": steps // 40,
        "every": EVERY,
        "seed": args.seed,
        "progress": not args.quick,
    }
    start = np.array(START, "float32")
    if name == "reSGLD":
        return mh.replica_exchange(
            kernel,
            start,
            temperatures=TEMPERATURES,
            energy_variance=VARIANCE,
            **settings,
        )
    return mh.sample(kernel, start, **settings)


def main(argv=None):
    """Runs all samplers. Returns the rows of the table."""
    args = parse(argv)
    truth = Truth()
    print(
        f"{args.chains} chains of {' and '.join(f'{s:,}' for s in args.steps)} "
        f"iterations; Keras on {keras.backend.backend()}"
    )
    rows = []
    for steps in args.steps:
        for name in METHODS:
            print(f"{name}, {steps:,} iterations", flush=True)
            begin = time.perf_counter()
            draws = run(name, steps, args)
            pairs = zip(draws.position, draws.weights, strict=True)
            rows.append(
                {
                    "method": name,
                    "steps": steps,
                    "distances": np.array([truth.distance(*pair) for pair in pairs]),
                    "together": truth.distance(draws.position, draws.weights),
                    "ess": draws.weight_ess / draws.weights.size,
                    "seconds": time.perf_counter() - begin,
                    "draws": draws,
                }
            )
    print(f"\n{as_text(rows)}\n\n{LEGEND}")
    save_picture(truth, rows, args)
    return rows


LEGEND = """\
TV        total variation distance between the estimated and the true shares of the
          nine modes, from one chain: mean, lowest and highest of all chains
together  the same from all chains together
ess       effective sample size of the importance weights, in % of the draws
seconds   for all chains together; reSGLD evaluates two gradients in each iteration"""


def as_text(rows):
    """The rows as an aligned table."""
    lines = ["iterations  method     TV   from     to  together  ess  seconds"]
    for row in rows:
        distances = row["distances"]
        lines.append(
            f"{row['steps']:10,}  {row['method']:8}{distances.mean():5.2f}"
            f"{distances.min():7.2f}{distances.max():7.2f}{row['together']:10.2f}"
            f"{100.0 * row['ess']:5.0f}{row['seconds']:9.1f}"
        )
    return "\n".join(lines)


def save_picture(truth, rows, args):
    """Saves the figure, of the shortest runs, and says where."""
    figure, axes = pyplot.subplots(
        1, 5, figsize=(17, 4.6), layout="constrained", sharex=True, sharey=True
    )
    axis, coarse = truth.axis[::8], truth.density[::8, ::8]
    axes[0].pcolormesh(axis, axis, coarse.T, cmap="Blues")
    axes[0].set(title="the truth", ylabel=r"$x_2$")
    write_shares(axes[0], truth.shares)
    shortest = min(args.steps)
    shown = [row for row in rows if row["steps"] == shortest][: len(METHODS)]
    for ax, row in zip(axes[1:], shown, strict=True):
        draws, distances = row["draws"], row["distances"]
        # A typical chain, the one with the median distance.
        chosen = np.argsort(distances)[len(distances) // 2]
        position, weights = draws.position[chosen], draws.weights[chosen]
        points = one_chain(draws, chosen, min(len(draws), 2000))
        ax.plot(*points.T, ".", markersize=3, color=plots.style.COLOURS[0], alpha=0.3)
        write_shares(ax, truth.shares_of(position, weights))
        note = "CSGLD, resampled" if row["method"] == "CSGLD" else row["method"]
        ax.set_title(f"{note}: TV {distances[chosen]:.2f}")
    for ax in axes:
        ax.contour(
            axis,
            axis,
            truth.energy[::8, ::8].T,
            levels=[-6.0, -4.0, -2.0, 0.0, 2.0],
            colors="black",
            linewidths=0.4,
            linestyles="solid",
        )
        for place in (-truth.barrier, truth.barrier):
            ax.axvline(place, color=plots.style.WRONG, linewidth=0.8, linestyle=":")
            ax.axhline(place, color=plots.style.WRONG, linewidth=0.8, linestyle=":")
        ax.set(xlabel=r"$x_1$", xlim=(-2.7, 2.7), ylim=(-2.7, 2.7), aspect="equal")
    figure.suptitle(
        f"{shortest:,} iterations of a typical chain that starts in the upper right "
        "corner: its draws, the share of each of nine modes in %, and the total "
        "variation distance (TV) from the true shares"
    )
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def write_shares(ax, shares):
    """Writes the share of each cell into its corner, in %."""
    for cell, share in enumerate(shares):
        place = (cell // 3 * 1.72 - 2.6, cell % 3 * 1.72 - 1.2)
        ax.text(*place, f"{100 * share:.0f}", color=plots.style.WRONG, fontsize=9)


def one_chain(draws, chain, number):
    """Points of one chain with equal weights, resampled by their weights."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(draws.weights[chain : chain + 1])
    one = mh.Draws(
        draws.position[chain : chain + 1],
        log_weights,
        {"energy": draws.info["energy"][chain : chain + 1]},
        draws.state,
    )
    return one.resample(number)


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=10, help="independent chains")
    parser.add_argument(
        "--steps", type=int, nargs="+", help="iterations of each chain, of each run"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of noise and chains")
    parser.add_argument("--quick", action="store_true", help="10,000 iterations")
    parser.add_argument("--output", default="out/contour_modes.png")
    args = parser.parse_args(argv)
    if args.steps is None:
        args.steps = [10_000] if args.quick else [200_000, 2_000_000]
    if min(args.steps) < 10 * EVERY:
        parser.error(f"--steps must be at least {10 * EVERY}. Received: {args.steps}")
    if args.chains < 1:
        parser.error(f"--chains must be at least 1. Received: {args.chains}")
    return args


if __name__ == "__main__":
    main()
