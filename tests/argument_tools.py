"""What the tests of arguments share: good samplers."""

import keras_mhmcmc as mh

PARTITION = dict(partition=mh.EnergyPartition(10.0, 1.0, 20), zeta=1.0)
SPARSE = dict(prior=mh.priors.SpikeSlab("kernel", v0=1e-3, v1=1.0))
SAMPLERS = {
    "SGLD": (mh.SGLD, {}),
    "PSGLD": (mh.PSGLD, {}),
    "SGHMC": (mh.SGHMC, {}),
    "MHBT": (mh.MHBT, dict(batch_size=10)),
    "RSGLD": (mh.RSGLD, dict(batch_size=10)),
    "MINT": (mh.MINT, dict(batch_size=10)),
    "CSGLD": (mh.CSGLD, PARTITION),
    "CSGHMC": (mh.CSGHMC, PARTITION),
    "SGLDSA": (mh.SGLDSA, SPARSE),
    "SGHMCSA": (mh.SGHMCSA, SPARSE),
    "ESM": (mh.ESM, SPARSE),
}
ALL = tuple(SAMPLERS)
METROPOLIS = ("MHBT", "RSGLD", "MINT")
CONTOUR = ("CSGLD", "CSGHMC")
SPARSIFYING = ("SGLDSA", "SGHMCSA", "ESM")
WITH_PRIOR = tuple(name for name in ALL if name not in SPARSIFYING)
WITHOUT_BATCH = tuple(name for name in ALL if name not in METROPOLIS)
LANGEVIN = tuple(name for name in WITHOUT_BATCH if name != "ESM")


def make(sampler, /, **arguments):
    """The sampler with good arguments, but for these."""
    cls, good = SAMPLERS[sampler]
    return cls(**({"learning_rate": 0.1, "train_size": 100} | good | arguments))
