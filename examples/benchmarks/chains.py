"""Time of a step of `mh.sample` beside blackjax's kernel in `lax.scan`, on JAX.

SGLD, or contour SGLD with 50 subregions of the energy, on a mixture of two normals in
one dimension. Both run the same number of steps and
chains in one process, by turns; both keep every position. The time is that of a run
less that of a short one, so that compilation and set-up do not count, over the steps.

    python examples/benchmarks/chains.py            # needs blackjax (the `dev` extra)
    python examples/benchmarks/chains.py --kernel csgld
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
PARTITIONS, GAP, LOWEST, ZETA, STEP_SIZE = 50, 0.25, 0.5, 0.75, 1e-3


def kernel_of(name):
    """Our kernel."""
    if name == "sgld":
        return mh.kernels.sgld(STEP)
    return mh.kernels.csgld(
        STEP,
        energy_min=LOWEST,
        energy_gap=GAP,
        partitions=PARTITIONS,
        zeta=ZETA,
        step_size=STEP_SIZE,
    )


def log_density(x):
    """Log density of 0.4 N(-1.5, 0.6^2) + 0.6 N(1, 0.9^2), up to a constant."""
    left = np.log(0.4 / 0.6) - 0.5 * ops.square((x + 1.5) / 0.6)
    right = np.log(0.6 / 0.9) - 0.5 * ops.square((x - 1.0) / 0.9)
    return ops.logaddexp(left, right)


def run_ours(kernel, chains, steps):
    """Seconds of a run, and the draws."""
    began = time.perf_counter()
    draws = mh.sample(
        kernel,
        np.zeros((chains, 1)),
        log_density=lambda x: log_density(x[0]),
        num_steps=steps,
        num_chains=chains,
        progress=False,
    )
    return time.perf_counter() - began, draws.position


def make_blackjax(name, chains):
    """A function of the number of steps that runs blackjax's kernel of this name."""
    import blackjax
    import jax

    def value(position, batch):
        return log_density(position[0])

    def gradient(position, batch):
        return jax.grad(value)(position, batch)

    if name == "sgld":
        kernel = blackjax.sgld(gradient)
        state = np.zeros((chains, 1), "float32")

        def one(key, state):
            state = kernel.step(key, state, None, STEP)
            return state, state
    else:
        kernel = blackjax.csgld(value, gradient, ZETA, PARTITIONS, GAP, LOWEST)
        state = jax.vmap(kernel.init)(np.zeros((chains, 1), "float32"))

        def one(key, state):
            state = kernel.step(key, state, None, STEP, STEP_SIZE)
            # The position and its weight, as ours gives them.
            weight = ZETA * jax.numpy.log(state.energy_pdf[state.energy_idx])
            return state, (state.position, weight)

    @jax.jit
    def scan(keys, state):
        def step(state, key):
            return jax.vmap(one)(jax.random.split(key, chains), state)

        return jax.lax.scan(step, state, keys)[1]

    def run(steps):
        began = time.perf_counter()
        keys = jax.random.split(jax.random.key(0), steps)
        kept = jax.tree.map(np.asarray, scan(keys, state))
        return time.perf_counter() - began, kept

    return run


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernel", choices=["sgld", "csgld"], default="sgld")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 100, 10000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few steps, two rounds")
    arguments = parser.parse_args()
    rounds = 2 if arguments.quick else arguments.rounds
    kernel = kernel_of(arguments.kernel)
    with_peer = keras.config.backend() == "jax"

    print(
        f"backend {keras.config.backend()}, {arguments.kernel}, microseconds a step, "
        f"median of {rounds}"
    )
    print(f"{'chains':>7}  {'mh.sample':>10}  {'blackjax':>10}  {'ratio':>6}")
    for chains in arguments.chains:
        long = int(1e7 / max(chains, 20) ** 0.8)
        long = max(long // (10 if arguments.quick else 1), 200)
        short = long // 10
        peer = make_blackjax(arguments.kernel, chains) if with_peer else None
        if peer is not None:
            peer(short), peer(long)  # compiles for both lengths
        ours, theirs = [], []
        for _ in range(rounds):
            difference = (
                run_ours(kernel, chains, long)[0] - run_ours(kernel, chains, short)[0]
            )
            ours.append(1e6 * difference / (long - short))
            if peer is not None:
                difference = peer(long)[0] - peer(short)[0]
                theirs.append(1e6 * difference / (long - short))
        mine = statistics.median(ours)
        other = statistics.median(theirs) if theirs else float("nan")
        print(f"{chains:>7}  {mine:>10.2f}  {other:>10.2f}  {mine / other:>6.2f}")


if __name__ == "__main__":
    main()
