"""A warm-up of plain gradient steps, and a rate that follows the acceptance."""

import warnings

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import rate_adaptation
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import PAPER

STEPS = TRAIN_SIZE // BATCH_SIZE  # of an epoch


def make(**options):
    sizes = dict(train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=3)
    return mh.RSGLD(**{"learning_rate": 0.1} | sizes | options)


def batches(count):
    """The first mini-batches, in order."""
    x, y = data()
    return x[: count * BATCH_SIZE], y[: count * BATCH_SIZE]


class Boundaries(keras.callbacks.Callback):
    """What `mh.PosteriorSamples` calls at the end and the begin of epochs."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.propose()

    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.settle()


@pytest.mark.parametrize("callbacks", [0, 1])
def test_the_warm_up_is_gradient_descent(callbacks):
    """Also if each epoch puts the state into the model and draws the move again."""
    moves = 2 * STEPS - 1  # of two epochs, whose first step evaluates the start
    model, plain = compiled(make(warm_up=moves)), compiled(keras.optimizers.SGD(0.1))
    fit(model, epochs=2, callbacks=[Boundaries()][:callbacks])
    x, y = data()
    fit(plain, epochs=1)
    part = slice((moves - STEPS) * BATCH_SIZE)
    plain.fit(x[part], y[part], batch_size=BATCH_SIZE, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights(model), weights(plain), rtol=1e-5, atol=1e-6)


def test_warm_up_steps_are_neither_counted_nor_kept():
    model = compiled(make(warm_up=STEPS + 2))
    posterior = mh.PosteriorSamples(every=1)
    history = fit(model, epochs=3, callbacks=[posterior]).history
    assert posterior.iterations.tolist() == list(range(STEPS + 4, 3 * STEPS + 1))
    assert np.isnan(history["acceptance"][0])
    assert np.isnan(history["forward_acceptance"][0])
    assert np.isnan(history["beta"][0]) and history["beta"][2] >= 1.0
    assert not np.isnan(history["acceptance"][2])


def test_a_fit_that_ends_in_the_warm_up_is_refused_or_told():
    model = compiled(make(warm_up=500))
    with pytest.raises(
        ValueError, match=r"`fit` ends at iteration 12, .*`warm_up` of .*warm_up=500"
    ):
        fit(model, epochs=2, callbacks=[mh.PosteriorSamples()])
    with pytest.warns(UserWarning, match="12 of its 500 plain first steps"):
        fit(model, epochs=2, callbacks=[])


def test_a_fit_that_is_mostly_warm_up_says_how_much_is_left():
    total = 4 * STEPS
    message = (
        rf"ends at iteration {total}, and its first {3 * STEPS + 1} .* `warm_up` of"
    )
    with pytest.warns(UserWarning, match=message):
        fit(compiled(make(warm_up=3 * STEPS)), 4, [mh.PosteriorSamples()])
    for burn_in, warm_up in ((0, 2 * STEPS), (3 * STEPS + 1, 3 * STEPS)):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="This `fit` ends at")
            posterior = mh.PosteriorSamples(burn_in=burn_in)
            fit(compiled(make(warm_up=warm_up)), 4, [posterior])


def test_a_warm_up_step_that_is_not_finite_goes_back_to_the_state():
    drive = Drive(make(warm_up=5), np.ones(20))
    drive.step(1.0, np.full(20, 2.0))
    np.testing.assert_allclose(drive.point(), 0.8, rtol=1e-6)
    drive.step(np.nan, np.full(20, 2.0))
    # The state is evaluated on another batch, for another gradient.
    np.testing.assert_array_equal(drive.point(), drive.state())
    np.testing.assert_array_equal(drive.state(), np.ones(20))
    drive.step(50.0, np.full(20, 1.0))  # far worse, and accepted
    np.testing.assert_allclose(drive.point(), 0.9, rtol=1e-6)
    assert drive.optimizer.diagnostics()["nonfinite"] == 1


def test_the_warm_up_accepts_what_is_worse_and_then_decides():
    drive = Drive(make(warm_up=2, **{"refresh_probability": 0.0}), np.ones(20))
    drive.step(1.0, np.full(20, 2.0))
    drive.step(100.0, np.full(20, 2.0))
    state = drive.step(200.0, np.full(20, 2.0))
    np.testing.assert_allclose(state, 0.6, rtol=1e-6)  # two plain steps
    # The next point is a proposal, with noise; far worse, it is rejected.
    assert np.unique(drive.point()).size == 20
    np.testing.assert_array_equal(drive.step(1e4, np.zeros(20)), state)
    assert drive.optimizer.diagnostics()["acceptance"] == 0.0


def test_a_refresh_before_the_first_proposal_has_a_beta():
    model = compiled(make(warm_up=3, refresh_probability=0.9))
    history = fit(model, epochs=6, callbacks=[mh.PosteriorSamples()]).history
    assert "nonfinite" not in history
    assert np.nanmax(history["refresh_acceptance"]) > 0.0


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX gives a gradient of 0, not none"
)
def test_weights_without_a_gradient_are_told_and_harm_no_others():
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(4, "tanh")(inputs)
    heads = {name: keras.layers.Dense(3, "softmax", name=name) for name in "ab"}
    outputs = {name: head(hidden) for name, head in heads.items()}
    model = keras.Model(inputs, outputs)
    model.compile(make(**PAPER), loss={"a": "sparse_categorical_crossentropy"})
    x, y = data()
    with pytest.warns(UserWarning, match="no gradients for 2 of 6.*trainable = False"):
        model.fit(x, {"a": y}, batch_size=BATCH_SIZE, epochs=3, verbose=0)
    assert np.isfinite(weights(model)).all()


# The rate.


def oracle(forward, accepted, proposed, steps):
    """The factor after each decision, by the rule of `rate_adaptation.py`."""
    factor, window, factors, taken, tried = 1.0, 16, [], 0, 0
    for f, a, p in zip(forward, accepted, proposed, strict=True):
        if f and p:
            tried += 1
            taken += a
        if tried >= window:
            share = taken / tried
            if share < rate_adaptation.LOW:
                factor = max(factor * rate_adaptation.FALL, rate_adaptation.FLOOR)
            elif share > rate_adaptation.HIGH:
                factor = min(factor * rate_adaptation.RISE, 1.0)
            window, taken, tried = min(2 * window, max(steps, 16)), 0, 0
        factors.append(factor)
    return factors


@pytest.mark.parametrize("steps", [10, 40])
def test_the_rate_follows_the_forward_acceptance(steps):
    rng = np.random.default_rng(steps)
    count, chains = 300, 3
    forward = rng.random((count, chains)) < 0.9
    proposed = rng.random((count, chains)) < 0.9
    share = np.where(np.arange(count)[:, None] < 150, [0.05, 0.4, 0.9], 0.95)
    accepted = rng.random((count, chains)) < share
    adaptation = rate_adaptation.RateAdaptation(steps)

    def run(columns):
        shape = np.shape(forward[0, columns])
        state = rate_adaptation.State(
            *(
                keras.ops.convert_to_tensor(np.full(shape, slot.value, slot.dtype))
                for slot in adaptation.init()
            )
        )
        factors = []
        for number in range(count):
            flags = (forward, accepted, proposed)
            rows = [keras.ops.convert_to_tensor(x[number, columns]) for x in flags]
            state = adaptation.update(state, *rows)
            factors.append(numpy(state.factor))
        return np.array(factors)

    together = run(slice(None))
    for k in range(chains):
        expected = oracle(forward[:, k], accepted[:, k], proposed[:, k], steps)
        np.testing.assert_allclose(together[:, k], expected, rtol=1e-5)
        np.testing.assert_array_equal(run(k), together[:, k])
    assert together[:, 0].min() < 0.5 and together[-1, 0] > together[:, 0].min()


def test_the_first_kept_sample_freezes_the_rate():
    model = compiled(
        mh.RSGLD(1e4, train_size=TRAIN_SIZE, batch_size=BATCH_SIZE, seed=3, warm_up=0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rates = fit(
            model, epochs=20, callbacks=[mh.PosteriorSamples(burn_in=12 * STEPS)]
        ).history["learning_rate"]
    assert rates[11] < 0.9e4  # nothing was accepted
    assert rates[0] == pytest.approx(1e4) and len(set(rates[12:])) == 1
    assert not numpy(model.optimizer.slots.rate.adapts)


def test_a_chain_that_stands_still_without_a_sample_is_told_at_the_end():
    options = PAPER | dict(learning_rate=1e4, beta=1.5, rate_adaptation=True)
    model = compiled(make(seed=1, temperature=TRAIN_SIZE / BATCH_SIZE, **options))
    with pytest.warns(UserWarning, match="the chain stands still"):
        fit(model, epochs=6, callbacks=[])


def test_a_run_that_goes_on_with_samples_has_a_frozen_rate(tmp_path):
    model = compiled(make(warm_up=2))
    posterior = mh.PosteriorSamples(directory=tmp_path)
    fit(model, epochs=2, callbacks=[posterior])
    adapts = model.optimizer.slots.rate.adapts
    adapts.assign(np.array(True))  # a checkpoint from just before the sample
    fit(model, epochs=1, callbacks=[mh.PosteriorSamples(10**3, directory=tmp_path)])
    assert not numpy(adapts)


def test_chains_adapt_their_rates_apart():
    chains = mh.ParallelChains(sequential(), 3, seed=0)
    compiled(make(warm_up=3), chains)
    posterior = mh.PosteriorSamples(burn_in=5 * STEPS)
    history = fit(chains, epochs=7, callbacks=[posterior])
    assert np.shape(numpy(chains.optimizer.slots.rate.factor)) == (3,)
    assert len(posterior) == 2 and "learning_rate" in history.history


def test_reversible_chains_of_mhbt_start_as_rsgld_does():
    proposal = mh.proposals.ReversibleLangevin(2.0)
    sizes = dict(train_size=100, batch_size=10, proposal=proposal)
    for sampler in (mh.MHBT(0.1, **sizes), mh.MINT(0.1, **sizes)):
        for name in ("warm_up", "refresh_probability", "rate_adaptation"):
            expected = getattr(make().algorithm, name)
            if name == "rate_adaptation":
                expected = rate_adaptation.RateAdaptation(10)
            assert getattr(sampler.algorithm, name) == expected
    schedule = mh.schedules.PowerDecay(0.1, 1.0, 0.5)
    assert mh.MHBT(schedule, **sizes).algorithm.rate_adaptation is None
