"""Does RSGLD freeze? Runs with the advice of the pages, several seeds, three problems.

    python examples/benchmarks/freezing.py --problem digits --runs 10
    python examples/benchmarks/freezing.py --problem mnist --data mnist.npz
    python examples/benchmarks/freezing.py --problem cnn --data fashion_mnist.npz

The problems: scikit-learn's digits (1,437 images, 64-64-10, 80 epochs at 0.5); 20,000
images of MNIST (784-200-10, 10 epochs at 0.4); 5,000 images of Fashion-MNIST
(convolutions of 16 and 32 filters, dense 64, 20 epochs at 0.1). A run is frozen if the
package warns of a chain that stands still. With `--sgd` each seed also trains SGD, at
the same rate and for as many epochs. The rows go to `--out` as they come, and a second
call goes on where the first one stopped.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

SETTINGS = {
    "digits": {"rate": 0.5, "batch": 96, "epochs": 80, "train": 1437, "test": 360},
    "mnist": {"rate": 0.4, "batch": 100, "epochs": 10, "train": 20000, "test": 10000},
    "cnn": {"rate": 0.1, "batch": 100, "epochs": 20, "train": 5000, "test": 2000},
}


def load(problem, path):
    """The images in [0, 1] with a channel axis, and their labels."""
    sizes = SETTINGS[problem]
    if problem == "digits":
        (x, y), (x_test, y_test) = mh.datasets.load("digits")
    else:
        with np.load(path) as file:
            x, y = file["x_train"][..., None] / np.float32(255), file["y_train"]
            x_test, y_test = file["x_test"][..., None] / np.float32(255), file["y_test"]
    chosen = np.random.default_rng(0).permutation(len(x))[: sizes["train"]]
    test = slice(sizes["test"])
    return x[chosen], y[chosen], x_test[test], y_test[test]


def make_model(problem, input_shape):
    """An ordinary Keras model."""
    layers = keras.layers
    if problem == "cnn":
        body = [
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, "relu"),
        ]
    else:
        hidden = 64 if problem == "digits" else 200
        body = [layers.Flatten(), layers.Dense(hidden, "relu")]
    return keras.Sequential([keras.Input(input_shape), *body, layers.Dense(10)])


def run(problem, method, seed, arrays):
    """Train once. Returns a row: scores, acceptance, and whether the chain froze."""
    x, y, x_test, y_test = arrays
    sizes = SETTINGS[problem]
    keras.utils.set_random_seed(seed)
    model = make_model(problem, x.shape[1:])
    optimizer = keras.optimizers.SGD(sizes["rate"])
    if method == "RSGLD":
        optimizer = mh.RSGLD(
            sizes["rate"], train_size=len(x), batch_size=sizes["batch"], seed=seed
        )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=optimizer, loss=loss)
    steps = -(-len(x) // sizes["batch"]) * sizes["epochs"]
    posterior = mh.PosteriorSamples(burn_in=steps // 2)
    callbacks = [posterior] if method == "RSGLD" else []
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        logs = model.fit(
            x,
            y,
            batch_size=sizes["batch"],
            epochs=sizes["epochs"],
            callbacks=callbacks,
            verbose=0,
        ).history
    row = {"problem": problem, "method": method, "seed": seed}
    row["backend"] = keras.backend.backend()
    row["seconds"] = round(time.perf_counter() - begin, 1)
    classifiers = {"last": mh.Classifier(model, from_logits=True)}
    if method == "RSGLD":
        classifiers["ensemble"] = mh.Classifier(posterior.ensemble(model))
        forward = np.array(logs["forward_acceptance"])
        is_frozen = any("accepted none" in str(w.message) for w in told)
        row["frozen"] = bool(is_frozen)
        row["forward"] = [round(float(share), 3) for share in forward]
        row["rate"] = round(float(logs["learning_rate"][-1]), 5)
        row["warnings"] = [str(w.message)[:200] for w in told]
    table = mh.evaluate(classifiers, x_test, y_test)
    for name, scores in zip(classifiers, table.rows, strict=True):
        row[name] = [round(float(scores[k]), 4) for k in ("accuracy", "nll", "ece")]
    return row


def main(argv=None):
    """Run what the file of results lacks, and print all rows."""
    args = parse(argv)
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    done = {(r["problem"], r["method"], r["seed"], r["backend"]) for r in rows}
    arrays = load(args.problem, args.data)
    for seed in range(args.runs):
        for method in ("RSGLD", "SGD")[: 1 + args.sgd]:
            key = args.problem, method, seed, keras.backend.backend()
            if key in done:
                continue
            rows.append(run(args.problem, method, seed, arrays))
            with path.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    return rows


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", choices=list(SETTINGS), default="digits")
    parser.add_argument("--data", help=".npz file with the images and labels")
    parser.add_argument("--runs", type=int, default=10, help="seeds 0, 1, ...")
    parser.add_argument("--sgd", action="store_true", help="train SGD as well")
    parser.add_argument("--out", default="out/freezing.jsonl", help="file of the rows")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
