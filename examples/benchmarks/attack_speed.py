"""Images a second that PGD attacks: a single network and an ensemble of thirty.

The network is the perceptron 784-600-10, and the attack takes 20 steps. The times of
the compiled attack count. The program prints medians of the rounds.

    KERAS_BACKEND=jax python examples/benchmarks/attack_speed.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import statistics

import measuring
import workloads
from ensemble import MEMBERS
from ensemble import make_ensemble

import keras_mhmcmc as mh

STEPS = 20


def measure(model_name, count, rounds):
    """Rows: images a second of the single network and of the ensemble."""
    model = workloads.perceptron(workloads.WORKLOADS[model_name].widths)
    ensemble, _ = make_ensemble(model)
    x, y = workloads.data(
        model_name, 1 + count // workloads.WORKLOADS[model_name].batch
    )
    x, y = x[:count], y[:count]

    def attack(predictor):
        return measuring.seconds(
            lambda: mh.adversarial.pgd(predictor, x, 0.1, y=y, steps=STEPS)
        )

    tasks = {1: lambda: attack(model), MEMBERS: lambda: attack(ensemble)}
    for task in tasks.values():
        task()  # compiles
    times = measuring.alternate(tasks, rounds)
    return [
        {"members": members, "images": count, "images_per_s": count / median}
        for members, values in times.items()
        for median in [statistics.median(values)]
    ]


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=5)
    parser.add_argument("--images", type=int, default=10_000)
    parsed = measuring.parse(parser, arguments)
    model = "mlp"
    if parsed.quick:
        model, parsed.images, parsed.rounds = "tiny", 100, 1
    rows = measure(model, parsed.images, parsed.rounds)
    measuring.print_table(
        f"PGD with {STEPS} steps, {model}, medians of {parsed.rounds} rounds",
        {"members": "members", "images": "images", "images_per_s": "images a second"},
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
