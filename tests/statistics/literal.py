"""The samplers' recursions as the papers write them, in float64 numpy, on K chains.

A generator for each: `steps(...)` yields the state of the chains before the first step
and after each one, with its log importance weight. Of the optimizer only its arguments
are read.
"""

import itertools

import numpy as np
import scipy.stats

from tests.oracles import steps as oracle


def steps(optimizer, target, position, batch, rng, every):
    """The recursion of an optimizer, by the name of its class."""
    rule = RULES[type(optimizer).__name__]
    draw = _Draws(target, position, batch, rng)
    return rule(optimizer.get_config(), target, position, draw, every)


def accepts(optimizer):
    """Whether the recursion is one that accepts or rejects."""
    return RULES.get(type(optimizer).__name__) is _reversible


class _Draws:
    """Normals, uniforms, and mini-batches, of which the first may be given."""

    def __init__(self, target, position, batch, rng):
        self._rng, self._batches, self._batch = rng, target.batches, batch
        self._shape = position.shape

    def batch(self):
        batch, self._batch = self._batch, None
        if batch is None:
            batch = self._rng.integers(self._batches, size=self._shape[0])
        return batch

    def normals(self):
        return self._rng.normal(size=self._shape)

    def uniforms(self):
        return self._rng.uniform(size=self._shape[0])


def _common(config, target):
    return dict(
        learning_rate=config["learning_rate"],
        temperature=config["temperature"],
        train_size=target.train_size,
    )


def _sgld(config, target, x, draw, every):
    common = _common(config, target)
    while True:
        yield x, np.zeros(len(x))
        g = target.gradient(x, draw.batch())
        (x,) = oracle.sgld_step([x], [g], [draw.normals()], **common)


def _psgld(config, target, x, draw, every):
    common = _common(config, target)
    common |= {name: config[name] for name in ("decay", "epsilon")}
    v = np.zeros_like(x)
    while True:
        yield x, np.zeros(len(x))
        g = target.gradient(x, draw.batch())
        (x,), (v,) = oracle.psgld_step([x], [v], [g], [draw.normals()], **common)


def _sghmc(config, target, x, draw, every):
    common = _common(config, target) | {"momentum": config["momentum"]}
    is_baoab = config.get("integrator") == "baoab"
    step = oracle.baoab_step if is_baoab else oracle.sghmc_step
    v = np.zeros_like(x)
    while True:
        yield x, np.zeros(len(x))
        g = target.gradient(x, draw.batch())
        (x,), (v,) = step([x], [v], [g], [draw.normals()], **common)


def _sgnht(config, target, x, draw, every):
    """Each chain has a thermostat of its own, over all of its weights."""
    heat = config["learning_rate"] * config["temperature"] / target.train_size
    friction = 1 - config["momentum"]
    rate = config["thermostat_rate"]
    rate = friction**2 / 2 if rate is None else rate
    v, xi = np.zeros_like(x), np.full((len(x), 1), friction)
    while True:
        yield x, np.zeros(len(x))
        g = target.gradient(x, draw.batch())
        kick = np.sqrt(2 * friction * heat) * draw.normals()
        v = (1 - xi) * v - config["learning_rate"] * g + kick
        x = x + v
        energy = np.mean(v**2, axis=1, keepdims=True) / heat
        xi = np.minimum(xi + rate * ((1 - xi / 2) * energy - 1), 1.0)


def _sgmclmc(config, target, x, draw, every):
    common = _common(config, target) | {
        k: config[k] for k in ("warm_up", "added_noise")
    }
    v, noise, before = (np.zeros_like(x) for _ in range(3))
    for number in itertools.count():
        yield x, np.zeros(len(x))
        g = target.gradient(x, draw.batch())
        draws = g, before, draw.normals(), number
        x, v, noise = oracle.sgmclmc_step(x, v, noise, *draws, **common)
        before = g


def _ivon(config, target, x, draw, every):
    common = _common(config, target)
    common |= {name: config[name] for name in ("hessian_init", "beta_1", "beta_2")}
    common["delta"] = target.prior_precision / target.train_size
    noise, g = np.zeros_like(x), np.zeros_like(x)
    h = np.full_like(x, config["hessian_init"])
    for number in itertools.count():
        yield x, np.zeros(len(x))
        slope = target.slope(x, draw.batch())
        state = (x - noise, noise, g, h)
        (mean, noise, g, h) = oracle.ivon_step(
            *state, slope, draw.normals(), number, **common
        )
        x = mean + noise


def _contour(config, target, x, draw, every):
    """Algorithm 1 of CSGLD: theta, the multiplier, and Psi(U)^zeta as the weight.

    theta itself is kept. The factor is 1 in the last subregion, as the package has it.
    """
    omega, temperature = config["step_size"], config["temperature"]
    mu, n = config.get("momentum", 0.0), target.train_size
    deviation = np.sqrt(2 * config["learning_rate"] * (1 - mu) * temperature / n)
    theta = np.tile(config["masses"] / np.sum(config["masses"]), (len(x), 1))
    rows = np.arange(len(x))
    v = np.zeros_like(x)
    while True:
        batch = draw.batch()
        energy = target.energy(x, batch)
        j = _subregion(config, energy)
        hit = np.zeros_like(theta)
        hit[rows, j] = 1.0
        weighing = theta[rows, _weighing(config, j)][:, None]
        rate = omega * weighing ** config["zeta"]
        theta = theta + rate * (hit - theta)
        slope, log_weight = _psi(config, theta, j, energy)
        yield x, log_weight
        factor = 1.0 + config["zeta"] * temperature * slope
        g = factor[:, None] * target.gradient(x, batch)
        v = mu * v - config["learning_rate"] * g + deviation * draw.normals()
        x = x + v


def _subregion(config, energy):
    partition = config["partition"]["config"]
    bounds = np.arange(partition["partitions"] - 1) * partition["energy_gap"]
    return np.searchsorted(partition["energy_min"] + bounds, energy)


def _weighing(config, j):
    """J, but m - 1 above the last boundary, where Psi stays as it is there."""
    return np.minimum(j, config["partition"]["config"]["partitions"] - 2)


def _psi(config, theta, j, energy):
    """The slope of log Psi, as it is limited, and zeta log Psi(U)."""
    rows, partition = np.arange(len(j)), config["partition"]["config"]
    below = theta[rows, np.maximum(j - 1, 0)]
    slope = np.log(theta[rows, j] / below) / partition["energy_gap"]
    slope = np.where(j == partition["partitions"] - 1, 0.0, slope)
    limit, scale = config["max_multiplier"], config["zeta"] * config["temperature"]
    slope = np.clip(slope, (-limit - 1) / scale, (limit - 1) / scale)
    upper = partition["energy_min"] + partition["energy_gap"] * j
    log_psi = np.log(theta[rows, _weighing(config, j)]) + slope * (energy - upper)
    return slope, config["zeta"] * log_psi


def start(optimizer, target, rng, count):
    """Exact draws of position and batch, of the flattened law where there is one."""
    config = optimizer.get_config()
    if "masses" not in config:
        return target.draw(rng, count)
    theta = np.tile(config["masses"] / np.sum(config["masses"]), (4 * count, 1))
    kept = []
    while sum(len(batch) for _, batch in kept) < count:
        # By rejection, against the smallest weight that is seen.
        x, batch = target.draw(rng, 4 * count)
        energy = target.energy(x, batch)
        _, log_weight = _psi(config, theta, _subregion(config, energy), energy)
        if not kept:
            least = log_weight.min()
        take = np.log(rng.uniform(size=len(x))) < least - log_weight
        kept.append((x[take], batch[take]))
    x, batch = (np.concatenate(parts)[:count] for parts in zip(*kept, strict=True))
    return x, batch


def _reversible(config, target, x, draw, every):
    """RSGLD with a fixed beta, its density ratio from the two normal densities."""
    n, temperature, beta = target.train_size, config["temperature"], config["beta"]
    rate = config["learning_rate"]
    s = np.sqrt(2 * rate * config["noise_temperature"] / n)
    power = x.shape[1] if config["normalized"] else 0

    def log_q(start, g, end):
        def normal(mean, deviation):
            squares = ((end - mean) ** 2).sum(axis=1) / (2 * deviation**2)
            return -squares - power * np.log(deviation)

        down, up = normal(start - rate * g, s), normal(start + rate * g, beta * s)
        return np.logaddexp(down, up)

    yield x, np.zeros(len(x))
    batch = draw.batch()
    energy, g = target.energy(x, batch), target.gradient(x, batch)
    number = 1
    while True:
        yield x, np.zeros(len(x))
        # A draw settles the chain: the step after it evaluates the state once more.
        is_move = number % every > 0
        forward = (draw.uniforms() < 0.5)[:, None]
        z = is_move * draw.normals()
        step = is_move * rate
        new = np.where(forward, x - step * g + s * z, x + step * g + beta * s * z)
        batch = draw.batch()
        new_energy, new_g = target.energy(new, batch), target.gradient(new, batch)
        log_ratio = -(new_energy - energy) / temperature
        if is_move:
            log_ratio += log_q(new, new_g, x) - log_q(x, g, new)
        accept = np.log(draw.uniforms()) < log_ratio
        x = np.where(accept[:, None], new, x)
        g = np.where(accept[:, None], new_g, g)
        energy = np.where(accept, new_energy, energy)
        number += 1


def _spike_slab(config, target, x, draw, every):
    """SGLD-SA: eq. (13) to (17) at the evaluated point, then the gradient with them."""
    omega, prior = config["step_size"], config["prior"]["config"]
    v0, v1, nu = (prior[name] for name in ("v0", "v1", "nu"))
    weights, n = x.shape[1], target.train_size
    common = _common(config, target)
    sigma = np.full((len(x), 1), prior["sigma"])
    delta = np.full((len(x), 1), prior["delta"])
    rho = np.full_like(x, prior["delta"])
    kappa = (1 - rho) / v0 + rho / v1
    while True:
        yield x, np.zeros(len(x))
        slab = delta * scipy.stats.norm.pdf(x, scale=sigma * v1**0.5)
        spike = (1 - delta) * scipy.stats.norm.pdf(x, scale=sigma * v0**0.5)
        fresh = slab / (slab + spike)
        fresh_kappa = (1 - fresh) / v0 + fresh / v1
        squares = (fresh_kappa * x**2).sum(axis=1, keepdims=True)
        fresh_sigma = np.sqrt((squares + nu * prior["lam"]) / (weights + nu + 2))
        share = fresh.sum(axis=1, keepdims=True) + prior["a"] - 1
        fresh_delta = share / (prior["a"] + prior["b"] + weights - 2)
        kappa = (1 - omega) * kappa + omega * fresh_kappa
        sigma = (1 - omega) * sigma + omega * fresh_sigma
        delta = (1 - omega) * delta + omega * fresh_delta
        g = target.slope(x, draw.batch()) + kappa / sigma**2 / n * x
        (x,) = oracle.sgld_step([x], [g], [draw.normals()], **common)


RULES = {
    "SGLD": _sgld,
    "PSGLD": _psgld,
    "SGHMC": _sghmc,
    "SGNHT": _sgnht,
    "SGMCLMC": _sgmclmc,
    "IVON": _ivon,
    "CSGLD": _contour,
    "CSGHMC": _contour,
    "RSGLD": _reversible,
    "SGLDSA": _spike_slab,
    # With latent variables that stay, its prior is the target's.
    "SGHMCSA": _sghmc,
}
