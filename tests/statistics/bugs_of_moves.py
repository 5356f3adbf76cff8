"""Planted bugs in the noise, the gradient and the prior."""

from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.priors import BoundGaussian
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers import spike_slab
from keras_mhmcmc.samplers.ivon import ivon
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.psgld import psgld
from keras_mhmcmc.samplers.sghmc import sghmc
from keras_mhmcmc.samplers.sgld import SGLD
from keras_mhmcmc.samplers.sgld import sgld
from tests.statistics.planting import bug
from tests.statistics.planting import scaled
from tests.statistics.planting import wrap

# Noise.


@bug(
    "noise halved",
    "ChainsNoise.draw",
    ("sgld", "gaussian"),
    ("mhbt_langevin", "skewed"),
    ("csghmc", "gaussian"),
    kind="noise scale",
    is_short=True,
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
    kind="dependent noise",
    is_short=True,
)(freeze)
bug(
    "seed frozen, accepting",
    "ChainsNoise.draw",
    ("mhbt_langevin", "skewed"),
    kind="dependent noise",
)(freeze)


@bug(
    "all chains share their noise",
    "ChainsNoise.draw",
    ("sgldsa", "regression"),
    ("mint", "gaussian"),
    kind="dependent noise",
)
def _(monkeypatch):
    def first(x):
        return ops.broadcast_to(x[:1], x.shape)

    def around(real, self, tensors, uniforms):
        normals, uniform = real(self, tensors, uniforms)
        return [first(x) for x in normals], first(uniform)

    wrap(monkeypatch, _backend.ChainsNoise, "draw", around)


@bug(
    "noise without its factor 2",
    "base.noise_scale",
    ("sgld", "regression"),
    kind="missing factor",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        base,
        "noise_scale",
        lambda real, rate, temperature, size: real(0.5 * rate, temperature, size),
    )


@bug(
    "noise without the temperature",
    "base.noise_scale",
    ("sghmc", "gaussian"),
    kind="temperature",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        base,
        "noise_scale",
        lambda real, rate, temperature, size: real(rate, 1.0, size),
    )


@bug(
    "noise for one example, not N",
    "base.noise_scale",
    ("psgld", "correlated"),
    kind="units",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        base,
        "noise_scale",
        lambda real, rate, temperature, size: real(rate, temperature, 1.0),
    )


@bug(
    "half of the drift forgotten",
    "sghmc.move",
    ("sghmc_baoab", "gaussian"),
    kind="missing factor",
)
def _(monkeypatch):
    def around(real, *arguments):
        new = real(*arguments)
        pairs = zip(new.point, new.velocity, strict=True)
        return new._replace(point=[x - 0.5 * v for x, v in pairs])

    wrap(monkeypatch, sghmc, "move", around)


@bug(
    "momentum's noise without 1 - mu",
    "sghmc.move",
    ("sghmc", "gaussian"),
    ("sghmcsa", "correlated"),
    ("csghmc", "gaussian"),
    kind="missing factor",
    is_short=True,
)
def _(monkeypatch):
    def around(real, self, current, now):
        normals = scaled(now.normals, (1.0 - self.momentum) ** -0.5)
        return real(self, current, now._replace(normals=normals))

    wrap(monkeypatch, sghmc, "move", around)


@bug(
    "noise without the metric",
    "psgld.move",
    ("psgld", "correlated"),
    kind="missing factor",
)
def _(monkeypatch):
    def around(real, self, current, now):
        old = zip(current.auxiliary.second_moment, current.gradient, strict=True)
        new = [self.decay * v + (1 - self.decay) * g**2 for v, g in old]
        pairs = zip(new, now.normals, strict=True)
        normals = [z * (self.epsilon + v**0.5) ** 0.5 for v, z in pairs]
        # Of about the right size, since a typical metric has this root.
        normals = scaled(normals, (2.0 * self.epsilon) ** -0.5 * 2.0)
        return real(self, current, now._replace(normals=normals))

    wrap(monkeypatch, psgld, "move", around)


# The gradient.


def uphill(real, self, current, now):
    return real(self, current._replace(gradient=scaled(current.gradient, -1.0)), now)


@bug("drift's sign flipped", "sgld.move", ("sgld", "gaussian"), kind="sign")
def _(monkeypatch):
    wrap(monkeypatch, sgld, "move", uphill)


@bug(
    "drift's sign flipped, momentum",
    "sghmc.move",
    ("csghmc", "bimodal"),
    kind="sign",
    is_short=True,
)
def _(monkeypatch):
    wrap(monkeypatch, sghmc, "move", uphill)


@bug(
    "proposal's drift flipped",
    "proposals.langevin",
    ("mhbt_langevin", "skewed"),
    kind="sign",
)
def _(monkeypatch):
    def around(real, position, gradient, *args):
        return real(position, scaled(gradient, -1.0), *args)

    wrap(monkeypatch, proposals, "langevin", around)


@bug("descent's sign flipped", "Adam.move", ("esm", "regression"), kind="sign")
def _(monkeypatch):
    wrap(monkeypatch, spike_slab.Adam, "move", uphill)


@bug(
    "stale gradient",
    "SGLD._step",
    ("sgld", "gaussian"),
    ("sgld", "regression"),
    kind="stale value",
)
def _(monkeypatch):
    def build(real, self, variables):
        if not self.built:
            self._old = self.add_optimizer_variables(variables, "old")
            real(self, variables)

    def step(real, self, gradient, *args):
        old = [ops.copy(x) for x in _backend.read(self._old)]
        _backend.write(self._old, gradient)
        return real(self, old, *args)

    wrap(monkeypatch, SGLD, "build", build)
    wrap(monkeypatch, SGLD, "_step", step)


@bug(
    "position before momentum",
    "sghmc.move",
    ("sghmc", "gaussian"),
    kind="order of updates",
    is_short=True,
)
def _(monkeypatch):
    def around(real, self, current, now):
        pairs = zip(current.position, current.auxiliary.velocity, strict=True)
        moved = [x + v for x, v in pairs]
        return real(self, current, now)._replace(point=moved)

    wrap(monkeypatch, sghmc, "move", around)


@bug(
    "stale gradient of the state",
    "acceptance.accept_or_reject",
    ("mint", "gaussian"),
    ("rsgld", "logistic"),
    kind="stale value",
)
def _(monkeypatch):
    def around(real, state, *args, **options):
        new, info = real(state, *args, **options)
        return new._replace(gradient=state.gradient), info

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


@bug(
    "gradient of a rejected point",
    "acceptance.accept_or_reject",
    ("mhbt_langevin", "regression"),
    is_subtle=True,
    kind="rejected state",
)
def _(monkeypatch):
    def around(real, state, evaluated, *args, **options):
        new, info = real(state, evaluated, *args, **options)
        return new._replace(gradient=evaluated.gradient), info

    wrap(monkeypatch, acceptance, "accept_or_reject", around)


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
    kind="missing term",
)(drop_gradient)


@bug(
    "prior dropped from the energy",
    "BoundGaussian.energy",
    ("mint", "logistic"),
    ("mhbt_random_walk", "regression"),
    kind="missing term",
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        BoundGaussian,
        "energy",
        lambda real, self, position, like: 0.0 * real(self, position, like),
    )


@bug(
    "prior not divided by N",
    "BoundGaussian.add_gradient",
    ("sgld", "regression"),
    kind="units",
    is_short=True,
)
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
    kind="missing term",
    is_short=True,
)
def _(monkeypatch):
    wrap(
        monkeypatch,
        spike_slab,
        "add_gradient",
        lambda real, position, gradient, *args: gradient,
    )


@bug(
    "sigma left out",
    "spike_slab.add_gradient",
    ("sgldsa_learning", "regression"),
    kind="missing factor",
)
def _(monkeypatch):
    def around(real, position, gradient, spike, sigma, *args):
        return real(position, gradient, spike, 0.0 * sigma + 1.0, *args)

    wrap(monkeypatch, spike_slab, "add_gradient", around)


@bug(
    "spike and slab swapped",
    "spike_slab.update_latents",
    ("sgldsa_learning", "regression"),
    kind="swap",
    is_short=True,
)
def _(monkeypatch):
    def around(real, *args, **options):
        latents, weighted = real(*args, **options)
        return latents._replace(spike=[1.0 - q for q in latents.spike]), weighted

    wrap(monkeypatch, spike_slab, "update_latents", around)


@bug(
    "curvature not learned",
    "ivon.curvature",
    ("ivon", "correlated"),
    ("ivon", "regression"),
    kind="missing term",
)
def _(monkeypatch):
    def around(real, self, hessian, seen, delta):
        return real(self, hessian, 0.0 * seen, delta)

    wrap(monkeypatch, ivon, "curvature", around)
