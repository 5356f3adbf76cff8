"""The variance of RSGLD with and without normalising constants, in two dimensions.

Mini-batch Metropolis-Hastings with reversible Langevin proposals samples the mean of
normal data (n = 10,000, m = 1000, c_n = 20), with the learning rate 0.3 and noise at
the temperature of the target. The program prints the variance of the draws over the
variance of the tempered posterior. The batches alone widen the draws by c_n/m, 2%.

    KERAS_BACKEND=jax python examples/benchmarks/reversible_law.py
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

EXAMPLES, BATCH, WEIGHT = 10_000, 1000, 20
TEMPERATURE = EXAMPLES / WEIGHT


def variance(beta, normalized, args):
    """Variance over the target's, its standard error, and the acceptance."""
    target = mh.targets.GaussianMean(EXAMPLES, dimension=2, true_mean=0.0)
    mean, covariance = target.moments(TEMPERATURE)
    proposal = mh.proposals.ReversibleLangevin(
        beta, noise_temperature=TEMPERATURE, normalized=normalized
    )
    kernel = mh.kernels.mhbt(0.3, proposal=proposal, temperature=TEMPERATURE)
    draws = mh.sample(
        kernel,
        np.tile(mean, (args.chains, 1)).astype("float32"),
        log_likelihood=target.log_likelihood,
        log_prior=target.log_prior,
        data=target.data,
        batch_size=BATCH,
        num_steps=args.steps,
        burn_in=args.steps // 5,
        num_chains=args.chains,
        seed=args.seed,
        progress=False,
    )
    squares = np.square(draws.position - mean).mean(axis=(1, 2)) / covariance[0, 0]
    error = squares.std() / args.chains**0.5
    return squares.mean(), error, draws.info["acceptance"].mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{keras.backend.backend()}, {args.chains} chains of {args.steps} steps")
    print("beta  normalized  variance/target  accepted")
    for beta in (1.0, 1.5, 2.0, 3.0):
        for normalized in (True, False):
            ratio, error, accepted = variance(beta, normalized, args)
            print(
                f"{beta:4}  {normalized!s:10}  {ratio:.3f} +- {error:.3f}"
                f"{accepted:12.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
