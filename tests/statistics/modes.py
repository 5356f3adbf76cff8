"""How far an optimizer has stopped from the mode that it seeks."""

import numpy as np

from tests.oracles import spike_slab

RESOLUTION = 0.005  # in standard deviations; the suite's limit is a multiple of it


def distances(optimizer, target, x):
    """Newton's step from each point (K, d) to the mode, in standard deviations.

    The mode is that of the posterior given the latent variables, which in turn are the
    fixed point of eq. (13) to (16) at the mode.
    """
    config = optimizer.get_config()
    precision = np.array([_prior_precision(config, point) for point in x])
    batch = np.zeros(len(x), int)

    def gradient(x):
        return target.train_size * target.slope(x, batch) + precision * x

    width = 1e-4
    columns = [
        (gradient(x + width * unit) - gradient(x - width * unit)) / (2 * width)
        for unit in np.eye(target.dimension)
    ]
    step = np.linalg.solve(np.stack(columns, axis=-1), gradient(x)[..., None])[..., 0]
    _, covariance = target.mean_and_covariance()
    deviations = np.sqrt(np.diag(covariance) / target.temperature)
    return np.abs(step / deviations).max(axis=1)


def _prior_precision(config, point):
    """kappa / sigma^2 of each weight, at the latent variables' fixed point."""
    prior = config["prior"]["config"]
    given = {name: prior[name] for name in ("v0", "v1", "a", "b", "nu", "lam")}
    groups, first = (0,), [prior[name] for name in ("sigma", "delta", "v0", "v1")]
    latents = spike_slab.first([point.shape], groups, *first)
    for _ in range(100):
        latents = spike_slab.expected(
            [point], latents, groups, examples=config["train_size"], **given
        )
    return latents.kappa[0] / latents.sigma[0] ** 2
