"""CIFAR-10, a small residual network: `mh.BayesianEnsemble` beside its members.

Each row has the test scores of one method: four networks of AdamW, eight of them, four
of twice the length, and `mh.BayesianEnsemble` from the four. All use the first 10,000
training images without augmentation, and hold out a tenth of them.

    KERAS_BACKEND=jax python examples/cifar_ensemble.py --data-dir folder
    python examples/cifar_ensemble.py --quick

`folder` has cifar10.npz. A finished row is kept in `--json`, and is not run again.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
from cifar_resnet import resnet
from cifar_resnet_data import load
from cifar_resnet_data import normalized

import keras_mhmcmc as mh

# Networks, epochs as a multiple of the argument, and sampling.
METHODS = {
    "four networks": (4, 1, 0),
    "BayesianEnsemble": (4, 1, "auto"),
    "eight networks": (8, 1, 0),
    "four of twice the length": (4, 2, 0),
}


def row(method, data, asked):
    """The scores of a method."""
    (x, y), (x_test, y_test) = data
    count, length, sampling = METHODS[method]
    keras.utils.set_random_seed(asked.seed)
    network = resnet(x.shape[1:], int(y.max()) + 1, asked.width, asked.blocks)
    ensemble = mh.BayesianEnsemble(network, count, seed=asked.seed, max_samples=20)
    ensemble.compile(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    begin = time.perf_counter()
    epochs = length * asked.epochs
    ensemble.fit(
        x, y, epochs=epochs, batch_size=asked.batch_size, sampling=sampling, verbose=0
    )
    seconds = time.perf_counter() - begin
    print(ensemble.report, flush=True)
    scores = mh.evaluate({method: ensemble}, x_test, y_test).rows[0]
    found = {"method": method, "seed": asked.seed, "seconds": round(seconds, 1)}
    found |= {
        name: round(float(scores[name]), 4) for name in ("nll", "accuracy", "ece")
    }
    return found | {"report": ensemble.report.rows, "notes": ensemble.report.notes}


def main(arguments=None):
    """Run what is missing, and return the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder of cifar10.npz")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", default="cifar_ensemble.json")
    parser.add_argument("--quick", action="store_true", help="small, on random images")
    asked = parser.parse_args(arguments)
    name = "cifar10"
    if asked.quick:
        name, asked.examples, asked.epochs, asked.width = "synthetic", 128, 2, 4
        asked.methods = ["four networks"]
    data = normalized(*load(name, asked.data_dir), asked.examples, 0)
    path = Path(asked.json)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    for method in asked.methods:
        if any((r["method"], r["seed"]) == (method, asked.seed) for r in rows):
            continue
        rows.append(row(method, data, asked))
        content = {"rows": rows, "complete": len(rows) >= len(asked.methods)}
        path.write_text(json.dumps(content, indent=1) + "\n")
        print({k: v for k, v in rows[-1].items() if k not in ("report", "notes")})
    return rows


if __name__ == "__main__":
    main()
