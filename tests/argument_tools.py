"""What the tests of arguments share: good samplers, and values that are refused."""

import math

import numpy as np
import pytest

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


def assert_refused(name, value, call, *parts):
    """`call` raises a ValueError with the argument's name, `value`, and `parts`."""
    with pytest.raises(ValueError) as error:
        call()
    message = str(error.value)
    for part in (f"`{name}`", f"{value!r}", *parts):
        assert part in message, message
    assert "Received:" in message


NOT_A_NUMBER = ["0.1", None, True, [0.1], 1j, np.array([0.1])]
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float32("nan")]
NOT_AN_INTEGER = [10.0, "10", True, 1.5, math.nan, np.float32(10)]
NOT_A_COUNT = [0, -1, *NOT_AN_INTEGER, None]
NOT_A_SHARE = [-0.1, 1.0, 1.5, *NOT_A_NUMBER, *NOT_FINITE]
NOT_POSITIVE = [0, 0.0, -1.0, *NOT_FINITE]
