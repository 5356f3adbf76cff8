# %% [markdown]
"""
# Chains of any density

- **Author:** the keras_mhmcmc authors
- **Description:** Sample a curved density and one with two modes, without a network,
  and check that the chains agree.
- **Accelerator:** none needed; about a minute on two CPU cores
"""

# %% [markdown]
"""
`mh.sample` runs many chains as one compiled program. It needs the log of a density, up
to a constant, as a function of one point that is written with `keras.ops`.
"""

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", "torch"

import numpy as np
from keras import ops

import keras_mhmcmc as mh


def banana(x):
    return -0.5 * (x[0] ** 2 + (x[1] - x[0] ** 2) ** 2 / 0.25)


# %% [markdown]
"""
## Metropolis-Hastings with a Langevin proposal

`mhbt` proposes a move, and accepts it with a probability that makes the samples exact.
The proposal `Langevin` follows the gradient. Sixteen chains start at the origin.
`burn_in` steps are not kept.
"""

# %%
draws = mh.sample(
    mh.kernels.mhbt(0.05, proposal=mh.proposals.Langevin()),
    [0.0, 0.0],
    log_density=banana,
    num_steps=100_000,
    num_chains=16,
    burn_in=5_000,
    every=50,
    seed=0,
    progress=False,
)
print(draws)

# %%
_ = mh.plots.contours(banana, draws)

# %% [markdown]
"""
## Do the chains agree?

*R-hat* compares the chains: it is near 1 if they agree. *ESS*, the effective sample
size, is the number of independent draws that the samples are worth. The mean of x[0] is
0, and its variance is 1. The mean of x[1] is 1.
"""

# %%
print(mh.diagnostics.summary({"position": draws.position}))
flat = draws.position.reshape(-1, 2)
print("mean", flat.mean(axis=0).round(2), "variance of x[0]", flat[:, 0].var().round(2))


# %% [markdown]
"""
## Two modes far apart

A chain in one mode does not find the other. Hot chains cross the valley, and *replica
exchange* swaps the points of neighbouring temperatures.
"""


# %%
def two_modes(x):
    return ops.logaddexp(-8 * ops.square(x - 2), -8 * ops.square(x + 2))


one_chain = mh.sample(
    mh.kernels.sgld(0.01),
    2.0,
    log_density=two_modes,
    num_steps=5_000,
    num_chains=20,
    burn_in=500,
    seed=0,
    progress=False,
)
exchanged = mh.replica_exchange(
    mh.kernels.sgld(0.01),
    2.0,
    temperatures=[1.0, 4.0, 16.0],
    learning_rates=[0.01, 0.02, 0.05],
    log_density=two_modes,
    num_steps=5_000,
    num_chains=20,
    burn_in=500,
    seed=0,
    progress=False,
)
for name, found in (("one temperature", one_chain), ("replica exchange", exchanged)):
    share = np.mean(np.asarray(found.position) < 0)
    print(f"{name:16s} share of draws in the left mode {share:.2f} (exact: 0.50)")
