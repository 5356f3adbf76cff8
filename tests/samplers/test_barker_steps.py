"""The Barker test on the mini-batches of epochs: what it samples, and single steps."""

import numpy as np
import pytest
import scipy.stats
from keras import ops

from keras_mhmcmc.samplers import barker
from keras_mhmcmc.samplers.barker import BarkerSteps
from keras_mhmcmc.samplers.barker import StepsState as State
from keras_mhmcmc.samplers.base import OF_OPTIMIZER
from keras_mhmcmc.samplers.base import Evaluation

SIZE, BATCH, WEIGHTS = 400, 50, 2
TEMPERATURE, SCALE = 1.5, 0.1
RNG = np.random.default_rng(1)
X = RNG.normal(size=(SIZE, WEIGHTS))
Y = X @ [1.0, -0.5] + RNG.normal(size=SIZE)
# The posterior of a linear model with unit noise and the prior N(0, SCALE^2).
PRECISION = (X.T @ X + np.eye(WEIGHTS) / SCALE**2) / TEMPERATURE
MEAN = np.linalg.solve(PRECISION, X.T @ Y / TEMPERATURE)
ROOT = np.linalg.cholesky(np.linalg.inv(PRECISION))


def tensor(values):
    return ops.convert_to_tensor(np.asarray(values, "float32"))


def numpy(value):
    return np.array(ops.convert_to_numpy(value), "float64")


def log_likelihoods(theta, rows):
    """Of chains (K, d) and their examples (K, B)."""
    outputs = np.einsum("kbd,kd->kb", X[rows], theta)
    return -0.5 * (Y[rows] - outputs) ** 2


class Chains:
    """Many chains that start in the posterior, with epochs of their own."""

    def __init__(self, count=1200, rate=0.05, least=50, seed=0):
        self.rng = np.random.default_rng(seed)
        self.algorithm = BarkerSteps(OF_OPTIMIZER, TEMPERATURE, least)
        self.count, self.rate = count, rate
        start = MEAN + self.rng.normal(size=(count, WEIGHTS)) @ ROOT.T
        zero = tensor(np.zeros(count))
        step = tensor(np.zeros((count, WEIGHTS)))
        self.state = State([tensor(start)], [step], *[zero] * 4)
        self.totals = {name: 0.0 for name in self.algorithm.traits.counts}

    def step(self, rows):
        state, rng = self.state, self.rng
        here = numpy(state.point[0])
        there = numpy(self.algorithm.proposal(state)[0])
        prior = ((here**2).sum(1) - (there**2).sum(1)) / (2 * SCALE**2)
        uniforms = rng.integers(2**24, size=(3, self.count)) / 2.0**24
        normals = rng.normal(size=here.shape)
        evaluation = Evaluation(
            None,
            [],
            [tensor(normals)],
            [tensor(u) for u in uniforms],
            0,
            tensor(self.rate),
            TEMPERATURE,
            SIZE,
        )
        self.state, info = self.algorithm.test(
            state,
            tensor(log_likelihoods(here, rows)),
            tensor(log_likelihoods(there, rows)),
            tensor(prior),
            evaluation,
        )
        for name, values in info.counts.items():
            self.totals[name] += numpy(values).sum()

    def epochs(self, number):
        for _ in range(number):
            order = np.argsort(self.rng.random((self.count, SIZE)), axis=1)
            zero = tensor(np.zeros(self.count))
            self.state = self.state._replace(count=zero)
            for first in range(0, SIZE, BATCH):
                self.step(order[:, first : first + BATCH])
        return self

    def standardised(self):
        return np.linalg.solve(ROOT, (numpy(self.state.point[0]) - MEAN).T)

    def p_value(self):
        """The smallest of Kolmogorov's tests of all weights, by Bonferroni."""
        found = [scipy.stats.kstest(z, "norm").pvalue for z in self.standardised()]
        return min(found) * len(found)

    def error(self):
        """The largest error of a mean or variance, for weights with variance 1."""
        found = self.standardised()
        return max(np.abs(found.mean(1)).max(), np.abs(found.var(1) - 1).max())


def test_chains_that_start_in_the_posterior_stay_near_it():
    """Batches of less than all data have a bias: 0.05 to 0.1 deviations here."""
    chains = Chains().epochs(12)
    assert chains.error() < 0.16
    totals = chains.totals
    assert totals["nonfinite"] == 0
    assert 0.3 < totals["accepted"] / totals["proposed"] < 0.6
    # Epochs are not read to their end.
    assert 100 < totals["examples"] / totals["proposed"] < 350


def test_a_test_on_all_of_the_data_is_barkers():
    chains = Chains(least=SIZE).epochs(12)
    assert chains.p_value() > 0.01
    assert chains.totals["examples"] == SIZE * chains.totals["proposed"]


class TestOneStep:
    """A chain with a state of its own choice."""

    def step(self, here, there, prior=0.0, count=0.0, least=2, **sums):
        algorithm = BarkerSteps(OF_OPTIMIZER, 1.0, least)
        sums = {"centre": 0.0, "total": 0.0, "squares": 0.0} | sums
        sums = {name: tensor(value) for name, value in sums.items()}
        state = State(
            [tensor([1.0])],
            [tensor([2.0])],
            count=tensor(count),
            **sums,
        )
        uniforms = [tensor(u) for u in (0.5, 0.25, 0.5)]  # X_nc = X_corr = 0
        evaluation = Evaluation(
            None, [], [tensor([1.0])], uniforms, 0, tensor(0.1), 1.0, 10
        )
        state, info = algorithm.test(
            state, tensor(here), tensor(there), tensor(prior), evaluation
        )
        counts = {name: float(numpy(x)) for name, x in info.counts.items()}
        point, step = (float(numpy(x[0])[0]) for x in (state.point, state.step))
        return point, step, counts, float(numpy(state.count))

    def test_a_better_proposal_is_accepted(self):
        point, step, counts, count = self.step([0.0, 0.0], [0.1, 0.1])
        assert point == 3.0 and step == pytest.approx(0.1) and count == 0.0
        assert counts == dict(accepted=1, proposed=1, examples=2, nonfinite=0)

    def test_a_batch_with_a_large_variance_goes_on(self):
        point, step, counts, count = self.step([0.0, 0.0], [9.0, -9.0])
        assert (point, step, count) == (1.0, 2.0, 2.0)
        assert set(counts.values()) == {0.0}

    def test_a_small_last_batch_does_not_decide(self):
        """The variance of one example is 0."""
        point, _, counts, count = self.step([0.0], [9.0])
        assert (point, count, counts["proposed"]) == (1.0, 1.0, 0.0)
        _, _, counts, count = self.step([0.0, 0.0], [0.1, 0.1], least=4)
        assert (count, counts["proposed"]) == (2.0, 0.0)

    def test_all_of_the_data_decide(self):
        point, _, counts, _ = self.step(np.zeros(10), np.arange(10.0) - 2, least=99)
        assert point == 3.0 and counts["examples"] == 10

    def test_sums_of_a_dropped_test_do_not_count(self):
        """`settle` sets the count to 0 alone."""
        point, *_ = self.step([0.0, 0.0], [0.1, 0.1], total=-9.0, centre=-9.0)
        assert point == 3.0

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_is_rejected_at_once(self, value):
        point, step, counts, count = self.step([0.0], [value])
        assert point == 1.0 and step == pytest.approx(0.1) and count == 0.0
        odd = 0 if value == -np.inf else 1  # a likelihood of 0 is a plain rejection
        assert counts == dict(accepted=0, proposed=1, examples=1, nonfinite=odd)

    def test_a_prior_of_zero_rejects(self):
        point, _, counts, _ = self.step([0.0, 0.0], [9.0, 9.0], prior=-np.inf)
        assert point == 1.0 and counts["nonfinite"] == 0

    def test_a_state_with_a_likelihood_of_zero_is_left(self):
        point, *_ = self.step([-np.inf, 0.0], [-5.0, -5.0])
        assert point == 3.0


def test_the_table_is_that_of_the_kernel():
    np.testing.assert_array_equal(barker._TABLE, barker.correction_table())
