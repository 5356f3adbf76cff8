"""The table of the statistical suite: every sampler, on every target.

A new sampler is one row of `SAMPLERS`. A row has the sampler on a target, what its law
is compared with, and the targets of its short form, the most telling ones.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import modes
import numpy as np
import references
from targets import TARGETS

import keras_mhmcmc as mh

FROZEN = 1e-9  # step of latent variables that stay as they are
# Samplers without rejection: with the bias of their step, exact where that is known.
BIASED = object()

FLAT = 1e8  # variance of a prior that is as good as flat


class Row(NamedTuple):
    """A sampler of the suite."""

    make: Callable  # (target, seed) -> a new optimizer
    reference: Any  # of `references`, or `BIASED`, or `modes`
    short: tuple  # the targets of the short form
    every: int = 6  # steps between two draws
    plan: Any = None  # instead of the table's
    # Targets that do not apply, each with the reason.
    without: dict = {}
    is_metropolis: bool = False
    is_whole: bool = False  # whether its batch is all of the data, on every target

    def reference_of(self, target):
        """The reference on a target."""
        if self.reference is BIASED:
            return references.moments if target.is_linear else references.simulated
        return self.reference


def _prior(target):
    return (
        None if target.prior_scale is None else mh.priors.Gaussian(target.prior_scale)
    )


def _common(target, seed):
    return dict(
        train_size=target.train_size,
        temperature=target.temperature,
        prior=_prior(target),
        seed=seed,
    )


def sgld(target, seed):
    return mh.SGLD(target.rate(0.5), **_common(target, seed))


def psgld(target, seed):
    # The root mean square of the gradient, since E[U'^2] = T E[U''].
    typical = (target.temperature * target.curvature) ** 0.5 / target.train_size
    return mh.PSGLD(
        target.rate(0.7) * typical,
        decay=0.9,
        epsilon=typical,
        **_common(target, seed),
    )


def sghmc(target, seed):
    return mh.SGHMC(target.rate(0.3), momentum=0.6, **_common(target, seed))


def _batch(target):
    return target.batch_size or target.train_size


def _metropolis(proposal, step):
    def make(target, seed):
        is_walk = isinstance(proposal(target), mh.proposals.RandomWalk)
        scale = (target.temperature / target.curvature) ** 0.5
        return mh.MHBT(
            step * scale if is_walk else target.rate(step),
            batch_size=_batch(target),
            proposal=proposal(target),
            **_common(target, seed),
        )

    return make


def rsgld(normalized, beta):
    def make(target, seed):
        return mh.RSGLD(
            target.rate(0.5),
            batch_size=_batch(target),
            beta=beta,
            beta_adaptation=None,
            noise_temperature=target.temperature,
            normalized=normalized,
            **_common(target, seed),
        )

    return make


def mint(target, seed):
    options = _common(target, seed)
    # N / m^alpha is the target's temperature; below 1 MINT cannot go.
    size, batch = target.train_size, _batch(target)
    alpha = np.log(size / options.pop("temperature")) / np.log(batch)
    return mh.MINT(target.rate(1.2), batch_size=batch, alpha=float(alpha), **options)


def _contour(target):
    """Ten subregions over the energies of the target, and their masses."""
    x, batch = target.draw(np.random.default_rng(5), 20_000)
    energies = target.energy(x, batch)
    low, high = np.quantile(energies, [0.3, 0.99])
    gap = (high - low) / 8
    index = np.clip(np.ceil((energies - low) / gap), 0, 9).astype(int)
    masses = np.bincount(index, minlength=10) + 1.0
    return dict(
        partition=mh.EnergyPartition(low, gap, 10),
        masses=(masses / masses.sum()).tolist(),
        zeta=target.zeta,
        step_size=0.02,
        max_multiplier=3.0,
    )


def csgld(target, seed):
    return mh.CSGLD(target.rate(0.5), **_contour(target), **_common(target, seed))


def csghmc(target, seed):
    return mh.CSGHMC(
        target.rate(0.15), momentum=0.6, **_contour(target), **_common(target, seed)
    )


def _sparse(target, step_size, v0=0.6, v1=3.0, lam=1.0):
    """A spike-and-slab prior whose latent variables stay, so that it is the target's.

    Its precision, the mean of 1/v0 and 1/v1, is that of the target's normal prior.
    """
    variance = FLAT if target.prior_scale is None else target.prior_scale**2
    return dict(
        prior=mh.priors.SpikeSlab(
            "kernel", v0=v0 * variance, v1=v1 * variance, lam=lam, delta=0.5, sigma=1.0
        ),
        step_size=step_size,
        train_size=target.train_size,
        temperature=target.temperature,
    )


def sgldsa(target, seed):
    return mh.SGLDSA(target.rate(0.5), seed=seed, **_sparse(target, FROZEN))


def sghmcsa(target, seed):
    options = _sparse(target, FROZEN)
    return mh.SGHMCSA(target.rate(0.3), momentum=0.6, seed=seed, **options)


def sgldsa_learning(target, seed):
    # A sigma that is far from 1, so that it counts.
    options = _sparse(target, 0.05, v0=0.1, v1=1.0, lam=30.0)
    return mh.SGLDSA(target.rate(0.3), seed=seed, **options)


OF_ESM = references.Plan(chains=20, steps=300, every=6)


def esm(target, seed):
    options = _sparse(target, FROZEN)
    del options["step_size"], options["temperature"]
    deviation = float(target.temperature / target.curvature) ** 0.5
    schedule = keras.optimizers.schedules.CosineDecay(0.3 * deviation, OF_ESM.steps)
    return mh.ESM(schedule, beta_2=0.99, seed=seed, **options)


NO_PRIOR = "its latent variables learn from a prior, and this target's is flat"

SHORT = references.Plan(chains=100, steps=150, every=0)
LONG = references.Plan(chains=200, steps=300, every=0)
# For what changes a law but little.
SUBTLE = references.Plan(chains=300, steps=400, every=0)


def _accepting(make, short, **options):
    return Row(make, references.exact, short, is_metropolis=True, **options)


SAMPLERS = {
    "sgld": Row(sgld, BIASED, ("gaussian", "regression")),
    "psgld": Row(psgld, references.simulated, ("correlated",)),
    "sghmc": Row(sghmc, BIASED, ("gaussian", "bimodal")),
    "mhbt_random_walk": _accepting(
        _metropolis(lambda target: mh.proposals.RandomWalk(), 1.5),
        ("regression",),
        every=10,
    ),
    "mhbt_langevin": _accepting(
        _metropolis(lambda target: mh.proposals.Langevin(), 1.2),
        ("skewed", "regression"),
        every=4,
    ),
    "mhbt_reversible": _accepting(
        _metropolis(
            lambda target: mh.proposals.ReversibleLangevin(
                1.5, target.temperature, normalized=True
            ),
            0.5,
        ),
        ("bimodal",),
    ),
    "rsgld": _accepting(rsgld(True, 2.5), ("logistic",)),
    # The paper's ratio has a law of its own, which is too narrow.
    "rsgld_paper": Row(
        rsgld(False, 2.0), references.simulated, ("correlated",), is_metropolis=True
    ),
    "mint": _accepting(mint, ("gaussian", "logistic")),
    "csgld": Row(csgld, references.simulated, ("gaussian",)),
    "csghmc": Row(csghmc, references.simulated, ("gaussian", "bimodal")),
    "sgldsa": Row(sgldsa, BIASED, ("regression",)),
    "sgldsa_learning": Row(
        sgldsa_learning,
        references.simulated,
        ("regression",),
        without=dict.fromkeys(
            ("gaussian", "correlated", "skewed", "bimodal"), NO_PRIOR
        ),
    ),
    "sghmcsa": Row(sghmcsa, BIASED, ("correlated",)),
    "esm": Row(esm, modes, ("regression",), is_whole=True, plan=OF_ESM),
}


def cells(short):
    """The pairs of a sampler and a target, of the short form or of the whole table."""
    return [
        (sampler, target)
        for sampler, row in SAMPLERS.items()
        for target in (row.short if short else TARGETS)
        if target not in row.without
    ]
