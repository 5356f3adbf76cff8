"""Loss or gradient that is not finite: a chain stops, and keeps no such sample."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import METROPOLIS
from tests.support.samplers import SAMPLERS

OTHERS = [name for name in SAMPLERS if name not in METROPOLIS]
BAD_STEP = 9  # in the second epoch, counted from 1


def make(name, **options):
    return SAMPLERS[name].make(**{"seed": 3, **options})


def three_epochs(value):
    """The contract's data three times over, with `value` in one batch of the second."""
    x, y = data()
    x, y = np.tile(x, (3, 1)), np.tile(y, 3)
    x[(BAD_STEP - 1) * 16] = value
    return x, y


def fit_all(model, x, y, callbacks=()):
    return model.fit(
        x,
        y,
        batch_size=16,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", OTHERS)
def test_the_chain_stops_at_its_last_finite_state(name, value):
    x, y = three_epochs(value)
    whole = compiled(make(name))
    good = (BAD_STEP - 1) * 16
    fit_all(whole, x[:good], y[:good])
    stopped = compiled(make(name))
    with pytest.warns(UserWarning, match=f"stopped by .* at step {BAD_STEP}:"):
        fit_all(stopped, x, y)
    np.testing.assert_array_equal(weights(stopped), weights(whole))
    assert stopped.optimizer.diagnostics()["nonfinite"] == 1
    assert whole.optimizer.diagnostics()["nonfinite"] == 0
    # Nothing but the counters moved on.
    counters = ("iteration", "noise_state", "stopped_at")
    for one, other in zip(
        whole.optimizer.variables, stopped.optimizer.variables, strict=True
    ):
        if one.name not in counters:
            np.testing.assert_array_equal(numpy(one), numpy(other), err_msg=one.name)


@pytest.mark.parametrize("name", ["sgld", "csghmc", "sghmcsa"])
def test_raise_names_the_step_and_leaves_the_last_finite_state(name):
    x, y = three_epochs(np.nan)
    model = compiled(make(name, nan_policy="raise"))
    with pytest.raises(FloatingPointError, match=f"at step {BAD_STEP}:.*learning rate"):
        fit_all(model, x, y)
    assert np.isfinite(weights(model)).all()
    restored = type(model.optimizer).from_config(model.optimizer.get_config())
    assert restored.get_config()["nan_policy"] == "raise"


@pytest.mark.parametrize("policy", ["stop", "raise"])
def test_the_callback_ends_the_fit_and_keeps_no_sample_of_a_stopped_chain(policy):
    x, y = three_epochs(np.nan)
    x, y = x[: 2 * 96], y[: 2 * 96]
    posterior = mh.PosteriorSamples(every=2)
    model = compiled(make("sgld", nan_policy=policy))
    if policy == "stop":
        with pytest.warns(UserWarning, match="at step 9") as caught:
            history = fit_all_epochs(model, x, y, posterior)
        assert len([w for w in caught if "at step 9" in str(w.message)]) == 1
        assert history.epoch == [0]
    else:
        with pytest.raises(FloatingPointError, match="at step 9"):
            fit_all_epochs(model, x, y, posterior)
    # Step 9 would have evaluated the sample of step 8.
    assert posterior.iterations.tolist() == [2, 4, 6]
    ensemble = posterior.ensemble(model)
    assert np.isfinite(ensemble.predict(data()[0], verbose=0)).all()


@pytest.mark.parametrize("num_chains", [None, 2])
def test_a_sample_at_which_the_loss_is_not_finite_has_no_weight(num_chains, tmp_path):
    """The chain diverges: the step after the sample finds that the sample is lost."""
    x, _ = data()
    y = x[:, :1]
    model = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(1)])
    if num_chains:
        model = mh.ParallelChains(model, num_chains, seed=0)
    loss = mh.losses.GaussianNLL(1.0)
    model.compile(mh.SGHMC(1e6, train_size=96, seed=3), loss)
    posterior = mh.PosteriorSamples(every=1, directory=tmp_path)
    with pytest.warns(UserWarning, match="the gradient, was not finite"):
        model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[posterior])
    lost_at = int(np.max(numpy(model.optimizer._stopped_at)))
    for kept in (posterior, mh.PosteriorSamples.load(tmp_path)):
        # Step k evaluates the point after k - 1 steps.
        assert len(kept) > 1 and kept.iterations[-1] == lost_at - 2
        assert np.isfinite(kept.energies).all() and (kept.weights > 0.0).all()
        assert all(np.isfinite(array).all() for array in kept._store.read(model))


def fit_all_epochs(model, x, y, posterior):
    return model.fit(
        x,
        y,
        batch_size=16,
        epochs=5,
        shuffle=False,
        verbose=0,
        callbacks=[posterior],
    )


def test_a_stopped_chain_stays_stopped_after_it_was_saved(tmp_path):
    x, y = three_epochs(np.nan)
    model = compiled(make("sghmc"))
    with pytest.warns(UserWarning, match="at step 9"):
        fit_all(model, x, y)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        with pytest.warns(UserWarning, match="at step 9"):
            fit(each, epochs=1)
        np.testing.assert_array_equal(weights(each), weights(model))
    # A new sampler goes on from there.
    loaded.compile(optimizer=make("sghmc"), loss="sparse_categorical_crossentropy")
    fit(loaded, epochs=1)
    assert np.abs(weights(loaded) - weights(model)).max() > 0


def test_other_chains_go_on_where_one_is_stopped():
    chains = mh.ParallelChains(sequential(), 3, seed=0)
    chains.compile(
        optimizer=mh.SGHMC(0.02, train_size=96, seed=3),
        loss="sparse_categorical_crossentropy",
    )
    kernel = chains.trainable_variables[0]
    broken = numpy(kernel)
    broken[1] = np.nan
    kernel.assign(broken)
    before = [numpy(v) for v in chains.trainable_variables]
    x, y = data()
    with pytest.warns(
        UserWarning, match=r"Chains \[1\] of 3 were stopped .* step 1, and"
    ):
        chains.fit(x, y, batch_size=16, verbose=0)
    for variable, old in zip(chains.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(numpy(variable)[1], old[1])
        assert np.abs(numpy(variable)[[0, 2]] - old[[0, 2]]).max() > 0
    nonfinite = chains.optimizer.chain_diagnostics()["nonfinite"]
    assert nonfinite.tolist() == [0, 1, 0]


@pytest.mark.parametrize("name", METROPOLIS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_metropolis_hastings_rejects_and_goes_on(name, value):
    x, y = three_epochs(value)
    model = compiled(make(name))
    fit_all(model, x, y)
    assert np.isfinite(weights(model)).all()
    state = [v for v in model.optimizer.variables if v.name != "energies"]
    assert all(np.isfinite(numpy(v)).all() for v in state)
    assert model.optimizer.diagnostics()["nonfinite"] == 1.0
