"""Kernels that draw their own data have their law exactly, and find planted bugs."""

import warnings

import numpy as np
import pytest
import scipy.stats
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.algorithms import amagold
from keras_mhmcmc.algorithms import bounded
from keras_mhmcmc.algorithms import poisson_batch
from keras_mhmcmc.sampling import transitions
from tests.statistics.planting import wrap

SIZE, RADIUS = 40, 2.5
RNG = np.random.default_rng(3)
X = RNG.normal(size=(SIZE, 2)).astype("float32")
X[:, 1] += 1.0
Y = (RNG.random(SIZE) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype("float32")
SIGN = 1.0 - 2.0 * Y
NORMS = np.sqrt(np.sum(X.astype("float64") ** 2, axis=1))
LOWER, UPPER = -np.logaddexp(0, RADIUS * NORMS), -np.logaddexp(0, -RADIUS * NORMS)
CHAINS = 800
# No more than one of the 12 tests of a correct kernel in 1,000 runs is below.
LEAST = 1e-4


def log_likelihood(theta, batch):
    x, y = batch
    return -ops.softplus((1 - 2 * y) * ops.sum(x * theta, axis=-1))


def log_prior(theta):
    """A normal prior on a disk, where PoissonMH's bounds hold."""
    squares = ops.sum(ops.square(theta))
    return ops.where(squares < RADIUS**2, -0.5 * squares, -np.inf)


class Posterior:
    """The posterior on a grid."""

    def __init__(self, temperature):
        line = np.linspace(-RADIUS, RADIUS, 501)
        self.points = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(
            -1, 2
        )
        squares = np.sum(self.points**2, axis=1)
        energy = np.logaddexp(0, SIGN * (self.points @ X.T)).sum(1) + squares / 2
        density = np.exp(-(energy - energy.min()) / temperature)
        self.mass = np.where(squares < RADIUS**2, density, 0.0)
        self.mass /= self.mass.sum()
        self.width = line[1] - line[0]

    def draw(self, count):
        """Positions inside the disk."""
        rng = np.random.default_rng(5)
        chosen = self.points[rng.choice(len(self.mass), count, p=self.mass)]
        moved = chosen + rng.uniform(-0.5, 0.5, chosen.shape) * self.width
        far = np.sum(moved**2, axis=1) >= 0.999 * RADIUS**2
        return np.where(far[:, None], 0.99 * chosen, moved).astype("float32")

    def p_values(self, position):
        """Of Kolmogorov's test for three directions."""
        found = []
        for direction in ([1.0, 0.0], [0.0, 1.0], [0.6, -0.8]):
            values = self.points @ direction
            order = np.argsort(values)
            values, mass = values[order], np.cumsum(self.mass[order])
            uniform = np.interp(position @ direction, values, mass)
            found.append(scipy.stats.kstest(uniform, "uniform").pvalue)
        return found


def run(kernel, position, steps=15, seed=1, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return mh.sample(
            kernel,
            position,
            log_likelihood=log_likelihood,
            log_prior=log_prior,
            data=(X, Y),
            num_steps=steps,
            every=steps,
            num_chains=len(position),
            seed=seed,
            progress=False,
            **options,
        )


def tuna(**options):
    options = dict(block_size=32) | options
    return mh.kernels.tuna(0.3, bounds=NORMS, **options), {}


def poisson(**options):
    return mh.kernels.poisson(0.5, lower=LOWER, upper=UPPER, **options), {}


def of_amagold(rate=1.0, **options):
    return mh.kernels.amagold(rate, momentum=0.7, **options), dict(batch_size=10)


KERNELS = {
    "tuna": tuna(),
    "tuna with a small chi": tuna(chi=1e-3),
    "tuna with a large chi": tuna(chi=0.2),
    "tuna at another temperature": tuna(temperature=2.0),
    "poisson": poisson(),
    "poisson with few examples": poisson(poisson_rate=5.0),
    "poisson at another temperature": poisson(temperature=3.0),
    "amagold": of_amagold(steps_per_test=4),
    "amagold of single steps": of_amagold(2.0, steps_per_test=1),
    "amagold at another temperature": of_amagold(steps_per_test=3, temperature=0.5),
    "amagold without momentum": (
        mh.kernels.amagold(1.0, momentum=0.0, steps_per_test=2),
        dict(batch_size=10),
    ),
    "amagold that remembers": (
        mh.kernels.amagold(12.0, momentum=0.98, steps_per_test=1),
        {},
    ),
    "amagold on all of the data": (mh.kernels.amagold(4.0, steps_per_test=3), {}),
}
SOME = ("tuna", "poisson with few examples", "amagold")


def smallest_p_value(name):
    kernel, options = KERNELS[name]
    posterior = Posterior(kernel.temperature)
    start = posterior.draw(CHAINS)
    draws = run(kernel, start, **options)
    end = draws.position[:, -1]
    moved = np.abs(end - start).max(axis=1) > 0
    return min(posterior.p_values(end)), moved.mean()


@pytest.mark.parametrize("name", KERNELS)
def test_chains_that_start_in_the_target_stay_there(name):
    p_value, moved = smallest_p_value(name)
    assert p_value > LEAST
    assert moved > 0.5


def of_share(monkeypatch):
    """The sign of the difference of an example."""

    def around(real, *args):
        share, violation = real(*args)
        return -share, violation

    wrap(monkeypatch, bounded, "bounded_share", around)


def of_points(monkeypatch):
    """Counts that are drawn at the proposal."""

    def around(real, self, positions, index):
        return real(self, positions, index)[::-1]

    wrap(monkeypatch, transitions.StepDensity, "log_likelihoods", around)


def of_rate(monkeypatch):
    """Batches of half the size."""

    def around(real, density, rate, *args):
        return real(density, 0.5 * rate, *args)

    wrap(monkeypatch, poisson_batch, "visit_arrivals", around)


def of_weights(monkeypatch):
    """Examples that are drawn with equal probability."""
    wrap(
        monkeypatch,
        poisson_batch,
        "alias_table",
        lambda real, weights: real(np.ones(len(weights))),
    )


def of_prior(monkeypatch):
    """No prior in the ratio."""

    def around(real, self, position):
        return 0.0 * ops.sum(ops.square(position[0]), axis=1)

    wrap(monkeypatch, transitions.StepDensity, "log_prior", around)


def of_work(monkeypatch):
    """A test without rho."""

    def around(real, velocity, gradient, normals, work, **options):
        return real(velocity, gradient, normals, work, **options)[0], work

    wrap(monkeypatch, amagold, "kick", around)


def of_half_work(monkeypatch):
    """A rho that takes the old velocity twice."""

    def around(real, velocity, gradient, normals, work, *, train_size, **options):
        moved, _ = real(
            velocity, gradient, normals, work, train_size=train_size, **options
        )
        dot = ops.sum(gradient[0] * velocity[0], axis=1)
        return moved, work + train_size * dot

    wrap(monkeypatch, amagold, "kick", around)


def of_noise(monkeypatch):
    """Noise of half the size."""

    def around(real, velocity, gradient, normals, work, **options):
        normals = [0.5 * z for z in normals]
        return real(velocity, gradient, normals, work, **options)

    wrap(monkeypatch, amagold, "kick", around)


def of_turn(monkeypatch):
    """A rejected path that keeps its direction."""
    wrap(monkeypatch, amagold, "turned", lambda real, velocity: list(velocity))


BUGS = [
    ("tuna", of_share),
    ("tuna", of_points),
    ("tuna", of_rate),
    ("tuna", of_weights),
    ("tuna", of_prior),
    ("poisson with few examples", of_points),
    ("poisson with few examples", of_rate),
    ("poisson with few examples", of_weights),
    ("amagold that remembers", of_work),
    ("amagold that remembers", of_half_work),
    ("amagold", of_noise),
    ("amagold that remembers", of_turn),
]


@pytest.mark.parametrize(("name", "plant"), BUGS)
def test_a_planted_bug_is_found(monkeypatch, name, plant):
    plant(monkeypatch)
    assert smallest_p_value(name)[0] < LEAST


@pytest.mark.parametrize("name", SOME)
def test_a_run_goes_on_bit_for_bit(name):
    kernel, options = KERNELS[name]
    start = Posterior(1.0).draw(5)
    whole = run(kernel, start, steps=7, **options)
    part = run(kernel, start, steps=3, **options)
    rest = mh.sample(
        kernel,
        part.state,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=(X, Y),
        num_steps=4,
        every=4,
        progress=False,
        **options,
    )
    np.testing.assert_array_equal(rest.position, whole.position)
    for mine, other in zip(rest.state.values, whole.state.values, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", SOME)
def test_chains_and_steps_have_noise_of_their_own(name):
    kernel, options = KERNELS[name]
    start = np.tile(Posterior(1.0).draw(1), (6, 1))
    end = run(kernel, start, steps=20, **options).position[:, -1]
    assert len(np.unique(end[:, 0])) == 6
    other = run(kernel, start, steps=20, seed=2, **options).position[:, -1]
    assert not np.array_equal(end, other)
    again = run(kernel, start, steps=20, **options).position[:, -1]
    np.testing.assert_array_equal(end, again)


def test_the_size_of_a_batch_does_not_depend_on_its_blocks():
    """Blocks of other sizes draw other noise, and batches of the same mean size."""
    start = Posterior(1.0).draw(150)
    total, chi = NORMS.sum(), 0.02
    length = scipy.stats.chi(2, scale=0.3)
    expected = total * length.mean() + chi * total**2 * length.moment(2)
    for block_size in (8, 200):
        kernel = mh.kernels.tuna(0.3, bounds=NORMS, chi=chi, block_size=block_size)
        sizes = run(kernel, start, steps=20).info["batch_size"]
        error = sizes.std() / np.sqrt(len(sizes))
        # Proposals outside the disk, less than one in a thousand, draw no batch.
        assert abs(sizes.mean() - expected) < 4 * error + 1e-3 * expected


def test_a_position_of_several_tensors():
    def log_likelihood(position, batch):
        x, y = batch
        logit = ops.sum(x[:, :1] * position["a"], axis=-1) + x[:, 1] * position["b"]
        return -ops.softplus((1 - 2 * y) * logit)

    draws = mh.sample(
        mh.kernels.tuna(0.3, bounds=mh.bounds.logistic_regression(X)),
        {"a": np.zeros(1), "b": 0.0},
        log_likelihood=log_likelihood,
        data=(X, Y),
        num_steps=30,
        num_chains=3,
        progress=False,
    )
    assert draws.position["a"].shape == (3, 30, 1)
    assert draws.position["b"].std() > 0
    assert draws.to_arviz()["posterior"]["a"].shape == (3, 30, 1)
    assert "acceptance" in repr(draws)


def test_amagold_of_a_density():
    draws = mh.sample(
        mh.kernels.amagold(0.5, momentum=0.5, steps_per_test=3),
        np.random.default_rng(0).normal(size=(CHAINS, 2)),
        log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
        num_steps=20,
        every=20,
        num_chains=CHAINS,
        progress=False,
    )
    for column in draws.position[:, -1].T:
        assert scipy.stats.kstest(column, "norm").pvalue > LEAST
    assert draws.info["acceptance"].mean() > 0.8


# Bad input.


def test_a_bound_that_does_not_hold_is_an_error():
    bounds = NORMS.copy()
    bounds[17] /= 50.0
    with pytest.raises(ValueError, match="`bounds` must bound every .* example 17 at"):
        run(mh.kernels.tuna(0.3, bounds=bounds), Posterior(1.0).draw(50), steps=200)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_a_limit_that_does_not_hold_is_an_error(side):
    limits = dict(lower=LOWER.copy(), upper=UPPER.copy())
    limits[side][5] = 0.5 * (LOWER[5] + UPPER[5])
    with pytest.raises(
        ValueError, match="`lower` or `upper` must bound .* example 5 at"
    ):
        run(mh.kernels.poisson(0.5, **limits), Posterior(1.0).draw(100))


def test_nothing_is_accepted_after_a_bound_was_exceeded(monkeypatch):
    monkeypatch.setattr(bounded, "check_violation", lambda name, violation: None)
    start = Posterior(1.0).draw(20)
    kernel = mh.kernels.tuna(0.3, bounds=1e-3 * NORMS, chi=1e4)
    end = run(kernel, start, steps=50)
    # An example within its bound may come first, and be the only one of its batch.
    violated = end.state.values[1] >= 0
    assert violated.sum() > 15
    later = mh.sample(
        kernel,
        end.state,
        log_likelihood=log_likelihood,
        log_prior=log_prior,
        data=(X, Y),
        num_steps=30,
        every=30,
        progress=False,
    )
    assert (later.info["acceptance"][violated] == 0).all()


def test_a_likelihood_that_is_not_finite_is_an_error():
    def broken(theta, batch):
        values = log_likelihood(theta, batch)
        return ops.where(ops.sum(theta) > 1e-3, values * np.nan, values)

    with pytest.raises(ValueError, match="value is nan"):
        mh.sample(
            mh.kernels.tuna(0.3, bounds=NORMS),
            np.zeros(2),
            log_likelihood=broken,
            data=(X, Y),
            num_steps=50,
            num_chains=4,
            progress=False,
        )


ARGUMENTS = {
    "batch_size": dict(batch_size=10),
    "replacement": dict(replacement=True),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_arguments_that_do_not_fit_the_kernel(argument):
    with pytest.raises(ValueError, match=f"Argument `{argument}` must be"):
        run(tuna()[0], np.zeros((2, 2)), **ARGUMENTS[argument])


def test_a_kernel_of_examples_refuses_a_density():
    with pytest.raises(ValueError, match="`log_likelihood` must be given"):
        mh.sample(
            tuna()[0],
            np.zeros(2),
            log_density=lambda x: -ops.sum(ops.square(x)),
            num_steps=5,
            progress=False,
        )


@pytest.mark.parametrize("values", [NORMS[:-1], [*NORMS, 1.0]])
def test_bounds_of_another_data_set(values):
    with pytest.raises(
        ValueError, match=f"Received: {len(values)} numbers, and {SIZE}"
    ):
        run(mh.kernels.tuna(0.3, bounds=values), np.zeros((2, 2)))


def test_replica_exchange_refuses_the_kernel():
    with pytest.raises(ValueError, match="Argument `kernel` must be"):
        mh.replica_exchange(
            tuna()[0],
            np.zeros(2),
            log_density=lambda x: -ops.sum(ops.square(x)),
            temperatures=[1.0, 2.0],
            num_steps=5,
            progress=False,
        )


# Bounds.


@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_bounds_hold_and_are_reached(scale):
    """Differences over distances come near each bound, and never above."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(7, 3))
    one = scale * rng.normal(size=(4000, 3, 4))
    two = one + 1e-3 * rng.normal(size=one.shape)
    distance = np.sqrt(np.sum((one - two) ** 2, axis=(1, 2)))
    log_softmax = lambda t: (
        (x @ t)
        - scipy.special.logsumexp(  # noqa: E731
            x @ t, axis=-1, keepdims=True
        )
    )
    change = np.abs(log_softmax(one) - log_softmax(two)).max(axis=-1)
    ratio = change / distance[:, None] / mh.bounds.softmax_regression(x)
    assert ratio.max() <= 1 + 1e-6
    one, two = one[:, :, 0], two[:, :, 0]
    distance = np.sqrt(np.sum((one - two) ** 2, axis=1))
    logistic = lambda t: -np.logaddexp(0, -t @ x.T)  # noqa: E731
    change = np.abs(logistic(one) - logistic(two)) / distance[:, None]
    assert (change / mh.bounds.logistic_regression(x)).max() <= 1 + 1e-6
    student = scipy.stats.t(3.0, scale=0.5)
    change = np.abs(student.logpdf(one @ x.T) - student.logpdf(two @ x.T))
    bound = mh.bounds.robust_regression(x, 3.0, scale=0.5)
    assert (change / distance[:, None] / bound).max() <= 1 + 1e-6


def test_bounds_are_reached_at_the_worst_place():
    """A bound that is too large would cost examples without a need."""
    x = np.array([[2.0, 0.0]])
    step = np.array([1e-4, 0.0])
    far = np.array([-40.0, 0.0])
    change = np.logaddexp(0, -(far @ x.T)) - np.logaddexp(0, -((far + step) @ x.T))
    np.testing.assert_allclose(
        change / 1e-4, mh.bounds.logistic_regression(x), rtol=1e-6
    )
    student = scipy.stats.t(3.0, scale=0.5)
    place = 0.5 * np.sqrt(3.0)
    slope = (student.logpdf(place) - student.logpdf(place + 1e-5)) / 1e-5
    bound = mh.bounds.robust_regression([[1.0]], 3.0, scale=0.5)
    np.testing.assert_allclose(slope, bound[0], rtol=1e-4)
    # Two classes, one of them certain and wrong: the gradient is sqrt(2) long.
    weights = np.array([[20.0, -20.0]])
    move = 1e-5 * np.array([[-1.0, 1.0]]) / np.sqrt(2)
    log_p = lambda w: (w - scipy.special.logsumexp(w))[0, 1]  # noqa: E731
    change = (log_p(weights + move) - log_p(weights)) / 1e-5
    np.testing.assert_allclose(change, mh.bounds.softmax_regression([[1.0]]), rtol=1e-4)
