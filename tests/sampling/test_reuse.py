"""`mh.log_density`: the loop of `mh.sample` is compiled once, and is the right one."""

import dataclasses
import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.sampling import reuse
from tests.sampling.test_sample_runs import DATA
from tests.sampling.test_sample_runs import START
from tests.sampling.test_sample_runs import assert_same
from tests.sampling.test_sample_runs import log_likelihood
from tests.support.arguments_of_samplers import PARTS


def normal(x):
    return -0.5 * ops.sum(ops.square(x))


def log_prior(position):
    return -0.5 * ops.sum(ops.square(position["mean"]))


@pytest.fixture
def compiled(monkeypatch):
    """The loops that were compiled, a list that grows."""
    calls, compile_chains = [], _backend.compile_chains

    def counted(*arguments):
        calls.append(arguments)
        return compile_chains(*arguments)

    monkeypatch.setattr(_backend, "compile_chains", counted)
    return calls


def on_data(likelihood, prior=None, data=DATA, **arguments):
    options = dict(num_steps=12, num_chains=3, batch_size=16, progress=False)
    return mh.sample(
        mh.kernels.sgld(0.1),
        START,
        log_likelihood=likelihood,
        log_prior=prior,
        data=data,
        **options | arguments,
    )


def of_density(density, kernel=None, **arguments):
    options = dict(num_steps=12, num_chains=4, progress=False)
    kernel = mh.kernels.sgld(0.1) if kernel is None else kernel
    return mh.sample(kernel, [0.0, 0.5], log_density=density, **options | arguments)


def test_a_density_compiles_once(compiled):
    density = mh.log_density(normal)
    found = [of_density(density, seed=seed) for seed in (0, 1)]
    assert len(compiled) == 1
    expected = [of_density(normal, seed=seed) for seed in (0, 1)]
    assert len(compiled) == 3
    for draws, others in zip(found, expected, strict=True):
        assert_same(draws.position, others.position)
        assert_same(draws.info, others.info)


@pytest.mark.eager_and_compiled
def test_the_second_run_does_not_trace():
    traced = []

    def density(x):
        traced.append(1)
        return normal(x)

    if keras.config.backend() == "torch":
        pytest.skip("PyTorch runs the function at every step")
    counts, density = [], mh.log_density(density)
    for seed in (0, 1):
        before = len(traced)
        of_density(density, seed=seed)
        counts.append(len(traced) - before)
    assert counts[1] < counts[0]  # the checks of the start are left


@pytest.mark.parametrize(
    "changes",
    [
        [dict(data=DATA), dict(data=3.0 - DATA)],
        [
            dict(control_variates={"mean": [0.1, 0.2], "log_scale": scale})
            for scale in (0.0, 0.5)
        ],
    ],
    ids=["data", "control variates"],
)
def test_data_and_references_are_arguments_of_the_loop(compiled, changes):
    likelihood, prior = mh.log_density(log_likelihood), mh.log_density(log_prior)
    for change in changes:
        found = on_data(likelihood, prior, **change)
        assert_same(
            found.position, on_data(log_likelihood, log_prior, **change).position
        )
    assert len(compiled) == 3  # one for both, and two of the plain functions


def test_a_resumed_run(compiled):
    density = mh.log_density(normal)
    whole = of_density(density, num_steps=24)
    first = of_density(density)
    rest = mh.sample(
        mh.kernels.sgld(0.1),
        first.state,
        log_density=density,
        num_steps=12,
        progress=False,
    )
    assert_same(rest.position, whole.position[:, 12:])
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "change",
    [
        dict(kernel=mh.kernels.sgld(0.2)),
        dict(kernel=mh.kernels.sghmc(0.1)),
        dict(kernel=mh.kernels.sgld(0.1, temperature=2.0)),
        dict(num_chains=3),
        dict(kernel=mh.kernels.hmc(leapfrog_steps=3, step_size=0.5, warm_up=0)),
    ],
    ids=["rate", "kernel", "temperature", "chains", "paths"],
)
def test_another_run_has_its_own_loop(compiled, change):
    density = mh.log_density(normal)
    of_density(density)
    found = of_density(density, **change)
    assert len(compiled) == 2
    assert_same(found.position, of_density(normal, **change).position)


@pytest.mark.parametrize(
    "change",
    [
        dict(batch_size=8),
        dict(data=DATA[:40]),
        dict(replacement=True),
        dict(control_variates=START),
    ],
)
def test_other_batches_have_their_own_loop(compiled, change):
    likelihood = mh.log_density(log_likelihood)
    on_data(likelihood)
    found = on_data(likelihood, **change)
    assert len(compiled) == 2
    assert_same(found.position, on_data(log_likelihood, **change).position)


def test_another_prior_has_its_own_loop(compiled):
    likelihood = mh.log_density(log_likelihood)
    priors = [
        mh.log_density(log_prior),
        mh.log_density(lambda p: 4.0 * log_prior(p)),
        None,
    ]
    found = [on_data(likelihood, prior).position["mean"] for prior in priors]
    assert len(compiled) == 3
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_a_plain_prior_is_compiled_each_time(compiled):
    likelihood = mh.log_density(log_likelihood)
    for _ in range(2):
        on_data(likelihood, log_prior)
    assert len(compiled) == 2


@pytest.mark.parametrize(
    "name", [name for name in PARTS if name.startswith("kernels.")]
)
def test_every_kernel_can_be_a_key(name):
    kernel = getattr(mh.kernels, name.removeprefix("kernels."))(**PARTS[name].good())
    assert {kernel: 1}[kernel] == 1


@dataclasses.dataclass
class Constant(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that compares its values, so that it has no hash."""

    rate: float

    def __call__(self, step):
        return self.rate


def test_a_schedule_without_a_hash_is_compiled_each_time(compiled):
    density, schedule = mh.log_density(normal), Constant(0.1)
    for rate in (0.1, 0.3):
        schedule.rate = rate
        found = of_density(density, mh.kernels.sgld(schedule))
        expected = of_density(normal, mh.kernels.sgld(rate))
        np.testing.assert_allclose(found.position, expected.position, rtol=1e-5)
    assert len(compiled) == 4


def test_the_oldest_loop_goes_first(monkeypatch):
    density = mh.log_density(normal)
    monkeypatch.setattr(reuse, "_LARGEST", 2)
    built = []

    def build(key):
        return lambda: built.append(key) or key

    for key in ("a", "b", "a", "c", "a", "b"):
        assert density.loop(key, build(key)) == key
    assert built == ["a", "b", "c", "b"]


def test_a_density_frees_its_loops():
    density = mh.log_density(lambda x: normal(x))
    of_density(density)
    is_alive = weakref.ref(density)
    del density
    gc.collect()
    assert is_alive() is None
