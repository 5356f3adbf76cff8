"""Tests on mini-batches on a logistic regression with many rows, beside NUTS.

The problem of tuna.py: 10 features, a normal prior. Each kernel gives one row: the mean
number of examples that a step evaluates, the acceptance, and how far the means and
standard deviations of the weights are from those of NUTS in float64, which uses all of
the data: the means in Monte Carlo standard errors, and the standard deviations as
ratios, each with its own standard error.

An example counts once in a step, whether or not its gradient is evaluated, too.

TunaMH, PoissonMH and SMH are exact, as are a random walk and HMC with all of the data.
Barker's test, Austerity and the confidence sampler are approximate. PoissonMH needs
bounds of the log-likelihoods. Its prior is therefore cut off at a distance of
`--radius` standard deviations from the mode.

    python examples/benchmarks/tall_logistic.py                # 100,000 rows
    python examples/benchmarks/tall_logistic.py --only SMH
    python examples/benchmarks/tall_logistic.py --scaling      # up to a million
    python examples/benchmarks/tall_logistic.py --digits mnist.npz
    python examples/benchmarks/tall_logistic.py --table --page docs/minibatch_mh.md

`--scaling` measures how many examples a step of SMH evaluates for the first rows of one
data set, without NUTS. `--digits` is the problem of the authors' code for TunaMH: the
digits 7 and 9 of MNIST in 50 principal components, with chi = 1e-5 and a step of 1e-3.

Each row is a line of `--results`, and is not measured again. `--table` measures
nothing. `--page` writes the tables of all rows into the page.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import tall_logistic_report as report
import tuna
from keras import ops

import keras_mhmcmc as mh

CHAINS, LEAPFROGS = report.CHAINS, 5
RESULTS = Path(__file__).parents[1] / "results" / "tall_logistic.jsonl"


class Rows:
    """The measured rows, in a file."""

    def __init__(self, path):
        self._path = Path(path)
        text = self._path.read_text() if self._path.exists() else ""
        self.rows = [json.loads(line) for line in text.splitlines()]

    def has(self, **key):
        """Whether there is a row with these values."""
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, **row):
        """Write a row."""
        row = {
            key: float(f"{value:.5g}") if isinstance(value, float) else value
            for key, value in row.items()
        }
        print(row, flush=True)
        self.rows.append(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def nuts(x, signs, mean, factor, draws, seed):
    """Draws of NUTS in float64, (chains, draws, weights), from whitened chains."""
    import blackjax
    import jax

    jax.config.update("jax_enable_x64", True)
    numpy = jax.numpy
    x, signs, mean, factor = (
        numpy.asarray(v, "float64") for v in (x, signs, mean, factor)
    )

    def log_density(z):
        theta = mean + factor @ z
        likelihood = -numpy.logaddexp(0.0, signs * (x @ theta)).sum()
        return likelihood - 0.5 * theta @ theta

    kernel = blackjax.nuts(log_density, 0.7, numpy.ones(len(mean)))

    def chain(key):
        start, walk = jax.random.split(key)
        state = kernel.init(jax.random.normal(start, mean.shape))

        def step(state, key):
            state, _ = kernel.step(key, state)
            return state, mean + factor @ state.position

        return jax.lax.scan(step, state, jax.random.split(walk, draws))[1]

    keys = jax.random.split(jax.random.key(seed), 4)
    found = np.asarray(jax.jit(lambda keys: jax.lax.map(chain, keys))(keys))
    jax.config.update("jax_enable_x64", False)
    return found[:, draws // 10 :]


def moments(draws):
    """Means, standard deviations, and the standard errors of both, (weights,) each."""
    import arviz

    ess = np.array(
        [float(arviz.ess(draws[..., i])) for i in range(draws.shape[-1])], "float64"
    )
    mean, sd = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    return mean, sd, sd / np.sqrt(ess), sd / np.sqrt(2.0 * ess), ess


def compared(draws, reference, passes):
    """The numbers of a row. A step with all of the data makes `passes` over it."""
    mean, sd, mean_error, sd_error, ess = moments(draws.position.astype("float64"))
    exact, exact_sd, exact_mean_error, exact_sd_error, _ = moments(reference)
    shift = (mean - exact) / np.hypot(mean_error, exact_mean_error)
    ratio = sd / exact_sd
    error = ratio * np.hypot(sd_error / sd, exact_sd_error / exact_sd)
    weight = 1.0 / error**2
    return {
        "batch_size": passes or float(draws.info["batch_size"].mean()),
        "acceptance": float(draws.info["acceptance"].mean()),
        "ess": float(ess.min()),
        "shift": float(np.sqrt(np.mean(shift**2))),
        "largest_shift": float(np.abs(shift).max()),
        "ratio": float((weight * ratio).sum() / weight.sum()),
        "error": float(weight.sum() ** -0.5),
    }


def bounded(x, signs, mean, distance):
    """Bounds of the log-likelihoods within a distance of the mode, (N,) each."""
    centre, reach = signs * (x @ mean), distance * np.linalg.norm(x, axis=1)
    return -np.logaddexp(0.0, centre + reach), -np.logaddexp(0.0, centre - reach)


def log_likelihood(theta, batch):
    x, sign = batch
    return -ops.softplus(sign * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    return -0.5 * ops.sum(ops.square(theta))


def smh(x, signs):
    """SMH with polynomials of both orders."""
    kernels = {}
    for order, step, proposal in ((1, 0.1, "random_walk"), (2, 1.0, "crank_nicolson")):
        expansion = mh.expansions.logistic_regression(x, signs < 0, order=order)
        kernels[f"SMH of order {order}"] = mh.kernels.smh(
            expansion, step_size=step, proposal=proposal
        )
    return kernels


def tall(found, rows, steps, radius, seed, only):
    """Run the kernels on the problem of tuna.py."""
    rng = np.random.default_rng(seed)
    x, signs, mean, factor = tuna.problem(rows, rng)
    deviation = np.sqrt(np.mean(np.sum(np.square(factor), axis=1)))
    reference = None
    centre = ops.convert_to_tensor(mean.astype("float32"))
    distance = radius * deviation * np.sqrt(len(mean))

    def cut_off(theta):
        inside = ops.sum(ops.square(theta - centre)) < distance**2
        return ops.where(inside, log_prior(theta), -np.inf)

    best = 2.4 / np.sqrt(len(mean)) * deviation
    lower, upper = bounded(x, signs, mean, distance)
    slopes = mh.bounds.logistic_regression(x)
    limits = {
        "lower": lower,
        "upper": upper,
        "poisson_rate": 2.0 * float((upper - lower).sum()),
        "block_size": 8192,
    }
    kernels = {
        "TunaMH": (
            mh.kernels.tuna(0.25 * best, bounds=slopes, block_size=1024),
            log_prior,
            steps,
        ),
        "PoissonMH": (
            mh.kernels.poisson(0.5 * best, **limits),
            cut_off,
            steps // 5,
        ),
        "PoissonMH, Barker": (
            mh.kernels.poisson(0.8 * best, **limits, proposal="barker"),
            cut_off,
            steps // 5,
        ),
        "Barker": (
            mh.kernels.barker(0.5 * best, block_size=rows // 25),
            log_prior,
            steps // 5,
        ),
        "Austerity": (
            mh.kernels.austerity(0.5 * best, block_size=rows // 25),
            log_prior,
            steps // 5,
        ),
        "Confidence": (
            mh.kernels.confidence(0.5 * best, bounds=slopes, block_size=rows // 25),
            log_prior,
            steps // 5,
        ),
    }
    for name, kernel in smh(x, signs).items():
        kernels[name] = kernel, log_prior, steps
    walk = mh.kernels.mhbt(best)
    kernels["random walk, all of the data"] = walk, log_prior, steps // 5
    paths = mh.kernels.hmc(leapfrog_steps=LEAPFROGS, warm_up=steps // 50)
    kernels["HMC, all of the data"] = paths, log_prior, steps // 5
    # A path ends with one evaluation of the energy.
    passes = {paths: LEAPFROGS + 1, walk: 1}
    start = mean + rng.normal(size=(CHAINS, len(mean))) @ factor.T
    for name, (kernel, prior, count) in kernels.items():
        if only and not name.startswith(tuple(only)):
            continue
        key = {"kernel": name, "rows": rows, "steps": count, "seed": seed}
        if found.has(**key):
            continue
        if reference is None:
            reference = nuts(x, signs, mean, factor, 400, seed)
        begin = time.perf_counter()
        draws = mh.sample(
            kernel,
            start.astype("float32"),
            log_likelihood=log_likelihood,
            log_prior=prior,
            data=(x.astype("float32"), signs.astype("float32")),
            num_steps=count,
            burn_in=count // 10,
            every=max(1, count // 1000),
            num_chains=CHAINS,
            seed=seed,
            progress=False,
        )
        seconds = time.perf_counter() - begin
        found.add(
            **key,
            **compared(draws, reference, rows * passes.get(kernel, 0)),
            seconds=seconds,
        )


def scaling(found, steps, seed):
    """Measure what SMH evaluates for growing parts of one data set."""
    sizes = (10_000, 100_000, 1_000_000)
    rng = np.random.default_rng(seed)
    all_x, all_signs, *_ = tuna.problem(sizes[-1], rng)
    for rows in sizes:
        x, signs = all_x[:rows], all_signs[:rows]
        for name, kernel in smh(x, signs).items():
            key = {"scaling": name, "rows": rows, "steps": steps, "seed": seed}
            if found.has(**key):
                continue
            expansion = kernel.expansion
            factor = np.linalg.cholesky(expansion.covariance)
            noise = rng.normal(size=(CHAINS, len(factor)))
            start = expansion.reference + noise @ factor.T
            begin = time.perf_counter()
            info = mh.sample(
                kernel,
                start.astype("float32"),
                log_likelihood=log_likelihood,
                log_prior=log_prior,
                data=(x.astype("float32"), signs.astype("float32")),
                num_steps=steps,
                every=steps,
                num_chains=CHAINS,
                seed=seed,
                progress=False,
            ).info
            size, error = measured(info["batch_size"])
            acceptance, _ = measured(info["acceptance"])
            found.add(
                **key,
                batch_size=float(size),
                error=float(error),
                acceptance=float(acceptance),
                seconds=time.perf_counter() - begin,
            )


def measured(values):
    """Mean over the chains, and its standard error."""
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def digits(found, path, steps, seed):
    """Measure the batch size of the authors' settings on the digits 7 and 9."""
    from sklearn.decomposition import PCA

    with np.load(path) as file:
        chosen = np.isin(file["y_train"], (7, 9))
        x = file["x_train"][chosen].reshape(-1, 784) / 255.0
        y = file["y_train"][chosen] == 9
    x = PCA(50).fit_transform(x).astype("float32")
    signs = np.where(y, -1.0, 1.0).astype("float32")
    draws = mh.sample(
        mh.kernels.tuna(1e-3, bounds=mh.bounds.logistic_regression(x), chi=1e-5),
        np.zeros(50, "float32"),
        log_likelihood=lambda theta, batch: (
            -ops.softplus(batch[1] * ops.sum(batch[0] * theta, axis=-1))
        ),
        log_prior=lambda theta: 0.0 * ops.sum(theta),
        data=(x, signs),
        num_steps=steps,
        burn_in=steps // 2,
        seed=seed,
        progress=False,
    )
    found.add(
        digits="TunaMH",
        rows=len(x),
        steps=steps,
        seed=seed,
        batch_size=float(draws.info["batch_size"].mean()),
        acceptance=float(draws.info["acceptance"].mean()),
    )


def main(argv=None):
    """Measure what is missing, print the tables, and fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10_000, help="of TunaMH and SMH")
    parser.add_argument("--radius", type=float, default=2.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="kernels, by how their names begin")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--digits", help="mnist.npz")
    parser.add_argument("--results", default=RESULTS, help="file of the rows")
    parser.add_argument("--table", action="store_true", help="only print the tables")
    parser.add_argument("--page", help="page whose tables are filled")
    args = parser.parse_args(argv)
    keras.utils.set_random_seed(args.seed)
    found = Rows(args.results)
    if args.scaling:
        scaling(found, args.steps, args.seed)
    elif args.digits:
        digits(found, args.digits, 20_000, args.seed)
    elif not args.table:
        tall(found, args.rows, args.steps, args.radius, args.seed, args.only)
    tables = report.tables(found.rows)
    for lines in tables.values():
        print("\n".join(lines), end="\n\n")
    if args.page:
        page = Path(args.page)
        page.write_text(report.filled(page.read_text("utf-8"), tables), "utf-8")


if __name__ == "__main__":
    main()
