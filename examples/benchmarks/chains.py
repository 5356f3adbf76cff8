"""Time of a step of `mh.sample` beside blackjax's kernel in `lax.scan`, on JAX.

SGLD on a mixture of two normals in one dimension. Both run the same number of steps and
chains in one process, by turns; both keep every position. The time is that of a run
less that of a short one, so that compilation and set-up do not count, over the steps.

    python examples/benchmarks/chains.py            # needs blackjax (the `dev` extra)
    KERAS_BACKEND=torch python examples/benchmarks/chains.py      # ours alone
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh

STEP = 0.05


def log_density(x):
    """Log density of 0.4 N(-1.5, 0.6^2) + 0.6 N(1, 0.9^2), up to a constant."""
    left = np.log(0.4 / 0.6) - 0.5 * ops.square((x + 1.5) / 0.6)
    right = np.log(0.6 / 0.9) - 0.5 * ops.square((x - 1.0) / 0.9)
    return ops.logaddexp(left, right)


def run_ours(chains, steps):
    """Seconds of a run, and the draws."""
    began = time.perf_counter()
    draws = mh.sample(
        mh.kernels.sgld(STEP),
        np.zeros((chains, 1)),
        log_density=lambda x: log_density(x[0]),
        num_steps=steps,
        num_chains=chains,
        progress=False,
    )
    return time.perf_counter() - began, draws.position


def make_blackjax(chains):
    """A function of the number of steps that runs blackjax's SGLD."""
    import blackjax
    import jax

    def gradient(position, batch):
        return jax.grad(lambda x: log_density(x[0]))(position)

    kernel = blackjax.sgld(gradient)

    def step(position, key):
        keys = jax.random.split(key, chains)
        position = jax.vmap(lambda k, x: kernel.step(k, x, None, STEP))(keys, position)
        return position, position

    @jax.jit
    def scan(keys, position):
        return jax.lax.scan(step, position, keys)[1]

    def run(steps):
        began = time.perf_counter()
        keys = jax.random.split(jax.random.key(0), steps)
        positions = np.asarray(scan(keys, np.zeros((chains, 1), "float32")))
        return time.perf_counter() - began, np.moveaxis(positions, 0, 1)

    return run


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 100, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few steps, two rounds")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    with_peer = keras.config.backend() == "jax"

    print(f"backend {keras.config.backend()}, microseconds a step, median of {rounds}")
    print(f"{'chains':>7}  {'mh.sample':>10}  {'blackjax':>10}  {'ratio':>6}")
    for chains in arguments.chains:
        long = int(2e6 / max(chains, 20) ** 0.8)
        long = max(long // (10 if arguments.quick else 1), 200)
        short = long // 10
        peer = make_blackjax(chains) if with_peer else None
        if peer is not None:
            peer(short), peer(long)  # compiles for both lengths
        ours, theirs = [], []
        for _ in range(rounds):
            difference = run_ours(chains, long)[0] - run_ours(chains, short)[0]
            ours.append(1e6 * difference / (long - short))
            if peer is not None:
                difference = peer(long)[0] - peer(short)[0]
                theirs.append(1e6 * difference / (long - short))
        mine = statistics.median(ours)
        other = statistics.median(theirs) if theirs else float("nan")
        print(f"{chains:>7}  {mine:>10.2f}  {other:>10.2f}  {mine / other:>6.2f}")


if __name__ == "__main__":
    main()
