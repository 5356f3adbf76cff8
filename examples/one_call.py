"""`mh.BayesianEnsemble` with its defaults on UCI regressions, on digits and on MNIST.

Each row has the test NLL in the target's own unit, of the four trained members alone
and of what `fit` chose to average, and the seconds of both. The network of a regression
has two layers of 16 units and predicts its noise. Images have two more columns: eight
members, and four networks that train twice as long, with the rate and the decay that
the held-out examples chose. All learn from all examples of classes in the end. MNIST is
10,000 of its images.

    python examples/one_call.py --data-dir folder
    python examples/one_call.py --picture gap.png
    python examples/one_call.py --quick

The picture has a curve with a gap in its data, and what four networks and the ensemble
predict there. It prints how many new points lie in the 90% intervals.

`folder` has an .npz file for each data set, as for `uci_regression.py`. A finished row
is a line of `--results`, and is not run again.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import keras_mhmcmc as mh

IMAGES = {"digits": 64, "mnist": 200}  # units of the hidden layer
SETS = ("yacht", "boston_housing", "energy", "concrete", "kin8nm", *IMAGES)


def regression(name, folder, split):
    """Data, network, loss, and what to add to the NLL for the target's own unit."""
    train, test = mh.datasets.load(name, folder, split=split)
    x, x_test = mh.datasets.standardized(train[0], test[0])
    mean, unit = np.mean(train[1]), float(np.std(train[1]))
    y, y_test = (
        ((part[1] - mean) / unit)[:, None].astype("float32") for part in (train, test)
    )
    network = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(2),
        ]
    )
    return (x, y, x_test, y_test), network, mh.losses.GaussianNLL(), np.log(unit)


def images(name, folder, split):
    """The same for images of ten classes."""
    place = folder if name == "mnist" else None
    (x, y), (x_test, y_test) = mh.datasets.load(name, place)
    if name == "mnist":
        chosen = np.random.default_rng(100 + split).permutation(len(x))[:10_000]
        x, y = x[chosen], y[chosen]
    network = keras.Sequential(
        [
            keras.Input(x.shape[1:]),
            keras.layers.Flatten(),
            keras.layers.Dense(IMAGES[name], "relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return (x, y, x_test, y_test), network, loss, 0.0


def longer(network, loss, data, report, seed):
    """NLL of four networks that train twice as long as the best of a report."""
    x, y, x_test, y_test = data
    best = report.rows[-1]  # of the members that learned from all data
    setting = dict(part.split("=") for part in best["setting"].split(", "))
    keras.utils.set_random_seed(seed)
    chains = mh.ParallelChains(network, 4, seed=seed)
    rate = keras.optimizers.schedules.CosineDecay(
        float(setting["rate"]), 2 * best["steps"]
    )
    decay = float(setting["decay"])
    chains.compile(keras.optimizers.AdamW(rate, weight_decay=decay), loss)
    epochs = round(2 * best["steps"] / (len(x) // 32))
    chains.fit(x, y, batch_size=32, epochs=epochs, verbose=0)
    logits = chains.predict(x_test, verbose=0)
    probabilities = np.mean(keras.ops.softmax(logits), axis=0)
    return -float(np.mean(np.log(probabilities[np.arange(len(y_test)), y_test])))


def nll(ensemble, x, y):
    """Mean negative log-likelihood of the prediction, in nats."""
    if isinstance(ensemble.loss, keras.losses.SparseCategoricalCrossentropy):
        probabilities = ensemble.predict(x, verbose=0)
        return -np.mean(np.log(probabilities[np.arange(len(y)), y]))
    return -np.mean(mh.predict_distribution(ensemble, x).log_prob(y))


def row(name, folder, split, quick):
    """One row of the table."""
    keras.utils.set_random_seed(split)
    load = images if name in IMAGES else regression
    (x, y, x_test, y_test), network, loss, shift = load(name, folder, split)
    found = {"set": name, "split": split, "backend": keras.backend.backend()}
    # Both train the same members: they have one seed.
    columns = [("members", 4, 0), ("ensemble", 4, 0.1 if quick else "auto")]
    if name in IMAGES:
        columns.append(("eight", 8, 0))
    for column, members, sampling in columns:
        keras.utils.set_random_seed(split)
        ensemble = mh.BayesianEnsemble(network, members, seed=split)
        ensemble.compile(loss=loss)
        begin = time.perf_counter()
        epochs = 5 if quick else None
        ensemble.fit(x, y, epochs=epochs, sampling=sampling, verbose=0)
        found[f"{column} seconds"] = round(time.perf_counter() - begin, 1)
        found[column] = round(float(nll(ensemble, x_test, y_test) + shift), 4)
        if column == "members":
            four = ensemble.report
    if name in IMAGES:
        data = x, y, x_test, y_test
        found["longer"] = round(longer(network, loss, data, four, split), 4)
    return found


def picture(path, seeds):
    """A curve with a gap in its data, as four networks and as the ensemble see it."""
    import why
    from matplotlib import pyplot

    grid = np.linspace(-2.6, 2.6, 241, dtype="float32")[:, None]
    where = np.abs(grid[:, 0])
    areas = {"beside the data": where < 2.0, "in the gap": where < 0.6}
    areas["beside the data"] &= where > 0.7
    figure, axes = pyplot.subplots(
        1, 2, figsize=(7.0, 2.9), sharey=True, layout="constrained"
    )
    for seed in seeds:
        x, y = why.gap_data(seed, 200)
        new = np.random.default_rng(seed + 1).normal(size=(2000, len(grid)))
        observed = why.truth(grid)[:, 0] + why.NOISE * new
        titles = {"four networks of AdamW": 0, "mh.BayesianEnsemble": "auto"}
        for panel, (title, sampling) in zip(axes, titles.items(), strict=True):
            keras.utils.set_random_seed(seed)
            hidden = [keras.layers.Dense(16, "tanh") for _ in range(2)]
            network = keras.Sequential(
                [keras.Input((1,)), *hidden, keras.layers.Dense(2)]
            )
            ensemble = mh.BayesianEnsemble(network, seed=seed)
            ensemble.compile(loss=mh.losses.GaussianNLL())
            ensemble.fit(x, y, sampling=sampling, verbose=0)
            law = mh.predict_distribution(ensemble, grid)
            low, high = np.array(law.interval(0.9))[..., 0]
            inside = (low < observed) & (observed < high)
            shares = {name: inside[:, area].mean() for name, area in areas.items()}
            print(seed, title, {name: f"{s:.0%}" for name, s in shares.items()})
            if seed != seeds[0]:
                continue
            panel.fill_between(grid[:, 0], low, high, color=why.BLUE, alpha=0.25, lw=0)
            panel.plot(grid, law.mean(), color=why.BLUE)
            panel.plot(grid, why.truth(grid), "--", color=why.GREY)
            panel.plot(x, y, "k.", markersize=3)
            panel.set(title=title, ylim=(-2.5, 2.5), xlabel="input")
    axes[0].set_ylabel("target")
    axes[0].legend(
        ["90% interval", "mean", "truth", "data"], loc="upper left", frameon=False
    )
    figure.savefig(path, dpi=150)


def main(arguments=None):
    """Run what is missing, print the table, and return its rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", choices=(*SETS, "diabetes"), default=SETS)
    parser.add_argument("--splits", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--data-dir", help="folder of the UCI sets")
    parser.add_argument("--results", default="one_call.jsonl")
    parser.add_argument("--quick", action="store_true", help="small, and no files")
    parser.add_argument("--picture", help="a file for the picture; no table then")
    asked = parser.parse_args(arguments)
    if asked.picture:
        return picture(asked.picture, asked.splits)
    if asked.quick:
        asked.sets, asked.splits = ["diabetes"], [0]
    path = Path(asked.results)
    rows = []
    if path.exists() and not asked.quick:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    done = {(r["set"], r["split"], r["backend"]) for r in rows}
    for split in asked.splits:
        for name in asked.sets:
            if (name, split, keras.backend.backend()) in done:
                continue
            rows.append(row(name, asked.data_dir, split, asked.quick))
            print(json.dumps(rows[-1]), flush=True)
            if not asked.quick:
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    for name in asked.sets:
        mine = [r for r in rows if r["set"] == name]
        ensemble = np.array([r["ensemble"] for r in mine])
        seconds = np.mean([r["ensemble seconds"] for r in mine])
        print(f"{name:16} ensemble {ensemble.mean():7.3f}  {seconds:.0f} s")
        for column in ("members", "eight", "longer"):
            if column not in mine[0]:
                continue
            gains = np.array([r[column] for r in mine]) - ensemble
            error = np.std(gains, ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0
            mean = ensemble.mean() + gains.mean()
            print(f"  {column:14} {mean:16.3f}  gain {gains.mean():.3f} ± {error:.3f}")
    return rows


if __name__ == "__main__":
    main()
