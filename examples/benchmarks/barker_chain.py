"""What `mh.Barker` samples, and how many examples its tests read.

    python barker_chain.py --only law
    python barker_chain.py --only head

`law` is a linear regression of 1,000 examples with a normal posterior of 3 weights. For
each learning rate it prints the share of accepted proposals, the mean size of a test,
the error of the mean in standard deviations of the posterior, and the variance of the
samples over the posterior's. `head` trains a 64-16-10 network on scikit-learn's digits
with Adam, and samples its last layer of 170 weights.
"""

import argparse
import time

import keras
import numpy as np

import keras_mhmcmc as mh

N, FEATURES, BATCH = 1000, 3, 50
RATES = (0.005, 0.01, 0.02, 0.04)
BLOCKS = 20  # of samples, whose means give the standard error


class States(keras.callbacks.Callback):
    """The trainable weights at the end of each epoch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def on_epoch_end(self, epoch, logs=None):
        values = [np.array(v) for v in self.model.get_weights()]
        self.found.append(np.concatenate([v.ravel() for v in values]))


def with_error(values):
    """Mean of all values, and its standard error by the means of blocks."""
    values = values[: len(values) // BLOCKS * BLOCKS]
    blocks = values.reshape(BLOCKS, -1).mean(axis=1)
    return f"{values.mean():.2f} ± {blocks.std(ddof=1) / BLOCKS**0.5:.2f}"


def law(epochs):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, FEATURES)).astype("float32")
    y = (x @ rng.normal(size=FEATURES) + rng.normal(size=N)).astype("float32")
    precision = x.T.astype("float64") @ x + np.eye(FEATURES)
    mean = np.linalg.solve(precision, x.T @ y.astype("float64"))
    root = np.linalg.cholesky(precision)
    for rate in RATES:
        layer = keras.layers.Dense(1, use_bias=False)
        model = keras.Sequential([keras.Input((FEATURES,)), layer])
        model.set_weights([mean[:, None]])
        chain, states = mh.BarkerChain(model), States()
        prior = mh.priors.Gaussian(1.0)
        sampler = mh.Barker(rate, train_size=N, prior=prior, seed=0)
        chain.compile(sampler, mh.losses.GaussianNLL(noise_std=1.0))
        chain.fit(x, y, BATCH, epochs=epochs, verbose=0, callbacks=[states])
        report = chain.optimizer.diagnostics()
        z = (np.array(states.found) - mean) @ root
        print(
            f"rate {rate:.3f}: acceptance {report['acceptance']:.2f}, test size "
            f"{report['examples_per_test']:.0f}, mean {with_error(z.mean(axis=1))}, "
            f"variance {with_error((z**2).mean(axis=1))}",
            flush=True,
        )


def head(epochs):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype("float32") / 16.0, y[order].astype("int32")
    train, test = slice(0, 1400), slice(1400, None)
    layers = [
        keras.layers.Dense(16, "relu", kernel_initializer=_uniform(1)),
        keras.layers.Dense(10, "softmax", kernel_initializer=_uniform(2)),
    ]
    model = keras.Sequential([keras.Input((64,)), *layers])
    loss = "sparse_categorical_crossentropy"
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    model.fit(x[train], y[train], 100, epochs=30, verbose=0)
    nll, accuracy = model.evaluate(x[test], y[test], verbose=0)
    print(f"Adam: accuracy {accuracy:.3f}, NLL {nll:.3f}")
    layers[0].trainable = False
    for rate in (0.02, 0.05):
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        chain, posterior = mh.BarkerChain(copy), mh.PosteriorSamples(epochs // 5)
        prior = mh.priors.Gaussian(1.0)
        sampler = mh.Barker(rate, train_size=1400, prior=prior, seed=0)
        chain.compile(sampler, loss)
        begin = time.perf_counter()
        logs = chain.fit(
            x[train], y[train], 100, epochs=epochs, verbose=0, callbacks=[posterior]
        ).history
        seconds = time.perf_counter() - begin
        mean = posterior.ensemble(copy).predict(x[test], verbose=0)
        chosen = mean[np.arange(len(mean)), y[test]]
        acceptance = np.nanmean(logs["acceptance"])
        size = np.nanmean(logs["examples_per_test"])
        begin, end = logs["energy"][0], np.mean(logs["energy"][-50:])
        accuracy = np.mean(mean.argmax(1) == y[test])
        print(
            f"rate {rate:.2f}: acceptance {acceptance:.2f}, test size {size:.0f}, "
            f"energy {begin:.0f} to {end:.0f}; ensemble: accuracy {accuracy:.3f}, "
            f"NLL {-np.log(chosen).mean():.3f}; {seconds:.0f} s",
            flush=True,
        )


def _uniform(seed):
    return keras.initializers.GlorotUniform(seed=seed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["law", "head"], default="law")
    parser.add_argument("--epochs", type=int, default=2000)
    arguments = parser.parse_args()
    {"law": law, "head": head}[arguments.only](arguments.epochs)
