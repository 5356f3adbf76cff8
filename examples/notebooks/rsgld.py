# %% [markdown]
"""
# RSGLD, step by step

- **Author:** the keras_mhmcmc authors
- **Description:** See what a Metropolis-Hastings optimizer proposes, what it accepts,
  how it finds its own settings, and what its samples are good for.
- **Accelerator:** none needed; about a minute on two CPU cores
"""

# %% [markdown]
"""
SGD takes each step that it computes. RSGLD *proposes* a step, looks at the next
mini-batch, and then accepts the step or goes back. So it is a Metropolis-Hastings
sampler: its states are samples, and an average over them is surer than one network.
"""

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", "torch"

import keras
from matplotlib import pyplot

import keras_mhmcmc as mh

(x, y), (x_test, y_test) = mh.datasets.load("digits")
epochs = int(os.environ.get("EPOCHS", "100"))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
fit = {"batch_size": 60, "epochs": epochs, "verbose": 0}


def build():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, "relu"),
            keras.layers.Dense(10),
        ]
    )


# %% [markdown]
"""
## One line in `compile`

`train_size` is read from `fit`. `batch_size` must be told, since the temperature of the
sampled distribution depends on it. `PosteriorSamples` keeps the state at the end of
each epoch; here those of the second half.
"""

# %%
model = build()
model.compile(mh.RSGLD(0.5, batch_size=60, seed=0), loss, metrics=["accuracy"])
posterior = mh.PosteriorSamples(burn_in=12 * epochs)  # half of the 24 steps an epoch
history = model.fit(x, y, callbacks=[posterior], **fit).history
print(posterior)

# %% [markdown]
"""
## Down, up, or back

Most proposals go *forward*: down the gradient, with a little noise. One of ten goes
*backward*: up the gradient, with noise that is `beta` times as wide. A test of
Metropolis and Hastings compares both directions. It can accept a step down only as far
as the step up again is probable, so `beta` decides how much is accepted. RSGLD learns
`beta` from its own proposals.

The first steps, at most 500, are plain gradient steps, the warm-up. Then the share of
accepted proposals settles, and the energy, the loss of all data in nats, stays level:
the chain has arrived.
"""

# %%
figure, axes = pyplot.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for axis, name in zip(axes, ("energy", "acceptance", "beta"), strict=True):
    axis.plot(range(1, len(history[name]) + 1), history[name])
    axis.set(title=name, xlabel="epoch")
axes[0].set_yscale("log")

# %% [markdown]
"""
## The settings of the paper

The paper has no warm-up, a fixed rate, as many steps up as down, and another rule for
`beta`. Each is one argument. This small network still learns with them, and accepts
less. A convolutional network accepts nothing and stands still, which is why the
defaults differ.
"""

# %%
paper = build()
settings = dict(temperature=len(x) / 60, forward_probability=0.5, warm_up=0)
settings |= dict(refresh_probability=0.0, rate_adaptation=False)
sampler = mh.RSGLD(0.5, batch_size=60, beta_adaptation="paper", seed=0, **settings)
paper.compile(sampler, loss, metrics=["accuracy"])
slow = paper.fit(x, y, callbacks=[mh.PosteriorSamples()], **fit).history
for name, run in (("defaults", history), ("paper", slow)):
    acceptance, accuracy = run["acceptance"][-1], run["accuracy"][-1]
    print(f"{name:8}  accepted {acceptance:.0%}, accuracy in training {accuracy:.3f}")

# %% [markdown]
"""
## The samples at work

The ensemble averages the probabilities of all samples. Next to it stands SGD with the
same number of gradients.
"""

# %%
sgd = build()
sgd.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
sgd.fit(x, y, **fit)
models = {
    "SGD": mh.Classifier(sgd, from_logits=True),
    "RSGLD": posterior.ensemble(model, activation="softmax"),
}
mh.evaluate(models, x_test, y_test)

# %%
mh.adversarial.robustness_curve(models, x_test, y_test, [0.0, 0.05, 0.1], attack="pgd")

# %% [markdown]
"""
**What to take from this.** Look at two columns of the history, `energy` and
`acceptance`. If the energy still falls, the samples come from the way down: raise
`burn_in`. If fewer than 10% of the proposals are accepted, lower the rate. With its
defaults RSGLD is nearly an optimizer: its samples lie closer together than the
posterior. For the posterior itself take `mh.BayesianEnsemble` or SGHMC.
"""
