"""`control_variates` of `mh.sample`: exact at the reference, unbiased, less noisy."""

import itertools
import pickle

import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import control_variates
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.control_variates import ControlVariates
from keras_mhmcmc.sampling.log_density import LogDensity
from tests.oracles.control_variates import Logistic
from tests.oracles.control_variates import controlled
from tests.statistics.planting import wrap
from tests.support.kernel_tools import float32
from tests.support.kernel_tools import tensor

RNG = np.random.default_rng(4)
N, M, D, SCALE = 6, 2, 3, 0.7
X = RNG.normal(size=(N, D)).astype("float32")
Y = (RNG.random(N) < 0.5).astype("float32")
ORACLE = Logistic(X, Y, SCALE)
REFERENCE = float32(0.5 * RNG.normal(size=D))
THETA = float32(RNG.normal(size=D))
BATCHES = np.array(list(itertools.combinations(range(N), M)), "int32")
EVERY = np.arange(N)


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    return -0.5 * ops.sum(ops.square(theta)) / SCALE**2


LOGISTIC = dict(
    log_likelihood=log_likelihood, log_prior=log_prior, data=(X, Y), batch_size=M
)


def estimates(theta):
    """E and g on all batches, as chains side by side."""
    target = LogDensity(**LOGISTIC)
    chains = len(BATCHES)
    start = starts.begin(THETA, chains, 0, target.check)
    variates = ControlVariates(REFERENCE, SGLD, target, start)
    evaluate = target.energies(0, target.constants, True)
    evaluate = variates.corrected(variates.constants, evaluate)
    position = tensor(np.tile(theta, (chains, 1)))
    energy, gradient = evaluate([position], [tensor(BATCHES, "int32")])
    return ops.convert_to_numpy(energy), N * ops.convert_to_numpy(gradient[0])


def test_at_the_reference_every_batch_gives_the_full_gradient():
    energy, gradient = estimates(REFERENCE)
    np.testing.assert_allclose(energy[0], ORACLE.energy(REFERENCE, EVERY), rtol=1e-6)
    expected = ORACLE.gradient(REFERENCE, EVERY)
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-5, atol=1e-6)
    assert (energy == energy[0]).all() and (gradient == gradient[0]).all()


def assert_right():
    """Each batch is the oracle's, and the mean over all batches has no bias."""
    energy, gradient = estimates(THETA)
    pairs = [controlled(ORACLE, THETA, REFERENCE, rows) for rows in BATCHES]
    np.testing.assert_allclose(energy, [e for e, _ in pairs], rtol=1e-5)
    np.testing.assert_allclose(gradient, [g for _, g in pairs], rtol=1e-5, atol=1e-5)
    assert energy.mean() == pytest.approx(ORACLE.energy(THETA, EVERY), rel=1e-5)
    full = ORACLE.gradient(THETA, EVERY)
    np.testing.assert_allclose(gradient.mean(axis=0), full, rtol=1e-5, atol=1e-5)
    plain = np.array([ORACLE.gradient(THETA, rows) for rows in BATCHES])
    assert np.ptp(gradient, axis=0).max() > 0.1
    assert gradient.var(axis=0).sum() < plain.var(axis=0).sum()


def test_estimates_are_those_of_float64_and_unbiased():
    assert_right()


# In place of `estimate(at_position, at_reference, of_all, change, train_size)`.
BUGS = {
    "without the full gradient": lambda real, at, start, of_all, *others: real(
        at, start, (of_all[0], [0.0 * g for g in of_all[1]]), *others
    ),
    "without the factor": lambda real, at, start, *others: real(
        at, (start[0], [M / N * g for g in start[1]]), *others
    ),
    "the wrong sign": lambda real, at, start, of_all, *others: real(
        at, of_all, start, *others
    ),
    "without the slope": lambda real, at, start, of_all, change, *others: real(
        at, start, of_all, [0.0 * x for x in change], *others
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(monkeypatch, bug):
    wrap(monkeypatch, control_variates, "estimate", BUGS[bug])
    with pytest.raises(AssertionError):
        assert_right()


@pytest.mark.parametrize("rows", [1, 4, 5, 6])
def test_the_data_may_be_evaluated_in_blocks(rows):
    target = LogDensity(**LOGISTIC)
    energy, (gradient,) = control_variates._at_reference(
        target, 0, [REFERENCE.astype("float32")], rows
    )
    assert energy == pytest.approx(ORACLE.energy(REFERENCE, EVERY), rel=1e-6)
    expected = ORACLE.gradient(REFERENCE, EVERY)
    np.testing.assert_allclose(N * gradient, expected, rtol=1e-5, atol=1e-6)


SGLD = mh.kernels.sgld(0.1)


def run(kernel, init, num_steps=4, **arguments):
    return mh.sample(kernel, init, num_steps=num_steps, progress=False, **arguments)


# The mean of a normal sample: the gradient of a batch is that of all the data, and a
# constant.
SIZE, BATCH = 400, 20
SAMPLE = RNG.normal(1.5, 2.0, size=SIZE).astype("float32")


def of_mean(position, batch):
    return -0.5 * ops.square(batch - position)


NORMAL = dict(log_likelihood=of_mean, data=SAMPLE)
KERNELS = {
    "sgld": lambda t: mh.kernels.sgld(0.3, temperature=t),
    "psgld": lambda t: mh.kernels.psgld(0.1, epsilon=0.1, temperature=t),
    "sghmc": lambda t: mh.kernels.sghmc(0.1, temperature=t),
    "sgnht": lambda t: mh.kernels.sgnht(0.1, temperature=t),
}


@pytest.mark.parametrize("name", KERNELS)
def test_linear_gradients_have_no_noise(name):
    # Without Langevin noise the noise of batches would show.
    arguments = NORMAL | dict(kernel=KERNELS[name](0.0), num_chains=4, num_steps=30)
    start = np.array([0.0, 1.0, 2.0, 30.0])
    whole = run(init=start, **arguments)
    batches = run(init=start, batch_size=BATCH, control_variates=-3.0, **arguments)
    for actual, expected in (
        (batches.position, whole.position),
        (batches.info["energy"], whole.info["energy"]),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-3)
    plain = run(init=start, batch_size=BATCH, **arguments)
    assert np.abs(plain.position - whole.position)[:, -1].max() > 0.02


@pytest.mark.parametrize("reference", [None, 0.0])
def test_the_variance_of_sgld_is_that_of_all_the_data(reference):
    rate, chains, temperature = 0.5, 4000, 2.0
    draws = run(
        mh.kernels.sgld(rate, temperature=temperature),
        float(SAMPLE.mean()),
        20,
        every=20,
        num_chains=chains,
        batch_size=BATCH,
        control_variates=reference,
        **NORMAL,
    )
    noise = SAMPLE.var(ddof=1) * (1 / BATCH - 1 / SIZE)
    if reference is not None:
        noise = 0.0
    # The precision L is SIZE, so that eta L is the rate.
    heat = temperature + 0.5 * rate * SIZE * noise
    expected = heat / (SIZE * (1 - rate / 2))
    assert draws.position.var() == pytest.approx(
        expected, rel=4.5 * (2 / chains) ** 0.5
    )


def test_a_run_goes_on_bit_for_bit():
    arguments = LOGISTIC | dict(control_variates=REFERENCE)
    kernel = mh.kernels.sghmc(0.05)
    whole = run(kernel, THETA, 40, num_chains=2, **arguments)
    first = run(kernel, THETA, 15, num_chains=2, **arguments)
    state = pickle.loads(pickle.dumps(first.state))
    second = run(kernel, state, 25, **arguments)
    together = np.concatenate([first.position, second.position], axis=1)
    np.testing.assert_array_equal(together, whole.position)
    plain = run(kernel, THETA, 40, num_chains=2, **LOGISTIC)
    assert (plain.position[:, -1] != whole.position[:, -1]).all()


def test_a_structure_of_tensors():
    def likelihood(position, batch):
        x, y = batch
        logits = ops.matmul(x, position["weight"]) + position["bias"]
        return -ops.softplus((1 - 2 * y) * logits)

    draws = run(
        SGLD,
        {"weight": [0.0] * D, "bias": 0.0},
        4,
        num_chains=2,
        log_likelihood=likelihood,
        data=(X, Y),
        batch_size=M,
        control_variates={"bias": 0.5, "weight": REFERENCE},
    )
    assert draws.position["weight"].shape == (2, 4, D)
    assert np.isfinite(draws.position["bias"]).all()


BATCHED = LOGISTIC | dict(kernel=SGLD, control_variates=REFERENCE)
OF_DENSITY = dict(log_likelihood=None, log_prior=None, data=None, batch_size=None)
WRONG = {
    "structure": (dict(control_variates={"a": REFERENCE}), "structure of `init`"),
    "shape": (dict(control_variates=np.zeros((2, D))), r"shapes \[3\]"),
    "infinite": (dict(control_variates=[np.inf, 0.0, 0.0]), "finite numbers"),
    "nowhere": (
        dict(log_prior=lambda x: ops.log(x[0]), control_variates=[-1.0, 0.0, 0.0]),
        "gradient are finite",
    ),
    "all of the data": (dict(batch_size=None), "no effect"),
    "density": (OF_DENSITY | dict(log_density=log_prior), "`log_density`"),
    "contour": (dict(kernel=mh.kernels.csgld(0.1)), "plain gradient sampler"),
    "path": (dict(kernel=mh.kernels.amagold(0.1)), "plain gradient sampler"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_arguments(name):
    changes, message = WRONG[name]
    with pytest.raises(
        ValueError, match=f"Argument `control_variates` must.*{message}"
    ):
        run(init=[1.0, 1.0, 1.0], num_steps=4, num_chains=2, **BATCHED | changes)


def test_bad_data_are_named():
    x = X.copy()
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="`data` has 1 values that are not finite"):
        run(init=[0.0] * D, num_steps=4, **BATCHED | dict(data=(x, Y)))
