"""`mh.evaluate` and its relatives for models with several inputs."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_mhmcmc as mh

COUNT, CLASSES = 40, 3
LARGE_ID = 2**24 + 1  # float32 cannot hold it


def data(regression=False):
    rng = np.random.default_rng(0)
    x = {
        "image": rng.random((COUNT, 6, 6, 1), dtype="float32"),
        "table": rng.normal(size=(COUNT, 4)),
        "user": rng.integers(0, 5, (COUNT, 1)),
    }
    y = rng.normal(size=COUNT) if regression else rng.integers(0, CLASSES, COUNT)
    return x, y


def sources():
    return {
        "image": keras.Input((6, 6, 1), name="image"),
        "table": keras.Input((4,), name="table"),
        "user": keras.Input((1,), name="user", dtype="int32"),
    }


def head(image, table, user, outputs):
    image = layers.Flatten()(layers.Conv2D(2, 3, activation="relu")(image))
    user = layers.Flatten()(layers.Embedding(5, 2)(user))
    joined = layers.Concatenate()([image, table, user])
    return layers.Dense(outputs)(layers.Dropout(0.2)(joined))


def dict_model(outputs=CLASSES):
    inputs = sources()
    return keras.Model(inputs, head(**inputs, outputs=outputs)), dict


def list_model(outputs=CLASSES):
    inputs = sources()
    result = head(**inputs, outputs=outputs)
    return keras.Model(list(inputs.values()), result), lambda x: list(x.values())


class Subclassed(keras.Model):
    """Takes a dict."""

    def __init__(self, outputs):
        super().__init__()
        self.embedding, self.dense = layers.Embedding(5, 2), layers.Dense(outputs)
        self.dropout = layers.Dropout(0.2)

    def call(self, x, training=False):
        image = keras.ops.mean(x["image"], axis=(1, 2))
        user = keras.ops.reshape(self.embedding(x["user"]), (-1, 2))
        table = self.dropout(x["table"], training=training)
        return self.dense(keras.ops.concatenate([image, table, user], axis=-1))


class SubclassedTuple(Subclassed):
    """Takes a tuple."""

    def call(self, x, training=False):
        return super().call(dict(zip(sources(), x, strict=True)), training=training)


def subclassed(outputs=CLASSES):
    return Subclassed(outputs), dict


def subclassed_tuple(outputs=CLASSES):
    return SubclassedTuple(outputs), lambda x: tuple(x.values())


MAKERS = [dict_model, list_model, subclassed, subclassed_tuple]


def trained(maker, regression=False):
    """The model, its ensemble, the inputs in its form, and the targets."""
    keras.utils.set_random_seed(1)
    x, y = data(regression)
    model, form = maker(1 if regression else CLASSES)
    x = form(x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if regression:
        loss = mh.losses.GaussianNLL(0.5)
    model.compile(mh.SGLD(1e-2, train_size=COUNT, seed=0), loss)
    posterior = mh.PosteriorSamples(burn_in=2, every=3)
    model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[posterior])
    return model, posterior.ensemble(model), x, y


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("maker", MAKERS)
def test_classification_has_the_scores_of_the_predictions(maker):
    model, ensemble, x, y = trained(maker)
    models = {"network": model, "ensemble": ensemble}
    outside = keras.tree.map_structure(lambda array: array[::-1][:30], x)
    table = mh.evaluate(
        models,
        x,
        y,
        ood=outside,
        from_logits={"network": True, "ensemble": False},
        batch_size=16,
    )
    predictions = [softmax(model.predict(x, verbose=0)), ensemble.predict(x, verbose=0)]
    for name in ("accuracy", "nll", "ece"):
        expected = [getattr(mh.metrics, name)(one, y) for one in predictions]
        np.testing.assert_allclose(table.column(name), expected, rtol=1e-4)
    members = ensemble.predict_members(x, verbose=0)
    information = mh.metrics.mutual_information(members).mean()
    found = table.column("mutual_information")
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(information, rel=1e-3, abs=1e-6)
    entropy = [mh.metrics.predictive_entropy(one) for one in predictions]
    areas = [
        mh.metrics.auroc(
            np.concatenate([one, one[::-1][:30]]), np.arange(COUNT + 30) >= COUNT
        )
        for one in entropy
    ]
    np.testing.assert_allclose(table.column("auroc_ood"), areas, atol=2e-3)


@pytest.mark.parametrize("maker", MAKERS)
def test_regression_has_the_scores_of_the_predictions(maker):
    model, ensemble, x, y = trained(maker, regression=True)
    table = mh.evaluate({"network": model, "ensemble": ensemble}, x, y, batch_size=16)
    for row, one in enumerate((model, ensemble)):
        errors = one.predict(x, verbose=0)[:, 0] - y
        rmse = np.sqrt(np.mean(errors**2))
        assert table.column("rmse")[row] == pytest.approx(rmse, rel=1e-4)
        prediction = mh.predict_distribution(one, x)
        assert table.column("crps")[row] == pytest.approx(prediction.crps(y).mean())


@pytest.mark.parametrize("maker", [dict_model, subclassed_tuple])
def test_scaled_models_and_conformal_sets(maker):
    model, ensemble, x, _ = trained(maker)
    logits = model.predict(x, verbose=0)
    y = (logits.argmax(-1) + (np.arange(COUNT) % 4 == 0)) % CLASSES  # 3 of 4 are right
    scaled = mh.temperature_scaling(model, x, y, from_logits=True)
    mean = mh.evaluate({"scaled": scaled}, x, y).column("nll")[0]
    expected = mh.metrics.nll(softmax(logits / scaled.temperature), y)
    assert mean == pytest.approx(expected, rel=1e-4)
    sets = mh.conformal_sets(ensemble, x, y, level=0.8).predict(x)
    assert sets.shape == (COUNT, CLASSES)
    assert sets[np.arange(COUNT), y].mean() >= 0.8


@pytest.mark.parametrize("maker", [dict_model, list_model])
def test_mc_dropout(maker, tmp_path):
    """Dropout before a linear layer leaves the mean of the logits as it is."""
    model, _, x, y = trained(maker)
    logits = mh.MCDropout(model, 500, "linear").predict_members(x)
    tolerance = 6 * logits.std(axis=0).max() / 500**0.5
    plain = model.predict(x, verbose=0)
    np.testing.assert_allclose(logits.mean(axis=0), plain, atol=tolerance)
    assert np.all(logits.std(axis=0) > 0)

    passes = mh.MCDropout(model, 5, "softmax")
    table = mh.evaluate({"MC dropout": passes}, x, y, batch_size=16)
    expected = mh.metrics.nll(softmax(plain), y)
    assert table.column("nll")[0] == pytest.approx(expected, rel=0.2)
    passes = mh.MCDropout(model, 5, "softmax", seed=3)
    expected = passes.predict(x, verbose=0)
    passes.save(tmp_path / "passes.keras")
    loaded = keras.saving.load_model(tmp_path / "passes.keras")
    np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)


def test_an_ood_dict_with_the_keys_of_the_inputs_is_one_set():
    model, ensemble, x, y = trained(dict_model)
    one = mh.evaluate({"e": ensemble}, x, y, ood=x)
    several = mh.evaluate({"e": ensemble}, x, y, ood={"a": x, "b": x})
    assert one.column("auroc_ood")[0] == several.column("auroc_b")[0] == 0.5


def test_large_integers_stay_exact():
    """A number of a user above 2^24 is another user in float32."""
    users = keras.Input((1,), name="user", dtype="int32")
    other = keras.Input((1,), name="other")
    is_odd = layers.Lambda(
        lambda x: keras.ops.cast(x % 2, "float32"), output_shape=(1,)
    )(users)
    model = keras.Model({"user": users, "other": other}, is_odd + 0.0 * other)
    x = {"user": np.array([[LARGE_ID], [LARGE_ID + 1]]), "other": np.zeros((2, 1))}
    found = mh.Classifier(model).probabilities(x)[:, 1]
    np.testing.assert_allclose(found, [1.0, 0.0], atol=1e-7)


def without(key):
    return lambda x: {name: value for name, value in x.items() if name != key}


@pytest.mark.parametrize(
    "change, message",
    [
        (without("user"), r"dict with the keys \['image', 'table', 'user'\]"),
        (lambda x: x["image"], "dict with the keys"),
        (lambda x: {**x, "table": x["table"][:-1]}, "the same number in each"),
        (lambda x: {**x, "table": x["table"] * np.nan}, "`x` must be finite"),
        (lambda x: {**x, "user": x["user"][:0]}, "`x` must have at least one"),
        (
            lambda x: {**x, "user": np.full((COUNT, 1), "a")},
            "`x` must be an array of numbers",
        ),
    ],
)
def test_bad_dicts(change, message):
    model, _ = dict_model()
    x, y = data()
    with pytest.raises(ValueError, match=message):
        mh.evaluate({"m": model}, change(x), y, from_logits=True)


def test_bad_lists():
    model, form = list_model()
    x, y = data()
    with pytest.raises(ValueError, match="`x` must be a list of 3 arrays"):
        mh.evaluate({"m": model}, form(x)[:2], y, from_logits=True)
    with pytest.raises(ValueError, match="`ood` must have examples shaped"):
        wide = {**x, "table": np.zeros((COUNT, 4, 1))}
        mh.evaluate({"m": model}, form(x), y, from_logits=True, ood=form(wide))


def test_attacks_refuse_several_inputs():
    model, _ = dict_model()
    x, y = data()
    with pytest.raises(ValueError, match="`x` must be one array.*`mh.evaluate`"):
        mh.adversarial.fgsm(model, x, 0.1, y=y, from_logits=True)
