"""Few labels on a frozen network: what the new last layer should be.

A network has learned other classes, and keeps its weights. A new last layer learns from
20, 100 or 500 labels:

- digits: the network knows 0 to 4, and the labels are of 5 to 9 (scikit-learn's);
- kmnist: it knows the clothes of Fashion-MNIST, and the labels are of ten hiragana (the
  test images of KMNIST: labels from the first half, scores on the second);
- words: a small transformer has learned to guess words that are left out of docstrings
  (scikit-learn, Keras, NumPy, three modules of SciPy, as installed here). The labels
  say which of five other modules of SciPy a docstring is from.

    python examples/few_labels.py --data-dir folder --seeds 5

Everything is chosen on the labels themselves. Adam trains for as many epochs as a fifth
of them, held out, wants, and then on all of them. So IVON and Monte Carlo (MC) dropout
choose their rates. The maximum a posteriori (MAP), which is a logistic regression, has
the prior with the best five-fold cross-validation. The Laplace approximation, IVON and
Hamiltonian Monte Carlo (HMC) take the same prior. "One call" is
`mh.sample_last_layer(model, x, y)` with its defaults, on a new layer. The unknown
classes are those that the network has learned (of words: some of these docstrings).

The rows go to `--out` as they come. The same command goes on where it was stopped.
"""

import argparse
import collections
import importlib
import inspect
import json
import math
import os
import re
import time
import zlib
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from scipy import optimize
from scipy import special

import keras_mhmcmc as mh

LABELS = (20, 100, 500)
PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MOST, EPOCH = 300, 10  # epochs of Adam and IVON, and steps of an epoch
RATES = (0.2, 1.0)  # of IVON
DROPPED = (0.1, 0.3, 0.5)  # rates of MC dropout
OUT = "examples/results/few_labels.jsonl"
ADAM = ("Adam", "four Adam")
METHODS = (*ADAM, "MC dropout", "MAP", "Laplace", "IVON", "HMC", "one call")


def digits(folder):
    """Images that the body learns from, images to label, to score, and unknown ones."""
    (x, y), (x_test, y_test) = mh.datasets.load("digits")
    known, others = y < 5, y_test < 5
    labelled = x[~known], y[~known] - 5, x_test[~others], y_test[~others] - 5
    return (x[known], y[known]), labelled, x_test[others]


def kmnist(folder):
    """The same for clothes, and for Japanese letters."""
    clothes, (others, _) = mh.datasets.load("fashion_mnist", folder)
    with np.load(Path(folder) / "kmnist_test.npz") as file:
        x, y = file["x_test"], file["y_test"].astype("int64")
    x = x[..., None].astype("float32") / 255
    labelled = x[:5000], y[:5000], x[5000:], y[5000:]
    return tuple(part[:20_000] for part in clothes), labelled, others[:5000]


KNOWN = [
    *(f"sklearn.{name}" for name in ("cluster", "ensemble", "linear_model", "metrics")),
    *(f"scipy.{name}" for name in ("interpolate", "ndimage", "special")),
    *("sklearn.preprocessing", "keras.layers", "keras.ops", "numpy", "numpy.random"),
]
NEW = [f"scipy.{name}" for name in ("linalg", "optimize", "signal", "sparse", "stats")]
LENGTH, MOST_WORDS, TIMES = 64, 4000, 10  # words of a text and in all; variants


def texts(name):
    """(name, words) of each docstring in a module, methods included, once."""
    module = importlib.import_module(name)
    found = {}
    for key in sorted(set(dir(module))):
        thing = getattr(module, key)
        if key.startswith("_") or inspect.ismodule(thing):
            continue
        methods = dir(thing) if inspect.isclass(thing) else []
        parts = [getattr(thing, m) for m in methods if not m.startswith("_")]
        for part in [thing, *parts]:
            words = re.findall("[a-z]{2,}", (inspect.getdoc(part) or "").lower())
            if len(words) >= 8:
                found.setdefault(tuple(words[:LENGTH]), key)
    return [(key, words) for words, key in found.items()]


def words(folder):
    """The same for docstrings: labels and scores are of different functions."""
    found = {name: texts(name) for name in KNOWN + NEW}
    counts = collections.Counter(w for k in KNOWN for _, text in found[k] for w in text)
    places = {w: i + 2 for i, (w, _) in enumerate(counts.most_common(MOST_WORDS))}
    rng = np.random.default_rng(0)

    def table(names, fifths):
        rows, labels = [], []
        for label, name in enumerate(names):
            for key, text in found[name]:
                if zlib.crc32(key.encode()) % 5 in fifths:
                    row = [places.get(word, 1) for word in text]
                    rows.append(row + [0] * (LENGTH - len(row)))
                    labels.append(label)
        order = rng.permutation(len(rows))
        return np.array(rows, "int32")[order], np.array(labels)[order]

    known, _ = table(KNOWN, range(5))
    whole = np.repeat(known, TIMES, axis=0)
    kept = rng.uniform(size=whole.shape) < 0.5
    rarest = np.where(kept, 0, whole).max(axis=1)  # of the words that are left out
    inputs = np.where(kept, whole, np.minimum(whole, 1))
    new = *table(NEW, (0, 1, 2)), *table(NEW, (3, 4))
    return (inputs, rarest), new, table(KNOWN, (3,))[0]


def reader():
    """A transformer of two blocks, from words to features."""
    x = keras.Input((LENGTH,), dtype="int32")
    size, known = 64, keras.ops.not_equal(x, 0)
    places = keras.ops.arange(LENGTH)
    h = keras.layers.Embedding(MOST_WORDS + 2, size)(x)
    h = h + keras.layers.Embedding(LENGTH, size)(places)
    for _ in range(2):
        attention = keras.layers.MultiHeadAttention(4, size // 4)
        h = keras.layers.LayerNormalization()(h + attention(h, h, key_mask=known))
        inner = keras.layers.Dense(2 * size, "relu")(h)
        h = keras.layers.LayerNormalization()(h + keras.layers.Dense(size)(inner))
    mean = keras.layers.GlobalAveragePooling1D()(h, mask=known)
    return keras.Model(x, keras.layers.Dense(size, "relu")(mean))


TASKS = {"digits": digits, "kmnist": kmnist, "words": words}


def features(name, folder):
    """Features of a network that has learned other classes, of size 1."""
    keras.utils.set_random_seed(0)
    (x, y), (x_few, y_few, x_test, y_test), others = TASKS[name](folder)
    small = name == "digits"
    pooling = [] if small else [keras.layers.MaxPooling2D()]
    body = (
        reader()
        if name == "words"
        else keras.Sequential(
            [
                keras.Input(x.shape[1:]),
                keras.layers.Conv2D(32, 3, activation="relu"),
                *pooling,
                keras.layers.Conv2D(64, 3, activation="relu"),
                *pooling,
                keras.layers.Flatten(),
                keras.layers.Dense(64, "relu"),
            ]
        )
    )
    network = keras.Sequential([body, keras.layers.Dense(int(y.max()) + 1)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile("adam", loss)
    epochs = {"digits": 15, "kmnist": 3, "words": 2}[name]
    network.fit(x, y, batch_size=32, epochs=epochs, verbose=0)
    found = [body.predict(part, verbose=0) for part in (x_few, x_test, others)]
    size = np.sqrt(np.mean(np.square(found[0])))
    few, test, others = (part / size for part in found)
    return few, y_few, test, y_test, others


def layer(inputs, classes):
    """A new last layer."""
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(classes)])


def adam(x, y, classes, seed):
    """Four layers by Adam, for as long as held-out labels want."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    size = max(1, len(x) // EPOCH)

    def chains(x, y, epochs, callbacks=()):
        made = mh.ParallelChains(layer(x.shape[1], classes), 4, seed=seed)
        made.compile(keras.optimizers.Adam(0.01), loss)
        made.fit(x, y, size, epochs, verbose=0, callbacks=list(callbacks))
        return made

    out, kept = np.split(np.random.default_rng(seed).permutation(len(x)), [len(x) // 5])
    nlls = []

    class Score(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logits = keras.ops.convert_to_numpy(self.model.predict(x[out], verbose=0))
            log_p = special.log_softmax(logits, axis=-1)
            nlls.append(np.mean(nll_of(log_p, y[out])))

    chains(x[kept], y[kept], MOST, [Score()])
    return chains(x, y, int(np.argmin(nlls)) + 1)


def dropout(x, y, classes, seed):
    """A layer by Adam, with dropout of its inputs also in its predictions."""
    out, kept = np.split(np.random.default_rng(seed).permutation(len(x)), [len(x) // 5])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def fitted(rate, x, y, epochs, held_out=None):
        keras.utils.set_random_seed(seed)
        stack = [keras.layers.Dropout(rate), keras.layers.Dense(classes)]
        model = keras.Sequential([keras.Input((x.shape[1],)), *stack])
        model.compile(keras.optimizers.Adam(0.01), loss)
        size = max(1, len(x) // EPOCH)
        told = model.fit(x, y, size, epochs, 0, validation_data=held_out)
        return model, told.history.get("val_loss")

    found = []
    for rate in DROPPED:
        nlls = fitted(rate, x[kept], y[kept], MOST, (x[out], y[out]))[1]
        found.append((min(nlls), rate, int(np.argmin(nlls)) + 1))
    _, rate, epochs = min(found)
    return mh.MCDropout(fitted(rate, x, y, epochs)[0], samples=100, seed=seed)


def ivon(x, y, classes, prior, seed):
    """Draws of IVON at the rate that predicts held-out labels best."""
    out, kept = np.split(np.random.default_rng(seed).permutation(len(x)), [len(x) // 5])

    def score(rate):
        found = draws_of_ivon(x[kept], y[kept], classes, prior, seed, rate)
        p = found.predict(x[out], verbose=0)
        return np.mean(nll_of(np.log(np.maximum(p, 1e-30)), y[out]))

    best = min(RATES, key=score)
    return draws_of_ivon(x, y, classes, prior, seed, best)


def draws_of_ivon(x, y, classes, prior, seed, rate):
    """Draws of the last third of a run whose rate falls to 0."""
    model = layer(x.shape[1], classes)
    steps = MOST * EPOCH
    rate = keras.optimizers.schedules.CosineDecay(rate, steps)
    width = mh.priors.Gaussian(prior)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(mh.IVON(rate, prior=width, seed=seed, beta_2=0.999), loss)
    draws = mh.PosteriorSamples(burn_in=2 * steps // 3, every=5)
    model.fit(x, y, max(1, len(x) // EPOCH), MOST, verbose=0, callbacks=[draws])
    return draws.ensemble(model)


def nll_of(log_p, y):
    """Negative log-likelihood of each label, (..., N)."""
    places = np.broadcast_to(y, log_p.shape[:-1])[..., None]
    return -np.take_along_axis(log_p, places, axis=-1)[..., 0]


def mode(x, y, classes, prior):
    """Weights and biases of the highest posterior density, (features + 1, classes)."""
    inputs = np.column_stack([x, np.ones(len(x))]).astype("float64")
    hot = np.eye(classes)[y]

    def energy(flat):
        w = flat.reshape(-1, classes)
        log_p = special.log_softmax(inputs @ w, axis=1)
        gradient = inputs.T @ (np.exp(log_p) - hot) + w / prior**2
        return -np.sum(log_p * hot) + 0.5 * np.sum(w**2) / prior**2, gradient.ravel()

    start = np.zeros(inputs.shape[1] * classes)
    found = optimize.minimize(energy, start, jac=True, method="L-BFGS-B")
    return found.x.reshape(-1, classes)


def chosen(x, y, classes, seed):
    """The prior of the mode with the best five-fold cross-validation."""
    folds = np.array_split(np.random.default_rng(seed).permutation(len(x)), 5)

    def score(prior):
        total = 0.0
        for fold in folds:
            kept = np.setdiff1d(np.arange(len(x)), fold)
            w = mode(x[kept], y[kept], classes, prior)
            log_p = special.log_softmax(x[fold] @ w[:-1] + w[-1], axis=1)
            total += np.sum(nll_of(log_p, y[fold]))
        return total

    return min(PRIORS, key=score)


def run(data, labels, seed, methods):
    """A row for each of some methods."""
    few, y_few, test, y_test, others = data
    classes = int(y_few.max()) + 1
    places = np.random.default_rng(seed).choice(len(few), labels, replace=False)
    x, y = few[places], y_few[places]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def scored(method, begin, predict):
        p, unknown = (np.asarray(predict(part), "float64") for part in (test, others))
        log_p = np.log(np.maximum(p, 1e-30))
        scores = np.concatenate([entropy(p), entropy(unknown)])
        is_unknown = np.arange(len(scores)) >= len(p)
        return {
            "method": method,
            "nll": round(float(np.mean(nll_of(log_p, y_test))), 4),
            "accuracy": round(float(np.mean(p.argmax(axis=1) == y_test)), 4),
            "ece": round(float(mh.metrics.ece(p, y_test)), 4),
            "auroc": round(float(mh.metrics.auroc(scores, is_unknown)), 4),
            "seconds": round(time.perf_counter() - begin, 1),
        }

    def entropy(p):
        return -np.sum(p * np.log(np.maximum(p, 1e-30)), axis=1)

    rows = []
    if set(ADAM) & set(methods):
        begin = time.perf_counter()
        chains = adam(x, y, classes, seed)

        def of_chains(part):
            logits = keras.ops.convert_to_numpy(chains.predict(part, verbose=0))
            return special.softmax(logits, axis=-1)

        rows = [
            scored("Adam", begin, lambda part: of_chains(part)[0]),
            scored("four Adam", begin, lambda part: of_chains(part).mean(axis=0)),
        ]
    begin = time.perf_counter()
    prior = chosen(x, y, classes, seed)
    w = mode(x, y, classes, prior)
    model = layer(x.shape[1], classes)
    model.set_weights([w[:-1], w[-1]])
    model.compile(loss=loss)
    rows.append(
        scored("MAP", begin, lambda p: special.softmax(p @ w[:-1] + w[-1], axis=1))
    )
    options = dict(prior=mh.priors.Gaussian(prior), seed=seed)
    ways = {
        "MC dropout": lambda: dropout(x, y, classes, seed),
        "Laplace": lambda: mh.last_layer_laplace(model, x, y, members=200, **options),
        "IVON": lambda: ivon(x, y, classes, prior, seed),
        "one call": lambda: mh.sample_last_layer(
            layer(x.shape[1], classes), x, y, progress=False
        )[0],
        "HMC": lambda: mh.sample_last_layer(model, x, y, progress=False, **options)[0],
    }
    for method in [name for name in ways if name in methods]:
        begin = time.perf_counter()
        found = ways[method]()
        rows.append(scored(method, begin, lambda p, e=found: e.predict(p, verbose=0)))
    return [row | {"prior": prior} for row in rows if row["method"] in methods]


def table(rows):
    """Means over the seeds, and the NLL minus that of HMC with its standard error."""
    lines = [
        "| task | labels | method | NLL | minus HMC | accuracy | ECE | AUROC | s |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for task in TASKS:
        for labels in LABELS:
            own = [r for r in rows if r["task"] == task and r["labels"] == labels]
            if not own:
                continue
            by = {m: [r for r in own if r["method"] == m] for m in METHODS}
            hmc = np.array([r["nll"] for r in by["HMC"]])
            for method, found in by.items():
                less = np.array([r["nll"] for r in found]) - hmc
                error = less.std(ddof=1) / math.sqrt(len(less)) if len(less) > 1 else 0
                keys = ("accuracy", "ece", "auroc", "seconds")
                means = [np.mean([r[key] for r in found]) for key in keys]
                shown = "—" if method == "HMC" else f"{less.mean():+.3f} ± {error:.3f}"
                nll = f"{np.mean([r['nll'] for r in found]):.3f}"
                cells = [task, labels, method, nll, shown]
                cells += [f"{mean:.3f}" for mean in means[:3]] + [f"{means[3]:.0f}"]
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main(argv=None):
    """Run what is missing, and print the table. Returns the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["digits"])
    parser.add_argument("--labels", nargs="+", type=int, default=LABELS)
    parser.add_argument("--data-dir", help="folder with Fashion-MNIST and KMNIST")
    parser.add_argument("--out", default=OUT, help="the rows")
    args = parser.parse_args(argv)
    path = Path(args.out)
    text = path.read_text() if path.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for task in args.tasks:
        data = None
        for labels in args.labels:
            for seed in range(args.seeds):
                key = {"task": task, "labels": labels, "seed": seed}
                own = [row for row in rows if key.items() <= row.items()]
                missing = set(METHODS) - {row["method"] for row in own}
                if not missing:
                    continue
                data = data or features(task, args.data_dir)
                found = [key | row for row in run(data, labels, seed, missing)]
                rows += found
                with path.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in found)
                print(key, {r["method"]: r["nll"] for r in found}, flush=True)
    print(table(rows))
    return rows


if __name__ == "__main__":
    main()
