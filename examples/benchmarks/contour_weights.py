"""The error of CSGLD's weights if `max_multiplier` limits the factor of the gradient.

The target is a normal distribution in 20 dimensions. Its mean energy is 10 nats, and
the density of its energies is known. The factor of the gradient at each energy gives
the distribution that CSGLD samples with a small step. Quadrature combines it with the
weights of the same code. A run follows for comparison.

    KERAS_BACKEND=jax python examples/benchmarks/contour_weights.py
"""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import contour

# The known density of the energy, half a chi-squared with 20 degrees of freedom.
_SHAPE = 10
_ENDS = 3.0 + np.arange(39)


def _below(energy):
    """Share of the gamma distribution below, for an integer shape."""
    terms = np.cumprod(np.r_[1.0, [energy / k for k in range(1, _SHAPE)]])
    return 1.0 - np.exp(-energy) * terms.sum()


KNOWN = {
    "partition": mh.EnergyPartition(energy_min=3.0, energy_gap=1.0, partitions=40),
    "masses": np.diff([0.0, *map(_below, _ENDS), 1.0]),
    "adapt": False,
}


def weighted_mean_energy(zeta, limit):
    """Mean energy of weighted draws of CSGLD with a small step, by quadrature."""
    kernel = mh.kernels.csgld(0.01, max_multiplier=limit, zeta=zeta, **KNOWN)
    settings = kernel.contour
    width = 2e-3
    energy = np.arange(0.5 * width, 60.0, width)
    place = contour.locate(ops.convert_to_tensor(energy.astype("float32")), settings)
    log_masses = np.log(KNOWN["masses"] / KNOWN["masses"].sum()).astype("float32")
    log_masses = ops.broadcast_to(log_masses[None], (len(energy), len(log_masses)))
    factor, log_weight = (
        ops.convert_to_numpy(value).astype("float64")
        for value in contour.multiplier_and_log_weight(log_masses, place, 1.0, settings)
    )
    # Volume of a shell of equal energy, and minus the integral of the factor.
    log_law = (_SHAPE - 1) * np.log(energy) - (np.cumsum(factor) - factor / 2) * width
    mass = log_law + log_weight
    mass = np.exp(mass - mass.max())
    return mass @ energy / mass.sum()


def table():
    """Weighted mean energy over the exact one, by zeta and `max_multiplier`."""
    rows = {}
    for zeta in (0.75, 1.0, 2.0, 5.0, 10.0):
        for limit in (5.0, None):
            rows[zeta, limit] = weighted_mean_energy(zeta, limit) / _SHAPE
    return rows


def run(args):
    """The same of a run at zeta = 1, with its standard error and the quadrature."""
    for limit in (1.0, None):
        limits = {"zeta": 1.0, "max_multiplier": limit}
        kernel = mh.kernels.csgld(args.rate, **limits, **KNOWN)
        start = np.random.default_rng(args.seed).normal(size=(500, 20))
        draws = mh.sample(
            kernel,
            start.astype("float32"),
            log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
            num_steps=args.steps,
            burn_in=args.steps // 5,
            every=20,
            num_chains=len(start),
            seed=args.seed,
            progress=False,
        )
        energy = 0.5 * np.square(draws.position.astype("float64")).sum(-1)
        each = (draws.weights * energy).sum(1) / draws.weights.sum(1)
        mean, error = each.mean() / _SHAPE, each.std() / len(each) ** 0.5 / _SHAPE
        computed = weighted_mean_energy(1.0, limit) / _SHAPE
        print(
            f"zeta = 1, max_multiplier = {limit}: {mean:.3f} +- {error:.3f}, by "
            f"quadrature {computed:.3f}"
        )


def main(argv=None):
    """Prints the quadrature, and a run beside it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    print(f"{keras.backend.backend()}, {args.steps} steps")
    print("weighted mean energy over the exact one, by quadrature")
    for (zeta, limit), ratio in table().items():
        print(f"zeta = {zeta:g}, max_multiplier = {limit}: {ratio:.3f}")
    run(args)


if __name__ == "__main__":
    main()
