"""What a posterior gives that one network does not: three pictures.

The first is a regression with a gap in its data, and the 90% intervals of SGD and of
the ensemble for new points. The second separates two moons, and asks for predictions
far away. Both samplers run at temperature 1 (`--temperature`), with four chains.
The example prints how often the band holds new data, inside the gap and elsewhere, and
how sure each method is of points far away. The third picture shows how well ensembles
predict at several temperatures, from the rows of `advice.py`.

    python examples/why.py --out docs/images

It takes about six minutes on one CPU core with JAX.
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


def gap_data(seed, count=80):
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


def build(inputs, outputs, activation=None):
    """A network with two hidden layers of 50 units."""
    return keras.Sequential(
        [
            keras.Input((inputs,)),
            keras.layers.Dense(50, "tanh"),
            keras.layers.Dense(50, "tanh"),
            keras.layers.Dense(outputs, activation),
        ]
    )


def compare(data, model, loss, rate, steps, prior, seed, temperature):
    """SGD's network, and the ensemble of four chains of SGHMC after as many steps."""
    x, y = data
    fit = {"batch_size": len(x), "epochs": steps, "verbose": 0}
    keras.utils.set_random_seed(seed)
    sgd = keras.models.clone_model(model)
    sgd.compile(keras.optimizers.SGD(rate, momentum=0.9), loss)
    sgd.fit(x, y, **fit)
    chains = mh.ParallelChains(model, CHAINS, seed=seed)
    sampler = mh.SGHMC(
        rate,
        train_size=len(x),
        temperature=temperature,
        prior=mh.priors.Gaussian(prior),
        seed=seed,
    )
    chains.compile(sampler, loss)
    posterior = mh.PosteriorSamples(burn_in=steps // 2, every=max(steps // 50, 1))
    chains.fit(x, y, callbacks=[posterior], **fit)
    return sgd, posterior.ensemble(chains)


def regression(steps, seed, temperature=1.0):
    """Run the regression. Returns what the picture shows."""
    x, y = gap_data(seed)
    loss = mh.losses.GaussianNLL(noise_std=NOISE)
    sgd, ensemble = compare(
        (x, y), build(1, 1), loss, 5e-4, steps, 0.5, seed, temperature
    )
    grid = np.linspace(-3.0, 3.0, 241, dtype="float32")[:, None]
    members = ensemble.predict_members(grid)[..., 0]
    new = np.random.default_rng(seed + 1).normal(size=(2000, grid.shape[0]))
    observed = truth(grid)[:, 0] + NOISE * new
    noisy = members.std(axis=0) ** 2 + NOISE**2
    inside = np.abs(observed - members.mean(axis=0)) < 1.645 * noisy**0.5
    line = sgd.predict(grid, verbose=0)[:, 0]
    inside_sgd = np.abs(observed - line) < 1.645 * NOISE
    where = np.abs(grid[:, 0])
    areas = {
        "where data are": (where > 0.7) & (where < 2.0),
        "in the gap": where < 0.5,
        "outside": where > 2.2,
    }
    for name, chosen in areas.items():
        print(
            f"{name:15s} in the 90% band: SGD {inside_sgd[:, chosen].mean():.0%}, "
            f"ensemble {inside[:, chosen].mean():.0%}"
        )
    return x[:, 0], y[:, 0], grid[:, 0], line, members


def classification(steps, seed, temperature=1.0):
    """Run the two moons. Returns what the picture shows."""
    x, y = moons(seed)
    model = build(2, 2, "softmax")
    sgd, ensemble = compare(
        (x, y),
        model,
        "sparse_categorical_crossentropy",
        0.05,
        steps,
        1.0,
        seed,
        temperature,
    )
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


def draw_regression(found, path):
    """The 90% intervals for new points, of SGD and of the ensemble."""
    x, y, grid, line, members = found
    spread = np.sqrt(members.var(axis=0) + NOISE**2)
    shown = {
        "SGD: line and noise": (line, NOISE, ORANGE),
        "ensemble: members and noise": (
            members.mean(axis=0),
            spread,
            BLUE,
        ),
    }
    figure, panels = pyplot.subplots(
        1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained"
    )
    for panel, (title, (mean, deviation, colour)) in zip(
        panels, shown.items(), strict=True
    ):
        low, high = mean - 1.645 * deviation, mean + 1.645 * deviation
        panel.axvspan(-0.7, 0.7, color="0.94", lw=0)
        panel.fill_between(
            grid, low, high, color=colour, alpha=0.4, lw=0, label="90% interval"
        )
        panel.plot(grid, mean, color=colour, label="mean")
        panel.plot(grid, truth(grid), ":", color="black", label="truth")
        panel.plot(x, y, ".", color="black", markersize=4, label="training data")
        panel.text(0.0, -2.6, "no data", ha="center", color=GREY)
        panel.set(title=title, xlabel="x", xlim=(-2.1, 2.1), ylim=(-2.8, 2.8))
        panel.legend(fontsize=8, loc="upper left")
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
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=1.0, help="of SGHMC")
    args = parser.parse_args(argv)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    draw_temperatures(by_temperature(), folder / "why_temperature.png")
    given = args.steps, args.seed, args.temperature
    draw_regression(regression(*given), folder / "why_regression.png")
    draw_moons(classification(*given), folder / "why_moons.png")


if __name__ == "__main__":
    main()
