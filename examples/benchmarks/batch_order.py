"""MHBT on mini-batches in a fixed order and in a shuffled one, in one dimension.

The target is the mean of 200 normal numbers. 500 chains make a random walk in `fit`,
with batches of 20, with c_n = m, the default, and with c_n = sqrt(m). The density
exp(-c_n l_I) of the mean and the batch I together is a mixture of normals with one
component for each batch. A fixed order has ten batches. Shuffling makes all batches
possible.

    KERAS_BACKEND=jax python examples/benchmarks/batch_order.py
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

EXAMPLES, BATCH = 200, 20


def compare(args):
    """The variance of the mean in each order, and the exact ones."""
    n, m = EXAMPLES, BATCH
    target = np.random.default_rng(args.seed).normal(size=n)
    for weight in (m**0.5, m):
        kept = {}
        for shuffle in (True, False):
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
            model = keras.Sequential([keras.Input((1,)), layer])
            chains = mh.ParallelChains(model, 500, seed=args.seed)
            chains.compile(
                mh.MHBT(
                    1.5 / weight**0.5,
                    train_size=n,
                    batch_size=m,
                    temperature=n / weight,
                    seed=args.seed,
                ),
                loss=mh.losses.GaussianNLL(1.0),
            )
            posterior = mh.PosteriorSamples(burn_in=args.steps // 5, every=3)
            chains.fit(
                np.ones((n, 1), "float32"),
                target[:, None].astype("float32"),
                batch_size=m,
                epochs=args.steps * m // n,
                shuffle=shuffle,
                verbose=0,
                callbacks=[posterior],
            )
            values = posterior.to_arviz().posterior
            (name,) = values.data_vars
            kept[shuffle] = np.asarray(values[name]).var()
        print(f"n = {n}, m = {m}, c_n = {weight:.1f}; variance of the mean")
        print(f"  {'tempered posterior':40}{1.0 / weight:.3f}")
        rng = np.random.default_rng(args.seed)
        every = np.array([rng.permutation(target)[:m] for _ in range(200_000)])
        for name, batches, shuffle in (
            ("fixed order", target.reshape(-1, m), False),
            ("shuffled", every, True),
        ):
            exact = mixture_variance(batches, weight)
            print(f"  {f'exact, {name}':40}{exact:.3f}")
            print(f"  {f'draws, {name}':40}{kept[shuffle]:.3f}", flush=True)


def mixture_variance(batches, weight):
    """Variance of the mean under exp(-c_n l_I) on it and these batches together."""
    odds = -0.5 * weight * batches.var(1)
    share = np.exp(odds - odds.max())
    share /= share.sum()
    centres = batches.mean(1)
    return 1.0 / weight + share @ centres**2 - (share @ centres) ** 2


def main(argv=None):
    """Prints the variances."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print(f"{keras.backend.backend()}, {args.steps} steps")
    compare(args)


if __name__ == "__main__":
    main()
