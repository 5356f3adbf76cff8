"""Every way in which Keras builds and runs a model, with RSGLD."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import SAMPLERS

BACKEND = keras.backend.backend()


def make(name="rsgld", learning_rate=None, **options):
    optimizer = SAMPLERS[name].make(**{"seed": 3, **options})
    if learning_rate is not None:
        optimizer.learning_rate = learning_rate
    return optimizer


def check(model):
    """The sampler ran: it saw the loss, judged proposals and kept finite weights."""
    report = model.optimizer.diagnostics()
    assert np.isfinite(weights(model)).all()
    assert report["energy"] > 0
    assert 0 <= report["acceptance"] <= 1
    assert report["nonfinite"] == 0


def test_run_eagerly_is_the_same_chain():
    eager, plain = (compiled(make(), run_eagerly=flag) for flag in (True, False))
    fit(eager)
    fit(plain)
    check(eager)
    np.testing.assert_allclose(weights(eager), weights(plain), rtol=1e-4, atol=1e-5)


@pytest.mark.slow_on("tensorflow")
@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses it on PyTorch")
def test_several_steps_per_execution_are_the_same_chain():
    plain, grouped = (compiled(make(), steps_per_execution=n) for n in (1, 4))
    posterior = mh.PosteriorSamples(every=1)
    fit(plain)
    fit(grouped, callbacks=[posterior])
    check(grouped)
    assert int(grouped.optimizer.iterations) == 12
    # Between two executions the callback sees nothing.
    assert posterior.iterations.tolist() == [4, 6, 10, 12]

    plain, grouped = (compiled(make(), steps_per_execution=n) for n in (1, 4))
    fit(plain)
    fit(grouped)
    np.testing.assert_allclose(weights(grouped), weights(plain), rtol=1e-4, atol=1e-5)


# On each backend in every run: each has rules of its own for mixed dtypes.
@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "float64"])
def test_other_precisions_train(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = compiled(make())
    finally:
        keras.config.set_dtype_policy("float32")
    fit(model)
    check(model)


def test_mixed_float16_is_refused_with_the_remedy():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(make())
        # A diffusion moves without the loss, but nothing would check the loss.
        diffusion = compiled(mh.SGLD(0.1, train_size=96))
        with pytest.raises(ValueError, match="auto_scale_loss=False"):
            compiled(make(), mh.ParallelChains(sequential(), 2))
        unscaled = compiled(make(), auto_scale_loss=False)
    finally:
        keras.config.set_dtype_policy("float32")
    for scaled in (model, diffusion):
        with pytest.raises(ValueError, match="mixed_bfloat16"):
            fit(scaled)
    with pytest.raises(ValueError, match="auto_scale_loss=False"):
        fit(model, callbacks=[mh.PosteriorSamples()])
    assert unscaled.optimizer.built is False


def test_custom_training_loop_with_scale_loss():
    """The loop that the error message asks for."""
    from keras_mhmcmc import _backend

    optimizer = make("mhbt_langevin")
    variable = keras.Variable(np.ones(4, "float32"))
    optimizer.build([variable])

    def loss(value):
        return optimizer.scale_loss(keras.ops.sum(keras.ops.square(value))), ()

    for _ in range(5):
        value = keras.ops.convert_to_tensor(variable)
        gradient, _ = _backend.gradient_and_more(loss)(value)
        optimizer.apply([gradient])
    assert optimizer.diagnostics()["energy"] > 0
