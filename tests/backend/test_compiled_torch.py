"""PyTorch with `jit_compile=True`: Keras' step is compiled, a sampler's update is not.

Keras gives its whole training step to `torch.compile`. Dynamo reads the forward pass,
the loss and the gradient; the update of a sampler runs as it stands.
"""

import functools

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import weights
from tests.support.samplers import SAMPLERS

if keras.backend.backend() != "torch":
    pytest.skip("for PyTorch", allow_module_level=True)

import torch

pytestmark = pytest.mark.every_backend


@pytest.fixture
def eager_compiler(monkeypatch):
    """`torch.compile` reads what it is given as always, and then runs it in Python."""
    torch._dynamo.reset()
    compiler = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compiler)
    yield compiler
    torch._dynamo.reset()


def steps(optimizer, compiler):
    """Points of a chain on a quadratic loss, in a step that `compiler` takes."""
    variable = keras.Variable(np.linspace(-1.0, 1.0, 6).astype("float32"))
    optimizer.build([variable])

    def step(target):
        loss = torch.mean(torch.square(variable.value - target))
        loss = optimizer.scale_loss(loss)
        variable.value.grad = None
        loss.backward()
        with torch.no_grad():
            optimizer.apply([variable.value.grad], [variable])

    step, points = compiler(step), []
    for k in range(4):
        step(torch.full_like(variable.value, float(k)))
        points.append(numpy(variable))
    return np.stack(points)


# One that rejects and one that does not; the others run the same two functions.
@pytest.mark.parametrize("name", ["sgld", "rsgld"])
def test_a_compiled_step_makes_the_same_chain(name, eager_compiler):
    runs = [
        steps(SAMPLERS[name].make(seed=3), compiler)
        for compiler in (lambda step: step, eager_compiler)
    ]
    np.testing.assert_array_equal(*runs)
    assert len(np.unique(runs[0])) > 6


def trained(name, **options):
    model = compiled(SAMPLERS[name].make(seed=3), **options)
    history = fit(model, epochs=2, callbacks=[mh.PosteriorSamples()]).history
    return weights(model), history["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_fit(name, eager_compiler):
    plain, jitted = trained(name), trained(name, jit_compile=True)
    np.testing.assert_array_equal(plain[0], jitted[0])
    assert plain[1] == jitted[1]


@pytest.mark.slow
def test_chains(eager_compiler):
    runs = []
    for jit_compile in (False, True):
        chains = mh.ParallelChains(compiled("sgd"), 2, seed=0)
        sampler = SAMPLERS["rsgld"].make(seed=3)
        runs.append(
            fit(compiled(sampler, chains, jit_compile=jit_compile), epochs=1).history
        )
    assert runs[0] == runs[1]


@pytest.mark.slow
def test_fit_with_inductor():
    """The compiler that users have: the same chain to rounding."""
    torch._dynamo.reset()
    plain, jitted = trained("rsgld"), trained("rsgld", jit_compile=True)
    np.testing.assert_allclose(plain[0], jitted[0], atol=1e-4)
    np.testing.assert_allclose(plain[1], jitted[1], rtol=1e-4)


class Counted(keras.layers.Dense):
    """A layer that counts how often Python runs it."""

    calls = 0

    def call(self, inputs):
        type(self).calls += 1
        return super().call(inputs)


def trained_networks(*layers, **options):
    """Weights and losses of two networks after three mini-batches of 8 and one of 6."""
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((3,)), *layers, Counted(2)])
    chains = mh.ParallelChains(network, 2, seed=0)
    chains.compile("adamw", loss=mh.losses.GaussianNLL(), **options)
    x, before = np.linspace(-1.0, 1.0, 90).reshape(30, 3), Counted.calls
    history = chains.fit(x, x[:, :1], 8, 5, shuffle=False, verbose=0).history
    return chains.get_weights(), history["loss"], Counted.calls - before


def test_steps_of_networks_side_by_side_are_compiled():
    plain, jitted = trained_networks(), trained_networks(jit_compile=True)
    for x, y in zip(plain[0], jitted[0], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    np.testing.assert_allclose(plain[1], jitted[1], rtol=1e-5)
    assert jitted[2] <= plain[2] - 10  # of 15 steps that could be compiled


def test_steps_that_read_a_seed_run_as_they_are():
    plain = trained_networks(keras.layers.Dropout(0.5, seed=1))
    with pytest.warns(UserWarning, match="could not be compiled, and run slower"):
        jitted = trained_networks(keras.layers.Dropout(0.5, seed=1), jit_compile=True)
    for x, y in zip(plain[0], jitted[0], strict=True):
        np.testing.assert_array_equal(x, y)
