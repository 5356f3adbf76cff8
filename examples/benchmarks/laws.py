"""The spread of each sampler's draws, compared with the target's spread.

Bayesian logistic regression on scikit-learn's breast cancer data: the first 565
examples, 30 standardised inputs and a bias, prior N(0, 1). The reference is MALA in
float64 on all of the data, preconditioned by the curvature at the mode. Ratios are
means over eigenvectors of the reference's covariance: "stiff" over the five directions
of least variance, "soft" over the five of most, "all" over all 31.

    KERAS_BACKEND=jax python examples/benchmarks/laws.py                  # all parts
    KERAS_BACKEND=jax python examples/benchmarks/laws.py --only rsgld

The parts are: `rsgld`, the spread within each chain of the default RSGLD in `fit`;
`psgld`, PSGLD compared with SGLD; `metropolis`, MHBT and MINT at their default
temperatures and at c_n below sqrt(m), compared with a closed form; `momentum`, SGLD,
SGHMC and SGNHT with mini-batches, compared with their closed form.
"""

import argparse
import itertools
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh

EXAMPLES, DIMENSION, STIFF = 565, 31, 5


def data():
    """Inputs (565, 31), the last one 1, and labels, float64."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    return np.c_[x, np.ones(len(x))][:EXAMPLES], y[:EXAMPLES].astype("float64")


def log_likelihood(weights, batch):
    """Of each label."""
    x, y = batch
    logits = ops.matmul(x, weights)
    return y * logits - ops.softplus(logits)


def log_prior(weights):
    return -0.5 * ops.sum(ops.square(weights))


# The reference.


def slopes(weights, x, y):
    """Energy in nats and its gradient, at each row of weights."""
    logits = weights @ x.T
    energy = np.logaddexp(0.0, logits).sum(1) - logits @ y + 0.5 * (weights**2).sum(1)
    probability = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return energy, (probability - y) @ x + weights


def mode(x, y):
    """The weights of least energy, and the curvature there."""
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        probability = 1.0 / (1.0 + np.exp(-x @ weights))
        curvature = (x.T * (probability * (1 - probability))) @ x + np.eye(len(weights))
        weights = weights - np.linalg.solve(
            curvature, slopes(weights[None], x, y)[1][0]
        )
    return weights, curvature


def reference(temperature, chains=200, steps=3000, seed=0):
    """Mean and covariance of exp(-U/T), and draws to start from, (chain, weight)."""
    x, y = data()
    rng = np.random.default_rng(seed)
    centre, curvature = mode(x, y)
    factor = np.linalg.cholesky(np.linalg.inv(curvature) * temperature)
    step = 0.6

    def shifted(weights):
        energy, gradient = slopes(weights, x, y)
        return energy / temperature, gradient @ factor / temperature

    weights = centre + rng.normal(size=(chains, len(centre))) @ factor.T
    energy, gradient = shifted(weights)
    kept, accepted = [], 0.0
    for k in range(steps):
        noise = rng.normal(size=weights.shape)
        move = -0.5 * step**2 * gradient + step * noise
        other = weights + move @ factor.T
        other_energy, other_gradient = shifted(other)
        back = (-move + 0.5 * step**2 * other_gradient) / step
        ratio = energy - other_energy + 0.5 * ((noise**2).sum(1) - (back**2).sum(1))
        take = np.log(rng.uniform(size=chains)) < ratio
        weights = np.where(take[:, None], other, weights)
        energy = np.where(take, other_energy, energy)
        gradient = np.where(take[:, None], other_gradient, gradient)
        accepted += take.mean() / steps
        if k >= steps // 5 and k % 4 == 0:
            kept.append(weights)
    draws = np.concatenate(kept)
    return draws.mean(0), np.cov(draws.T), weights


def ratios(draws, covariance, mean=None):
    """Variance over the reference's in stiff, soft and all directions.

    Draws (chain, draw, weight); around each chain's own mean, or around `mean`.
    """
    _, axes = np.linalg.eigh(covariance)
    draws = np.asarray(draws, "float64")
    centre = draws.mean(1, keepdims=True) if mean is None else mean
    each = np.square((draws - centre) @ axes).mean((0, 1))
    each = each / np.diag(axes.T @ covariance @ axes)
    return summary(each)


def summary(each):
    """Means over the stiff, the soft and all directions."""
    stiff, soft = each[:STIFF], each[-STIFF:]
    return {"stiff": stiff.mean(), "soft": soft.mean(), "all": each.mean()}


def show(name, cells):
    text = "  ".join(f"{key} {value:.3f}" for key, value in cells.items())
    print(f"  {name:44} {text}", flush=True)


def sampled(kernel, start, batch_size, steps, seed, burn_in=0.2, every=10):
    x, y = data()
    return mh.sample(
        kernel,
        start.astype("float32"),
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=(x.astype("float32"), y.astype("float32")),
        batch_size=batch_size,
        num_steps=steps,
        burn_in=int(burn_in * steps),
        every=every,
        num_chains=len(start),
        seed=seed,
        progress=False,
    )


# The parts.


def in_fit(optimizer, batch_size, args, epochs, every):
    """Draws of chains in an ordinary `fit`, (chain, draw, weight), after a quarter."""
    x, y = data()
    layer = keras.layers.Dense(1, "sigmoid", use_bias=False)
    model = keras.Sequential([keras.Input((DIMENSION,)), layer])
    chains = mh.ParallelChains(model, args.chains, seed=args.seed)
    chains.compile(optimizer, loss="binary_crossentropy")
    steps = epochs * EXAMPLES // batch_size
    posterior = mh.PosteriorSamples(burn_in=steps // 4, every=every)
    repeats = max(batch_size // EXAMPLES, 1)
    history = chains.fit(
        np.tile(x, (repeats, 1)).astype("float32"),
        np.tile(y, repeats)[:, None].astype("float32"),
        batch_size=batch_size,
        epochs=epochs,
        verbose=0,
        callbacks=[posterior],
    )
    values = posterior.to_arviz().posterior
    (name,) = values.data_vars
    draws = np.asarray(values[name])
    return draws.reshape(*draws.shape[:2], DIMENSION), history.history["acceptance"][-1]


def paper(batch_size):
    """The arguments of RSGLD that the paper has, but for the rule for beta."""
    return {
        "temperature": EXAMPLES / batch_size,
        "forward_probability": 0.5,
        "refresh_probability": 0.0,
        "warm_up": 0,
        "rate_adaptation": False,
    }


def rsgld(args):
    """RSGLD with its defaults and with the paper's: the spread within each chain."""
    _, posterior, _ = reference(1.0)
    for batch_size, is_paper in itertools.product((EXAMPLES, 113), (False, True)):
        optimizer = mh.RSGLD(
            0.5,
            train_size=EXAMPLES,
            batch_size=batch_size,
            prior=mh.priors.Gaussian(1.0),
            seed=args.seed,
            **(paper(batch_size) if is_paper else {}),
        )
        epochs = args.steps * batch_size // EXAMPLES
        draws, accepted = in_fit(optimizer, batch_size, args, epochs, every=10)
        _, tempered, _ = reference(EXAMPLES / batch_size)
        settings = "the paper's settings" if is_paper else "the defaults"
        print(
            f"RSGLD(0.5, batch_size={batch_size}), {settings}, {accepted:.2f} accepted"
        )
        for name, covariance in (("T = 1", posterior), ("T = N/m", tempered)):
            spread = ratios(draws, covariance)
            spread = {key: value**0.5 for key, value in spread.items()}
            show(f"standard deviation over that of {name}", spread)


def psgld(args):
    """PSGLD and SGLD: the bias of the omitted correction."""
    _, covariance, start = reference(1.0)
    for batch_size in (EXAMPLES, 113):
        print(f"batches of {batch_size}, variance over that of the posterior")
        for name, kernel in (
            ("SGLD(0.02)", mh.kernels.sgld(0.02)),
            ("PSGLD(0.001)", mh.kernels.psgld(0.001)),
            ("PSGLD(0.0003)", mh.kernels.psgld(0.0003)),
        ):
            draws = sampled(kernel, start, batch_size, args.steps, args.seed)
            show(name, ratios(draws.position, covariance, mean_of(draws)))


def mean_of(draws):
    return draws.position.astype("float64").mean((0, 1))


def gradient_covariance(draws, batch_size):
    """Of the gradient of the mean loss of a random batch, the mean over draws."""
    x, y = data()
    total = 0.0
    for weights in draws:
        probability = 1.0 / (1.0 + np.exp(-x @ weights))
        total += np.cov(((probability - y)[:, None] * x).T, bias=True) / len(draws)
    return total * (EXAMPLES - batch_size) / (EXAMPLES - 1.0) / batch_size


def metropolis(args):
    """MHBT and MINT on mini-batches of 113, at several c_n = N/T.

    The closed form assumes that the energies of batches are normal and linear. Averaged
    over batches, exp(-c_n l_I) then has a lower precision, by c_n^2 times the variance
    of a batch's gradient. If no precision is left, there is no closed form.
    """
    m = 113
    for name, weight in (
        ("c_n = m, MHBT's default", m),
        ("c_n = m^0.99, MINT's default", m**0.99),
        ("c_n = sqrt(m)", m**0.5),
        ("c_n = sqrt(m)/2", m**0.5 / 2),
    ):
        temperature = EXAMPLES / weight
        mean, covariance, start = reference(temperature)
        walk = 0.1 if temperature < 10.0 else 0.3
        kernel = mh.kernels.mhbt(walk, temperature=temperature)
        draws = sampled(kernel, start, m, 3 * args.steps, args.seed, burn_in=0.5)
        accepted = draws.info["acceptance"].mean()
        print(f"{name}: T = {temperature:.1f}, accepted {accepted:.2f}")
        measured = ratios(draws.position, covariance, mean_of(draws))
        show("variance over the tempered one", measured)
        noise = weight**2 * gradient_covariance(mean[None], m)
        precision = np.linalg.inv(covariance) - noise
        if np.linalg.eigvalsh(precision).min() > 0.0:
            show("closed form", over(np.linalg.inv(precision), covariance))


def over(other, covariance):
    """Variances of a covariance over those of another, in the directions of that."""
    values, axes = np.linalg.eigh(covariance)
    return summary(np.diag(axes.T @ other @ axes) / values)


def momentum(args):
    """SGLD, SGHMC and SGNHT at one learning rate, on all of the data and on batches.

    The closed form is that of `mh.SGHMC`, in each eigenvector of the covariance.
    """
    _, covariance, start = reference(1.0)
    values, axes = np.linalg.eigh(covariance)
    rate = 0.05
    pull = rate / EXAMPLES / values
    for batch_size in (EXAMPLES, 113, 12):
        print(f"batches of {batch_size}, variance over that of the posterior")
        noise = np.diag(axes.T @ gradient_covariance(start, batch_size) @ axes)
        # The friction that each direction would need for its gradient noise.
        needed = rate * EXAMPLES * noise / 2.0
        for name, friction, kernel in (
            ("SGLD", 1.0, mh.kernels.sgld(rate)),
            ("SGHMC, momentum 0.9", 0.1, mh.kernels.sghmc(rate, momentum=0.9)),
            ("SGNHT, momentum 0.9", 0.1, mh.kernels.sgnht(rate, momentum=0.9)),
        ):
            draws = sampled(kernel, start, batch_size, args.steps, args.seed)
            show(name, ratios(draws.position, covariance, mean_of(draws)))
            has_thermostat = "thermostat" in draws.info
            if has_thermostat:
                print("  thermostat at the end", draws.info["thermostat"].mean())
            xi = thermostat_of(friction + needed, pull) if has_thermostat else friction
            each = (friction + needed) / (xi * slowed(xi, pull))
            show("closed form", over((axes * (values * each)) @ axes.T, covariance))


def slowed(xi, pull):
    """The bias of a step of eta L with a friction, as a factor of L."""
    return 1.0 - pull / (2.0 * (2.0 - xi))


def thermostat_of(needed, pull):
    """The mean thermostat, at most 1, at which the mean direction has temperature T."""
    low, high = 0.0, 1.0
    for _ in range(60):
        xi = 0.5 * (low + high)
        is_low = xi < np.mean(needed / slowed(xi, pull))
        low, high = (xi, high) if is_low else (low, xi)
    return xi


PARTS = {
    "rsgld": rsgld,
    "psgld": psgld,
    "metropolis": metropolis,
    "momentum": momentum,
}


def main(argv=None):
    """Prints what each part measures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--chains", type=int, default=20, help="chains of each `fit`")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for name in args.only:
        print(f"== {name}, on {keras.backend.backend()}", flush=True)
        PARTS[name](args)


if __name__ == "__main__":
    main()
