"""Reversible moves allow larger steps: Fig. 1 of the MHBT paper.

The target is the mean of N(0, I_d) data with d = 10, 100 and 1000. Mini-batch
Metropolis-Hastings starts at the origin, with n = 10,000, m = 1000 and c_n = 20. The
example counts the accepted proposals in the first 1000 iterations (the paper has 2000),
for learning rates epsilon from 1e-9 to 1e-2. It prints the largest epsilon that accepts
at least 50%, and at least 10%. The proposals are the Langevin move of SGLD and the
reversible move of RSGLD with beta = 1 and 2. Both have the paper's noise,
sqrt(2 epsilon)/n. RSGLD uses the paper's density ratio, without normalising constants.
"exact" uses the ratio with the constants, which gives detailed balance.

As in the paper's formulas, the log-likelihood of an example leaves out the term that
depends on x alone. This term matters only when two batches are compared: its noise
would make them differ, and at d = 1000 hardly a move would be accepted.

    python examples/acceptance.py

On JAX, 1000 iterations, 5 minutes on two busy CPU cores; the largest rates:

       d  proposal            accepted 50%    accepted 10%
      10  SGLD                     1.0e-06         1.0e-05
      10  RSGLD, beta = 1          3.2e-06         1.0e-05
      10  RSGLD, beta = 2          1.0e-05         3.2e-05
      10  exact, beta = 2          3.2e-06         3.2e-05
     100  SGLD                     1.0e-07         3.2e-07
     100  RSGLD, beta = 1          3.2e-07         1.0e-06
     100  RSGLD, beta = 2          1.0e-05         3.2e-05
     100  exact, beta = 2          1.0e-07         1.0e-06
    1000  SGLD                     1.0e-08         3.2e-08
    1000  RSGLD, beta = 1          3.2e-08         1.0e-07
    1000  RSGLD, beta = 2          3.2e-07         3.2e-05
    1000  exact, beta = 2          3.2e-08         1.0e-07

The paper's ratio with beta = 2 accepts steps that are ten to a thousand times as long
as SGLD's. With the normalising constants most of this gain is lost.

Reference: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible
SGLD proposal", section 2.3 and Fig. 1.
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc import plots

WEIGHT = 20  # c_n
DIMENSIONS = (10, 100, 1000)
RATES = 10.0 ** np.arange(-9.0, -1.75, 0.5)
WANTED = (0.5, 0.1)  # acceptance


class RateOfEachChain(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate for each chain, so that one run tries all rates."""

    def __init__(self, rates):
        self.rates = np.asarray(rates, "float32")

    def __call__(self, step):
        return ops.convert_to_tensor(self.rates)

    def get_config(self):
        return {"rates": self.rates.tolist()}


def log_likelihood(mean, batch):
    """Of N(mean, I) data, without the part that does not depend on the mean."""
    return ops.matmul(batch, mean) - 0.5 * ops.sum(ops.square(mean))


def proposals(train_size):
    """The proposals by name; their noise is sqrt(2 epsilon)/n."""
    reversible = mh.proposals.ReversibleLangevin
    return {
        "SGLD": mh.proposals.Langevin(noise_temperature=1.0 / train_size),
        "RSGLD, beta = 1": reversible(1.0),
        "RSGLD, beta = 2": reversible(2.0),
        "exact, beta = 2": reversible(2.0, normalized=True),
    }


def main(argv=None):
    """Runs all proposals. Returns the rows of the table."""
    args = parse(argv)
    print(
        f"n = {args.train_size:,}, m = {args.batch_size:,}, c_n = {WEIGHT}; "
        f"{args.steps:,} iterations; Keras on {keras.backend.backend()}"
    )
    rows = []
    for dimension in args.dimensions:
        target = mh.targets.GaussianMean(args.train_size, dimension, 0.0, args.seed)
        for name, proposal in proposals(args.train_size).items():
            print(f"d = {dimension}: {name}", flush=True)
            draws = mh.sample(
                mh.kernels.mhbt(
                    RateOfEachChain(RATES),
                    proposal=proposal,
                    temperature=args.train_size / WEIGHT,
                ),
                np.zeros((1, dimension)).repeat(len(RATES), 0),
                log_likelihood=log_likelihood,
                data=target.data,
                batch_size=args.batch_size,
                log_prior=target.log_prior,
                num_steps=args.steps,
                num_chains=len(RATES),
                every=args.steps,  # the counts are all that is needed
                seed=args.seed,
                progress=not args.quick,
            )
            acceptance = draws.info["acceptance"]
            largest = [max(RATES[acceptance >= a], default=np.nan) for a in WANTED]
            rows.append(
                {
                    "dimension": dimension,
                    "name": name,
                    "acceptance": acceptance,
                    "largest": largest,
                }
            )
    print(f"\n{as_text(rows)}\n")
    print(
        "Largest learning rate, on a grid of half decades, at which the share is "
        "accepted.\nThe backward move and its wider noise allow larger steps, the more "
        "so the higher the dimension."
    )
    save_picture(rows, args)
    return rows


def as_text(rows):
    """The rows as an aligned table."""
    titles = "".join(f"{f'accepted {a:.0%}':>16}" for a in WANTED)
    lines = [f"   d  {'proposal':16}{titles}"]
    for row in rows:
        cells = "".join(f"{rate:16.1e}" for rate in row["largest"])
        lines.append(f"{row['dimension']:4d}  {row['name']:16}{cells}")
    return "\n".join(lines)


def save_picture(rows, args):
    """Saves the figure and says where."""
    count = 1 + len(args.dimensions)
    figure, axes = pyplot.subplots(
        1, count, figsize=(3.3 * count, 3.8), layout="constrained"
    )
    names = list(proposals(args.train_size))
    for index, name in enumerate(names):
        style = {
            "color": plots.style.COLOURS[index],
            "marker": plots.style.MARKERS[index],
            "markersize": 5,
        }
        mine = [row for row in rows if row["name"] == name]
        for place, dashes in enumerate(("-", ":")):
            axes[0].plot(
                [row["dimension"] for row in mine],
                [row["largest"][place] for row in mine],
                linestyle=dashes,
                label=name if place == 0 else None,
                **style,
            )
        for ax, row in zip(axes[1:], mine, strict=True):
            ax.plot(RATES, row["acceptance"], **style)
            ax.set_title(f"d = {row['dimension']}")
    axes[0].set(xscale="log", yscale="log", xlabel="dimension")
    axes[0].set_title(
        f"largest rate at which {WANTED[0]:.0%} (solid)\n"
        f"or {WANTED[1]:.0%} (dotted) is accepted",
        fontsize=10,
    )
    axes[0].set_ylabel(r"learning rate $\epsilon$")
    axes[1].set_ylabel("share of proposals that is accepted")
    for ax in axes[1:]:
        ax.set(xscale="log", xlabel=r"learning rate $\epsilon$", ylim=(-0.02, 1.02))
    for ax in axes:
        ax.grid(color=plots.style.GREY, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=len(names), frameon=False)
    figure.suptitle(
        "Metropolis-Hastings on mini-batches: reversible moves (RSGLD) are accepted at "
        "larger steps than Langevin moves (SGLD)",
        fontsize=11,
    )
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    figure.savefig(args.output, dpi=150)
    print(f"saved {args.output}")


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, help="iterations of each chain")
    parser.add_argument("--dimensions", type=int, nargs="+", metavar="D")
    parser.add_argument("--train-size", type=int, default=10_000, help="n")
    parser.add_argument("--batch-size", type=int, default=1000, help="m")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and chains")
    parser.add_argument(
        "--quick", action="store_true", help="100 steps, d = 10 and 100"
    )
    parser.add_argument("--output", default="out/acceptance.png")
    args = parser.parse_args(argv)
    if args.steps is None:
        args.steps = 100 if args.quick else 1000
    if args.dimensions is None:
        args.dimensions = DIMENSIONS[:2] if args.quick else DIMENSIONS
    return args


if __name__ == "__main__":
    main()
