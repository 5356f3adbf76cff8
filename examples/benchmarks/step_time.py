"""The time of a sampler's step, in milliseconds and as a ratio to the floor.

The floor is the time of a step of Keras' SGD in the same `fit`, plus the time to draw
one standard normal number for each weight, with the fastest generator found for the
backend. The models are `mlp`, a perceptron 784-600-10 (477,010 weights) with batches of
100; `resnet20`, ResNet20 on images of 32x32x3 with batches of 128; and `large`, a
perceptron of 25 million weights with batches of 100. The optimizers take turns. The
program prints medians, and the quartiles of the ratios.

    KERAS_BACKEND=jax python examples/benchmarks/step_time.py --model mlp --rounds 15
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics

import keras
import measuring
import workloads


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
            # Reading one number waits for all of them.
            return lambda i: function(tf.constant([7, i], tf.int64))[:1].numpy()

        return {
            f"{function.__name__}{', XLA' if xla else ''}": compiled(function, xla)
            for function in (inverse, normal)
            for xla in (False, True)
        }
    import torch

    from keras_mhmcmc._backend.torch.random import rows_of

    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device)

    def randn(i):
        torch.randn(count, generator=generator, device=device)
        if device == "cuda":
            torch.cuda.synchronize()

    # On a CPU the package has its own.
    like = torch.empty(0, device=device)

    def own(i):
        rows_of([i], count, 0, like)

    return {"randn": randn, "the package's own": own}


def epoch_of(model, x, y, batch):
    """A function that fits for an epoch and returns the milliseconds of a step."""
    steps = len(x) // batch

    def fit():
        model.fit(x, y, batch_size=batch, shuffle=False, verbose=0)

    return lambda: measuring.seconds(fit) / steps * 1e3


def draws_of(draw, repeats):
    """A function that draws and returns the milliseconds of a draw."""

    def run():
        for i in range(repeats):
            draw(i)

    return lambda: measuring.seconds(run) / repeats * 1e3


def measure(name, chosen, rounds, steps=None):
    """Rows of one model: milliseconds and ratio of each optimizer and of the floor."""
    workload = workloads.WORKLOADS[name]
    x, y = workloads.data(name, steps or workload.steps)
    every = workloads.optimizers(workload.batch)
    if not chosen:
        skipped = () if name == "mlp" else workloads.VARIANTS
        chosen = [key for key in every if key not in skipped]
    chosen = ["SGD", *(key for key in chosen if key != "SGD")]
    tasks = {}
    for key in chosen:
        model = workloads.network(name, every[key])
        tasks[key] = epoch_of(model, x, y, workload.batch)
        weights = model.count_params()
    draws = generators(weights)
    repeats = min(20, max(1, int(1e7 / weights)))
    tasks |= {(key,): draws_of(draw, repeats) for key, draw in draws.items()}
    for task in tasks.values():
        task()  # compiles
    figures = measuring.alternate(tasks, rounds)
    fastest = min(draws, key=lambda key: statistics.median(figures[key,]))
    floor = [a + b for a, b in zip(figures["SGD"], figures[fastest,], strict=True)]
    rows = []
    for key, times in [*((k, figures[k]) for k in chosen), ("floor", floor)]:
        ratios = measuring.ratios(times, floor)
        rows.append(
            {
                "model": name,
                "weights": weights,
                "optimizer": key,
                "ms": statistics.median(times),
                "ratio": statistics.median(ratios),
                "quartiles": measuring.quartiles(ratios),
            }
        )
    rows[-1]["generator"] = fastest
    rows[-1]["generators_ms"] = {
        key: measuring.rounded(statistics.median(figures[key,])) for key in draws
    }
    rows[-1]["draw_ms"] = statistics.median(figures[fastest,])
    return rows


def main(arguments=None):
    """Measures, prints the tables, and returns their rows."""
    parser = measuring.parser(__doc__, rounds=15)
    parser.add_argument(
        "--model", choices=workloads.WORKLOADS, nargs="+", default=["mlp"]
    )
    parser.add_argument("--only", nargs="+", help="optimizers to time besides SGD")
    parser.add_argument("--steps", type=int, help="in a round, for a fast device")
    parser.add_argument("--dtype-policy", help='of Keras, such as "mixed_bfloat16"')
    parsed = measuring.parse(parser, arguments)
    if parsed.quick:
        parsed.model, parsed.rounds, parsed.steps = ["tiny"], 2, None
        parsed.only = (parsed.only or ["SGLD", "RSGLD"])[:2]
    if parsed.dtype_policy:
        keras.config.set_dtype_policy(parsed.dtype_policy)
    everything = []
    for name in parsed.model:
        rows = measure(name, parsed.only, parsed.rounds, parsed.steps)
        floor = rows[-1]
        measuring.print_table(
            f"{name}, {floor['weights']:,} weights, medians of {parsed.rounds} rounds",
            {
                "optimizer": "",
                "ms": "ms/step",
                "ratio": "/ floor",
                "quartiles": "quartiles",
            },
            rows,
        )
        print(
            f"the floor has {floor['draw_ms']:.2f} ms for the normals, by "
            f"{floor['generator']}; all generators: {floor['generators_ms']}"
        )
        everything += rows
    measuring.report(__file__, parsed, everything)
    return everything


if __name__ == "__main__":
    main()
