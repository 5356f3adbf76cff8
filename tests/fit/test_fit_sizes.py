"""Sizes that a sampler is given are compared with those of `fit`."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import sequential
from tests.support.samplers import PAPER

# What is said of any fit as short as these.
SHORT = ("epochs with kept samples", "ignores the inputs")


def fit(optimizer, count=30, model=None, y=None, **options):
    """The warnings of a fit with samples."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, FEATURES)).astype("float32")
    y = rng.integers(0, CLASSES, count) if y is None else y
    model = model or compiled(optimizer)
    options = {"epochs": 2, "verbose": 0} | options
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, callbacks=[mh.PosteriorSamples()], **options)
    # Of the first point at a line of the user's, and not of Keras' or ours.
    messages = [w for w in caught if issubclass(w.category, UserWarning)]
    assert all(w.filename == __file__ for w in messages), messages
    found = [str(w.message) for w in messages]
    return [text for text in found if not any(word in text for word in SHORT)]


def rsgld(train_size, batch_size):
    return mh.RSGLD(
        0.05, train_size=train_size, batch_size=batch_size, beta=1.5, seed=1, **PAPER
    )


def test_a_batch_size_that_is_not_that_of_fit():
    found = fit(rsgld(32, 8), 32)
    assert len(found) == 1
    assert "mini-batches of 32 examples" in found[0] and "batch_size=8" in found[0]


def test_a_short_last_batch_and_a_size_without_one():
    (found,) = fit(rsgld(30, 9), batch_size=9)
    assert "has 3 examples" in found and "others have 9" in found
    assert "nearly" in found
    assert fit(rsgld(30, 10), batch_size=10) == []
    # A gradient sampler decides nothing by one batch.
    assert fit(mh.SGLD(1e-4, train_size=30, seed=1), batch_size=9) == []


def test_all_data_in_one_batch_give_no_noise():
    sampler = mh.SGMCLMC(0.5, train_size=30, warm_up=1, seed=1)
    (found,) = fit(sampler, batch_size=30)
    assert "has all 30 examples in one" in found
    assert fit(mh.SGMCLMC(0.5, train_size=30, warm_up=1, seed=1), batch_size=10) == []


def test_each_is_said_once():
    found = fit(rsgld(3000, 8), 32, epochs=4)
    assert len(found) == 2


def test_chains_side_by_side():
    model = mh.ParallelChains(compiled(None), 2, seed=0)
    model = compiled(rsgld(320, 8), model)
    found = fit(None, 32, model)
    assert len(found) == 2
    assert "mini-batches of 32 examples" in found[0]
    assert "An epoch of `fit` has 32 examples" in found[1]


def test_positions_and_outputs_may_be_counted():
    """The loss is a mean over the positions of a sequence as well."""
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.RepeatVector(4),
        keras.layers.Dense(CLASSES, "softmax"),
    ]
    y = np.zeros((30, 4), "int32")
    for train_size, count in ((120, 0), (30, 1), (60, 1)):
        model = keras.models.clone_model(keras.Sequential(layers))
        model = compiled(mh.SGLD(1e-4, train_size=train_size, seed=1), model)
        found = fit(None, 30, model, y, batch_size=10)
        assert len(found) == count
        assert all("mean over 4 terms of each, 120 in all" in text for text in found)


@pytest.mark.parametrize(
    ("loss", "terms"),
    [
        ("binary_crossentropy", 3),
        (keras.losses.BinaryCrossentropy(), 3),
        (mh.losses.GaussianNLL(1.0), 1),
        (keras.losses.Poisson(), None),  # the mean and the sum may be meant
    ],
)
def test_the_terms_of_several_outputs_are_known(loss, terms):
    y = np.zeros((30, 3), "float32")
    for factor in (1, 3):
        layers = [keras.Input((FEATURES,)), keras.layers.Dense(3, "sigmoid")]
        model = keras.Sequential(layers)
        model.compile(mh.SGLD(1e-4, train_size=factor * 30, seed=1), loss)
        found = fit(None, 30, model, y, batch_size=10)
        sizes = [text for text in found if "train_size" in text]
        assert len([t for t in sizes if "width" in t]) == (terms not in (factor, None))


def test_a_short_batch_that_comes_first_is_the_last_one():
    """As where Keras shuffles the mini-batches of a `keras.utils.PyDataset`."""
    x = np.ones((30, FEATURES), "float32")

    def batches():
        for rows in (x[:6], x[6:18], x[18:]):
            yield rows, np.zeros(len(rows), "int32")

    model = compiled(rsgld(30, 12))
    with pytest.warns(UserWarning) as caught:
        model.fit(
            batches(),
            steps_per_epoch=3,
            verbose=0,
            callbacks=[mh.PosteriorSamples()],
        )
    messages = [str(w.message) for w in caught]
    assert not [m for m in messages if "batch_size=12" in m]
    assert [m for m in messages if "has 6 examples, and the others have 12" in m]


class Own(keras.Model):
    """What it outputs is known to nobody before it runs."""

    def __init__(self, positions=1, counts=True):
        super().__init__()
        self.dense = keras.layers.Dense(CLASSES, "softmax")
        self.positions = positions
        self.counts = counts

    def call(self, x):
        x = keras.ops.repeat(x[:, None], self.positions, axis=1)
        return self.dense(x[:, 0] if self.positions == 1 else x)

    @property
    def metrics(self):
        found = super().metrics
        return found if self.counts else [m for m in found if m.name != "loss"]


def test_positions_of_a_subclass_may_be_counted():
    y = np.zeros((30, 4), "int32")
    sampler = mh.MHBT(1e-3, train_size=120, batch_size=40, seed=1)
    assert fit(None, 30, compiled(sampler, Own(4)), y, batch_size=10) == []
    sampler = mh.SGLD(1e-4, train_size=45, seed=1)
    assert len(fit(None, 30, compiled(sampler, Own(4)), y, batch_size=5)) == 1


def test_a_loop_that_counts_nothing_is_left_alone():
    """A step of its own may keep no mean of the loss: nothing is known then."""
    model = compiled(mh.SGLD(1e-4, train_size=3000, seed=1), Own(counts=False))
    assert fit(None, 30, model, batch_size=10) == []


def test_an_epoch_that_was_stopped_says_nothing_of_its_size():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    x, y = np.ones((30, FEATURES), "float32"), np.zeros(30, "int32")
    model = compiled(mh.SGLD(1e-4, train_size=30, seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", ".*ignores the inputs")
        callbacks = [mh.PosteriorSamples(every=1), Stop()]
        model.fit(x, y, batch_size=10, verbose=0, callbacks=callbacks)


def total(y_true, y_pred):
    """A cross-entropy as many write it: one number, and a sum."""
    each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
    return keras.ops.sum(each)


def average(y_true, y_pred):
    each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
    return keras.ops.mean(each)


def of_ten(y_true, y_pred):
    """A loss for mini-batches of ten alone."""
    each = keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
    return keras.ops.mean(keras.ops.reshape(each, (10,)))


def test_a_loss_for_one_size_of_mini_batch():
    layer = keras.layers.Dense(CLASSES, "softmax")
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    model.compile(mh.SGLD(1e-4, train_size=30, seed=1), of_ten)
    (found,) = fit(None, model=model, batch_size=10)
    assert "cannot be evaluated on two examples" in found


@pytest.mark.parametrize("loss, is_told", [(total, True), (average, False)])
def test_a_loss_of_ones_own_that_is_a_sum(loss, is_told):
    layer = keras.layers.Dense(CLASSES, "softmax")
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    model.compile(mh.SGLD(1e-4, train_size=30, seed=1), loss)
    found = fit(None, model=model, batch_size=10)
    assert ["is a sum over the mini-batch" in message for message in found] == [
        True
    ] * is_told


def test_the_targets_of_a_regression_are_counted():
    """The mean squared error is a mean over the three targets."""
    layer = keras.layers.Dense(3, name="head")
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    prior = mh.priors.SpikeSlab("head/kernel", v0=1e-3, v1=1.0)
    for train_size, is_told in ((30, True), (90, False)):
        sampler = mh.SGLDSA(
            1e-5, train_size=train_size, prior=prior, likelihood="gaussian", seed=1
        )
        model.compile(sampler, "mse")
        found = fit(None, model=model, y=np.zeros((30, 3)), batch_size=10)
        assert ["3 terms of each, 90 in all" in word for word in found] == [
            True
        ] * is_told


def test_the_examples_of_a_barker_chain():
    chain = mh.BarkerChain(keras.Sequential([keras.layers.Dense(CLASSES)]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    chain.compile(mh.Barker(1e-3, train_size=60, seed=1), loss)
    found = fit(None, model=chain, batch_size=10)
    assert any("has 30 examples" in word for word in found), found


def sgld():
    return mh.SGLD(1e-5, train_size=30, seed=1)


@pytest.mark.parametrize("weight, width", [(10.0, "narrower"), (0.2, "wider")])
def test_weights_that_multiply_the_likelihood(weight, width):
    y = np.arange(30) % CLASSES
    weights = np.full(30, weight)
    weights[:3] = 0.0  # left out
    (found,) = fit(sgld(), y=y, batch_size=10, sample_weight=weights)
    assert f"`sample_weight` of `fit` counts an example {weight:g} times" in found
    assert f"posterior is {width}" in found
    (found,) = fit(
        sgld(), y=y, batch_size=10, class_weight=dict.fromkeys(range(CLASSES), weight)
    )
    assert f"`class_weight` of `fit` counts an example {weight:g} times" in found


def test_weights_that_count_the_data_once():
    y = np.arange(30) % CLASSES
    rng = np.random.default_rng(0)
    some = rng.uniform(0.1, 5.0, 30)
    masks = (np.arange(30) % 2).astype("float32")
    for weights in (some / some.mean(), np.ones(30), masks):
        assert fit(sgld(), y=y, batch_size=10, sample_weight=weights) == []
    loss = keras.losses.SparseCategoricalCrossentropy(
        reduction="mean_with_sample_weight"
    )
    model = sequential()
    model.compile(sgld(), loss)
    ten = np.full(30, 10.0)
    assert fit(None, y=y, model=model, batch_size=10, sample_weight=ten) == []
    balanced = {0: 0.5, 1: 1.0, 2: 1.5}
    assert fit(sgld(), y=y, batch_size=10, class_weight=balanced) == []
