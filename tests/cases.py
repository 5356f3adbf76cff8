"""The contract table: every sampler enters here with one row."""

from typing import Any
from typing import NamedTuple

import keras_mhmcmc as mh

TRAIN_SIZE = 96
BATCH_SIZE = 16


def sgld(**options):
    return mh.SGLD(0.05, train_size=TRAIN_SIZE, **options)


def psgld(**options):
    return mh.PSGLD(0.005, train_size=TRAIN_SIZE, **options)


def sghmc(**options):
    return mh.SGHMC(0.02, train_size=TRAIN_SIZE, **options)


def random_walk(**options):
    return mh.MHBT(0.01, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, **options)


def mhbt_langevin(**options):
    return mh.MHBT(
        0.05,
        train_size=TRAIN_SIZE,
        batch_size=BATCH_SIZE,
        proposal=mh.proposals.Langevin(),
        **options,
    )


def mhbt_reversible(**options):
    return mh.MHBT(
        0.05,
        train_size=TRAIN_SIZE,
        batch_size=BATCH_SIZE,
        proposal=mh.proposals.ReversibleLangevin(beta=1.5),
        **options,
    )


def rsgld(**options):
    return mh.RSGLD(0.1, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, **options)


def rsgld_paper(**options):
    return mh.RSGLD(
        0.1,
        train_size=TRAIN_SIZE,
        batch_size=BATCH_SIZE,
        beta=2.0,
        beta_adaptation="paper",
        **options,
    )


def mint(**options):
    return mh.MINT(0.05, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, **options)


# The energy of the contract's data lies between 20 and 200 nats.
CONTOUR = dict(partition=mh.EnergyPartition(20.0, 8.0, 40), zeta=1.0)


def csgld(**options):
    return mh.CSGLD(0.05, train_size=TRAIN_SIZE, **CONTOUR, **options)


def csghmc(**options):
    return mh.CSGHMC(0.02, train_size=TRAIN_SIZE, **CONTOUR, **options)


SPARSE = dict(prior=mh.priors.SpikeSlab("kernel|variable", v0=1e-2, v1=1.0))


def sgldsa(**options):
    return mh.SGLDSA(0.05, train_size=TRAIN_SIZE, **SPARSE, **options)


def sghmcsa(**options):
    return mh.SGHMCSA(0.02, train_size=TRAIN_SIZE, **SPARSE, **options)


def esm(**options):
    return mh.ESM(0.02, train_size=TRAIN_SIZE, **SPARSE, **options)


class Case(NamedTuple):
    """A sampler of the contract."""

    make: Any
    copies: int  # of the weights that it keeps
    is_metropolis: bool = False
    momentum: float = 0.0  # share of a move that the next one repeats
    has_prior: bool = True  # whether it takes a normal prior
    has_noise: bool = True


SAMPLERS = {
    "sgld": Case(sgld, 0),
    "psgld": Case(psgld, 1),
    "sghmc": Case(sghmc, 1, momentum=0.9),
    "mhbt_random_walk": Case(random_walk, 1, is_metropolis=True),
    "mhbt_langevin": Case(mhbt_langevin, 2, is_metropolis=True),
    "mhbt_reversible": Case(mhbt_reversible, 2, is_metropolis=True),
    "rsgld": Case(rsgld, 2, is_metropolis=True),
    "rsgld_paper": Case(rsgld_paper, 2, is_metropolis=True),
    "mint": Case(mint, 2, is_metropolis=True),
    "csgld": Case(csgld, 0),
    "csghmc": Case(csghmc, 1, momentum=0.9),
    "sgldsa": Case(sgldsa, 1, has_prior=False),
    "sghmcsa": Case(sghmcsa, 2, momentum=0.9, has_prior=False),
    "esm": Case(esm, 3, has_prior=False, has_noise=False),
}

METROPOLIS = [name for name, case in SAMPLERS.items() if case.is_metropolis]
WITH_PRIOR = [name for name, case in SAMPLERS.items() if case.has_prior]
WITH_NOISE = [name for name, case in SAMPLERS.items() if case.has_noise]
