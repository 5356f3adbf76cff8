# %% [markdown]
"""
# Which inputs matter? A spike-and-slab prior

- **Author:** the keras_mhmcmc authors
- **Description:** Find 2 of 50 inputs with SGLD-SA, and prune the rest.
- **Accelerator:** none needed; less than a minute on two CPU cores
"""

# %% [markdown]
"""
Under a *spike-and-slab* prior, each weight is either near zero, in the narrow spike, or
free, in the wide slab. SGLD-SA learns while it samples how likely each weight is in the
slab. This number, ρ, is the *inclusion probability*.

We make data where only 2 of 50 inputs matter.
"""

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", "torch"

import keras
import numpy as np

import keras_mhmcmc as mh

rng = np.random.default_rng(0)
x = rng.normal(size=(500, 50)).astype("float32")
y = x[:, :2] @ [[1.0], [-2.0]] + rng.normal(size=(500, 1))

# %% [markdown]
"""
## The sampler

The loss is the squared error, and `likelihood="gaussian"` learns the size of the noise.
The argument `b` says that few weights are in the slab.
"""

# %%
model = keras.Sequential([keras.Input((50,)), keras.layers.Dense(1)])
sampler = mh.SGLDSA(
    mh.schedules.PowerDecay(0.05, 1.0, 1 / 3),
    train_size=500,
    prior=mh.priors.SpikeSlab("kernel", v0=1e-3, v1=100.0, b=50.0),
    step_size=0.01,
    likelihood="gaussian",
    seed=0,
)
model.compile(sampler, "mean_squared_error")
posterior = mh.PosteriorSamples(burn_in=500, every=10, weight_by="learning_rate")
model.fit(x, y, batch_size=50, epochs=100, verbose=0, callbacks=[posterior])

# %%
(rho,) = model.optimizer.inclusion_probabilities().values()
rho = rho.ravel()
print("inputs with a probability above 1/2:", np.flatnonzero(rho > 0.5))
print(f"the two: {rho[:2].min():.3f} or more; the others: {rho[2:].max():.3f} or less")
print(f"noise: {float(model.optimizer.diagnostics()['sigma']):.2f} (true: 1)")

# %% [markdown]
"""
A line that drops in one step separates the weights well:
"""

# %%
_ = mh.plots.inclusion(model.optimizer)

# %% [markdown]
"""
## Compare with least squares

Least squares gives each of the 50 inputs a weight. The pruned model has two, and
predicts new data better.
"""

# %%
small = mh.prune(model, model.optimizer, threshold=0.5)
x_new = rng.normal(size=(5000, 50)).astype("float32")
truth = (x_new[:, :2] @ [[1.0], [-2.0]])[:, 0]
weights = np.linalg.lstsq(np.c_[x, np.ones(500)], y[:, 0], rcond=None)[0]
least_squares = np.c_[x_new, np.ones(5000)] @ weights
ensemble = posterior.ensemble(model).predict(x_new, verbose=0)[:, 0]
pruned = small.predict(x_new, verbose=0)[:, 0]
for method, found in (
    ("least squares", least_squares),
    ("ensemble", ensemble),
    ("pruned", pruned),
):
    print(f"{method:14s} error {np.sqrt(np.mean((found - truth) ** 2)):.3f}")

# %% [markdown]
"""
ρ is a fixed point of the algorithm, and not exactly the posterior probability that a
weight is in the slab. The page "Sparse networks" says when the two differ.
"""
