"""Time of an ensemble's predictions beside that of single compiled models.

Thirty MLPs 784-600-10 predict 10,000 images as one `mh.Ensemble`. A single model, which
is compiled once, does the same with each member's weights in turn. Both use `predict`,
by turns. The time to set the weights does not count. Then the program measures the peak
memory for two chunks and two numbers of images, each in its own process.

    KERAS_BACKEND=torch python examples/benchmarks/ensemble.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import resource
import statistics

import measuring
import numpy as np
import workloads

import keras_mhmcmc as mh

MEMBERS = 30
IMAGES = 10_000
BATCH = 256
LARGE_BATCH = 4000  # 10 MB of activations for each member


def network():
    """The member's architecture."""
    return workloads.perceptron((784, 600, 10))


def make_ensemble(model, chunk=None):
    """An ensemble of random members, and their weights."""
    rng = np.random.default_rng(0)
    stacked = [
        (0.05 * rng.standard_normal((MEMBERS, *w.shape))).astype("float32")
        for w in model.weights
    ]
    ensemble = mh.Ensemble(model, MEMBERS, chunk=chunk)
    ensemble.set_members(stacked, np.ones(MEMBERS))
    return ensemble, stacked


def timed(rounds):
    """Seconds of the single models and of the ensemble, a number for each round."""
    model = network()
    ensemble, stacked = make_ensemble(model)
    x = np.random.default_rng(1).random((IMAGES, 784), dtype="float32")
    outputs = {}

    def predict(predictor):
        outputs[predictor.name] = predictor.predict(x, batch_size=BATCH, verbose=0)

    def one_by_one():
        total, mean = 0.0, 0.0
        for i in range(MEMBERS):
            model.set_weights([values[i] for values in stacked])
            total += measuring.seconds(lambda: predict(model))
            mean = mean + outputs[model.name] / MEMBERS
        outputs["mean"] = mean
        return total

    predict(model), predict(ensemble)  # compile
    times = measuring.alternate(
        {
            "single": one_by_one,
            "ensemble": lambda: measuring.seconds(lambda: predict(ensemble)),
        },
        rounds,
    )
    np.testing.assert_allclose(outputs[ensemble.name], outputs["mean"], atol=1e-5)
    return times["single"], times["ensemble"]


def peak(chunk, images):
    """Peak memory in MB of a process that predicts so many images, less the images.

    Batches are large, so that the activations of one member count.
    """
    ensemble, _ = make_ensemble(network(), chunk)
    x = np.random.default_rng(1).random((images, 784), dtype="float32")
    ensemble.predict(x, batch_size=LARGE_BATCH, verbose=0)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (used - x.nbytes) / 1e6


def main(arguments=None):
    """Measures, prints the tables, and returns their rows."""
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    parsed = measuring.parse(parser, arguments)
    if parsed.peak:
        print(peak(*parsed.peak))
        return []
    if parsed.quick:
        parsed.rounds = 1

    single, together = timed(parsed.rounds)
    ratios = measuring.ratios(together, single)
    rows = [
        {
            "members": MEMBERS,
            "single_s": statistics.median(single),
            "ensemble_s": statistics.median(together),
            "ratio": statistics.median(ratios),
            "quartiles": measuring.quartiles(ratios),
        }
    ]
    measuring.print_table(
        f"{MEMBERS} networks 784-600-10, {IMAGES:,} images, seconds, medians of "
        f"{parsed.rounds} rounds",
        {
            "members": "members",
            "single_s": "one by one",
            "ensemble_s": "ensemble",
            "ratio": "ratio",
            "quartiles": "quartiles",
        },
        rows,
    )
    sizes = (2 * LARGE_BATCH,) if parsed.quick else (2 * LARGE_BATCH, 8 * LARGE_BATCH)
    memory = [
        {
            "chunk": chunk,
            "images": images,
            "peak_mb": float(
                measuring.fresh_process(__file__, "--peak", chunk, images)
            ),
        }
        for chunk in (1, MEMBERS)
        for images in sizes
    ]
    measuring.print_table(
        f"peak memory of a process, less the images, in batches of {LARGE_BATCH:,}",
        {"chunk": "chunk", "images": "images", "peak_mb": "MB"},
        memory,
    )
    measuring.report(__file__, parsed, rows + memory)
    return rows + memory


if __name__ == "__main__":
    main()
