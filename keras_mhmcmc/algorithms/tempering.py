"""The temperature of mini-batch Metropolis-Hastings from the sizes of the data.

Papers: Wu, Wang and Wong (2020), "Mini-batch Metropolis-Hastings with reversible SGLD
proposal", eq. (1); Li and Wong (2017), "Mini-batch tempered MCMC".

    T = n / c_n
    MHBT    c_n = m
    MINT    c_n = n^lambda = m^alpha, with lambda = alpha log m / log n
    here    c_n = 2 sqrt(m)

The mean losses of two batches differ by sigma sqrt(2/m), with sigma the standard
deviation of the loss of one example. The energies in log r differ by c_n times this.
With c_n = 2 sqrt(m), the difference does not depend on m: it is 2 sqrt(2) sigma nats.

| paper         | name            | shape | unit     |
|---------------|-----------------|-------|----------|
| n             | `train_size`    | int   | examples |
| m             | `batch_size`    | int   | examples |
| c_n           | `energy_weight` | float | examples |
| T             | `temperature`   | float | 1        |
| alpha of MINT | `alpha`         | float | 1        |
"""

import math
from typing import Any

from keras_mhmcmc import _validate

_ALPHA = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)


def checked_alpha(value: Any) -> float:
    """Return alpha of MINT, a number in (0, 1]."""
    return _validate.number("alpha", value, _ALPHA)


def mint_temperature(alpha: float, train_size: int, batch_size: int) -> float:
    """Return MINT's temperature n^(1 - lambda), with n^lambda = m^alpha."""
    return train_size / batch_size**alpha


def root_weight(batch_size: int) -> float:
    """Return c_n = 2 sqrt(m)."""
    return 2.0 * math.sqrt(batch_size)
