"""Seconds of short runs of `mh.sample`, with a function and with `mh.log_density`.

SGLD on a logistic regression with 1,000 rows and 10 features, 4 chains, 100 steps. The
first run with `mh.log_density` compiles its loop, and the later ones find it.

    python examples/benchmarks/reuse.py
    KERAS_BACKEND=tensorflow python examples/benchmarks/reuse.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import statistics
import time

import measuring
import numpy as np
from keras import ops

import keras_mhmcmc as mh


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def seconds(likelihood, data):
    """Of one run."""
    began = time.perf_counter()
    mh.sample(
        mh.kernels.sgld(0.1),
        np.zeros(data[0].shape[1]),
        log_likelihood=likelihood,
        data=data,
        batch_size=100,
        num_steps=100,
        num_chains=4,
        progress=False,
    )
    return time.perf_counter() - began


def main(arguments=None):
    """Measures, prints the table, and returns its row."""
    parser = measuring.parser(__doc__, rounds=5)
    parsed = measuring.parse(parser, arguments)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 10)).astype("float32")
    data = x, (x[:, 0] > 0).astype("float32")
    row = {"kernel": "sgld"}
    for title, likelihood in (
        ("function", log_likelihood),
        ("reusable", mh.log_density(log_likelihood)),
    ):
        seconds(likelihood, data)  # loads the backend, or compiles
        times = [seconds(likelihood, data) for _ in range(parsed.rounds)]
        row[title] = statistics.median(times)
    measuring.print_table(
        f"seconds of a run, medians of {parsed.rounds}",
        {"kernel": "kernel", "function": "function", "reusable": "mh.log_density"},
        [row],
    )
    measuring.report(__file__, parsed, [row])
    return [row]


if __name__ == "__main__":
    main()
