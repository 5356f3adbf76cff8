"""Adversarial training: the examples of each step, and the step itself."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support import layers_people_write
from tests.support import models_people_write
from tests.support.models import FEATURES
from tests.support.models import numpy
from tests.support.models import sequential

BACKEND = keras.backend.backend()
LOSS = "sparse_categorical_crossentropy"


def data(count=32):
    """Inputs in [0, 1] of shape (count, 5), and three classes."""
    x = np.random.default_rng(0).uniform(size=(count, FEATURES)).astype("float32")
    return x, (x[:, 0] > 0.5).astype("int32") + (x[:, 1] > 0.5)


def attacked(model, x, y, robust):
    """The last points of PGD from the clean inputs, by the attack on trained models."""
    return mh.adversarial.pgd(
        model,
        x,
        robust.epsilon,
        y=y,
        steps=robust.steps,
        step_size=robust.step_size,
        clip=robust.clip,
        random_start=False,
        keep_strongest=False,
    )


def wrapped(model=None, optimizer="sgd", epsilon=0.1, **options):
    options = {"steps": 3, "random_start": False} | options
    robust = mh.adversarial.training(model or sequential(), epsilon, **options)
    robust.compile(optimizer, LOSS, metrics=["accuracy"])
    return robust


class TestExamples:
    @pytest.mark.parametrize("clip", [(0.0, 1.0), None])
    def test_are_those_of_pgd(self, clip):
        robust, (x, y) = wrapped(clip=clip), data()
        expected = attacked(robust.model, x, y, robust)
        assert np.abs(expected - x).max() > 0.09
        np.testing.assert_allclose(numpy(robust.attack(x, y)), expected, atol=1e-6)

    def test_of_one_step_are_those_of_fgsm(self):
        robust, (x, y) = wrapped(steps=1, random_start=None), data()
        assert not robust.random_start and robust.step_size == robust.epsilon
        expected = mh.adversarial.fgsm(robust.model, x, 0.1, y=y)
        np.testing.assert_allclose(numpy(robust.attack(x, y)), expected, atol=1e-6)

    def test_start_anywhere_in_the_ball(self):
        robust, (x, y) = wrapped(steps=4, step_size=0.0, random_start=None), data(2000)
        first, second = (numpy(robust.attack(x, y)) for _ in range(2))
        assert np.abs(first - x).max() <= 0.1 + 1e-6 and np.any(first != second)
        assert first.min() >= 0.0 and first.max() <= 1.0
        moved = (first - x)[(x > 0.1) & (x < 0.9)]
        assert abs(moved.mean()) < 4 * 0.1 / (3 * moved.size) ** 0.5
        assert abs(moved.var() * 3 / 0.01 - 1.0) < 4 * (0.8 / moved.size) ** 0.5

    def test_of_inputs_outside_the_limits_are_not_pulled_in(self):
        """A data set is not checked: its images may go to 255 by mistake."""
        robust, (x, y) = wrapped(clip=(0.0, 1.0)), data()
        moved = numpy(robust.attack(255.0 * x, y)) - 255.0 * x
        assert np.abs(moved).max() <= 0.1001

    @pytest.mark.eager_and_compiled
    def test_without_a_finite_gradient_stay(self):
        """The square root of 0 has an infinite slope, and 0 times it is NaN."""

        class Length(keras.layers.Layer):
            def call(self, x):
                squares = keras.ops.sum(keras.ops.square(x), axis=1, keepdims=True)
                return keras.ops.concatenate([x, keras.ops.sqrt(squares)], axis=1)

        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((FEATURES,)), Length(), keras.layers.Dense(3, "softmax")]
        )
        robust, (x, y) = wrapped(model), data()
        x[3] = 0.0
        moved = numpy(robust.attack(x, y))
        assert np.isfinite(moved).all()
        assert np.abs(moved - x).max(axis=1)[4:].min() > 0.05
        robust.fit(x, y, verbose=0)
        assert all(np.isfinite(array).all() for array in model.get_weights())

    def test_of_half_precision_are_moved_by_small_losses(self):
        """The mean loss of a trained model would underflow in its gradients."""
        x = np.random.default_rng(0).uniform(size=(256, 64)).astype("float32")
        y = (x[:, 0] > 0.5).astype("int32")
        shares = []
        for policy in ("float32", "mixed_float16"):
            keras.utils.set_random_seed(0)
            hidden = keras.layers.Dense(32, "relu", dtype=policy)
            last = keras.layers.Dense(2, dtype=policy)
            model = keras.Sequential([keras.Input((64,)), hidden, last])
            kernel, bias = last.get_weights()
            last.set_weights([kernel, bias + [6.0, -6.0]])
            robust = mh.adversarial.training(model, 0.1, steps=1)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            robust.compile("sgd", loss)
            moved = numpy(robust.attack(x, np.zeros_like(y))) - x
            shares.append(np.mean(moved != 0.0))
        assert shares[0] > 0.97
        assert shares[1] == pytest.approx(shares[0], abs=0.01)

    def test_leave_the_variables_as_they_are(self):
        source = keras.Input((FEATURES,))
        hidden = keras.layers.BatchNormalization()(keras.layers.Dense(4)(source))
        hidden = keras.layers.ActivityRegularization(l2=0.1)(hidden)
        outputs = [
            keras.layers.Dense(3, "softmax")(hidden),
            keras.layers.Dense(1)(hidden),
        ]
        model, (x, y) = keras.Model(source, outputs), data()
        robust = mh.adversarial.training(model, 0.1, steps=2, random_start=False)
        robust.compile("sgd", [LOSS, "mse"], metrics=[["accuracy"], ["mae"]])
        robust.fit(x, [y, y], verbose=0)
        before = [numpy(v) for v in robust.variables]
        losses = len(robust.losses)
        robust.attack(x, [y, y])
        assert len(robust.losses) <= losses  # of the step before, if any
        for old, variable in zip(before, robust.variables, strict=True):
            np.testing.assert_array_equal(old, numpy(variable))


class TestSteps:
    def test_are_made_on_the_examples(self):
        """Each step is the usual one on the examples of the weights before it."""
        x, y = data()
        robust = wrapped(optimizer=keras.optimizers.Adam(0.1))
        plain = sequential()
        plain.compile(keras.optimizers.Adam(0.1), LOSS)
        for _ in range(3):
            robust.train_on_batch(x, y)
            plain.train_on_batch(attacked(plain, x, y, robust), y)
        for mine, theirs in zip(robust.model.weights, plain.weights, strict=True):
            np.testing.assert_allclose(numpy(mine), numpy(theirs), rtol=1e-3, atol=1e-4)

    def test_with_an_epsilon_of_zero_are_the_usual_ones(self):
        x, y = data()
        robust, plain = wrapped(epsilon=0.0), sequential()
        plain.compile("sgd", LOSS)
        for model in (robust, plain):
            model.fit(x, y, 8, epochs=2, shuffle=False, verbose=0)
        weights = robust.model.get_weights(), plain.get_weights()
        for mine, theirs in zip(*weights, strict=True):
            np.testing.assert_allclose(mine, theirs, atol=1e-6)

    def test_draw_a_new_start_each_time(self):
        """The state of the generator goes on in `fit`, also on JAX."""
        robust, (x, y) = wrapped(random_start=True), data()
        states = []
        for _ in range(2):
            robust.fit(x, y, 8, verbose=0)
            states.append(numpy(robust.start_seeds.state))
        assert np.any(states[0] != states[1])

    def test_make_a_model_robust(self):
        """The accuracy under attack rises.

        The first input follows the label widely but not always. The others follow it
        always, and within less than epsilon.
        """
        rng = np.random.default_rng(0)
        y = np.arange(400) % 2
        x = rng.uniform(0.4, 0.6, size=(400, FEATURES)).astype("float32")
        x[:, 0] = 0.5 + 0.3 * (2 * y - 1) * rng.uniform(-0.1, 1.0, 400)
        x[:, 1:] += 0.04 * (2 * y - 1)[:, None]
        accuracies = {}
        for epsilon in (0.0, 0.1):
            zeros = keras.layers.Dense(2, "softmax", kernel_initializer="zeros")
            model = keras.Sequential([keras.Input((FEATURES,)), zeros])
            robust = wrapped(model, keras.optimizers.Adam(0.1), epsilon)
            robust.fit(x, y, 100, epochs=60, shuffle=False, verbose=0)
            table = mh.adversarial.robustness_curve(
                {"a": robust.model}, x, y, [0.1], attack="pgd", true_label=True, steps=5
            )
            accuracies[epsilon] = table.rows[0]["accuracy"]
        assert accuracies[0.1] > accuracies[0.0] + 0.1

    @pytest.mark.parametrize("sampler", ["sgld", "rsgld"])
    def test_of_a_sampler(self, sampler):
        optimizer = mh.SGLD(1e-3, train_size=32, seed=0)
        if sampler == "rsgld":
            optimizer = mh.RSGLD(0.1, train_size=32, batch_size=8, warm_up=0, seed=0)
        robust, (x, y) = wrapped(optimizer=optimizer), data()
        posterior = mh.PosteriorSamples()
        robust.fit(x, y, 8, epochs=3, verbose=0, callbacks=[posterior])
        ensemble = posterior.ensemble(robust)
        assert np.isfinite(ensemble.predict(x, verbose=0)).all()
        assert np.isfinite(posterior.energies).all()


class TestModel:
    @pytest.mark.parametrize(
        "name",
        ["unbuilt", "functional", "subclass", "subclass_with_training", "one_hot"],
    )
    def test_models_as_people_write_them(self, name):
        written = models_people_write.MODELS[name]
        model, (x, y) = written.build(), written.data()
        robust = mh.adversarial.training(model, 0.1, steps=2, clip=None)
        robust.compile("adam", written.loss, metrics=["accuracy"])
        logs = robust.fit(x, y, validation_data=(x, y), epochs=2, verbose=0).history
        assert np.isfinite([logs[k] for k in ("loss", "val_loss", "accuracy")]).all()
        assert robust.model is model
        expected = model.predict(x, verbose=0)
        np.testing.assert_array_equal(robust.predict(x, verbose=0), expected)

    def test_data_that_come_in_batches(self):
        """An unbuilt model is built before its first step, on TensorFlow as well."""
        x, y = data()

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return 4

            def __getitem__(self, index):
                rows = slice(8 * index, 8 * index + 8)
                return x[rows], y[rows], np.ones(8, "float32")

        robust = wrapped(models_people_write.unbuilt())
        logs = robust.fit(Batches(), epochs=2, verbose=0).history
        assert np.isfinite(logs["loss"]).all() and len(robust.model.get_weights()) == 4

    def test_becomes_the_members_of_an_ensemble(self, tmp_path):
        """Whose loss and activation are those of the wrapper."""
        posterior, (x, y) = mh.PosteriorSamples(), data()
        model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(3)])
        robust = mh.adversarial.training(model, 0.1, steps=2)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        robust.compile("sgd", loss)
        robust.fit(x, y, epochs=2, verbose=0, callbacks=[posterior])
        ensemble = mh.swag(posterior, robust, 3)
        expected = ensemble.predict(x, verbose=0)
        np.testing.assert_allclose(expected.sum(axis=1), 1.0, atol=1e-5)
        ensemble.save(tmp_path / "ensemble.keras")
        loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
        np.testing.assert_allclose(loaded.predict(x, verbose=0), expected, atol=1e-6)

    def test_evaluates_clean_inputs(self):
        robust, (x, y) = wrapped(), data()
        robust.model.compile(loss=LOSS)
        clean = robust.model.evaluate(x, y, verbose=0)
        assert abs(robust.evaluate(x, y, verbose=0)[0] - clean) < 1e-5
        assert robust.train_on_batch(x, y)[0] > clean

    def test_saved_and_loaded(self, tmp_path):
        robust, (x, y) = wrapped(optimizer="adam", clip=None, random_start=True), data()
        robust.fit(x, y, verbose=0)
        robust.save(tmp_path / "robust.keras")
        loaded = keras.saving.load_model(tmp_path / "robust.keras")
        for name, value in robust.get_config().items():
            assert name == "model" or loaded.get_config()[name] == value
        for mine, theirs in zip(
            robust.get_weights(), loaded.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)
        assert int(numpy(loaded.optimizer.iterations)) == 1
        loaded.fit(x, y, verbose=0)


class TestRefused:
    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (255.0 * data()[0], r"`x` must lie in `clip`, here \[0, 1\]"),
            (np.ones((32, FEATURES), "int32"), "floating-point numbers"),
            ([data()[0], data()[0]], "one array"),
        ],
    )
    def test_inputs(self, x, message):
        with pytest.raises(ValueError, match=message):
            wrapped().fit(x, data()[1], verbose=0)

    def test_a_model_with_a_loss_of_its_own(self):
        model = layers_people_write.OwnLoss()
        with pytest.raises(ValueError, match="`model`.*whose class has compute_loss"):
            mh.adversarial.training(model, 0.1)

    def test_a_frozen_model(self):
        model = sequential()
        model.trainable = False
        with pytest.raises(ValueError, match="`model` must have trainable weights"):
            mh.adversarial.training(model, 0.1)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.x[index::2], self.y[index::2]


class TestTells:
    def test_of_inputs_outside_the_limits_in_a_pipeline(self):
        x, y = data()
        robust = wrapped()
        with pytest.warns(UserWarning, match="Inputs lie up to 254 outside `clip`"):
            robust.fit(Batches(255.0 * np.round(x, 1), y), epochs=2, verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            robust.fit(Batches(x, y), verbose=0)

    def test_of_examples_without_a_gradient(self):
        """Keras' cross-entropy of probabilities has none where one is nearly 1."""
        x = np.repeat(np.array([[0.9, 0.1], [0.1, 0.9]], "float32"), 8, axis=0)
        y = np.repeat([0, 1], 8)
        for activation, from_logits in (("softmax", False), (None, True)):
            layer = keras.layers.Dense(2, activation)
            model = keras.Sequential([keras.Input((2,)), layer])
            model.set_weights([40.0 * np.eye(2), np.zeros(2)])
            robust = mh.adversarial.training(model, 0.1, steps=2, random_start=False)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
            robust.compile("sgd", loss)
            # On TensorFlow Keras finds the logits behind a softmax.
            stands = np.array_equal(numpy(robust.attack(x, y)), x)
            assert stands == (not from_logits and BACKEND != "tensorflow")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                robust.fit(x, y, batch_size=16, verbose=0)
            words = [str(w.message) for w in caught if w.category is UserWarning]
            assert ["16 of 16 examples" in word for word in words] == [True] * stands
