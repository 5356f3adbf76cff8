"""Tests on mini-batches on a logistic regression with many rows, beside NUTS.

The problem of tuna.py: 10 features, a normal prior. For each kernel the script prints
the mean number of examples that a step evaluates, the acceptance, and how far the means
and standard deviations of the weights are from those of NUTS in float64, which uses all
of the data: the means in Monte Carlo standard errors, and the standard deviations as
ratios, each with its own standard error. The last column has the median effective
sample size of the weights for a million evaluated examples, after the burn-in. An
example counts once in a step, whether or not its gradient is evaluated, too.

TunaMH and PoissonMH are exact. Barker's test, Austerity and the confidence sampler are
approximate. PoissonMH needs bounds of the log-likelihoods. Its prior is therefore cut
off at a distance of `--radius` standard deviations from the mode.

    python examples/benchmarks/tall_logistic.py                # 100,000 rows
    python examples/benchmarks/tall_logistic.py --only SMH
    python examples/benchmarks/tall_logistic.py --scaling      # up to a million
    python examples/benchmarks/tall_logistic.py --digits mnist.npz

`--scaling` prints how many examples a step of SMH evaluates for the first rows of one
data set, without NUTS.

`--digits` adds the problem of the authors' code for TunaMH: the digits 7 and 9 of MNIST
in 50 principal components, with chi = 1e-5 and a step of 1e-3.
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
import tuna
from keras import ops

import keras_mhmcmc as mh

CHAINS = 16


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


def compared(name, draws, reference, seconds, steps):
    """Print a row of the table; `steps` are those after the burn-in."""
    mean, sd, mean_error, sd_error, ess = moments(draws.position.astype("float64"))
    exact, exact_sd, exact_mean_error, exact_sd_error, _ = moments(reference)
    shift = (mean - exact) / np.hypot(mean_error, exact_mean_error)
    ratio = sd / exact_sd
    error = ratio * np.hypot(sd_error / sd, exact_sd_error / exact_sd)
    weight = 1.0 / error**2
    combined = (weight * ratio).sum() / weight.sum()
    size = draws.info["batch_size"].mean()
    cells = [
        name,
        f"{size:,.0f}" if size >= 100 else f"{size:.2f}",
        f"{draws.info['acceptance'].mean():.2f}",
        f"{ess.min():.0f}",
        f"{np.sqrt(np.mean(shift**2)):.2f} (largest {np.abs(shift).max():.1f})",
        f"{combined:.3f} ± {weight.sum() ** -0.5:.3f}",
        f"{seconds:.0f}",
        f"{np.median(ess) / (steps * len(draws.position) * size) * 1e6:.3g}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


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


def tall(rows, steps, radius, seed, only):
    """Run the kernels on the problem of tuna.py."""
    rng = np.random.default_rng(seed)
    x, signs, mean, factor = tuna.problem(rows, rng)
    deviation = np.sqrt(np.mean(np.sum(np.square(factor), axis=1)))
    reference = nuts(x, signs, mean, factor, 400, seed)
    centre = ops.convert_to_tensor(mean.astype("float32"))
    distance = radius * deviation * np.sqrt(len(mean))

    def cut_off(theta):
        inside = ops.sum(ops.square(theta - centre)) < distance**2
        return ops.where(inside, log_prior(theta), -np.inf)

    best = 2.4 / np.sqrt(len(mean)) * deviation
    lower, upper = bounded(x, signs, mean, distance)
    slopes = mh.bounds.logistic_regression(x)
    limits = dict(
        lower=lower,
        upper=upper,
        poisson_rate=2.0 * float((upper - lower).sum()),
        block_size=8192,
    )
    kernels = {
        "TunaMH": (
            mh.kernels.tuna(0.25 * best, bounds=slopes, block_size=1024),
            log_prior,
            steps,
        ),
        "TunaMH langevin": (
            mh.kernels.tuna(
                0.25 * best,
                bounds=slopes,
                block_size=1024,
                proposal="langevin",
                gradient_batch_size=rows // 10,
            ),
            log_prior,
            steps,
        ),
        "PoissonMH": (
            mh.kernels.poisson(0.5 * best, **limits),
            cut_off,
            steps // 5,
        ),
        "PoissonMH barker": (
            mh.kernels.poisson(0.8 * best, **limits, proposal="barker"),
            cut_off,
            steps // 5,
        ),
        "PoissonMH langevin": (
            mh.kernels.poisson(0.6 * best, **limits, proposal="langevin"),
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
    print(
        "| kernel | examples of a step | acceptance | smallest ESS | shift of the "
        "means | standard deviation | seconds | ESS of a million examples |\n"
        "|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    start = mean + rng.normal(size=(CHAINS, len(mean))) @ factor.T
    for name, (kernel, prior, count) in kernels.items():
        if only and not name.startswith(tuple(only)):
            continue
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
        compared(name, draws, reference, seconds, count - count // 10)


def scaling(steps, seed):
    """Print what SMH evaluates for growing parts of one data set."""
    sizes = (10_000, 100_000, 1_000_000)
    rng = np.random.default_rng(seed)
    all_x, all_signs, *_ = tuna.problem(sizes[-1], rng)
    print(
        "| kernel | rows | examples of a step | acceptance | seconds |\n"
        "|---|---|---|---|---|",
        flush=True,
    )
    for rows in sizes:
        x, signs = all_x[:rows], all_signs[:rows]
        for name, kernel in smh(x, signs).items():
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
            seconds = time.perf_counter() - begin
            print(
                f"| {name} | {rows:,} | {size:.2f} ± {error:.2f} | {acceptance:.3f} | "
                f"{seconds:.0f} |",
                flush=True,
            )


def measured(values):
    """Mean over the chains, and its standard error."""
    return values.mean(), values.std(ddof=1) / np.sqrt(len(values))


def digits(path, steps, seed):
    """Print the batch size of the authors' settings on the digits 7 and 9."""
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
    print(
        f"digits 7 and 9, {len(x):,} rows: {draws.info['batch_size'].mean():.0f} "
        f"examples of a step, acceptance {draws.info['acceptance'].mean():.2f}"
    )


def main():
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=10_000, help="of TunaMH and SMH")
    parser.add_argument("--radius", type=float, default=2.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", help="kernels, by how their names begin")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--digits", help="mnist.npz")
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)
    if args.scaling:
        scaling(args.steps, args.seed)
        return
    tall(args.rows, args.steps, args.radius, args.seed, args.only)
    if args.digits:
        digits(args.digits, 20_000, args.seed)


if __name__ == "__main__":
    main()
