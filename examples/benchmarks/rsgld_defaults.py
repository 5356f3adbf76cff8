"""Which refreshes suit RSGLD: its share of refreshes, and its temperature.

    python examples/benchmarks/rsgld_defaults.py --problem digits
    python examples/benchmarks/rsgld_defaults.py --problem cnn --data fashion_mnist.npz
    python examples/benchmarks/rsgld_defaults.py --problem mlp --data mnist.npz
    python examples/benchmarks/rsgld_defaults.py --table

The problems `digits` and `cnn` are those of `freezing.py`, and `mlp` is the network of
`mnist_table1.py` (784-600-10, 55,000 images), at 0.4. All scores are those of images
that are held out of training; no test image is used. A setting is an energy weight
c_n = N/T in units of sqrt(m), the square root of the batch size, a probability rho of a
refresh, and a probability p of a forward move. The rows go to `--out` as they come, and
a second call goes on where the first one stopped. `--table` prints the rows that are
there.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import freezing
import keras
import numpy as np

import keras_mhmcmc as mh


class Setting(NamedTuple):
    """What is compared."""

    weight: float  # c_n / sqrt(m)
    share: float  # of refreshes, rho
    forward: float  # probability of a forward move, p


# The first one is what the others are compared with.
GRID = (
    Setting(2.0, 0.1, 0.9),
    Setting(0.5, 0.3, 0.9),
    Setting(0.5, 0.2, 0.9),
    Setting(0.5, 0.2, 0.99),
    Setting(0.5, 0.1, 0.9),
    Setting(2.0, 0.3, 0.9),
    Setting(0.5, 0.1, 0.99),
    Setting(2.0, 0.1, 0.99),
)
SIZES = freezing.SETTINGS | {
    "mlp": {"rate": 0.4, "batch": 100, "epochs": 40, "train": 60000, "test": 5000}
}
STDDEV = 0.03  # of the first weights of the perceptron, as in table 1
SCORES = ("accuracy", "nll", "ece")


def load(problem, path):
    """The training images and the held-out ones, each with its labels."""
    if problem == "mlp":
        with np.load(path) as file:
            x, y = file["x_train"][..., None] / np.float32(255), file["y_train"]
        held = 5000
    else:
        x, y, _, _ = freezing.load(problem, path)
        held = len(x) // 5
    return x[held:], y[held:], x[:held], y[:held]


def perceptron(input_shape):
    """The network of table 1."""
    first = keras.initializers.RandomNormal(stddev=STDDEV)
    return keras.Sequential(
        [
            keras.Input(input_shape),
            keras.layers.Flatten(),
            keras.layers.Dense(600, "relu", kernel_initializer=first),
            keras.layers.Dense(10, kernel_initializer=first),
        ]
    )


def run(problem, setting, seed, arrays, epochs):
    """Train once, and score the held-out images."""
    x, y, x_held, y_held = arrays
    batch, rate = SIZES[problem]["batch"], SIZES[problem]["rate"]
    keras.utils.set_random_seed(seed)
    shape = x.shape[1:]
    model = (
        perceptron(shape) if problem == "mlp" else freezing.make_model(problem, shape)
    )
    optimizer = mh.RSGLD(
        rate,
        train_size=len(x),
        batch_size=batch,
        temperature=len(x) / (setting.weight * math.sqrt(batch)),
        refresh_probability=setting.share,
        forward_probability=setting.forward,
        warm_up=500,
        seed=seed,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    steps = -(-len(x) // batch)
    posterior = mh.PosteriorSamples(
        burn_in=steps * epochs // 2, every=max(steps, steps * epochs // 50)
    )
    begin = time.perf_counter()
    options = {"batch_size": batch, "epochs": epochs, "verbose": 0}
    logs = model.fit(x, y, callbacks=[posterior], **options).history
    forward = logs["forward_acceptance"][epochs // 2 :]
    row = {"problem": problem, "setting": list(setting), "seed": seed}
    row |= {"backend": keras.backend.backend(), "epochs": epochs}
    row["seconds"] = round(time.perf_counter() - begin, 1)
    row["forward"] = [round(float(value), 3) for value in forward]
    row["refreshes"] = round(float(np.nanmean(logs["refresh_acceptance"])), 3)
    row["rate"] = round(float(logs["learning_rate"][-1]), 4)
    classifiers = {
        "last": mh.Classifier(model, from_logits=True),
        "ensemble": mh.Classifier(posterior.ensemble(model)),
    }
    table = mh.evaluate(classifiers, x_held, y_held)
    for name, scores in zip(classifiers, table.rows, strict=True):
        row[name] = [round(float(scores[score]), 5) for score in SCORES]
    return row


def table(rows):
    """A line for each setting: means over the seeds, and paired differences."""
    names = [
        "problem",
        "epochs",
        "c_n/√m",
        "ρ",
        "p",
        "seeds",
        "forward acceptance, lowest of an epoch",
    ]
    names += ["error of the last state, %", "NLL of the last state"]
    names += ["NLL of the ensemble", "minus that of the first line"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    kinds = dict.fromkeys((row["problem"], row["epochs"]) for row in rows)
    for kind in kinds:
        chosen = [row for row in rows if (row["problem"], row["epochs"]) == kind]
        base = nll_by_seed(chosen, GRID[0])
        for setting in GRID:
            found = [row for row in chosen if row["setting"] == list(setting)]
            if found:
                lines.append(line(kind, setting, found, base))
    return "\n".join(lines)


def nll_by_seed(rows, setting):
    """The NLL of the ensemble of each run with a setting."""
    return {
        (row["backend"], row["seed"]): row["ensemble"][1]
        for row in rows
        if row["setting"] == list(setting)
    }


def line(kind, setting, found, base):
    """One line of the table."""
    forward = np.mean([np.nanmean(row["forward"]) for row in found])
    lowest = min(np.nanmin(row["forward"]) for row in found)
    last = np.mean([row["last"] for row in found], axis=0)
    ensemble = np.mean([row["ensemble"] for row in found], axis=0)
    own = nll_by_seed(found, setting)
    pairs = np.array([own[key] - base[key] for key in own if key in base])
    paired = "—"
    if setting != GRID[0] and len(pairs) > 1:
        error = pairs.std(ddof=1) / math.sqrt(len(pairs))
        paired = f"{pairs.mean():+.4f} ± {error:.4f}".replace("-", "−")
    cells = [*map(str, kind), *(f"{value:g}" for value in setting)]
    cells += [
        str(len(found)),
        f"{forward:.2f}, {lowest:.2f}",
        f"{100 * (1 - last[0]):.2f}",
    ]
    cells += [f"{last[1]:.4f}", f"{ensemble[1]:.4f}"]
    return "| " + " | ".join([*cells, paired]) + " |"


def main(argv=None):
    """Run what the file of results lacks, and print the table. Returns the rows."""
    args = parse(argv)
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    if not args.table:
        epochs = args.epochs or SIZES[args.problem]["epochs"]
        backend = keras.backend.backend()
        keys = ("problem", "backend", "epochs", "seed")
        done = [(*(row[key] for key in keys), *row["setting"]) for row in rows]
        arrays = load(args.problem, args.data)
        for seed in range(args.seeds):
            for setting in GRID[: args.settings]:
                if (args.problem, backend, epochs, seed, *setting) in done:
                    continue
                rows.append(run(args.problem, setting, seed, arrays, epochs))
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=["digits", "cnn", "mlp"], default="digits")
    parser.add_argument("--data", help=".npz file with the images and labels")
    parser.add_argument("--epochs", type=int, help="default: those of the problem")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ...")
    parser.add_argument("--settings", type=int, help="only so many of the settings")
    parser.add_argument("--table", action="store_true", help="only print the rows")
    parser.add_argument(
        "--out", default="out/rsgld_defaults.jsonl", help="file of the rows"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
