"""Bugs that are planted into the package, one at a time, and the cells that catch them.

Each is a function of pytest's `monkeypatch`, which undoes it. It has to be planted
before the optimizer is made, since the step is compiled once.
"""

from collections.abc import Callable
from typing import NamedTuple

from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.kernels import adam
from keras_mhmcmc.kernels import contour
from keras_mhmcmc.kernels import hamiltonian
from keras_mhmcmc.kernels import langevin
from keras_mhmcmc.kernels import metropolis
from keras_mhmcmc.kernels import moves
from keras_mhmcmc.kernels import spike_slab
from keras_mhmcmc.optimizers import SGLD
from keras_mhmcmc.optimizers.contour import ContourSampler
from keras_mhmcmc.optimizers.metropolis import MetropolisSampler
from keras_mhmcmc.priors import BoundGaussian


class Bug(NamedTuple):
    """A planted bug."""

    plant: Callable
    where: str
    # (sampler, target): the first is that of the short form.
    cells: tuple
    is_subtle: bool = False  # whether it takes a longer run to be caught


BUGS = {}


def bug(name, where, *cells, is_subtle=False):
    """Enters a bug into the table."""

    def enter(plant):
        BUGS[name] = Bug(plant, where, cells, is_subtle)
        return plant

    return enter


def scaled(tensors, factor):
    return [factor * x for x in tensors]


def wrap(monkeypatch, owner, name, around):
    """Puts `around(real, *args, **options)` in the place of a function."""
    real = getattr(owner, name)

    def wrapped(*args, **options):
        return around(real, *args, **options)

    monkeypatch.setattr(owner, name, wrapped)


# Noise.


@bug(
    "noise halved",
    "ChainsNoise.draw",
    ("sgld", "gaussian"),
    ("mhbt_langevin", "skewed"),
    ("csghmc", "gaussian"),
)
def _(monkeypatch):
    def around(real, self, tensors, uniforms):
        normals, uniform = real(self, tensors, uniforms)
        return scaled(normals, 0.5), uniform

    wrap(monkeypatch, _backend.ChainsNoise, "draw", around)


def freeze(monkeypatch):
    def around(real, self, tensors, uniforms):
        before = ops.copy(ops.convert_to_tensor(self._state))
        draws = real(self, tensors, uniforms)
        self._state.assign(before)
        return draws

    wrap(monkeypatch, _backend.ChainsNoise, "draw", around)


bug(
    "seed frozen",
    "ChainsNoise.draw",
    ("psgld", "correlated"),
    ("csgld", "gaussian"),
    ("sghmc", "gaussian"),
)(freeze)
bug("seed frozen, accepting", "ChainsNoise.draw", ("mhbt_langevin", "skewed"))(freeze)


@bug(
    "all chains share their noise",
    "ChainsNoise.draw",
    ("sgldsa", "regression"),
    ("mint", "gaussian"),
)
def _(monkeypatch):
    def first(x):
        return ops.broadcast_to(x[:1], x.shape)

    def around(real, self, tensors, uniforms):
        normals, uniform = real(self, tensors, uniforms)
        return [first(x) for x in normals], first(uniform)

    wrap(monkeypatch, _backend.ChainsNoise, "draw", around)


@bug("noise without its factor 2", "langevin.noise_scale", ("sgld", "regression"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        langevin,
        "noise_scale",
        lambda real, rate, temperature, size: real(0.5 * rate, temperature, size),
    )


@bug("noise without the temperature", "langevin.noise_scale", ("sghmc", "gaussian"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        langevin,
        "noise_scale",
        lambda real, rate, temperature, size: real(rate, 1.0, size),
    )


@bug("noise for one example, not N", "langevin.noise_scale", ("psgld", "correlated"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        langevin,
        "noise_scale",
        lambda real, rate, temperature, size: real(rate, temperature, 1.0),
    )


@bug(
    "momentum's noise without 1 - mu",
    "hamiltonian.sghmc_step",
    ("sghmc", "gaussian"),
    ("sghmcsa", "correlated"),
    ("csghmc", "gaussian"),
)
def _(monkeypatch):
    def around(real, position, velocity, gradient, normals, *, momentum, **options):
        normals = scaled(normals, (1.0 - momentum) ** -0.5)
        return real(position, velocity, gradient, normals, momentum=momentum, **options)

    wrap(monkeypatch, hamiltonian, "sghmc_step", around)


@bug("noise without the metric", "langevin.psgld_step", ("psgld", "correlated"))
def _(monkeypatch):
    def around(real, position, square, gradient, normals, *, decay, epsilon, **options):
        new = [
            decay * v + (1 - decay) * g**2
            for v, g in zip(square, gradient, strict=True)
        ]
        normals = [
            z * (epsilon + v**0.5) ** 0.5 for v, z in zip(new, normals, strict=True)
        ]
        # Of about the right size, since a typical metric has this root.
        normals = scaled(normals, (2.0 * epsilon) ** -0.5 * 2.0)
        options |= {"decay": decay, "epsilon": epsilon}
        return real(position, square, gradient, normals, **options)

    wrap(monkeypatch, langevin, "psgld_step", around)


# The gradient.


@bug("drift's sign flipped", "langevin.sgld_step", ("sgld", "gaussian"))
def _(monkeypatch):
    def around(real, position, gradient, *args, **options):
        return real(position, scaled(gradient, -1.0), *args, **options)

    wrap(monkeypatch, langevin, "sgld_step", around)


@bug("drift's sign flipped, momentum", "hamiltonian.sghmc_step", ("csghmc", "bimodal"))
def _(monkeypatch):
    def around(real, position, velocity, gradient, *args, **options):
        return real(position, velocity, scaled(gradient, -1.0), *args, **options)

    wrap(monkeypatch, hamiltonian, "sghmc_step", around)


@bug("proposal's drift flipped", "moves.langevin", ("mhbt_langevin", "skewed"))
def _(monkeypatch):
    def around(real, position, gradient, *args):
        return real(position, scaled(gradient, -1.0), *args)

    wrap(monkeypatch, moves, "langevin", around)


@bug("descent's sign flipped", "adam.adam_step", ("esm", "regression"))
def _(monkeypatch):
    def around(real, position, mean, square, gradient, *args, **options):
        return real(position, mean, square, scaled(gradient, -1.0), *args, **options)

    wrap(monkeypatch, adam, "adam_step", around)


@bug("stale gradient", "SGLD._move", ("sgld", "gaussian"), ("sgld", "regression"))
def _(monkeypatch):
    def build(real, self, variables):
        self._old = self.add_optimizer_variables(variables, "old")

    def move(real, self, variables, position, gradient, *args):
        old = [ops.copy(x) for x in _backend.read(self._old)]
        _backend.write(self._old, gradient)
        return real(self, variables, position, old, *args)

    wrap(monkeypatch, SGLD, "_build_slots", build)
    wrap(monkeypatch, SGLD, "_move", move)


@bug("position before momentum", "hamiltonian.sghmc_step", ("sghmc", "gaussian"))
def _(monkeypatch):
    def around(real, position, velocity, *args, **options):
        _, new = real(position, velocity, *args, **options)
        return [x + v for x, v in zip(position, velocity, strict=True)], new

    wrap(monkeypatch, hamiltonian, "sghmc_step", around)


@bug(
    "stale gradient of the state",
    "metropolis.decide",
    ("mint", "gaussian"),
    ("rsgld", "logistic"),
)
def _(monkeypatch):
    def around(real, state, *args, **options):
        new, info = real(state, *args, **options)
        return new._replace(gradient=state.gradient), info

    wrap(monkeypatch, metropolis, "decide", around)


@bug(
    "gradient of a rejected point",
    "metropolis.decide",
    ("mint", "gaussian"),
    is_subtle=True,
)
def _(monkeypatch):
    def around(real, state, evaluated, *args, **options):
        new, info = real(state, evaluated, *args, **options)
        return new._replace(gradient=evaluated.gradient), info

    wrap(monkeypatch, metropolis, "decide", around)


# The prior.


def drop_gradient(monkeypatch):
    wrap(
        monkeypatch,
        BoundGaussian,
        "add_gradient",
        lambda real, self, position, gradient, size: gradient,
    )


bug(
    "prior dropped from the gradient",
    "BoundGaussian.add_gradient",
    ("sgld", "regression"),
)(drop_gradient)


@bug(
    "prior dropped from the energy",
    "BoundGaussian.energy",
    ("mint", "logistic"),
    ("mhbt_random_walk", "regression"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        BoundGaussian,
        "energy",
        lambda real, self, position, chains=False: 0.0 * real(self, position, chains),
    )


@bug("prior not divided by N", "BoundGaussian.add_gradient", ("sgld", "regression"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        BoundGaussian,
        "add_gradient",
        lambda real, self, position, gradient, size: real(self, position, gradient, 1),
    )


@bug(
    "spike and slab dropped from the gradient",
    "spike_slab.add_gradient",
    ("sgldsa", "regression"),
    ("esm", "regression"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        spike_slab,
        "add_gradient",
        lambda real, position, gradient, *args: gradient,
    )


@bug("sigma left out", "spike_slab.add_gradient", ("sgldsa_learning", "regression"))
def _(monkeypatch):
    def around(real, position, gradient, spike, sigma, *args):
        return real(position, gradient, spike, 0.0 * sigma + 1.0, *args)

    wrap(monkeypatch, spike_slab, "add_gradient", around)


@bug("spike and slab swapped", "spike_slab.learned", ("sgldsa_learning", "regression"))
def _(monkeypatch):
    def around(real, *args, **options):
        latents, weighted = real(*args, **options)
        return latents._replace(spike=[1.0 - q for q in latents.spike]), weighted

    wrap(monkeypatch, spike_slab, "learned", around)


# Accepting.


@bug(
    "acceptance at 1.5 T",
    "metropolis.decide",
    ("mint", "gaussian"),
    ("mhbt_langevin", "regression"),
)
def _(monkeypatch):
    def around(real, *args, temperature):
        return real(*args, temperature=1.5 * temperature)

    wrap(monkeypatch, metropolis, "decide", around)


@bug(
    "acceptance without the energies",
    "metropolis.energy_log_ratio",
    ("mhbt_random_walk", "regression"),
    ("rsgld", "logistic"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        metropolis,
        "energy_log_ratio",
        lambda real, *args: 0.0 * real(*args),
    )


@bug(
    "energy of the mean loss, not N times it",
    "MetropolisSampler._move",
    ("mint", "gaussian"),
)
def _(monkeypatch):
    def around(real, self, variables, position, gradient, energy, rate):
        energy = energy / self.train_size
        return real(self, variables, position, gradient, energy, rate)

    wrap(monkeypatch, MetropolisSampler, "_move", around)


@bug("every proposal accepted", "metropolis.decide", ("mhbt_reversible", "bimodal"))
def _(monkeypatch):
    def around(real, state, evaluated, pending, ratio, restart, uniform, **options):
        uniform = 0.0 * uniform + 1e-30
        return real(state, evaluated, pending, ratio, restart, uniform, **options)

    wrap(monkeypatch, metropolis, "decide", around)


@bug("every refresh accepted", "metropolis.decide", ("mhbt_langevin", "regression"))
def _(monkeypatch):
    def around(real, state, evaluated, pending, ratio, restart, *args, **options):
        restart = restart | (pending == metropolis.REFRESH)
        return real(state, evaluated, pending, ratio, restart, *args, **options)

    wrap(monkeypatch, metropolis, "decide", around)


@bug("stale energy of the state", "metropolis.decide", ("mint", "gaussian"))
def _(monkeypatch):
    def around(real, state, evaluated, pending, *args, **options):
        new, info = real(state, evaluated, pending, *args, **options)
        kept = ops.where(pending == metropolis.PROPOSAL, state.energy, new.energy)
        return new._replace(energy=kept), info

    wrap(monkeypatch, metropolis, "decide", around)


@bug("a rejected point is not taken back", "metropolis.decide", ("rsgld", "logistic"))
def _(monkeypatch):
    def around(real, state, evaluated, *args, **options):
        new, info = real(state, evaluated, *args, **options)
        return new._replace(position=evaluated.position), info

    wrap(monkeypatch, metropolis, "decide", around)


@bug(
    "temperature of MINT without alpha",
    "metropolis.mint_temperature",
    ("mint", "gaussian"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        metropolis,
        "mint_temperature",
        lambda real, alpha, size, batch: size / batch,
    )


# The densities of proposals.


@bug("q-ratio's sign flipped", "moves.langevin_log_ratio", ("mhbt_langevin", "skewed"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        moves,
        "langevin_log_ratio",
        lambda real, *args, **options: -real(*args, **options),
    )


@bug("q-ratio left out", "moves.langevin_log_ratio", ("mint", "gaussian"))
def _(monkeypatch):
    wrap(
        monkeypatch,
        moves,
        "langevin_log_ratio",
        lambda real, *args, **options: 0.0 * real(*args, **options),
    )


@bug(
    "q-ratios of the two directions swapped",
    "moves.residuals",
    ("rsgld", "logistic"),
)
def _(monkeypatch):
    def around(real, *args, **options):
        r = real(*args, **options)
        return moves.Residuals(
            r.out_backward, r.out_forward, r.change_backward, r.change_forward
        )

    wrap(monkeypatch, moves, "residuals", around)


@bug(
    "normalising constants left out",
    "moves.reversible_log_ratio",
    ("rsgld", "logistic"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        moves,
        "reversible_log_ratio",
        lambda real, residuals, beta, dimension, normalized: real(
            residuals, beta, dimension, False
        ),
    )


@bug("backward noise not widened", "moves.reversible", ("rsgld", "logistic"))
def _(monkeypatch):
    def around(real, position, gradient, normals, uniform, scales):
        scales = scales._replace(beta=1.0 + 0.0 * scales.beta)
        return real(position, gradient, normals, uniform, scales)

    wrap(monkeypatch, moves, "reversible", around)


# Contours.


@bug(
    "samples without their weights",
    "ContourSampler.sample_info",
    ("csgld", "gaussian"),
    ("csghmc", "bimodal"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        ContourSampler,
        "_log_weight_of_sample",
        lambda real, self, is_final: 0.0 * real(self, is_final),
    )


@bug(
    "the weight of another point",
    "ContourSampler.sample_info",
    ("csghmc", "gaussian"),
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        ContourSampler,
        "_log_weight_of_sample",
        lambda real, self, is_final: real(self, False),
    )


@bug("gradient without its factor", "contour.flattened", ("csgld", "gaussian"))
def _(monkeypatch):
    def around(real, *args):
        factor, log_weight = real(*args)
        return 1.0 + 0.0 * factor, log_weight

    wrap(monkeypatch, contour, "flattened", around)


@bug(
    "factor on the noise as well",
    "langevin.sgld_step",
    ("csgld", "gaussian"),
    is_subtle=True,
)
def _(monkeypatch):
    def around(real, position, gradient, normals, *, multiplier=1.0, **options):
        (z,) = normals
        factor = ops.reshape(multiplier + ops.zeros(z.shape[:1]), (-1, 1, 1))
        options["multiplier"] = multiplier
        return real(position, gradient, [factor * z], **options)

    wrap(monkeypatch, langevin, "sgld_step", around)


@bug("factor's slope flipped", "contour.flattened", ("csgld", "gaussian"))
def _(monkeypatch):
    def around(real, *args):
        factor, log_weight = real(*args)
        return 2.0 - factor, log_weight

    wrap(monkeypatch, contour, "flattened", around)
