"""A linear regression by `mh.Barker` in `mh.BarkerChain`, for the tests of both."""

import keras
import numpy as np

import keras_mhmcmc as mh

SIZE, BATCH, FEATURES = 120, 16, 3  # the last mini-batch of an epoch has 8 examples
SCALE, NOISE = 0.5, 1.0


def data(size=SIZE):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(size, FEATURES)).astype("float32")
    y = x @ [1.0, -0.5, 0.2] + NOISE * rng.normal(size=size)
    return x, y.astype("float32")


def linear():
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    return keras.Sequential([keras.Input((FEATURES,)), layer])


def sampler(**options):
    given = dict(learning_rate=0.06, train_size=SIZE, min_examples=20, seed=3)
    return mh.Barker(**given | {"prior": mh.priors.Gaussian(SCALE)} | options)


def compiled(model=None, optimizer=None, loss=None, **options):
    chain = mh.BarkerChain(model or linear())
    loss = loss or mh.losses.GaussianNLL(NOISE)
    chain.compile(optimizer or sampler(), loss, **options)
    return chain


def fit(chain, epochs=3, x=None, y=None, **options):
    if x is None:
        x, y = data()
    options = dict(batch_size=BATCH, shuffle=False, verbose=0) | options
    return chain.fit(x, y, epochs=epochs, **options).history
