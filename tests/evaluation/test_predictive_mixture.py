"""Predictive mixtures of every law against SciPy, also far in the tails."""

import keras
import numpy as np
import pytest
from scipy import integrate
from scipy import stats

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation import metrics

WEIGHTS = np.array([0.25, 0.75])
X = np.linspace(-1.0, 1.0, 3).reshape(3, 1)
EXAMPLES = 3
rng = np.random.default_rng(0)
OUTPUTS = rng.normal(size=(2, EXAMPLES, 6))


def deviation(b, floor=1e-3):
    """An exponential below 1, and linear above."""
    return floor + np.where(b < 0, np.exp(np.minimum(b, 0)), 1 + b)


def normals(a, b):
    return stats.norm(a, deviation(b))


class Mixed:
    """A mixture of two normals, with what is used of a law of SciPy."""

    def __init__(self, m1, m2, s1, s2, l1, l2):
        self.shares = np.exp([l1, l2]) / np.sum(np.exp([l1, l2]))
        self.parts = [normals(m1, s1), normals(m2, s2)]

    def __getattr__(self, name):
        return lambda y: sum(
            w * getattr(one, name)(y)
            for w, one in zip(self.shares, self.parts, strict=True)
        )

    def mean(self):
        return sum(w * p.mean() for w, p in zip(self.shares, self.parts, strict=True))

    def var(self):
        squares = [p.var() + p.mean() ** 2 for p in self.parts]
        return self.shares @ squares - self.mean() ** 2


def negative_binomial(a, b):
    size = 1e-4 + np.exp(b)
    return stats.nbinom(size, size / (size + np.exp(a)))


LAWS = {
    "normal": (mh.losses.GaussianNLL(), normals),
    "student t": (
        mh.losses.StudentTNLL(),
        lambda a, b, c: stats.t(2.01 + np.exp(c), a, deviation(b)),
    ),
    "mixture": (mh.losses.MixtureNLL(2), Mixed),
    "poisson": (mh.losses.PoissonNLL(), lambda a: stats.poisson(np.exp(a))),
    "negative binomial": (mh.losses.NegativeBinomialNLL(), negative_binomial),
}
COUNTS = ("poisson", "negative binomial")


def made(name, scale=1.0):
    """A prediction for 3 examples of one target, and its laws by example."""
    loss, law = LAWS[name]
    outputs = scale * OUTPUTS[..., : loss.outputs(1)]
    laws = [[law(*outputs[s, n]) for s in range(2)] for n in range(EXAMPLES)]
    return metrics.PredictiveMixture(loss.mixture(outputs), WEIGHTS), laws


def mixed(laws, function):
    return np.array([WEIGHTS @ [function(law) for law in row] for row in laws])


@pytest.mark.parametrize("name", LAWS)
class TestLaws:
    def targets(self, name):
        return np.array([0.0, 3.0, 9.0] if name in COUNTS else [0.3, -2.0, 30.0])

    def test_moments(self, name):
        prediction, laws = made(name)
        mean = mixed(laws, lambda law: law.mean())
        noise = mixed(laws, lambda law: law.var())
        square = mixed(laws, lambda law: law.var() + law.mean() ** 2)
        np.testing.assert_allclose(prediction.mean()[:, 0], mean, rtol=1e-9)
        np.testing.assert_allclose(prediction.noise_std()[:, 0] ** 2, noise, rtol=1e-9)
        variance = square - mean**2
        np.testing.assert_allclose(prediction.std()[:, 0] ** 2, variance, rtol=1e-9)

    def test_probabilities(self, name):
        prediction, laws = made(name)
        density = "pmf" if name in COUNTS else "pdf"
        for y in self.targets(name):
            each = np.full(EXAMPLES, y)
            below = mixed(laws, lambda law, y=y: law.cdf(y))
            np.testing.assert_allclose(prediction.cdf(each)[:, 0], below, rtol=1e-9)
            found = np.exp(prediction.log_prob(each))
            right = mixed(laws, lambda law, y=y: getattr(law, density)(y))
            np.testing.assert_allclose(found, right, rtol=1e-8, atol=1e-300)

    @pytest.mark.parametrize("q", [1e-10, 0.05, 0.5, 1.0 - 1e-7])
    def test_quantiles(self, name, q):
        prediction, laws = made(name)
        for value, row in zip(prediction.quantile(q)[:, 0], laws, strict=True):

            def below(x, row=row):
                return WEIGHTS @ [law.cdf(x) for law in row]

            if name in COUNTS:
                assert value >= 0 and below(value) >= q > below(value - 1)
            else:
                assert below(value) == pytest.approx(q, rel=1e-6)

    def test_crps_is_the_integral_of_squares(self, name):
        prediction, laws = made(name)
        found = prediction.crps(self.targets(name))[:, 0]
        for score, y, row in zip(found, self.targets(name), laws, strict=True):

            def below(x, row=row):
                return np.einsum("s,s...->...", WEIGHTS, [law.cdf(x) for law in row])

            if name in COUNTS:
                x = np.arange(5000)
                right = np.sum((below(x) - (x >= y)) ** 2)
            else:
                options = dict(limit=500, epsabs=1e-10)
                left = integrate.quad(lambda x: below(x) ** 2, -np.inf, y, **options)
                right = integrate.quad(
                    lambda x: (1 - below(x)) ** 2, y, np.inf, **options
                )
                right = left[0] + right[0]
            assert score == pytest.approx(right, rel=1e-4)

    def test_samples_have_the_distribution_function(self, name):
        prediction, _ = made(name)
        draws = prediction.sample(4000, seed=1)
        assert draws.shape == (4000, EXAMPLES, 1)
        for n in range(EXAMPLES):
            for q in (0.1, 0.5, 0.9):
                value = prediction.quantile(q)[n, 0]
                below = prediction.cdf(np.full(EXAMPLES, value))[n, 0]
                share = np.mean(draws[:, n, 0] <= value)
                assert share == pytest.approx(below, abs=4 * 0.5 / np.sqrt(4000))
        np.testing.assert_array_equal(draws, prediction.sample(4000, seed=1))

    def test_targets_that_are_drawn_are_covered(self, name):
        loss, _ = LAWS[name]
        outputs = np.random.default_rng(3).normal(size=(2, 4000, loss.outputs(1)))
        one = metrics.PredictiveMixture(loss.mixture(outputs[:1]))
        y = one.sample(1, seed=5)[0]
        assert one.coverage(y, 0.9) == pytest.approx(0.9, abs=0.02)
        assert one.calibration_error(y) < 0.02


def test_wide_counts_are_scored_with_steps():
    """Means of a million: the sum over counts becomes an integral."""
    loss = mh.losses.PoissonNLL()
    prediction = metrics.PredictiveMixture(loss.mixture(np.full((1, 1, 1), 14.0)))
    rate = np.exp(14.0)
    normal = metrics.NormalMixture([[rate]], np.sqrt(rate)).crps([rate + 500.0])
    assert prediction.crps([round(rate) + 500.0]) == pytest.approx(normal, rel=1e-2)


def test_far_tails_are_finite():
    for name in LAWS:
        prediction, _ = made(name)
        y = np.full(EXAMPLES, 1e6)
        assert np.all(np.isfinite(prediction.log_prob(y))), name
        assert np.all(np.isfinite(prediction.crps(y))), name


def test_counts_must_be_counts():
    prediction, _ = made("poisson")
    with pytest.raises(ValueError, match="`y` must be counts.*Received: 0.5"):
        prediction.nll([0.0, 0.5, 1.0])


def network(loss, members=1):
    """Dense outputs of x, as a network or an ensemble that is compiled with `loss`."""
    columns = loss.outputs(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(columns)])
    kernel = np.linspace(-1.0, 1.0, columns)
    model.set_weights([kernel[None], 0.1 * np.ones(columns)])
    model.compile("sgd", loss)
    if members == 1:
        return model
    ensemble = mh.Ensemble(model, 2)
    weights = [np.stack([w, 1.5 * w]) for w in model.get_weights()]
    ensemble.set_members(weights, WEIGHTS)
    return ensemble


class TestModels:
    @pytest.mark.parametrize("name", LAWS)
    def test_the_compiled_loss_says_what_a_model_predicts(self, name):
        loss, _ = LAWS[name]
        model = network(loss)
        y = np.array([[1.0], [0.0], [2.0]])
        found = mh.predict_distribution(model, X)
        nats = model.evaluate(X, y, verbose=0)
        assert found.nll(y) == pytest.approx(nats, rel=1e-5)
        again = mh.predict_distribution(
            keras.Model(model.inputs, model.outputs), X, likelihood=loss
        )
        assert again.nll(y) == found.nll(y)
        ensemble = mh.predict_distribution(network(loss, 2), X)
        means = np.array([1.0, 1.5])[:, None, None] * model.predict(X, verbose=0)
        parts = metrics.PredictiveMixture(loss.mixture(means), WEIGHTS)
        np.testing.assert_allclose(ensemble.log_prob(y), parts.log_prob(y), rtol=1e-4)

    def test_several_targets_are_joint_within_a_member(self):
        loss = mh.losses.GaussianNLL()
        outputs = np.random.default_rng(1).normal(size=(2, 5, 4))
        y = np.random.default_rng(2).normal(size=(5, 2))
        prediction = metrics.PredictiveMixture(loss.mixture(outputs), WEIGHTS)
        law = normals(outputs[..., :2], outputs[..., 2:])
        joint = np.prod(law.pdf(y), axis=2)
        found = prediction.log_prob(y)
        np.testing.assert_allclose(found, np.log(WEIGHTS @ joint), rtol=1e-10)
        assert prediction.interval(0.5)[0].shape == (5, 2)

    def test_bad_arguments(self):
        model = network(mh.losses.GaussianNLL())
        loss = mh.losses.MixtureNLL(2)
        for change, message in (
            ({"likelihood": "mse"}, "`likelihood` must be one of `mh.losses`"),
            ({"likelihood": loss}, "6 outputs for each target.*Received: 2 outputs"),
            ({"likelihood": loss, "noise_std": 1.0}, "`noise_std` must be None"),
        ):
            with pytest.raises(ValueError, match=message):
                mh.predict_distribution(model, X, **change)

    def test_evaluate_scores_any_likelihood(self):
        y = np.array([1.0, 0.0, 2.0])
        models = {name: network(loss) for name, (loss, _) in LAWS.items()}
        table = mh.evaluate(models, X, y)
        for row, name in zip(table.rows, models, strict=True):
            one = mh.predict_distribution(models[name], X)
            assert row["nll"] == one.nll(y)
            assert row["crps"] == pytest.approx(one.crps(y).mean())

    def test_a_target_on_a_grid_is_told_with_numbers(self):
        x = np.linspace(-1, 1, 80)[:, None]
        y = np.round(3 * x[:, 0])  # -3, ..., 3
        model = network(mh.losses.GaussianNLL())
        message = "7 distinct values in 80 examples, at least 1 apart.*min_std=0.5"
        with pytest.warns(UserWarning, match=message):
            mh.evaluate({"a": model}, x, y)
        model.compile(mh.SGLD(1e-3, train_size=80, seed=0), model.loss)
        with pytest.warns(UserWarning, match=message):
            model.fit(x, y, verbose=0, callbacks=[mh.PosteriorSamples()])

    @pytest.mark.filterwarnings("error::UserWarning")
    @pytest.mark.parametrize(
        "loss",
        [
            mh.losses.GaussianNLL(1.0),
            mh.losses.GaussianNLL(min_std=0.5),
            mh.losses.PoissonNLL(),
        ],
    )
    def test_no_warning_where_a_density_cannot_collapse(self, loss):
        x = np.linspace(-1, 1, 80)[:, None]
        mh.evaluate({"a": network(loss)}, x, np.round(3 + 3 * x[:, 0]))


class TestConformal:
    def data(self, count, seed):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, size=(count, 1))
        # The noise grows with x, as the model says, but is twice as large.
        return x, -x[:, 0] + 0.1 + 2 * deviation(x[:, 0] + 0.1) * rng.normal(size=count)

    @pytest.mark.parametrize("method", ["normalised", "quantile"])
    def test_intervals_follow_the_noise_and_cover(self, method):
        model = network(mh.losses.GaussianNLL())
        x, y = self.data(2000, 0)
        found = mh.conformal_intervals(model, x, y, level=0.8, method=method)
        x, y = self.data(4000, 1)
        low, high = found.predict(x)
        assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.8, abs=0.03)
        if method == "normalised":
            width = 2 * found.threshold * deviation(x[:, 0] + 0.1)
            np.testing.assert_allclose(high - low, width, rtol=1e-3)
            assert found.threshold == pytest.approx(2 * stats.norm.ppf(0.9), rel=0.1)
        else:
            own = mh.predict_distribution(model, x).interval(0.8)
            np.testing.assert_allclose(own[0][:, 0] - low, found.threshold, rtol=1e-3)

    def test_a_model_without_a_likelihood(self):
        layer = keras.layers.Dense(1)
        model = keras.Sequential([keras.Input((1,)), layer])
        x, y = self.data(50, 0)
        with pytest.raises(ValueError, match='`method` must be "absolute"'):
            mh.conformal_intervals(model, x, y, method="quantile")
        given = mh.losses.GaussianNLL(2.0)
        found = mh.conformal_intervals(
            model, x, y, method="normalised", likelihood=given
        )
        plain = mh.conformal_intervals(model, x, y)
        assert 2.0 * found.threshold == pytest.approx(plain.threshold)
