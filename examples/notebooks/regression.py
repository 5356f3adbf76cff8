# %% [markdown]
"""
# Regression with honest intervals

- **Author:** the keras_mhmcmc authors
- **Description:** Predict the heating load of buildings with one call, and check that
  intervals hold as many test targets as they promise.
- **Accelerator:** none needed; about two minutes on two CPU cores
"""

# %% [markdown]
"""
The data set *Energy efficiency* of the UCI repository has 768 buildings with 8 numbers
each. Without its file, the notebook takes the diabetes data of scikit-learn, which
comes with the package: the code is the same, the numbers are others.
"""

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", "torch"

import keras
import numpy as np

import keras_mhmcmc as mh

folder = os.environ.get("DATA_DIR")  # with uci_energy.npz: X of shape (N, D), y of (N,)
name = "energy" if folder else "diabetes"
(x, y), (x_test, y_test) = mh.datasets.load(name, data_dir=folder)
x, x_test = mh.datasets.standardized(x, x_test)
center, unit = y.mean(), y.std()
y, y_test = (y[:, None] - center) / unit, (y_test[:, None] - center) / unit
quick = "EPOCHS" in os.environ
short = {"epochs": int(os.environ["EPOCHS"]), "sampling": 0.1} if quick else {}
print(name, x.shape, x_test.shape)

# %% [markdown]
"""
## The network predicts its noise

A squared error does not say how large the noise is. So the network has two outputs: a
mean, and a number that sets the deviation of the noise. `GaussianNLL` is the negative
log-likelihood of this normal distribution.
"""


# %%
def build():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((x.shape[1],)),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(16, "relu"),
            keras.layers.Dense(2),
        ]
    )


# %% [markdown]
"""
## Sixteen networks, with and without samples

`BayesianEnsemble` trains 16 networks with AdamW. From each it draws samples of the
posterior: other weights that explain the data. With `sampling=0` it stops before, and
the 16 networks are a deep ensemble.
"""

# %%
ensemble = mh.BayesianEnsemble(build(), seed=0)
ensemble.compile(loss=mh.losses.GaussianNLL())
ensemble.fit(x, y, verbose=0, **short)

networks = mh.BayesianEnsemble(build(), num_members=16, seed=0)
networks.compile(loss=mh.losses.GaussianNLL())
networks.fit(x, y, verbose=0, **short | {"sampling": 0})
print(ensemble.report)

# %% [markdown]
"""
## Scores

The NLL is low for a model that is confident where it is right and unsure where it is
wrong. CRPS, the continuous ranked probability score, is the error of a predicted
distribution, in units of the target. "in 90%" is the share of test targets inside the
central 90% interval: it should be 90%.
"""

# %%
mh.evaluate({"networks": networks, "ensemble": ensemble}, x_test, y_test)

# %% [markdown]
"""
## The intervals

The buildings stand in the order of their predicted load. The lower panel splits the
deviation: noise stays with more data, and what the members add shrinks with them.
"""

# %%
predicted = mh.predict_distribution(ensemble, x_test)
rank = np.argsort(np.argsort(predicted.mean()[:, 0]))
figure = mh.plots.predictive(predicted, rank, y_test)
figure.axes[1].set_xlabel("test examples in the order of the prediction")
print(f"{predicted.coverage(y_test, 0.9):.0%} are in the 90% interval")
# %% [markdown]
"""
**What to take from this.** Over three splits of Energy the ensemble had a test NLL of
0.24, and eight networks without samples 0.60, in the unit of the target ([the
benchmark](../benchmark.md)). Here its 90% intervals are half as wide, and still too
wide: they hold every test target. If they must hold the promised share on average,
calibrate them with `mh.conformal_intervals` ([Regression](../regression.md)).
"""
