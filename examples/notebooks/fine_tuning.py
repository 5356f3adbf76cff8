# %% [markdown]
"""
# Fine-tuning with few labels

- **Author:** the keras_mhmcmc authors
- **Description:** Keep a trained network as it is, and sample its new last layer: what
  sixty labels do not settle stays open.
- **Accelerator:** none needed; about a minute on two CPU cores
"""

# %% [markdown]
"""
A network that others have trained, sixty labels of a task of your own, and the wish to
know when not to trust the answer. Few labels leave much open. One trained layer picks
one of the many answers that fit, and is too sure of it. Samples of the layer keep all.
"""

# %%
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or "tensorflow", "torch"

import keras
import numpy as np
from matplotlib import pyplot

import keras_mhmcmc as mh

keras.utils.set_random_seed(0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

# %% [markdown]
"""
## A network that is trained already

It has learned to tell the digits 0 to 4 apart.
"""

# %%
(x, y), (x_test, y_test) = mh.datasets.load("digits")
known, known_test = y < 5, y_test < 5
body = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(64, "relu"),
    ]
)
network = keras.Sequential([body, keras.layers.Dense(5)])
network.compile("adam", loss, metrics=["accuracy"])
network.fit(x[known], y[known], epochs=15, verbose=0)
_, accuracy = network.evaluate(x_test[known_test], y_test[known_test], verbose=0)
print(f"accuracy {accuracy:.3f}")

# %% [markdown]
"""
## A new last layer

The new task is the digits 5 to 9, with sixty labels. The body keeps its weights, and a
new layer learns: by Adam until ten of the labels, held out, no longer get better.
"""

# %%
new, new_test = y >= 5, y_test >= 5
few = np.random.default_rng(0).choice(np.flatnonzero(new), 60, replace=False)
x_few, y_few = x[few], y[few] - 5

body.trainable = False
model = keras.Sequential([body, keras.layers.Dense(5)])
model.compile(keras.optimizers.Adam(0.003), loss)
stop = keras.callbacks.EarlyStopping(patience=20, restore_best_weights=True)
history = model.fit(
    x_few,
    y_few,
    validation_split=1 / 6,
    batch_size=10,
    epochs=500,
    callbacks=[stop],
    verbose=0,
)

# %% [markdown]
"""
## Its posterior

One call: the body turns the sixty images into features once, and Hamiltonian Monte
Carlo samples the layer, from all sixty labels. There is no step size to choose, and no
label to hold out. The width of the prior is chosen, too: the call averages over several
widths, with the weights that predict left-out labels best.
"""

# %%
ensemble, found = mh.sample_last_layer(model, x_few, y_few, progress=False)
widths = ", ".join(f"{w:.0%} of {s}" for s, w in found["prior_scales"].items())
print(f"widths: {widths}; R-hat {found['r_hat']:.2f}, ESS {found['ess']:.0f}")

# %% [markdown]
"""
## What it is worth

The scores are of 180 test images of the new digits. The last two columns say how well
the entropy of a prediction, and the disagreement of the members, tell a digit that the
task does not have (0 to 4) from one that it has: .5 is a guess, 1 is always.
"""

# %%
models = {"Adam": mh.Classifier(model, from_logits=True), "samples": ensemble}
mh.evaluate(
    models,
    x_test[new_test],
    y_test[new_test] - 5,
    ood={"others": x_test[known_test]},
)

# %% [markdown]
"""
The same as a picture: Adam is as sure of the digits that it has never seen as of those
that it knows. The samples are not.
"""

# %%
probabilities = {
    "Adam": lambda images: keras.ops.softmax(model.predict(images, verbose=0)),
    "samples": lambda images: ensemble.predict(images, verbose=0),
}
figure, axes = pyplot.subplots(
    1, 2, figsize=(7, 2.6), sharey=True, layout="constrained"
)
for axis, (name, predict) in zip(axes, probabilities.items(), strict=True):
    for label, images in (("5 to 9", new_test), ("0 to 4", known_test)):
        p = np.asarray(predict(x_test[images]))
        entropy = -np.sum(p * np.log(np.maximum(p, 1e-12)), axis=1)
        axis.hist(entropy, np.linspace(0, 1.61, 17), alpha=0.6, label=label)
    axis.set(title=name, xlabel="entropy of the prediction, nats")
axes[0].set_ylabel("test images")
legend = axes[0].legend(title="digits")

# %% [markdown]
"""
**What to take from this.** With a frozen body the last layer is a small problem, and
its exact posterior costs seconds. A logistic regression with a well-chosen prior has
the same NLL from 100 labels on: the samples add the last two columns
([five draws of the labels](../recipes/last_layer.md#few-labels)). If the body must
move, too, sample its adapters: see LoRA on the page
[Fine-tuning](../recipes/fine_tuning.md).
"""
