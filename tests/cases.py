"""The contract table: every sampler enters here with one row."""

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
CONTOUR = dict(energy_min=20.0, energy_gap=8.0, partitions=40, zeta=1.0)


def csgld(**options):
    return mh.CSGLD(0.05, train_size=TRAIN_SIZE, **CONTOUR, **options)


def csghmc(**options):
    return mh.CSGHMC(0.02, train_size=TRAIN_SIZE, **CONTOUR, **options)


SPARSE = dict(sparse="kernel|variable", v0=1e-2, v1=1.0)


def sgldsa(**options):
    return mh.SGLDSA(0.05, train_size=TRAIN_SIZE, **SPARSE, **options)


def sghmcsa(**options):
    return mh.SGHMCSA(0.02, train_size=TRAIN_SIZE, **SPARSE, **options)


def esm(**options):
    return mh.ESM(0.02, train_size=TRAIN_SIZE, **SPARSE, **options)


# name -> (factory, copies of the weights that it keeps, whether it is an MH sampler)
SAMPLERS = {
    "sgld": (sgld, 0, False),
    "psgld": (psgld, 1, False),
    "sghmc": (sghmc, 1, False),
    "mhbt_random_walk": (random_walk, 1, True),
    "mhbt_langevin": (mhbt_langevin, 2, True),
    "mhbt_reversible": (mhbt_reversible, 2, True),
    "rsgld": (rsgld, 2, True),
    "rsgld_paper": (rsgld_paper, 2, True),
    "mint": (mint, 2, True),
    "csgld": (csgld, 0, False),
    "csghmc": (csghmc, 1, False),
}

METROPOLIS = [name for name, row in SAMPLERS.items() if row[2]]
