"""CSGLD flattens a mixture's energy and weighs both modes: CSGLD paper, Fig. 1, 2.

The target is 0.4 N(-6, 1) + 0.6 N(4, 1), with mean 0. SGLD starts at 0, falls into the
mode at 4 and stays there. CSGLD learns theta, the mass of each of 50 subregions of the
energy U = -log density. It samples the flattened energy U + zeta T log Psi(U), and so
walks from mode to mode. Importance weights undo the flattening. KSGLD is the same
sampler with a theta that is known from the start. Ten runs are ten independent chains
of one program, each with its own theta.

As in the paper, each gradient has noise of variance 0.01. In `mh.sample` noise comes
from mini-batches. The noise is therefore the data of this example: N rows z_i with mean
0, one of them drawn for each step. Row i has the log-likelihood

    (log p(x) + z_i (x - stop_gradient(x))) / N,

with the value log p(x) / N and the gradient (log p'(x) + z_i) / N. So the energy is
exact, and its gradient is noisy. The paper's step epsilon multiplies the gradient of U.
The learning rate multiplies the gradient of U/N, so it is epsilon N.

    python examples/contour_mixture.py
    python examples/contour_mixture.py --long    # ten times as long, three step sizes

On JAX, half a minute on two busy CPU cores (--long: 7 minutes):

    method  step   error 1e4   error 1e5   error 1e6     close       far  ess
    CSGLD    0.1        1.88        0.43        0.17  10 of 10   0 of 10   53
    SGLD     0.1        4.01        4.01        3.77   0 of 10  10 of 10  100
    KSGLD    0.1        1.21        0.44        0.14  10 of 10   0 of 10   62

A chain rarely climbs above an energy of 25. A few of the paper's 50 subregions may
therefore stay empty. The warning about them does no harm here.

Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin dynamics
algorithm for simulations of multi-modal distributions", section 4.1, Fig. 1 and 2.
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

PARTITION = mh.EnergyPartition(energy_min=2.0, energy_gap=1.0, partitions=50)
ZETA = 0.75
STEP = 0.1  # epsilon
LONG_STEPS = (0.1, 0.05, 0.02)
NOISE = 0.1  # standard deviation of a gradient's
ROWS = 1000  # N, of the noise
CHECKPOINTS = (10**4, 10**5, 10**6, 10**7)
PATH = 100_000  # iterations of the paths that are shown
FLATTENED = (
    plots.style.COLOURS[3],
    plots.style.COLOURS[4],
    plots.style.WRONG,
)  # colours
CLOSE, FAR = 0.6, 1.0  # a mean that is right, and one that is wrong


def log_density(x, library=ops):
    """Log density of the mixture; `library` is `keras.ops` or numpy."""
    left = math.log(0.4) - 0.5 * library.square(x + 6.0)
    right = math.log(0.6) - 0.5 * library.square(x - 4.0)
    return library.logaddexp(left, right) - 0.5 * math.log(2.0 * math.pi)


def log_likelihood(x, noise):
    """The log density as one of N rows, with noise on its gradient alone."""
    return (log_density(x) + noise * (x - ops.stop_gradient(x))) / ROWS


def make_noise(seed):
    """The N rows of noise, with mean 0."""
    rows = np.random.default_rng(seed).normal(0.0, NOISE, ROWS)
    return (rows - rows.mean()).astype("float32")


class Truth:
    """The target and the masses of its subregions, by quadrature."""

    def __init__(self):
        self.x = np.linspace(-20.0, 20.0, 400_001)
        self.energy = -log_density(self.x, np)
        density = np.exp(-self.energy)
        self.density = density / density.sum()
        self.index = subregion(self.energy)
        self.masses = np.bincount(
            self.index, self.density, minlength=PARTITION.partitions
        )

    def log_psi(self):
        """log Psi(U(x)), linear within each subregion."""
        log_mass = np.log(self.masses)
        slope = np.diff(log_mass, prepend=log_mass[0])[self.index]
        upper = PARTITION.energy_min + PARTITION.energy_gap * self.index
        below = np.minimum(self.energy - upper, 0.0) / PARTITION.energy_gap
        return log_mass[self.index] + slope * below

    def mean_with_theta_weights(self):
        """The mean with weights theta(J)^zeta, if Psi flattens the target."""
        log_weight = np.log(self.masses)[self.index] - self.log_psi()
        weight = self.density * np.exp(ZETA * log_weight)
        return np.sum(weight * self.x) / weight.sum()


def subregion(energy):
    """J of each energy, from 0."""
    above = np.ceil((energy - PARTITION.energy_min) / PARTITION.energy_gap)
    return np.clip(above, 0, PARTITION.partitions - 1).astype("int64")


def make_kernels(step, truth):
    """The samplers by name, for the paper's step epsilon."""
    rate = step * ROWS
    omega = mh.schedules.RobbinsMonro(1.0, 0.6, 100.0, None)
    contour = {"partition": PARTITION, "zeta": ZETA}
    return {
        "CSGLD": mh.kernels.csgld(rate, step_size=omega, **contour),
        "SGLD": mh.kernels.sgld(rate),
        "KSGLD": mh.kernels.csgld(rate, masses=truth.masses, adapt=False, **contour),
    }


def run(name, kernel, step, args):
    """Ten runs of a sampler: its draws, the running means and the time."""
    begin = time.perf_counter()
    draws = mh.sample(
        kernel,
        0.0,
        log_likelihood=log_likelihood,
        data=make_noise(args.seed),
        batch_size=1,
        replacement=True,
        num_steps=args.steps,
        num_chains=args.runs,
        every=args.every,
        seed=args.seed,
        progress=not args.quick,
    )
    sums = np.cumsum(draws.weights * draws.position, axis=1, dtype="float64")
    return {
        "method": name,
        "step": step,
        "means": sums / np.cumsum(draws.weights, axis=1),
        "seconds": time.perf_counter() - begin,
        "draws": draws,
    }


def theta_weighted_means(draws):
    """Means with the paper's weights theta(J)^zeta, theta as it was learned at last."""
    theta = np.take_along_axis(
        draws.info["masses"], subregion(draws.info["energy"]), axis=1
    )
    weights = theta**ZETA
    return np.sum(weights * draws.position, axis=1) / weights.sum(axis=1)


def main(argv=None):
    """Runs all samplers. Returns the rows of the table."""
    args = parse(argv)
    truth = Truth()
    print(
        f"{args.runs} runs of {args.steps:,} iterations; Keras on "
        f"{keras.backend.backend()}"
    )
    rows = []
    for step in LONG_STEPS if args.long else (STEP,):
        for name, kernel in make_kernels(step, truth).items():
            print(f"{name}, step {step}", flush=True)
            rows.append(run(name, kernel, step, args))
    print(f"\n{as_text(rows, args)}\n\n{LEGEND}\n\n{weights_text(rows, truth)}")
    save_picture(truth, rows, args)
    return rows


LEGEND = f"""\
error     mean absolute error, over the runs, of the (weighted) mean after so many
          iterations; the mean is 0
close     runs whose mean is within {CLOSE} of 0 at the end
far       runs whose mean is further than {FAR:g} from 0 at the end
ess       effective sample size of the importance weights, in % of the draws
seconds   for all runs together"""


def error_at(row, iterations, args):
    """Mean absolute error after so many iterations."""
    return np.abs(row["means"][:, iterations // args.every - 1]).mean()


def as_text(rows, args):
    """The rows as an aligned table."""
    shown = [c for c in CHECKPOINTS if args.every <= c < args.steps] + [args.steps]
    head = "".join(f"{f'error {c:.0e}'.replace('+0', ''):>12}" for c in shown)
    lines = [f"method  step{head}     close       far  ess   seconds"]
    for row in rows:
        errors = "".join(f"{error_at(row, c, args):12.2f}" for c in shown)
        last = np.abs(row["means"][:, -1])
        draws = row["draws"]
        share = 100.0 * draws.weight_ess / draws.weights.size
        lines.append(
            f"{row['method']:6}{row['step']:6}{errors}"
            f"{f'{np.sum(last <= CLOSE)} of {len(last)}':>10}"
            f"{f'{np.sum(last > FAR)} of {len(last)}':>10}"
            f"{share:5.0f}{row['seconds']:10.1f}"
        )
    return "\n".join(lines)


def weights_text(rows, truth):
    """What other weights would make of the same draws."""
    exact = truth.mean_with_theta_weights()
    lines = [
        "Means of all runs with the weights Psi(U)^zeta, and with the paper's "
        "theta(J)^zeta,",
        f"whose mean is {exact:.2f} by quadrature, since theta is a step function:",
    ]
    for row in rows:
        if row["method"] != "SGLD":
            other = theta_weighted_means(row["draws"])
            lines.append(
                f"{row['method']:6}{row['step']:6}: {row['means'][:, -1].mean():6.3f}"
                f" and {other.mean():6.3f}"
            )
    return "\n".join(lines)


def save_picture(truth, rows, args):
    """Saves the figure and says where."""
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8.4), layout="constrained")
    colours = dict(zip(("CSGLD", "SGLD", "KSGLD"), plots.style.COLOURS, strict=False))
    last = rows[-len(colours) :]  # with the smallest step
    draw_theta(axes[0, 0], truth, last[0], colours["CSGLD"])
    draw_errors(axes[0, 1], rows, colours, args)
    draw_energies(axes[1, 0], truth)
    draw_paths(axes[1, 1], last[:2], colours, args)
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def draw_theta(ax, truth, row, colour):
    """The learned theta of each run, and the masses of the subregions."""
    number = np.arange(1, PARTITION.partitions + 1)
    learned = row["draws"].info["masses"]
    ax.semilogy(number, learned.T, ".", color=colour, markersize=5, alpha=0.6)
    ax.semilogy(number, truth.masses, color="black", linewidth=1.2)
    # theta of a subregion that is hardly ever visited falls without end.
    ax.set_ylim(truth.masses[-1] / 100.0, 30.0)
    ax.plot([], [], ".", color=colour, label=f"learned by CSGLD, {len(learned)} runs")
    ax.plot([], [], color="black", label="truth, by quadrature")
    ax.set(xlabel="subregion of the energy", ylabel=r"mass $\theta$")
    ax.set_title(f"(a) the mass of each subregion, learned (step {row['step']})")
    ax.legend()


def draw_errors(ax, rows, colours, args):
    """Mean absolute error against iterations."""
    shown = np.unique(np.geomspace(1, rows[0]["means"].shape[1], 200).astype(int)) - 1
    steps = sorted({row["step"] for row in rows}, reverse=True)
    for row in rows:
        label = row["method"]
        if len(steps) > 1:
            label += f", step {row['step']}"
        ax.loglog(
            args.every * (shown + 1),
            np.abs(row["means"][:, shown]).mean(0),
            color=colours[row["method"]],
            linestyle=plots.style.DASHES[steps.index(row["step"])],
            label=label,
        )
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    ax.set_yticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(color=plots.style.GREY, linewidth=0.6)
    ax.set(xlabel="iteration", ylabel="mean absolute error")
    ax.set_title(f"(b) error of the estimated mean, average of {args.runs} runs")
    ax.legend(fontsize="small", loc="lower left")


def draw_energies(ax, truth):
    """The energy, and the flattened energy."""
    inside = (truth.x >= -10.0) & (truth.x <= 8.0)
    x, log_psi = truth.x[inside], truth.log_psi()[inside]
    energy = truth.energy[inside]
    ax.plot(x, energy, color="black", label="original, U(x)")
    for zeta, colour, dash in zip(
        (0.5, 0.75, 1.0), FLATTENED, ("--", "-.", ":"), strict=True
    ):
        flattened = energy + zeta * log_psi
        # Only differences of an energy matter: all curves share their lowest value.
        flattened += energy.min() - flattened.min()
        ax.plot(x, flattened, color=colour, linestyle=dash, label=rf"$\zeta$ = {zeta}")
    ax.set(xlabel="x", ylabel="energy in nats", ylim=(0, 17))
    ax.set_title(r"(c) the energy, and flattened: U + $\zeta$ log $\Psi$(U)")
    ax.legend(loc="upper right")


def draw_paths(ax, rows, colours, args):
    """The beginning of one run of CSGLD and of SGLD."""
    for row in rows:
        path = row["draws"].position[0, : PATH // args.every]
        stride = max(len(path) // 1000, 1)
        iterations = args.every * np.arange(1, len(path) + 1)
        ax.plot(
            iterations[::stride],
            path[::stride],
            color=colours[row["method"]],
            marker=".",
            markersize=3,
            linewidth=0.5,
            label=row["method"],
        )
    for mode in (-6.0, 4.0):
        ax.axhline(mode, color="black", linestyle="--", linewidth=0.8)
    ax.set(xlabel="iteration", ylabel="x", ylim=(-14, 14))
    ax.set_title("(d) the beginning of one run of each (dashed: the two modes)")
    ax.legend(loc="upper right", ncols=2)


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, help="independent chains")
    parser.add_argument("--steps", type=int, help="iterations of each run")
    parser.add_argument(
        "--long",
        action="store_true",
        help=f"10,000,000 iterations, with the step sizes {LONG_STEPS}",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of noise and chains")
    parser.add_argument("--quick", action="store_true", help="20,000 iterations")
    parser.add_argument("--output", default="out/contour_mixture.png")
    args = parser.parse_args(argv)
    if args.steps is None:
        args.steps = 20_000 if args.quick else 10_000_000 if args.long else 1_000_000
    if args.runs is None:
        args.runs = 10
    if args.steps < 1000:
        parser.error(f"--steps must be at least 1000. Received: {args.steps}")
    if args.runs < 1:
        parser.error(f"--runs must be at least 1. Received: {args.runs}")
    # At most 100,000 draws of each chain are kept.
    args.every = max(10, math.ceil(args.steps / 100_000))
    return args


if __name__ == "__main__":
    main()
