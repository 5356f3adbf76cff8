"""How bad can one sample be? PSGLD on the network of `first_steps.py`, several rates.

At a large rate single epochs of PSGLD end far up: the energy rises by a factor, and
falls again. The same happens to Adam. Samples from such epochs predict badly, and their
average hardly feels them. Nothing here uses test images: a fifth of the training images
of digits scores the samples.

    python examples/benchmarks/spikes.py --seeds 4
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import temperatures

from keras_mhmcmc import metrics

RATES = (0.005, 0.003, 0.002, 0.001)


def run(rate, seed, epochs):
    """Scores of the average, of the samples, and the height of the largest spike."""
    model, posterior, x, labels = temperatures.held_out_run(seed, epochs, rate=rate)
    members = posterior.ensemble(model).predict_members(x)
    energies = model.history.history["energy"][epochs // 2 :]
    nlls = [metrics.nll(one, labels) for one in members]
    right = [metrics.accuracy(one, labels) for one in members]
    return {
        "average": metrics.nll(members.mean(axis=0), labels),
        "median": np.median(nlls),
        "worst": max(nlls),
        "least": min(right),
        "spike": max(energies) / np.median(energies),
    }


def main(argv=None):
    """Print a line for each rate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", nargs="+", type=float, default=RATES)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=200)
    args = parser.parse_args(argv)
    print(
        "| rate | NLL of the average | NLL of the median sample | NLL of the worst "
        "sample | its accuracy | highest energy / median |"
    )
    print("|---|---|---|---|---|---|")
    for rate in args.rates:
        rows = [run(rate, seed, args.epochs) for seed in range(args.seeds)]
        mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        cells = [f"{rate:g}", f"{mean['average']:.3f}", f"{mean['median']:.3f}"]
        cells += [f"{mean['worst']:.2f}", f"{mean['least']:.2f}"]
        print("| " + " | ".join([*cells, f"{mean['spike']:.1f}"]) + " |", flush=True)


if __name__ == "__main__":
    main()
