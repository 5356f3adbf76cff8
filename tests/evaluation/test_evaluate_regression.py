"""`mh.evaluate` of regressions, and the predictive distribution of a model."""

import keras
import numpy as np
import pytest
from scipy import stats

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.evaluate import RegressionTable

SLOPES, BIASES, WEIGHTS = np.array([1.0, 1.4]), np.array([0.0, 0.3]), [0.25, 0.75]
NOISE = 0.5
X = np.linspace(-1, 1, 40).reshape(40, 1).astype("float32")
Y = 1.2 * X[:, 0] + 0.5 * np.random.default_rng(0).normal(size=40)


def network(noise_std=None, loss=None, slope=1.0, outputs=1):
    """The line slope * x, compiled with a Gaussian likelihood if it has a noise."""
    layer = keras.layers.Dense(outputs)
    model = keras.Sequential([keras.Input((1,)), layer])
    model.set_weights([np.full((1, outputs), slope), np.zeros(outputs)])
    if noise_std is not None:
        loss = mh.losses.GaussianNLL(noise_std)
    if loss is not None:
        model.compile("sgd", loss)
    return model


def ensemble(noise_std=None):
    made = mh.Ensemble(network(noise_std), 2)
    made.set_members([SLOPES.reshape(2, 1, 1), BIASES[:, None]], WEIGHTS)
    return made


def means():
    return SLOPES[:, None] * X[:, 0].astype("float64") + BIASES[:, None]  # (2, 40)


class TestDistribution:
    @pytest.mark.parametrize("batch_size", [256, 7])
    def test_of_an_ensemble(self, batch_size):
        found = mh.predict_distribution(ensemble(NOISE), X, batch_size=batch_size)
        np.testing.assert_allclose(found.means[..., 0], means(), atol=1e-6)
        np.testing.assert_allclose(found.weights, WEIGHTS, rtol=1e-6)
        np.testing.assert_allclose(found.noise_std(), NOISE)

    def test_of_mc_dropout(self):
        stack = [keras.layers.Dense(8), keras.layers.Dropout(0.5)]
        model = keras.Sequential([keras.Input((1,)), *stack, keras.layers.Dense(1)])
        model.compile("sgd", mh.losses.GaussianNLL(0.3))
        found = mh.predict_distribution(mh.MCDropout(model, 6), X)
        assert found.means.shape == (6, 40, 1)
        np.testing.assert_allclose(found.noise_std(), 0.3)
        assert np.all(found.member_std()[[0, -1]] > 0)

    def test_an_argument_goes_before_the_loss(self):
        found = mh.predict_distribution(network(NOISE), X, noise_std=2.0)
        np.testing.assert_allclose(found.noise_std(), 2.0)

    def test_outputs_that_are_not_finite(self):
        with pytest.raises(ValueError, match="`model` must output finite numbers"):
            mh.predict_distribution(network(NOISE, slope=np.nan), X)


class TestEvaluate:
    def test_of_an_ensemble(self):
        (row,) = mh.evaluate({"e": ensemble(NOISE)}, X, Y).rows
        densities = stats.norm.pdf(Y, means(), NOISE)
        below = WEIGHTS @ stats.norm.cdf(Y, means(), NOISE)
        mean = WEIGHTS @ means()
        gaps = [
            abs(np.mean(np.abs(below - 0.5) <= level / 2) - level)
            for level in np.arange(1, 20) / 20
        ]
        spread = np.sqrt(0.25 * 0.75) * np.abs(means()[0] - means()[1])
        expected = {
            "members": 2,
            "noise_std": NOISE,
            "member_std": np.sqrt(np.mean(spread**2)),
            "rmse": np.sqrt(np.mean((Y - mean) ** 2)),
            "nll": -np.mean(np.log(WEIGHTS @ densities)),
            "calibration_error": np.mean(gaps),
        }
        for level in (50, 90, 95):
            inside = np.abs(below - 0.5) <= level / 200
            expected[f"coverage_{level}"] = np.mean(inside)
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-5), name
        # Wider than without the spread of the members, by less than the spread.
        least = 2 * stats.norm.ppf(0.95) * NOISE
        assert least < row["width_90"] < least + np.abs(means()[0] - means()[1]).max()
        samples = mh.metrics.NormalMixture(means(), NOISE, WEIGHTS)
        assert row["crps"] == pytest.approx(samples.crps(Y).mean(), rel=1e-6)

    def test_an_argument_makes_a_regression_of_any_models(self):
        models = {"e": ensemble(), "n": network(loss="mse")}
        compiled = {"e": ensemble(NOISE), "n": network(NOISE)}
        given = mh.evaluate(models, X, Y, noise_std=NOISE)
        each = mh.evaluate(models, X, Y, noise_std={"n": NOISE, "e": NOISE})
        np.testing.assert_equal(each.rows, given.rows)
        np.testing.assert_equal(mh.evaluate(compiled, X, Y).rows, given.rows)
        classifiers = {name: mh.Classifier(one) for name, one in compiled.items()}
        np.testing.assert_equal(mh.evaluate(classifiers, X, Y).rows, given.rows)

    def test_text_and_pandas(self):
        models = {"one network": network(NOISE), "ensemble": ensemble(NOISE)}
        table = mh.evaluate(models, X, Y)
        assert isinstance(table, RegressionTable)
        lines = str(table).splitlines()
        assert len(lines) == 3 and len(set(map(len, lines))) == 1
        for head in ("members", "RMSE", "NLL", "CRPS", "in 90%", "width 95%"):
            assert head in lines[0]
        assert lines[1].count("—") == 1 and "—" not in lines[2]
        frame = table.to_pandas()
        np.testing.assert_array_equal(frame["nll"], table.column("nll"))
        with pytest.raises(ValueError, match="`name` must be one of 'model'"):
            table.column("accuracy")

    @pytest.mark.parametrize(
        "change, message",
        [
            (
                {"models": {"a": network(NOISE), "b": network()}},
                r"no likelihood for \['b'\]",
            ),
            ({"noise_std": {"b": 1.0}}, "`noise_std` must be a number, or a dict"),
            ({"ood": X}, "`ood` must be None for a regression"),
            ({"from_logits": True}, "`from_logits` must be False for a regression"),
        ],
    )
    def test_bad_arguments(self, change, message):
        good = {"models": {"a": network(NOISE)}, "x": X, "y": Y}
        with pytest.raises(ValueError, match=message):
            mh.evaluate(**(good | change))

    def test_a_regression_that_does_not_say_so_is_told_how(self):
        with pytest.raises(ValueError, match="pass `noise_std`"):
            mh.evaluate({"a": network(loss="mse")}, X, Y)
        layer = keras.layers.Dense(1, activation="sigmoid")
        within = keras.Sequential([keras.Input((1,)), layer])
        with pytest.raises(ValueError, match="`y` must be integers.*pass `noise_std`"):
            mh.evaluate({"a": within}, X, np.clip(Y, 0.1, 0.9))
