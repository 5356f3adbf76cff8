"""Likelihoods with several outputs a target against SciPy in float64."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special
from scipy import stats

import keras_mhmcmc as mh
from keras_mhmcmc import _backend

FLOOR = 1e-3
REALS = np.array([0.3, -1.2, 2.5, 0.0])
COUNTS = np.array([0.0, 3.0, 1.0, 40.0])


def std_of(raw):
    return FLOOR + np.where(raw < 0, np.exp(np.minimum(raw, 0)), 1 + raw)


def gaussian(y, mean, raw):
    return stats.norm.logpdf(y, mean, std_of(raw))


def student_t(y, centre, raw, df):
    return stats.t.logpdf(y, 2.01 + np.exp(df), centre, std_of(raw))


def mixture(y, m1, m2, s1, s2, l1, l2):
    shares = special.log_softmax(np.stack([l1, l2]), axis=0)
    logs = [gaussian(y, m, s) for m, s in ((m1, s1), (m2, s2))]
    return special.logsumexp(shares + logs, axis=0)


def poisson(y, log_rate):
    return stats.poisson.logpmf(y, np.exp(log_rate))


def negative_binomial(y, log_rate, raw):
    """As `scipy.stats.nbinom`, which is infinite far from the data."""
    rate, size = np.exp(log_rate), 1e-4 + np.exp(raw)
    rising = np.vectorize(lambda y, r: np.sum(np.log(r + np.arange(y))))(y, size)
    logs = rising - special.gammaln(y + 1) + y * (log_rate - np.log(size))
    return logs - (size + y) * np.log1p(rate / size)


CASES = {
    "normal": (mh.losses.GaussianNLL(), gaussian, REALS),
    "student t": (mh.losses.StudentTNLL(), student_t, REALS),
    "student t of known df": (
        mh.losses.StudentTNLL(df=5.0),
        lambda y, centre, raw: student_t(y, centre, raw, np.log(2.99)),
        REALS,
    ),
    "mixture": (mh.losses.MixtureNLL(2), mixture, REALS),
    "poisson": (mh.losses.PoissonNLL(), poisson, COUNTS),
    "negative binomial": (mh.losses.NegativeBinomialNLL(), negative_binomial, COUNTS),
}


def value_and_gradient(loss, y, outputs):
    """Nats of all examples together, and their gradient with respect to the outputs."""

    def nats(outputs, y):
        value = ops.sum(loss.call(y, outputs))
        return value, value

    tensors = [ops.convert_to_tensor(a, "float32") for a in (outputs, y)]
    gradient, value = _backend.gradient_and_more(nats)(*tensors)
    return float(value), ops.convert_to_numpy(gradient)


def expected(density, y, outputs, parts):
    """The same by SciPy; outputs are (N, parts * D)."""

    def nats(outputs):
        return -np.sum(density(y, *np.split(outputs, parts, axis=1)))

    step = 1e-5
    gradient = np.zeros(outputs.shape)
    for place in np.ndindex(outputs.shape):
        change = np.zeros(outputs.shape)
        change[place] = step
        gradient[place] = (nats(outputs + change) - nats(outputs - change)) / 2 / step
    return nats(outputs), gradient


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_scipy(name):
    loss, density, y = CASES[name]
    y = y.reshape(2, 2)  # two examples of two targets
    parts = loss.outputs(1)
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(2, loss.outputs(2))).astype("float32").astype("float64")
    value, gradient = value_and_gradient(loss, y, outputs)
    right, slopes = expected(density, y, outputs, parts)
    assert value == pytest.approx(right, rel=2e-6)
    np.testing.assert_allclose(gradient, slopes, rtol=2e-4, atol=2e-5)


FAR = {  # outputs that no float32 density survives without care
    "normal": [[1e4, 0.0], [1e4, -50.0], [0.0, 50.0], [0.0, -50.0], [1e8, 3.0]],
    "student t": [
        [1e4, 0.0, 1.0],
        [1e4, -50.0, 1.0],
        [0.0, 50.0, 1.0],
        [0.5, 0.0, 50.0],
        [0.5, 0.0, -50.0],
        [0.5, 0.0, 15.0],
    ],
    "mixture": [
        [1e4, -1e4, 0.0, -50.0, 0.0, 0.0],
        [0.0, 1.0, 50.0, -50.0, 80.0, -80.0],
    ],
    "poisson": [[-50.0], [20.0], [25.0]],
    "negative binomial": [
        [-50.0, 0.0],
        [25.0, 0.0],
        [1.0, 25.0],
        [1.0, -50.0],
        [14.0, 14.0],
        [25.0, -50.0],
    ],
}


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("name", FAR)
def test_far_from_the_data_float32_has_the_value_of_float64(name):
    loss, density, y = CASES[name]
    for row in FAR[name]:
        outputs = np.array([row])
        for target in (y[1], y[3]):
            target = np.array([[target]])
            value, gradient = value_and_gradient(loss, target, outputs)
            right = -np.sum(density(target, *outputs.T[:, :, None]))
            assert value == pytest.approx(right, rel=1e-5, abs=1e-5), (row, target)
            assert np.all(np.isfinite(gradient)), (row, target)
            assert np.any(gradient != 0.0), (row, target)


@pytest.mark.parametrize("count", [1e3, 1e6])
def test_large_counts_keep_their_digits(count):
    """Differences of log gamma functions would lose all of them in float32."""
    y = np.array([[count]])
    log_rate = float(np.float32(np.log(count * 1.001)))
    for name, outputs in (
        ("poisson", [[log_rate]]),
        ("negative binomial", [[log_rate, 10.0]]),
    ):
        loss, density, _ = CASES[name]
        value, _ = value_and_gradient(loss, y, np.array(outputs))
        # The rate itself is known to 1e-6 of its size.
        right = -np.sum(density(y, *np.array(outputs).T))
        assert value == pytest.approx(right, abs=2e-3)


def test_a_rate_cannot_overflow():
    for loss, outputs in (
        (mh.losses.PoissonNLL(), [[1e3]]),
        (mh.losses.NegativeBinomialNLL(), [[1e3, 1e3]]),
    ):
        value, gradient = value_and_gradient(loss, np.array([[2.0]]), outputs)
        assert np.isfinite(value) and np.all(np.isfinite(gradient))


def test_a_floor_bounds_the_density():
    loss = mh.losses.GaussianNLL(min_std=0.1)
    value, _ = value_and_gradient(loss, np.array([[1.0]]), [[1.0, -50.0]])
    assert value == pytest.approx(-stats.norm.logpdf(0.0, 0.0, 0.1), rel=1e-5)
    law = loss.mixture(np.array([[[1.0, -50.0]]]))
    assert law.variance == pytest.approx(0.01)


def test_targets_come_first_then_deviations():
    loss = mh.losses.GaussianNLL()
    y, outputs = np.array([[1.0, 5.0]]), np.array([[1.0, 5.0, 0.0, 2.0]])
    right = -gaussian(y, outputs[:, :2], outputs[:, 2:]).sum()
    assert float(loss(y, outputs)) == pytest.approx(right, rel=1e-6)


def test_the_number_of_outputs():
    sizes = [loss.outputs(3) for loss, _, _ in CASES.values()]
    assert sizes == [6, 9, 6, 18, 3, 6]
    assert mh.losses.GaussianNLL(0.5).outputs(3) == 3


@pytest.mark.parametrize(
    "y, outputs, message",
    [
        ((4,), (4, 1), r"2 outputs for 1 target.*Received: .*, 1\)"),
        ((4, 3), (4, 3), r"6 outputs for 3 target"),
        ((4, 3), (4, 8), r"6 outputs for 3 target"),
        ((5, 1), (4, 2), r"2 outputs for 1 target"),
    ],
)
def test_too_few_outputs_are_told_at_the_first_batch(y, outputs, message):
    with pytest.raises(ValueError, match=message):
        mh.losses.GaussianNLL()(np.zeros(y), np.zeros(outputs))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(outputs[-1])])
    model.compile("sgd", mh.losses.GaussianNLL())
    if y[0] == outputs[0]:
        with pytest.raises(ValueError, match=message):
            model.fit(np.zeros((4, 2)), np.zeros(y), verbose=0)


def test_the_loss_cannot_learn_a_deviation_and_names_the_layer_that_does():
    with pytest.raises(ValueError, match="mh.losses.LearnedDeviation()"):
        mh.losses.GaussianNLL("learned")


def test_the_posterior_of_one_deviation_for_all_data(tmp_path):
    """With N targets the logarithm of the deviation has a variance of 1 / (2 N)."""
    size = 200
    y = 0.3 * np.random.default_rng(0).normal(size=(size, 1)).astype("float32")
    deviation = mh.losses.LearnedDeviation(initial=0.5)
    network = keras.Sequential([keras.Input((1,)), deviation])
    loss, zeros = mh.losses.GaussianNLL(), np.zeros((size, 1), "float32")

    def log_density(log_std):
        outputs, _ = deviation.stateless_call([log_std], [], zeros)
        return -size * loss(y, outputs)

    draws = mh.sample(
        mh.kernels.hmc(leapfrog_steps=3, warm_up=100),
        np.log([[0.5]] * 8).astype("float32"),
        log_density=log_density,
        num_steps=300,
        num_chains=8,
        burn_in=100,
        progress=False,
    ).position
    assert draws.std() == pytest.approx(np.sqrt(0.5 / size), rel=0.15)
    assert draws.mean() == pytest.approx(np.log(np.sqrt(np.mean(y**2))), abs=0.01)
    network.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    assert loaded.predict(np.ones((1, 1)), verbose=0) == pytest.approx(
        np.array([[1.0, np.log(0.5)]]), rel=1e-6
    )


@pytest.mark.in_turn("jax", "tensorflow", "torch")
def test_masked_positions_do_not_count():
    keras.utils.set_random_seed(0)
    network = keras.Sequential(
        [
            keras.Input((None,)),
            keras.layers.Embedding(5, 4, mask_zero=True),
            keras.layers.Dense(2),
        ]
    )
    words = np.array([[1, 2, 0], [3, 0, 0]])
    y = np.array([[0.5, 1.0, 99.0], [2.0, 99.0, 99.0]])
    network.compile("sgd", mh.losses.GaussianNLL())
    outputs = np.asarray(network.predict(words, verbose=0), "float64")
    nats = -gaussian(y, outputs[..., 0], outputs[..., 1])
    right = np.mean([nats[0, :2].sum(), nats[1, 0]])
    for targets in (y[..., None], y):
        network.compile("sgd", mh.losses.GaussianNLL())
        found = network.evaluate(words, targets, verbose=0)
        assert found == pytest.approx(right, rel=1e-5)
    weighted = network.evaluate(words, y, sample_weight=np.array([2.0, 0.0]), verbose=0)
    assert weighted == pytest.approx(nats[0, :2].sum(), rel=1e-5)
    history = network.fit(words, y, verbose=0)
    assert history.history["loss"][0] == pytest.approx(right, rel=1e-5)


def test_sample_weights_multiply_examples():
    y, outputs = np.zeros((3, 1)), np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    nats = -gaussian(y[:, 0], *outputs.T)
    found = mh.losses.GaussianNLL()(y, outputs, np.array([1.0, 0.0, 2.0]))
    assert float(found) == pytest.approx((nats[0] + 2 * nats[2]) / 3, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_a_saved_model_has_the_same_loss(name, tmp_path):
    loss, _, y = CASES[name]
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(loss.outputs(1))])
    model.compile("sgd", loss)
    x = np.random.default_rng(0).normal(size=(4, 2))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.loss) is type(loss)
    assert loaded.loss.get_config() == loss.get_config()
    before, after = (m.evaluate(x, y, verbose=0) for m in (model, loaded))
    assert before == pytest.approx(after, rel=1e-6)
