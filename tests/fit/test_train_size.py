"""`train_size="auto"`: the data of `fit` tell N, or an error says the remedy."""

import inspect

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import OF_CLASSES

LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
N = 50
X, Y = (array[:N] for array in data())
COUNTED = "no data tell the number of examples"
pytestmark = pytest.mark.in_turn("jax", "tensorflow", "torch")


class Batches(keras.utils.PyDataset):
    """Batches of 16, the last one of 2."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return X[rows], Y[rows]


def tensors():
    tensorflow = pytest.importorskip("tensorflow")
    return tensorflow.data.Dataset.from_tensor_slices((X, Y))


def generated(asserts=None):
    """A `tf.data.Dataset` that does not know its length, unless it is told."""
    tensorflow = pytest.importorskip("tensorflow")
    specs = [tensorflow.TensorSpec((FEATURES,)), tensorflow.TensorSpec(())]
    dataset = tensorflow.data.Dataset.from_generator(
        lambda: zip(X, Y, strict=True), output_signature=tuple(specs)
    )
    if asserts is None:
        return dataset
    return dataset.apply(tensorflow.data.experimental.assert_cardinality(asserts))


def loader():
    torch = pytest.importorskip("torch")
    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(pairs, 16, shuffle=True)


def endless():
    while True:
        yield X[:10], Y[:10]


DATA = {
    "arrays": (lambda: X, N),
    "tensor": (lambda: keras.ops.convert_to_tensor(X), N),
    "PyDataset": (Batches, N),
    "short last batch": (lambda: tensors().shuffle(9).batch(16), N),
    "full batches": (lambda: tensors().batch(16, drop_remainder=True), 48),
    "told": (lambda: generated(N).batch(16), N),
    "DataLoader": (loader, N),
}
UNKNOWN = {
    "generator": endless,
    "repeated": lambda: tensors().batch(10).repeat(),
    "generated": lambda: generated().batch(10),
}


@pytest.mark.eager_and_compiled
@pytest.mark.parametrize("kind", DATA)
def test_the_examples_of_fit(kind):
    make, expected = DATA[kind]
    x, model = make(), compiled(mh.SGLD(1e-3, seed=0))
    y = Y if kind in ("arrays", "tensor") else None
    model.fit(x, y, verbose=0)
    assert model.optimizer.train_size == expected


@pytest.mark.parametrize("kind", UNKNOWN)
def test_data_that_do_not_tell(kind):
    x, model = UNKNOWN[kind](), compiled(mh.SGLD(1e-3, seed=0))
    before = weights(model)
    with pytest.raises(ValueError, match=COUNTED) as error:
        model.fit(x, steps_per_epoch=2, verbose=0)
    assert "train_size=<number" in str(error.value)
    np.testing.assert_array_equal(weights(model), before)


def test_the_chain_is_that_of_the_given_number():
    """Also with a part of the data for validation, and for the temperature N/m."""

    def rsgld(*rate, **given):
        return mh.RSGLD(*rate, batch_size=10, **given)

    for made in (mh.SGLD, rsgld):
        found = []
        for given in ({}, {"train_size": 40}):
            model = compiled(made(1e-3, seed=0, **given))
            assert given or "train_size" not in repr(model.optimizer)
            options = dict(validation_split=0.2, shuffle=False, verbose=0)
            with pytest.warns() if model.optimizer.batch_size else np.errstate():
                model.fit(X, Y, 10, 2, **options)
            assert "train_size=40" in repr(model.optimizer)
            found.append((weights(model), model.optimizer.get_config()))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]


def test_samples_are_kept_without_a_warning(tmp_path, recwarn):
    """The record of the run has the number: it is that of a run that was given it."""
    folders = [tmp_path / "auto", tmp_path / "given"]
    for seed, given in enumerate(({}, {"train_size": N})):
        model = compiled(mh.SGLD(1e-3, seed=seed, **given))
        model.optimizer.build(model.trainable_variables)  # before any data are known
        posterior = mh.PosteriorSamples(directory=folders[seed])
        model.fit(X, Y, 10, 2, verbose=0, callbacks=[posterior])
    told = [str(w.message) for w in recwarn if issubclass(w.category, UserWarning)]
    assert not any("train_size" in text for text in told)
    assert mh.PosteriorSamples.load(folders).weights.shape == (2, 2)


@pytest.mark.parametrize("fits", [False, True])
def test_a_saved_sampler(fits, tmp_path):
    """Before `fit` it is still open; later, other data do not change it."""
    model = compiled(mh.MHBT(1e-3, batch_size=10, seed=0))
    model.optimizer.build(model.trainable_variables)
    if fits:
        model.fit(X, Y, 10, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config()["train_size"] == (N if fits else "auto")
    loaded.fit(X[:40], Y[:40], 10, verbose=0)
    assert loaded.optimizer.train_size == (N if fits else 40)
    assert loaded.optimizer.temperature == loaded.optimizer.train_size / 10


def test_other_data_are_told_of_as_ever():
    model = compiled(mh.SGLD(1e-3, seed=0))
    model.fit(X, Y, 10, verbose=0)
    with pytest.warns(UserWarning, match="has 25 examples.*train_size=50"):
        model.fit(X[:25], Y[:25], 5, verbose=0, callbacks=[mh.PosteriorSamples()])


def test_chains_and_tests():
    chains = compiled(mh.SGLD(1e-3, seed=0), mh.ParallelChains(sequential(), 2))
    chains.fit(X, Y, 10, verbose=0)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(CLASSES)])
    tested = mh.BarkerChain(model)
    tested.compile(mh.Barker(1e-3, seed=0), LOGITS)
    tested.fit(X, Y, 10, verbose=0)
    path = compiled(mh.AMAGOLD(1e-3, warm_up=0, seed=0))
    path.fit(X, Y, 10, verbose=0)
    for fitted in (chains, tested, path):
        assert fitted.optimizer.train_size == N


def test_a_loop_of_ones_own():
    model = sequential()
    sampler = mh.SGLD(1e-3, seed=0)
    sampler.build(model.trainable_variables)
    gradients = [keras.ops.zeros(v.shape) for v in model.trainable_variables]
    with pytest.raises(ValueError, match=COUNTED):
        sampler.apply(gradients)
    with pytest.raises(ValueError, match=COUNTED):
        compiled(mh.SGLD(1e-3)).train_on_batch(X, Y)


def test_terms_of_an_example():
    """A mean over positions multiplies N, if their number is sure."""
    layers = [keras.layers.RepeatVector(4), keras.layers.Dense(CLASSES)]
    y = np.zeros((N, 4), "int32")
    model = keras.Sequential([keras.Input((FEATURES,)), *layers])
    model.compile(mh.SGLD(1e-3), LOGITS)
    model.fit(X, y, 10, verbose=0)
    assert model.optimizer.train_size == 4 * N

    def unknown(y_true, y_pred):
        return keras.ops.sum(y_pred**2, axis=-1)

    for sampler, loss in ((mh.SGLD(1e-3), unknown), (mh.MINT(1, batch_size=5), LOGITS)):
        model.compile(sampler, loss)
        with pytest.raises(ValueError, match="several terms of each example"):
            model.fit(X, y, 10, verbose=0)


def test_a_batch_that_is_larger_than_the_data():
    model = compiled(mh.RSGLD(1e-3, batch_size=N + 1))
    with pytest.raises(ValueError, match="`batch_size` must be at most"):
        model.fit(X, Y, verbose=0)


def test_every_optimizer_has_the_default():
    classes = [row.optimizer for row in OF_CLASSES.values()] + [mh.AMAGOLD, mh.Barker]
    for sampler in classes:
        default = inspect.signature(sampler).parameters["train_size"].default
        assert default == "auto", sampler


def of_images(*_):
    source = keras.Input((6, 6, 1))
    x = keras.layers.Conv2D(2, 3, padding="same")(source)
    x = keras.layers.Add()([x, keras.layers.Conv2D(2, 1)(x)])
    return source, keras.layers.GlobalAveragePooling2D()(x)


def of_words(mask_zero):
    source = keras.Input((5,))
    x = keras.layers.Embedding(4, 3, mask_zero=mask_zero)(source)
    return source, keras.layers.Bidirectional(keras.layers.LSTM(2))(x)


@pytest.mark.parametrize(
    "make, is_masked", [(of_images, False), (of_words, False), (of_words, True)]
)
def test_layers_that_hand_masks_on_make_none(make, is_masked):
    """A residual network and an LSTM count their examples; padding has no count."""
    source, features = make(is_masked)
    model = keras.Model(source, keras.layers.Dense(2)(features))
    model.compile(mh.SGLD(1e-3, seed=0), mh.losses.GaussianNLL())
    x = np.ones((N, *source.shape[1:]), "float32")
    if is_masked:
        with pytest.raises(ValueError, match="several terms of each example"):
            model.fit(x, np.zeros((N, 1)), verbose=0)
    else:
        model.fit(x, np.zeros((N, 1)), verbose=0)
        assert model.optimizer.train_size == N
