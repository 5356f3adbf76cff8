"""`jit_compile` of `mh.sample`: compiled steps on PyTorch are the eager ones."""

import shutil

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import batches
from tests.sampling.test_sample_runs import assert_same

BACKEND = keras.backend.backend()
IS_TORCH = BACKEND == "torch"
HAS_COMPILER = shutil.which("g++") is not None or shutil.which("clang++") is not None
for_torch = pytest.mark.skipif(
    not (IS_TORCH and HAS_COMPILER), reason="for PyTorch, with a C++ compiler"
)

# 67 is prime, so that indices walk; 64 rows and more need few rounds.
DATA = np.random.default_rng(0).normal(size=(67, 2)).astype("float32")


def normal(x):
    return -0.5 * ops.sum(ops.square(x))


def log_likelihood(x, batch):
    return -0.5 * ops.sum(ops.square(batch - x), axis=1)


START = np.array([0.5, -0.5], "float32")


def sampled(kernel, num_steps=6, init=START, num_chains=8, **arguments):
    options = dict(log_density=normal, seed=3, progress=False) | arguments
    if "data" in options:
        del options["log_density"]
    return mh.sample(
        kernel, init, num_steps=num_steps, num_chains=num_chains, **options
    )


EPSILON = 0.2
PARTITION = mh.EnergyPartition(0.5, 0.5, 10)
DECAY = mh.schedules.PowerDecay(0.1, 10.0, 0.6)
# Kernel, and the mean square of what it samples from a standard normal. SGLD is an
# autoregression: its variance is 2 epsilon / (1 - (1 - epsilon)^2).
KERNELS = {
    "sgld": (mh.kernels.sgld(EPSILON), 1.0 / (1.0 - EPSILON / 2.0)),
    "sghmc": (mh.kernels.sghmc(0.02), 1.0),
    "csgld": (
        mh.kernels.csgld(0.05, partition=PARTITION, step_size=DECAY),
        1.0,
    ),
    "mhbt": (mh.kernels.mhbt(0.5), 1.0),
    "mclmc": (mh.kernels.mclmc(0.8, warm_up=0), 1.0),
}
LATER = "sghmc", "mhbt"


@for_torch
@pytest.mark.parametrize(
    "name",
    # PyTorch traces each for four to five seconds.
    [
        "sgld",
        "csgld",
        "mclmc",
        *(pytest.param(n, marks=pytest.mark.slow) for n in LATER),
    ],
)
def test_compiled_steps_are_the_eager_ones(name):
    kernel, square = KERNELS[name]
    few = sampled(kernel, 8)
    many = sampled(kernel, 3000, jit_compile=True)
    start = many.position[:, :8]
    np.testing.assert_allclose(start, few.position, rtol=1e-4, atol=1e-5)
    assert len(np.unique(start)) > 16
    if "energy" in few.info:
        expected = few.info["energy"]
        energy = many.info["energy"][:, :8]
        np.testing.assert_allclose(energy, expected, rtol=1e-4, atol=1e-5)
    weights = np.ones(many.position.shape[:2])
    if few.weights is not None:
        weights = many.weights
        ratios = few.weights[:, 1:8] / few.weights[:, :1]
        found = weights[:, 1:8] / weights[:, :1]
        np.testing.assert_allclose(found, ratios, rtol=1e-3)
    squares = np.mean(np.square(many.position), axis=-1)
    assert np.average(squares, weights=weights) == pytest.approx(square, rel=0.1)


@for_torch
@pytest.mark.slow  # 10 to 30 seconds each
@pytest.mark.parametrize("name", ["sgld", "mhbt"])
def test_compiled_steps_draw_the_same_batches(name):
    kernel = {"sgld": mh.kernels.sgld(0.2), "mhbt": mh.kernels.mhbt(0.1)}[name]
    options = dict(log_likelihood=log_likelihood, data=DATA, batch_size=8)
    eager, compiled = (
        sampled(kernel, replacement=name == "mhbt", jit_compile=way, **options)
        for way in (False, True)
    )
    np.testing.assert_allclose(compiled.position, eager.position, rtol=1e-4, atol=1e-5)
    energy = compiled.info["energy"]
    np.testing.assert_allclose(energy, eager.info["energy"], rtol=1e-4)
    assert len(np.unique(energy)) > 16  # more than the chains: the batches change


@for_torch
@pytest.mark.parametrize("replacement", [False, True])
def test_a_traced_step_computes_the_same_indices(replacement):
    from keras_mhmcmc._backend.torch import core

    uniforms = ops.convert_to_tensor(
        np.random.default_rng(1).random((8, 5)).astype("float32")
    )
    for train_size in (67, 1000, 2**30 - 35):
        arguments = (uniforms, train_size, min(train_size, 64), replacement)
        expected = batches.draw_batches(*arguments)
        with core.tracing():
            found = batches.draw_batches(*arguments)
        assert_same(ops.convert_to_numpy(found), ops.convert_to_numpy(expected))


@for_torch
def test_compiled_runs_go_on_and_are_kept(monkeypatch):
    from keras_mhmcmc._backend.torch import compiled

    traces, traced = [], compiled._traced

    def counted(*arguments):
        traces.append(1)
        return traced(*arguments)

    monkeypatch.setattr(compiled, "_traced", counted)
    density = mh.log_density(normal)
    options = dict(log_density=density, jit_compile=True)
    kernel = KERNELS["sgld"][0]
    whole = sampled(kernel, 8, every=2, **options)
    count = len(traces)
    first = sampled(kernel, 4, **options)
    assert len(traces) == count  # of the same loop, since it keeps four draws, too
    rest = sampled(kernel, 4, init=first.state, **options)
    assert len(traces) == count
    joined = np.concatenate([first.position, rest.position], axis=1)
    assert_same(joined[:, 1::2], whole.position)
    sampled(kernel, 4, log_density=density)  # eager
    assert len(traces) == count > 0


@for_torch
def test_kernels_that_draw_noise_within_a_step_are_refused():
    kernel = mh.kernels.tuna(0.1, bounds=np.ones(67))
    arguments = dict(log_likelihood=log_likelihood, data=DATA, jit_compile=True)
    with pytest.raises(ValueError, match='`jit_compile` must be "auto".*this kernel'):
        sampled(kernel, **arguments)


class Hurried(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 if step > 2 else 0.2


def lost(x):
    """Whoever writes down the operations does not see where this tensor is from."""
    import torch

    return -0.5 * ops.sum(ops.square(x.as_subclass(torch.nn.Buffer)))


@for_torch
@pytest.mark.parametrize(
    ("kernel", "density", "match"),
    [
        (mh.kernels.sgld(Hurried()), normal, "tracing tensor"),
        (mh.kernels.sgld(0.1), lambda x: np.ones(2) @ x, "keras.ops.convert_to_tensor"),
        (mh.kernels.sgld(0.1), lost, "depends on the state"),
    ],
    ids=["schedule", "array", "lost"],
)
def test_a_step_that_cannot_be_traced_is_refused(kernel, density, match):
    sampled(kernel, log_density=density)
    with pytest.raises(ValueError, match=f"leave `jit_compile` out.*{match}"):
        sampled(kernel, log_density=density, jit_compile=True)


@for_torch
def test_a_missing_compiler_is_named():
    import torch._inductor.config
    from torch._inductor.utils import fresh_cache

    missing = {"cpp.cxx": ("no-such-compiler",)}
    named = pytest.raises(RuntimeError, match=r"`jit_compile`.*g\+\+.*no-such-comp")
    with torch._inductor.config.patch(missing), fresh_cache(), named:
        sampled(mh.kernels.sgld(0.1), jit_compile=True)


def test_what_the_argument_does_on_each_backend():
    ways = ("auto", True, False)
    if BACKEND == "jax":
        assert _backend.compiles("auto", True) and _backend.compiles(True, True)
        with pytest.raises(ValueError, match="`jit_compile`.*always compiles"):
            sampled(mh.kernels.sgld(0.1), jit_compile=False)
        return
    for is_faster in (True, False):
        found = [_backend.compiles(way, is_faster) for way in ways]
        assert found == [is_faster and not IS_TORCH, True, False]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow")
def test_xla_makes_the_same_draws():
    with_xla, without = (
        sampled(mh.kernels.sgld(0.1), jit_compile=way) for way in (True, False)
    )
    np.testing.assert_allclose(
        with_xla.position, without.position, rtol=1e-4, atol=1e-5
    )
