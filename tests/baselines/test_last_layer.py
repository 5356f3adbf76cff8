"""`sample_last_layer`: the coordinates, the samplers, and what comes back."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines import last_layer
from keras_mhmcmc.sampling import loop
from tests.support.example_tools import load
from tests.support.models import CLASSES
from tests.support.models import FEATURES
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential

PRIOR = mh.priors.Gaussian({"kernel": 0.7, "bias": 2.0})
X, Y = data()
QUICK = {"prior": PRIOR, "members": 40, "num_steps": 60, "progress": False}


def network(units=CLASSES, activation="softmax", **options):
    """A model with a frozen part, from the 5 features of `data` through 3."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(3, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(units, activation, **options),
        ]
    )


def coordinates(model, x=X, y=Y):
    """The head of a model and its posterior in whitened coordinates."""
    head = heads.head_of(model, x, 64, y)
    prior = PRIOR if head.layer.use_bias else mh.priors.Gaussian(0.7)
    tau = head.precisions(prior.bind(head.variables).precisions)
    labels = heads.checked_labels(model, head, "")
    return head, tau, heads.whitened(head, tau, labels)


def log_likelihoods(logits, y):
    """Of each example, float64; one column of logits is that of class 1."""
    if logits.shape[1] == 1:
        return -np.logaddexp(0.0, (1 - 2 * y) * logits[:, 0])
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return logs[np.arange(len(y)), y]


def quietly(*args, **options):
    """`sample_last_layer` without warnings about too short runs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return mh.sample_last_layer(*args, **options)


def width(x, y, size=1.0, **options):
    """The mean width that "auto" chooses for a new layer on features of some size."""
    model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(2)])
    options = QUICK | {"prior": "auto", "num_steps": 20, "members": 4} | options
    found = quietly(model, size * x, y, **options)[1]["prior_scales"]
    assert sum(found.values()) == pytest.approx(1.0)
    return sum(scale * weight for scale, weight in found.items())


def test_the_width_is_the_one_that_predicts_left_out_labels():
    """Narrow for labels that features do not tell, wide for labels that they decide."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(80, 5))
    noise, rule = rng.integers(2, size=80), (x[:, 0] > 0).astype("int32")
    assert width(x, noise) < 0.5
    assert width(x, rule) >= 4.0
    chances = 1.0 / (1.0 + np.exp(-1.5 * x[:, 0]))  # weights of about 1
    between = width(x, (rng.uniform(size=80) < chances).astype("int32"))
    assert 0.25 <= between < 4.0
    # It is a width of logits, whatever the unit of the features.
    assert width(x, rule, size=100.0) == pytest.approx(width(x, rule), rel=0.2)
    # A fifth of many labels is held out once.
    many = rng.normal(size=(600, 2))
    assert width(many, rng.integers(2, size=600)) <= 1.0


def test_the_weights_of_widths_predict_best():
    """Of two widths that are right about different labels each has its share."""
    right, wrong = np.log(0.9), np.log(0.1)
    scores = np.full((4, 20), np.log(1e-3))
    scores[1], scores[2] = right, right
    scores[1, :5], scores[2, 5:] = wrong, wrong
    weights = heads.stacked(scores)
    grid = np.linspace(0.0, 1.0, 10_001)
    total = 15 * np.log(0.1 + 0.8 * grid) + 5 * np.log(0.9 - 0.8 * grid)
    expected = grid[total.argmax()]
    np.testing.assert_allclose(weights, [0, expected, 1 - expected, 0], atol=1e-3)


def test_members_of_several_widths_have_their_weights(monkeypatch):
    monkeypatch.setattr(
        heads, "stacked", lambda _: np.array([0.0, 0.75, 0.0, 0.0, 0.25, 0.0])
    )
    ensemble, found = quietly(network(), X, Y, **QUICK | {"prior": "auto"})
    assert found["prior_scales"] == {0.5: 0.75, 4.0: 0.25}
    weights = ensemble.averaging_weights
    assert len(weights) == 32 + 12  # of 40, rounded up to 4 chains for each width
    np.testing.assert_allclose(weights[:32].sum(), 0.75, atol=1e-6)
    (kernels,) = [numpy(v) for v in ensemble.weights if v.shape == (44, 3, CLASSES)]
    assert kernels[32:].std() / kernels[:32].std() > 3


@pytest.mark.parametrize("labels", [[1], [0, 2], [2] * 4, [0, 1, 0, 1, 1, 0, 1]])
def test_a_handful_of_labels_gives_widths(labels):
    """Folds are empty, or lack a class that they are to predict."""
    y = np.array(labels)
    x = np.random.default_rng(0).normal(size=(len(y), 4))
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    head = heads.head_of(model, x, 64, y)
    parts = heads.of_prior(head, "auto", y, 0, True)
    assert sum(weight for _, weight in parts) == pytest.approx(1.0)
    assert all(np.isfinite(tau).all() for tau, _ in parts)


def test_large_layers_take_one_width(monkeypatch):
    monkeypatch.setattr(heads, "_MOST_PRODUCTS", 10)
    head, *_ = coordinates(network())
    assert len(heads.of_prior(head, "auto", Y, 0, True)) == 1


def test_wide_features_choose_as_their_span_does():
    """Of 30 examples with 200 features, 30 directions matter."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(3, size=30)
    turn = np.linalg.qr(rng.normal(size=(200, 3)))[0]
    found = []
    for phi in (x, x @ turn.T):
        model = keras.Sequential(
            [keras.Input(phi.shape[1:]), keras.layers.Dense(3, use_bias=False)]
        )
        head = heads.head_of(model, phi, 64, y)
        found.append(heads.left_out_scores(phi, head, y, 0, False))
    np.testing.assert_allclose(*found, atol=0.02)  # the mode is found within 1e-2


def test_laplace_chooses_the_width_of_a_classification_alone():
    model = network()
    ensemble = mh.last_layer_laplace(model, X, Y, members=2)
    assert ensemble.predict(X, verbose=0).shape == (len(X), CLASSES)
    with pytest.raises(ValueError, match="`prior` must be.*in a regression"):
        mh.last_layer_laplace(network(activation=None), X, X[:, :3], noise_std=0.1)


@pytest.mark.parametrize(
    ("units", "activation", "bias"),
    [(3, "softmax", True), (3, None, False), (1, "sigmoid", True)],
)
class TestCoordinates:
    def model(self, units, activation, bias):
        y = Y if units > 1 else (Y > 0).astype("int32")
        return *coordinates(network(units, activation, use_bias=bias), y=y), y

    def test_energies_are_those_of_the_weights(self, units, activation, bias):
        head, tau, posterior, y = self.model(units, activation, bias)
        rng = np.random.default_rng(0)
        found, expected = [], []
        for v in rng.normal(size=(3, *posterior.mode.shape)):
            w = posterior.weights(v)
            log_prior = -0.5 * np.sum(tau * (w**2 - posterior.mode**2))
            expected.append(log_likelihoods(head.features @ w, y).sum() + log_prior)
            batch = posterior.features, posterior.logits, y
            batch = [keras.ops.convert_to_tensor(a.astype("float32")) for a in batch]
            batch[2] = keras.ops.cast(batch[2], "int32")
            v = keras.ops.convert_to_tensor(v.astype("float32"))
            each = last_layer._log_likelihood(units)(v, batch)
            prior = last_layer._log_prior(posterior)(v)
            found.append(float(keras.ops.sum(each)) + float(prior))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)

    def test_the_mode_has_no_gradient(self, units, activation, bias):
        head, tau, posterior, y = self.model(units, activation, bias)

        def energy(w):
            value = log_likelihoods(head.features @ w, y).sum()
            return 0.5 * np.sum(tau * w**2) - value

        rng = np.random.default_rng(1)
        for direction in rng.normal(size=(5, *posterior.mode.shape)):
            move = posterior.weights(direction) - posterior.mode
            sides = [energy(posterior.mode + sign * 1e-3 * move) for sign in (-1, 1)]
            # In posterior standard deviations.
            assert abs(sides[1] - sides[0]) / 2e-3 < 0.05
            assert min(sides) > energy(posterior.mode) - 1e-4

    def test_the_posterior_has_about_the_width_one(self, units, activation, bias):
        """The curvature at the mode, averaged over the classes, is the identity."""
        head, tau, posterior, _ = self.model(units, activation, bias)
        psi, p = posterior.features, heads.probabilities(posterior.logits)
        w = (p * (1.0 - p)).mean(axis=1)
        inverse = np.linalg.inv(posterior.factor)
        curvature = (psi * w[:, None]).T @ psi
        curvature += inverse @ np.diag(tau[:, 0]) @ inverse.T
        np.testing.assert_allclose(curvature, np.eye(len(curvature)), atol=1e-8)


def test_members_have_their_own_head_and_the_body_of_the_model():
    model = network()
    fit(compiled("adam", model))
    before = [numpy(v) for v in model.weights]
    ensemble, found = quietly(model, X, Y, **QUICK)
    assert ensemble.num_members == 40
    for variable, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(numpy(variable), value)
    head = heads.head_of(model, X, 64)
    members = ensemble.predict_members(X)
    assert members.shape == (40, len(X), CLASSES)
    np.testing.assert_allclose(
        ensemble.predict(X, verbose=0), members.mean(axis=0), atol=1e-5
    )
    kernels, biases = (
        numpy(v) for v in ensemble.weights[:-1] if tuple(v.shape)[:1] == (40,)
    )
    for member in (0, 39):
        logits = head.features[:, :-1] @ kernels[member] + biases[member]
        np.testing.assert_allclose(members[member], heads.softmax(logits), atol=1e-4)
    assert found["batch_size"] == len(X) and found["num_steps"] == 60
    assert found["acceptance"] > 0.5  # of a step that a short warm-up leaves as it is


def test_logits_are_averaged_as_probabilities_and_draws_repeat():
    model = network(activation=None)
    first, again, other = (
        quietly(model, X, Y, seed=seed, **QUICK)[0].predict_members(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_allclose(first.sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def small():
    """A softmax of few weights, and its data."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 2)).astype("float32")
    logits = np.stack([x[:, 0], x[:, 1], -x[:, 0]], axis=1) + rng.gumbel(size=(400, 3))
    layers = [keras.Input((2,)), keras.layers.Dense(3, "softmax")]
    return keras.Sequential(layers), x, logits.argmax(axis=1)


@pytest.mark.slow
@pytest.mark.slow_on("torch", "tensorflow")
def test_the_stored_reference_of_nuts():
    """A softmax regression on features of digits, with 330 weights."""
    pytest.importorskip("sklearn")
    references = load("references")
    problem = references.reference_problems.problem("softmax")
    reference = references.load("softmax", problem)
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(10, "softmax")])
    ensemble, found = mh.sample_last_layer(
        model,
        problem.data["x"],
        problem.data["y"],
        prior=mh.priors.Gaussian(1.0),
        progress=False,
    )
    members = ensemble.predict_members(problem.x_test)
    result = mh.diagnostics.agreement(predictions=members, **reference.arguments())
    # 200 draws are worth at least 100: the errors of the reference are smaller.
    limit = 1.5 * np.sqrt(1.0 + reference.ess.mean() / 100.0)
    assert result.label_agreement >= 0.97  # two classes may be as probable
    assert result.mean_error < limit and result.sd_error < limit
    assert found["r_hat"] < last_layer.LARGEST_R_HAT


class TestConvergence:
    rng = np.random.default_rng(0)

    def test_independent_draws_and_a_chain_elsewhere(self):
        values = self.rng.normal(size=(4, 200, 10))
        r_hat, ess = last_layer.convergence(values)
        assert r_hat < 1.03 and 250 < ess <= 800
        values[2] += 2.0
        r_hat, ess = last_layer.convergence(values)
        assert r_hat > 1.2 and ess < 60

    def test_slow_chains(self):
        """An AR(1) with 0.9: the effective size is (1 - 0.9) / (1 + 0.9) of all."""
        values = self.rng.normal(size=(16, 2000, 1))
        for t in range(1, 2000):
            values[:, t] = 0.9 * values[:, t - 1] + np.sqrt(1 - 0.81) * values[:, t]
        _, ess = last_layer.convergence(values)
        assert 0.6 < ess / (32000 / 19) < 1.6

    def test_what_does_not_move_and_what_is_too_short(self):
        assert last_layer.convergence(np.ones((4, 20, 2))) == (np.inf, 1.0)
        model, x, y = small()
        _, found = mh.sample_last_layer(
            model, x, y, **QUICK | {"members": 36, "num_steps": 18}
        )
        assert set(found) == {"acceptance", "batch_size", "num_steps", "prior_scales"}


@pytest.mark.in_turn("jax")
@pytest.mark.parametrize(
    "members", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (20, 40))]
)
def test_few_members_do_not_make_a_good_run_look_poor(members):
    options = {"prior": PRIOR, "members": members, "progress": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The chains of the last layer")
        ensemble, found = mh.sample_last_layer(network(), X, Y, **options)
    assert ensemble.num_members == 4 * -(-members // 4)
    assert found["ess"] > 50.0


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_mode_does_not_depend_on_the_trained_weights(scale):
    model = network()
    _, _, trained = coordinates(model, scale * X)
    rng = np.random.default_rng(0)
    own = model.layers[-1].kernel
    own.assign(100.0 * rng.normal(size=own.shape).astype("float32"))
    _, _, other = coordinates(model, scale * X)
    # In posterior standard deviations.
    distance = trained.factor.T @ (other.mode - trained.mode)
    assert np.abs(distance).max() < 0.05


def test_a_mode_that_is_not_found_is_told(monkeypatch):
    monkeypatch.setattr(heads, "_MOST_STEPS", 2)
    with pytest.warns(UserWarning, match="was not found in 2 steps"):
        coordinates(network())


def test_clipped_logits_are_refused():
    """One large row of outputs does not hide that others are clipped."""
    model, x = network(activation=None), X.copy()
    model.add(keras.layers.ReLU())
    x[0] = 300.0
    with pytest.raises(ValueError, match="Argument `model`"):
        heads.head_of(model, x, 64)


def test_a_short_run_gives_numbers_and_a_remedy():
    model, x, y = small()
    match = r"R-hat is \d+\.\d+.*size \d+.*Raise `num_steps`, now 20"
    with pytest.warns(UserWarning, match=match):
        mh.sample_last_layer(model, x, y, **QUICK | {"num_steps": 20})


class TestRefused:
    def refuse(self, match, **options):
        with pytest.raises(ValueError, match=match):
            mh.sample_last_layer(sequential(), X, Y, **QUICK | options)

    def test_a_flat_prior(self):
        prior = mh.priors.Gaussian({"kernel": 1.0})
        self.refuse("`prior` must have a scale for the kernel and", prior=prior)

    def test_too_few_steps(self):
        match = "`num_steps` must .*num_steps=18, 9 of them the warm-up, 10 draws of"
        self.refuse(match, num_steps=18)


def test_ctrl_c_ends_the_call(monkeypatch):
    """Though `mh.sample` returns what it has."""
    piece = loop.Plan.piece

    def interrupted(plan, done, *others):
        if done >= 45:  # of 60 steps
            raise KeyboardInterrupt
        return piece(plan, done, *others)

    monkeypatch.setattr(loop.Plan, "piece", interrupted)
    monkeypatch.setattr(loop, "_SECONDS", 1e-9)  # one step at a time
    with pytest.raises(KeyboardInterrupt, match="were interrupted"):
        quietly(network(), X, Y, **QUICK)
