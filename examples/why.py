"""What a posterior gives that one network does not: three pictures.

The first is a regression with a gap in its data, and the 90% intervals of four networks
of AdamW and of the one call for new points. The second separates two moons, and asks
SGD and four chains of SGHMC for predictions far away. The chains run at temperature 1
(`--temperature`). The example prints how often the intervals hold new data and their
NLL, in the gap and elsewhere, and how sure each method is of points far away. The third
picture shows how well ensembles predict at several temperatures, from the rows of
`advice.py`.

    python examples/why.py --out docs/images
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh

NOISE = 0.1  # standard deviation of the regression's noise
CHAINS = 4
CALL = "mh.BayesianEnsemble"
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "0.35"
CHOSEN = Path(__file__).parent / "results" / "advice.jsonl"
HELD_OUT = 1000  # the seed of the rows of `advice.py` that choose settings
PROBLEMS = {  # and how the picture draws them
    "digits": (BLUE, "o-"),
    "mnist": (ORANGE, "s--"),
    "fashion": ("#009E73", "^-."),
    "energy": ("#CC79A7", "D:"),
    "concrete": ("black", "v-"),
}


def truth(x):
    """The function behind the noisy targets."""
    return 0.6 * x + 0.4 * np.sin(4.0 * x)


def gap_data(seed, count=200):
    """Inputs with a gap in the middle, shape (count, 1), and noisy targets."""
    rng = np.random.default_rng(seed)
    sides = rng.uniform(0.7, 2.0, count) * np.where(np.arange(count) % 2, 1.0, -1.0)
    x = sides[:, None].astype("float32")
    return x, (truth(x) + NOISE * rng.normal(size=x.shape)).astype("float32")


def moons(seed, count=200):
    """Two half circles that reach into each other, and their labels."""
    rng = np.random.default_rng(seed)
    angle, label = rng.uniform(0.0, np.pi, count), np.arange(count) % 2
    x = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    x = np.where(label[:, None] == 1, [1.0, 0.5] - x, x) - [0.5, 0.25]
    x += 0.1 * rng.normal(size=x.shape)
    return x.astype("float32"), label


def build(inputs, outputs, units, activation=None):
    """A network with two hidden layers."""
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(units, "tanh"),
            keras.layers.Dense(units, "tanh"),
            keras.layers.Dense(outputs, activation),
        ]
    )


def gap(seed, temperature, quick):
    """Four networks and the ensemble on the gap: what both predict on a grid."""
    x, y = gap_data(seed)
    grid = np.linspace(-3.0, 3.0, 241, dtype="float32")[:, None]
    new = np.random.default_rng(seed + 1).normal(size=(2000, len(grid)))
    observed = truth(grid)[:, 0] + NOISE * new
    where = np.abs(grid[:, 0])
    areas = {
        "where data are": (where > 0.7) & (where < 2.0),
        "in the gap": where < 0.6,
        "outside": where > 2.2,
    }
    found = {}
    for title, sampling in (("four networks of AdamW", 0), (CALL, "auto")):
        keras.utils.set_random_seed(seed)
        network = build(1, 2, 16)
        ensemble = mh.BayesianEnsemble(network, temperature=temperature, seed=seed)
        ensemble.compile(loss=mh.losses.GaussianNLL())
        short = {"epochs": 5, "sampling": sampling and 0.1} if quick else {}
        ensemble.fit(x, y, **{"sampling": sampling, "verbose": 0} | short)
        law = mh.predict_distribution(ensemble, grid)
        low, high = np.array(law.interval(0.9))[..., 0]
        found[title] = law.mean()[:, 0], low, high
        inside = (low < observed) & (observed < high)
        some = observed[:200, :, None].astype("float32")
        nll = -np.mean([np.ravel(law.log_prob(new)) for new in some], axis=0)
        told = [
            f"{inside[:, c].mean():.0%} {n} (NLL {nll[c].mean():.2f})"
            for n, c in areas.items()
        ]
        print(f"{title}, in the 90% interval: {', '.join(told)}")
    return x[:, 0], y[:, 0], grid[:, 0], found


def classification(seed, temperature, steps):
    """SGD and four chains of SGHMC on two moons: what the picture shows."""
    x, y = moons(seed)
    fit = {"batch_size": len(x), "epochs": steps, "verbose": 0}
    loss, rate = "sparse_categorical_crossentropy", 0.05
    model = build(2, 2, 50, "softmax")
    keras.utils.set_random_seed(seed)
    sgd = keras.models.clone_model(model)
    sgd.compile(keras.optimizers.SGD(rate, momentum=0.9), loss)
    sgd.fit(x, y, **fit)
    chains = mh.ParallelChains(model, CHAINS, seed=seed)
    sampler = mh.SGHMC(
        rate,
        train_size=len(x),
        temperature=temperature,
        prior=mh.priors.Gaussian(1.0),
        seed=seed,
    )
    chains.compile(sampler, loss)
    posterior = mh.PosteriorSamples(burn_in=steps // 2, every=max(steps // 50, 1))
    chains.fit(x, y, callbacks=[posterior], **fit)
    ensemble = posterior.ensemble(chains)
    axis = np.linspace(-4.0, 4.0, 81)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2).astype("float32")
    maps = {
        "SGD": sgd.predict(grid, verbose=0).max(-1),
        "ensemble": ensemble.predict(grid, verbose=0).max(-1),
    }
    x_test, y_test = moons(seed + 1, 1000)
    far = np.linalg.norm(grid, axis=-1) > 3.5
    for name, one in (("SGD", sgd), ("ensemble", ensemble)):
        found = one.predict(x_test, verbose=0)
        sure = maps[name][far]
        print(
            f"{name:9s} accuracy {mh.metrics.accuracy(found, y_test):.3f}, NLL "
            f"{mh.metrics.nll(found, y_test):.3f}; mean confidence far away "
            f"{sure.mean():.2f}, above 0.9 at {np.mean(sure > 0.9):.0%}"
        )
    return x, y, axis, maps


def draw_gap(found, path):
    """The 90% intervals for new points, of four networks and of the ensemble."""
    x, y, grid, laws = found
    figure, panels = pyplot.subplots(
        1, 2, figsize=(6.4, 3.2), sharey=True, layout="constrained"
    )
    for panel, (title, (mean, low, high)) in zip(panels, laws.items(), strict=True):
        colour = BLUE if title == CALL else ORANGE
        panel.axvspan(-0.7, 0.7, color="0.94", lw=0)
        panel.fill_between(
            grid, low, high, color=colour, alpha=0.4, lw=0, label="90% interval"
        )
        panel.plot(grid, mean, color=colour, label="mean")
        panel.plot(grid, truth(grid), ":", color="black", label="truth")
        panel.plot(x, y, ".", color="black", markersize=4, label="training data")
        panel.text(0.0, -2.6, "no data", ha="center", color=GREY)
        panel.set(title=title, xlabel="x", xlim=(-2.1, 2.1), ylim=(-2.8, 2.8))
    panels[0].legend(fontsize=8, loc="upper left", framealpha=1.0)
    panels[0].set_ylabel("y")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def draw_moons(found, path):
    """The confidence of both, from white (0.5) to dark (1)."""
    x, y, axis, maps = found
    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
    for panel, (name, confidence) in zip(panels, maps.items(), strict=True):
        square = confidence.reshape(len(axis), -1)
        image = panel.contourf(
            axis, axis, square, np.linspace(0.5, 1, 11), cmap="Blues"
        )
        for label, marker in ((0, "o"), (1, "^")):
            points = x[y == label]
            panel.plot(
                *points.T, marker, color=ORANGE, markersize=3, mec="black", mew=0.3
            )
        panel.set(title=name, xticks=[], yticks=[], aspect="equal")
    figure.colorbar(image, ax=panels, label="confidence in the predicted class")
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def by_temperature(method="SGHMC"):
    """The held-out NLL of each problem by temperature, at the best rate and prior.

    From the best temperature's NLL it is a difference, in nats.
    """
    rows = [json.loads(line) for line in CHOSEN.read_text().splitlines()]
    found = {}
    for row in rows:
        if row["method"] == method and row["seed"] == HELD_OUT:
            of_problem = found.setdefault(row["problem"], {})
            temperature, nll = row["setting"]["temperature"], row["ensemble"]["nll"]
            of_problem[temperature] = min(nll, of_problem.get(temperature, nll))
    return {
        problem: {t: nll - min(curve.values()) for t, nll in sorted(curve.items())}
        for problem, curve in found.items()
    }


def draw_temperatures(found, path):
    """What each problem loses away from its best temperature."""
    figure, axis = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    titles = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}
    for problem, (colour, style) in PROBLEMS.items():
        temperatures, losses = zip(*found[problem].items(), strict=True)
        label = titles.get(problem, problem)
        axis.plot(temperatures, losses, style, color=colour, label=label)
    axis.set(xscale="log", xlabel="temperature (1: the posterior of the model)")
    axis.set_ylabel("held-out NLL, above that of\nthe best temperature (nats)")
    axis.set_ylim(bottom=-0.005)
    axis.grid(color="0.9", linewidth=0.6)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=160)
    pyplot.close(figure)


def main(argv=None):
    """Run both, print the numbers, and draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="out", help="folder of the pictures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0, help="of chains")
    parser.add_argument("--quick", action="store_true", help="short runs, as a trial")
    args = parser.parse_args(argv)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    draw_temperatures(by_temperature(), folder / "why_temperature.png")
    shown = gap(args.seed, args.temperature, args.quick)
    draw_gap(shown, folder / "one_call_gap.png")
    steps = 60 if args.quick else 30_000
    shown = classification(args.seed, args.temperature, steps)
    draw_moons(shown, folder / "why_moons.png")


if __name__ == "__main__":
    main()
