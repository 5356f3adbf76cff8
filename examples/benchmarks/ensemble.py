"""Time of an ensemble's predictions beside that of single compiled models.

Thirty MLPs 784-600-10 predict 10,000 images: as one `mh.Ensemble`, and one after the
other, by a single model that is compiled once and given each member's weights. Both
by `predict`, by turns; the time to set the weights is left out. Then the peak memory
for two chunks and two numbers of images, each in a process of its own.

    KERAS_BACKEND=torch python examples/benchmarks/ensemble.py
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_mhmcmc as mh

MEMBERS = 30
IMAGES = 10_000
BATCH = 256
LARGE_BATCH = 4000  # 10 MB of activations for each member


def network():
    """The member's architecture."""
    return keras.Sequential(
        [
            keras.Input((784,)),
            keras.layers.Dense(600, "relu"),
            keras.layers.Dense(10, "softmax"),
        ]
    )


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


def seconds(function):
    """Wall time of a call, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def timed(rounds):
    """Seconds of the single models and of the ensemble, a number for each round."""
    model = network()
    ensemble, stacked = make_ensemble(model)
    x = np.random.default_rng(1).random((IMAGES, 784), dtype="float32")

    def predict(predictor):
        return predictor.predict(x, batch_size=BATCH, verbose=0)

    predict(model), predict(ensemble)  # compile
    single, together = [], []
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", end="\r", flush=True)
        total, mean = 0.0, 0.0
        for i in range(MEMBERS):
            model.set_weights([values[i] for values in stacked])
            took, outputs = seconds(lambda: predict(model))
            total, mean = total + took, mean + outputs / MEMBERS
        single.append(total)
        took, outputs = seconds(lambda: predict(ensemble))
        together.append(took)
        np.testing.assert_allclose(outputs, mean, atol=1e-5)
    return single, together


def peak(chunk, images):
    """Peak memory in MB of a process that predicts so many images, less the images.

    Batches are large, so that the activations of one member count.
    """
    ensemble, _ = make_ensemble(network(), chunk)
    x = np.random.default_rng(1).random((images, 784), dtype="float32")
    ensemble.predict(x, batch_size=LARGE_BATCH, verbose=0)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (used - x.nbytes) / 1e6


def main():
    """Measures, prints the tables, and writes them as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--json", help="file to write the results to")
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak(*arguments.peak))
        return

    single, together = timed(arguments.rounds)
    ratios = [b / a for a, b in zip(single, together, strict=True)]
    print(
        f"{keras.backend.backend()}, {os.cpu_count()} cores: {MEMBERS} networks "
        f"784-600-10, {IMAGES:,} images, medians of {arguments.rounds} rounds"
    )
    print(f"{MEMBERS} single predictions  {statistics.median(single):7.2f} s")
    print(f"the ensemble           {statistics.median(together):7.2f} s")
    print(f"ensemble / single      {statistics.median(ratios):7.2f}")

    memory = {}
    for chunk in (1, MEMBERS):
        for images in (2 * LARGE_BATCH, 8 * LARGE_BATCH):
            command = [sys.executable, __file__, "--peak", str(chunk), str(images)]
            output = subprocess.run(command, capture_output=True, check=True, text=True)
            memory[f"chunk {chunk}, {images} images"] = float(output.stdout.split()[-1])
    print(f"peak memory of a process, less the images, in batches of {LARGE_BATCH:,}")
    for name, value in memory.items():
        print(f"  {name:26}{value:6.0f} MB")
    if arguments.json:
        results = {
            "backend": keras.backend.backend(),
            "single": single,
            "ensemble": together,
            "memory": memory,
        }
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
