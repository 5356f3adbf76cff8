"""What a sampler's step costs: milliseconds, and the ratio to the floor.

The floor is a step of Keras' SGD plus one draw of as many standard normals as the model
has weights, by the fastest generator of the backend that was found. A multilayer
perceptron 784-600-10 (476,410 weights) is trained with batches of 100; the optimizers
take turns, so that a busy machine slows all of them alike, and medians are printed.

    KERAS_BACKEND=jax python examples/benchmarks/step_time.py --rounds 15
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_mhmcmc as mh

SIZE, BATCH, STEPS = 10_000, 100, 100


def model(optimizer):
    """The perceptron, compiled."""
    layers = [
        keras.Input((784,)),
        keras.layers.Dense(600, "relu"),
        keras.layers.Dense(10, "softmax"),
    ]
    network = keras.Sequential(layers)
    network.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    return network


def optimizers():
    """One of each, with the settings of the papers' networks."""
    sizes = {"train_size": SIZE, "batch_size": BATCH}
    langevin = mh.proposals.Langevin()
    return {
        "SGD": keras.optimizers.SGD(0.1),
        "Adam": keras.optimizers.Adam(1e-3),
        "SGLD": mh.SGLD(0.1, train_size=SIZE),
        "PSGLD": mh.PSGLD(1e-3, train_size=SIZE),
        "SGHMC": mh.SGHMC(0.01, train_size=SIZE),
        "MHBT, random walk": mh.MHBT(1e-4, **sizes),
        "MHBT, Langevin": mh.MHBT(0.1, proposal=langevin, **sizes),
        "RSGLD": mh.RSGLD(0.1, **sizes),
        "MINT": mh.MINT(0.1, **sizes),
        "CSGLD, 200 bins": contour(mh.CSGLD, 200),
        "CSGLD, 10000 bins": contour(mh.CSGLD, 10_000),
        "CSGHMC, 200 bins": contour(mh.CSGHMC, 200),
        "SGLD-SA": sparse(mh.SGLDSA, 0.1),
        "SGHMC-SA": sparse(mh.SGHMCSA, 0.01),
        "ESM": sparse(mh.ESM, 1e-3),
    }


def contour(sampler, partitions):
    """A contour sampler whose subregions reach over the energies of the run."""
    return sampler(
        0.1 if sampler is mh.CSGLD else 0.01,
        train_size=SIZE,
        energy_min=100.0,
        energy_gap=30_000.0 / partitions,
        partitions=partitions,
        zeta=1.0,
    )


def sparse(sampler, rate):
    """A spike-and-slab sampler of all kernels."""
    return sampler(rate, train_size=SIZE, sparse="kernel", v0=1e-3, v1=1.0)


def generators(count):
    """Functions of a step number that draw `count` standard normals, by name."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def jitted(implementation):
            draw = jax.jit(lambda key: jax.random.normal(key, (count,)))

            def run(i):
                draw(jax.random.key(i, impl=implementation)).block_until_ready()

            return run

        return {name: jitted(name) for name in ("threefry2x32", "rbg")}
    if backend == "tensorflow":
        import tensorflow as tf

        def inverse(seed):
            uniform = tf.random.stateless_uniform(
                (count,), seed, minval=-1.0 + 2.0**-24, maxval=1.0, alg="philox"
            )
            return 2.0**0.5 * tf.math.erfinv(uniform)

        def normal(seed):
            return tf.random.stateless_normal((count,), seed, alg="philox")

        def compiled(function, xla):
            function = tf.function(function, jit_compile=xla)
            return lambda i: function(tf.constant([7, i], tf.int64)).numpy()

        return {
            f"{function.__name__}{', XLA' if xla else ''}": compiled(function, xla)
            for function in (inverse, normal)
            for xla in (False, True)
        }
    import torch

    generator = torch.Generator()
    return {"randn": lambda i: torch.randn(count, generator=generator)}


def milliseconds(function, repeats):
    """Mean time of `function(i)` over `repeats` calls."""
    start = time.perf_counter()
    for i in range(repeats):
        function(i)
    return (time.perf_counter() - start) / repeats * 1e3


def main():
    """Measures, prints the table, and writes it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="turns of each")
    parser.add_argument("--only", nargs="+", help="optimizers to time besides SGD")
    parser.add_argument("--json", help="file to write the results to")
    arguments = parser.parse_args()

    rng = np.random.default_rng(0)
    x = rng.random((SIZE, 784), dtype="float32")
    y = rng.integers(0, 10, SIZE)
    chosen = optimizers()
    if arguments.only:
        chosen = {name: chosen[name] for name in ["SGD", *arguments.only]}
    networks = {name: model(optimizer) for name, optimizer in chosen.items()}
    draws = generators(networks["SGD"].count_params())
    for name, network in networks.items():
        print(f"compiling {name}", flush=True)
        network.fit(x[: 3 * BATCH], y[: 3 * BATCH], batch_size=BATCH, verbose=0)
    for draw in draws.values():
        draw(0)

    steps = {name: [] for name in networks}
    normals = {name: [] for name in draws}
    for turn in range(arguments.rounds):
        print(f"round {turn + 1} of {arguments.rounds}", end="\r", flush=True)
        for name, network in networks.items():
            start = time.perf_counter()
            network.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
            steps[name].append((time.perf_counter() - start) / STEPS * 1e3)
        for name, draw in draws.items():
            normals[name].append(milliseconds(draw, 20))

    medians = {name: statistics.median(times) for name, times in steps.items()}
    fastest = min(normals, key=lambda name: statistics.median(normals[name]))
    draw = statistics.median(normals[fastest])
    floor = medians["SGD"] + draw
    print(
        f"{keras.backend.backend()}, {os.cpu_count()} cores, medians of "
        f"{arguments.rounds} rounds of {STEPS} steps"
    )
    print(f"{'':20}{'ms/step':>9}{'/ floor':>9}")
    for name, value in medians.items():
        print(f"{name:20}{value:9.2f}{value / floor:9.2f}")
    print(
        f"{'floor':20}{floor:9.2f}     1.00   SGD + {draw:.2f} ms for the normals "
        f"({fastest})"
    )
    if arguments.json:
        results = {
            "backend": keras.backend.backend(),
            "milliseconds": medians,
            "draw": draw,
            "generator": fastest,
            "floor": floor,
        }
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
