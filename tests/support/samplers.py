"""The table of samplers: a new one enters the tests with one row of `SAMPLERS`.

From a row are made the sampler of the contract, the arguments that are refused, kept
and stored, the kernel that must have the optimizer's law, and the cells of the
statistical suite.
"""

import inspect
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

import keras_mhmcmc as mh

TRAIN_SIZE = 96
BATCH_SIZE = 16


class Law(NamedTuple):
    """A sampler in the statistical suite, where `statistics.table` runs it."""

    # target -> arguments; sizes, temperature, prior and seed are those of the target.
    arguments: Callable
    reference: str  # "exact", "biased", "simulated" or "mode": see `table.REFERENCES`
    short: tuple  # the targets of the short form, the most telling ones
    every: int = 6  # steps between two draws
    plan: tuple | None = None  # chains, steps, every: instead of the suite's
    # Targets that do not apply, each with the reason.
    without: dict = {}
    is_whole: bool = False  # whether its batch is all of the data, on every target


class Sampler(NamedTuple):
    """A sampler: where it is found, arguments, and what it is like."""

    optimizer: type
    kernel: Any  # what makes it for `mh.sample`, or None
    arguments: dict  # of the contract, but for the sizes
    law: Law
    copies: int  # of the weights that it keeps
    other: dict = {}  # further arguments, not the default ones, to be stored
    has_prior: bool = True  # whether it takes `prior`
    has_noise: bool = True
    noise_steps: int = 1  # in how many steps the same noise moves the weights
    rests: bool = True  # whether a rate of 0 holds the chain still
    other_laws: dict = {}  # name -> law, of arguments that change the law

    @property
    def is_metropolis(self):
        return self.takes("batch_size")

    @property
    def momentum(self):
        """The share of a move that the next one repeats."""
        given = inspect.signature(self.optimizer).parameters.get("momentum")
        return 0.0 if given is None else given.default

    def takes(self, argument):
        return argument in inspect.signature(self.optimizer).parameters

    def make(self, **options):
        """The optimizer with the arguments of the contract, but for these."""
        sizes = dict(train_size=TRAIN_SIZE)
        if self.is_metropolis:
            sizes["batch_size"] = BATCH_SIZE
        return self.optimizer(**sizes | self.arguments | options)


# RSGLD without a warm-up, as a run of few steps needs it.
AT_ONCE = dict(warm_up=0, rate_adaptation=False)
# RSGLD as in the paper, but for the temperature and the rule for beta.
PAPER = dict(forward_probability=0.5, refresh_probability=0.0, **AT_ONCE)

# Arguments for the targets of the suite.


def rate(share, **options):
    """A learning rate that is a share of the target's stability limit."""
    return lambda target: dict(learning_rate=target.rate(share), **options)


def psgld(target):
    # The root mean square of the gradient, since E[U'^2] = T E[U''].
    typical = (target.temperature * target.curvature) ** 0.5 / target.train_size
    return dict(learning_rate=target.rate(0.7) * typical, decay=0.9, epsilon=typical)


def ivon(target):
    """Newton steps of a twentieth, of a curvature that is first twice too large."""
    first = 2.0 * float(target.curvature) / target.train_size
    return dict(learning_rate=0.05 / first, hessian_init=first, beta_2=0.98)


def random_walk(target):
    return dict(learning_rate=1.5 * (target.temperature / target.curvature) ** 0.5)


def reversible(target):
    proposal = mh.proposals.ReversibleLangevin(1.5, target.temperature, normalized=True)
    return dict(
        learning_rate=target.rate(0.5),
        proposal=proposal,
        refresh_probability=0.0,
        **AT_ONCE,
    )


def rsgld(normalized, beta, **options):
    def arguments(target):
        return dict(
            learning_rate=target.rate(0.5),
            beta=beta,
            beta_adaptation=None,
            noise_temperature=target.temperature,
            normalized=normalized,
            **PAPER | options,
        )

    return arguments


def mint(target):
    # N / m^alpha is the target's temperature; below 1 MINT cannot go.
    size, batch = target.train_size, target.batch_size or target.train_size
    alpha = np.log(size / target.temperature) / np.log(batch)
    return dict(learning_rate=target.rate(1.2), alpha=float(alpha))


def contour(share, **options):
    """Ten subregions over the energies of the target, and their masses."""

    def arguments(target):
        x, batch = target.draw(np.random.default_rng(5), 20_000)
        energies = target.energy(x, batch)
        low, high = np.quantile(energies, [0.3, 0.99])
        gap = (high - low) / 8
        index = np.clip(np.ceil((energies - low) / gap), 0, 9).astype(int)
        masses = np.bincount(index, minlength=10) + 1.0
        return dict(
            learning_rate=target.rate(share),
            partition=mh.EnergyPartition(low, gap, 10),
            masses=(masses / masses.sum()).tolist(),
            zeta=target.zeta,
            step_size=0.02,
            max_multiplier=3.0,
            **options,
        )

    return arguments


FROZEN = 1e-9  # step of latent variables that stay as they are
FLAT = 1e8  # variance of a prior that is as good as flat
OF_ESM = (20, 300, 6)


def sparse(share, v0=0.6, v1=3.0, lam=1.0, **options):
    """A spike-and-slab prior whose latent variables stay, so that it is the target's.

    Its precision, the mean of 1/v0 and 1/v1, is that of the target's normal prior.
    """

    def arguments(target):
        scale = target.prior_scale
        variance = FLAT if scale is None else scale**2
        prior = mh.priors.SpikeSlab(
            "kernel", v0=v0 * variance, v1=v1 * variance, lam=lam
        )
        return dict(
            learning_rate=target.rate(share),
            prior=prior,
            **{"step_size": FROZEN} | options,
        )

    return arguments


def esm(target):
    deviation = float(target.temperature / target.curvature) ** 0.5
    schedule = keras.optimizers.schedules.CosineDecay(0.3 * deviation, OF_ESM[1])
    arguments = sparse(0.0, beta_2=0.99)(target) | dict(learning_rate=schedule)
    del arguments["step_size"]
    return arguments


# The energy of the contract's data lies between 20 and 200 nats.
CONTOUR = dict(partition=mh.EnergyPartition(20.0, 8.0, 40), zeta=1.0)
SPARSE = dict(prior=mh.priors.SpikeSlab("kernel|variable", v0=1e-2, v1=1.0))
MISSING = "its latent variables learn from a prior, and this target's is flat"
FLAT_TARGETS = ("gaussian", "correlated", "skewed", "bimodal")

SAMPLERS = {
    "sgld": Sampler(
        mh.SGLD,
        mh.kernels.sgld,
        dict(learning_rate=0.05),
        Law(rate(0.5), "biased", ("gaussian", "regression")),
        copies=0,
        other=dict(learning_rate=0.25, temperature=0.5),
    ),
    "psgld": Sampler(
        mh.PSGLD,
        mh.kernels.psgld,
        dict(learning_rate=0.005),
        Law(psgld, "simulated", ("correlated",)),
        copies=1,
        other=dict(decay=0.9, epsilon=1e-3, temperature=0.0),
    ),
    "sghmc": Sampler(
        mh.SGHMC,
        mh.kernels.sghmc,
        dict(learning_rate=0.02),
        Law(rate(0.3, momentum=0.6), "biased", ("gaussian", "bimodal")),
        copies=1,
        other=dict(momentum=0.5, prior=mh.priors.Gaussian(2.0)),
    ),
    "sghmc_baoab": Sampler(
        mh.SGHMC,
        mh.kernels.sghmc,
        dict(learning_rate=0.02, integrator="baoab"),
        # A step that would move the variance of "euler" by a quarter.
        Law(
            rate(0.6, momentum=0.6, integrator="baoab"),
            "biased",
            ("gaussian", "correlated"),
        ),
        copies=1,
        other=dict(momentum=0.5, temperature=0.5),
        noise_steps=2,
    ),
    "sgnht": Sampler(
        mh.SGNHT,
        mh.kernels.sgnht,
        dict(learning_rate=0.02),
        # With few weights its thermostat fluctuates, and the law is not closed.
        Law(rate(0.3, momentum=0.6), "simulated", ("correlated", "regression")),
        copies=1,
        other=dict(momentum=0.5, thermostat_rate=0.02, temperature=0.5),
    ),
    "sgmclmc": Sampler(
        mh.SGMCLMC,
        mh.kernels.sgmclmc,
        dict(learning_rate=5.0, warm_up=4),  # so large that no velocity is kept
        # Few weights: a velocity of fixed length in three dimensions has a bias.
        Law(
            lambda target: dict(learning_rate=0.5, warm_up=12),
            "simulated",
            ("regression",),
            without=dict.fromkeys(
                ("gaussian", "correlated", "skewed", "logistic", "bimodal"),
                "all data in one batch have no noise",
            ),
        ),
        copies=3,
        other=dict(temperature=0.5, warm_up=7, added_noise=0.2),
    ),
    "ivon": Sampler(
        mh.IVON,
        mh.kernels.ivon,
        dict(learning_rate=0.05),
        Law(ivon, "simulated", ("correlated", "regression")),
        copies=3,
        other=dict(hessian_init=0.5, beta_1=0.8, beta_2=0.99, clip_radius=0.1),
        noise_steps=2,
        rests=False,
    ),
    "mhbt_random_walk": Sampler(
        mh.MHBT,
        mh.kernels.mhbt,
        dict(learning_rate=0.01),
        Law(random_walk, "exact", ("regression",), every=10),
        copies=1,
        other=dict(proposal=mh.proposals.ReversibleLangevin(2.0, 0.5, True)),
    ),
    "mhbt_langevin": Sampler(
        mh.MHBT,
        mh.kernels.mhbt,
        dict(learning_rate=0.05, proposal=mh.proposals.Langevin()),
        Law(
            rate(1.2, proposal=mh.proposals.Langevin()),
            "exact",
            ("skewed", "regression"),
            every=4,
        ),
        copies=2,
    ),
    "mhbt_reversible": Sampler(
        mh.MHBT,
        mh.kernels.mhbt,
        dict(
            learning_rate=0.05,
            proposal=mh.proposals.ReversibleLangevin(beta=1.5),
            **AT_ONCE,
        ),
        Law(reversible, "exact", ("bimodal",)),
        copies=2,
    ),
    "rsgld": Sampler(
        mh.RSGLD,
        mh.kernels.rsgld,
        dict(learning_rate=0.1, warm_up=2),
        Law(rsgld(True, 2.5), "exact", ("logistic",)),
        copies=2,
        other=dict(
            beta=3.0,
            beta_adaptation="paper",
            noise_temperature=0.5,
            normalized=True,
            forward_probability=0.8,
            refresh_probability=0.25,
            **AT_ONCE,
        ),
        other_laws={
            "rsgld_mostly_forward": Law(
                rsgld(True, 2.5, forward_probability=0.9), "exact", ("logistic",)
            ),
            "rsgld_refreshing": Law(
                rsgld(True, 2.5, refresh_probability=0.3), "exact", ("regression",)
            ),
            "rsgld_forward_and_refreshing": Law(
                rsgld(True, 2.5, forward_probability=0.9, refresh_probability=0.3),
                "exact",
                ("regression",),
            ),
        },
    ),
    "rsgld_paper": Sampler(
        mh.RSGLD,
        mh.kernels.rsgld,
        dict(
            learning_rate=0.1,
            beta=2.0,
            beta_adaptation="paper",
            **PAPER,
        ),
        # The paper's ratio has a law of its own, which is too narrow.
        Law(rsgld(False, 2.0), "simulated", ("correlated",)),
        copies=2,
    ),
    "mint": Sampler(
        mh.MINT,
        mh.kernels.mint,
        dict(learning_rate=0.05),
        Law(mint, "exact", ("gaussian", "logistic")),
        copies=2,
        other=dict(alpha=0.5, proposal=mh.proposals.Langevin(noise_temperature=0.1)),
    ),
    "csgld": Sampler(
        mh.CSGLD,
        mh.kernels.csgld,
        dict(learning_rate=0.05, **CONTOUR),
        Law(contour(0.5), "simulated", ("gaussian",)),
        copies=0,
        other=dict(temperature=2.0, random_field="one", max_multiplier=None),
    ),
    "csghmc": Sampler(
        mh.CSGHMC,
        mh.kernels.csghmc,
        dict(learning_rate=0.02, **CONTOUR),
        Law(contour(0.15, momentum=0.6), "simulated", ("gaussian", "bimodal")),
        copies=1,
        other=dict(momentum=0.5, difference="forward", rho=0.5, step_size=0.01),
    ),
    "sgldsa": Sampler(
        mh.SGLDSA,
        mh.kernels.sgldsa,
        dict(learning_rate=0.05, **SPARSE),
        Law(sparse(0.5), "biased", ("regression",)),
        copies=1,
        other=dict(
            prior=mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0, groups="all"),
            likelihood="gaussian",
            layer_temperatures=True,
        ),
        has_prior=False,
        other_laws={
            # A sigma that is far from 1, so that it counts.
            "sgldsa_learning": Law(
                sparse(0.3, 0.1, 1.0, step_size=0.05, lam=30.0),
                "simulated",
                ("regression",),
                without=dict.fromkeys(FLAT_TARGETS, MISSING),
            )
        },
    ),
    "sghmcsa": Sampler(
        mh.SGHMCSA,
        mh.kernels.sghmcsa,
        dict(learning_rate=0.02, **SPARSE),
        Law(sparse(0.3, momentum=0.6), "biased", ("correlated",)),
        copies=2,
        other=dict(momentum=0.5, step_size=mh.schedules.RobbinsMonro()),
        has_prior=False,
    ),
    "esm": Sampler(
        mh.ESM,
        None,
        dict(learning_rate=0.02, **SPARSE),
        Law(esm, "mode", ("regression",), plan=OF_ESM, is_whole=True),
        copies=3,
        other=dict(
            beta_1=0.5,
            prior=mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0, a=3.0, delta=0.9),
        ),
        has_prior=False,
        has_noise=False,
    ),
}

METROPOLIS = [name for name, row in SAMPLERS.items() if row.is_metropolis]
WITH_PRIOR = [name for name, row in SAMPLERS.items() if row.has_prior]
WITH_NOISE = [name for name, row in SAMPLERS.items() if row.has_noise]
# The first row of each class.
OF_CLASSES = {}
for _name, _row in SAMPLERS.items():
    OF_CLASSES.setdefault(_row.optimizer.__name__, _row)
