"""The bookkeeping of Metropolis-Hastings: proposals in the model, states in slots."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.samplers.parts import acceptance
from tests.support.models import BATCH_SIZE
from tests.support.models import TRAIN_SIZE
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import weights
from tests.support.samplers import PAPER


def make(**options):
    options = {"seed": 3} | options
    sizes = dict(train_size=TRAIN_SIZE, batch_size=BATCH_SIZE)
    return mh.RSGLD(0.1, **sizes, **PAPER | options)


def started(steps=3, **options):
    drive = Drive(make(**options), np.ones(20))
    for _ in range(steps):
        point = drive.point()
        drive.step(0.5 * (point**2).mean(), point / 20)
    return drive


def pending(drive):
    return int(drive.optimizer.slots.pending)


def test_the_first_point_becomes_the_state():
    drive = Drive(make(), np.ones(20))
    assert pending(drive) == acceptance.NOTHING
    state = drive.step(0.7, np.zeros(20))
    np.testing.assert_array_equal(state, np.ones(20))
    assert pending(drive) == acceptance.PROPOSAL
    assert np.abs(drive.point() - state).max() > 0
    assert drive.optimizer.diagnostics()["energy"] == pytest.approx(TRAIN_SIZE * 0.7)


def test_the_model_holds_the_proposal_and_the_slots_the_state():
    drive = started()
    np.testing.assert_array_equal(
        drive.state(), numpy(drive.optimizer.slots.position[0])
    )
    proposal = drive.point()
    accepted = drive.step(-1e3, np.zeros(20))  # an energy that must be accepted
    np.testing.assert_array_equal(accepted, proposal)
    kept = drive.step(1e3, np.zeros(20))  # and one that must be rejected
    np.testing.assert_array_equal(kept, proposal)


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_is_a_rejected_proposal(loss):
    drive = started()
    before = drive.state()
    after = drive.step(loss, np.zeros(20))
    np.testing.assert_array_equal(after, before)
    assert np.isfinite(drive.point()).all()
    assert drive.optimizer.diagnostics()["nonfinite"] == 1
    assert np.isfinite(drive.optimizer.diagnostics()["energy"])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_a_rejected_proposal(value):
    drive = started()
    before = drive.state()
    gradient = np.zeros(20)
    gradient[7] = value
    np.testing.assert_array_equal(drive.step(-1e3, gradient), before)
    assert np.isfinite(drive.point()).all()
    assert np.isfinite(numpy(drive.optimizer.slots.gradient[0])).all()
    assert drive.optimizer.diagnostics()["nonfinite"] == 1


def test_a_first_point_that_is_not_finite_is_tried_again():
    drive = Drive(make(), np.ones(20))
    drive.step(np.nan, np.full(20, np.nan))
    assert pending(drive) == acceptance.NOTHING
    np.testing.assert_array_equal(drive.point(), np.ones(20))
    drive.step(0.5, np.zeros(20))
    assert pending(drive) == acceptance.PROPOSAL
    np.testing.assert_array_equal(drive.state(), np.ones(20))


def test_settle_puts_the_state_into_the_model():
    drive = started()
    state = drive.state()
    drive.optimizer.settle()
    np.testing.assert_array_equal(drive.point(), state)
    assert pending(drive) == acceptance.REFRESH
    drive.optimizer.settle()
    np.testing.assert_array_equal(drive.point(), state)


def test_settle_before_the_first_step_has_no_effect():
    optimizer = make()
    optimizer.settle()
    drive = Drive(optimizer, np.ones(20))
    optimizer.settle()
    optimizer.propose()
    np.testing.assert_array_equal(drive.point(), np.ones(20))


def test_a_refresh_compares_energies_alone():
    drive = started()
    drive.optimizer.settle()
    state = drive.state()
    drive.optimizer.reset_diagnostics()
    drive.step(-1e3, np.zeros(20))
    np.testing.assert_array_equal(drive.state(), state)
    # It is no proposal: the acceptance does not count it.
    assert np.isnan(drive.optimizer.diagnostics()["acceptance"])
    assert float(drive.optimizer.slots.energy) == pytest.approx(-1e3 * TRAIN_SIZE)
    drive.optimizer.settle()
    drive.step(1e3, np.zeros(20))  # a worse batch is refused, and its energy with it
    assert float(drive.optimizer.slots.energy) == pytest.approx(-1e3 * TRAIN_SIZE)


def test_propose_goes_on_after_settle():
    drive = started()
    drive.optimizer.settle()
    state = drive.state()
    drive.optimizer.propose()
    assert pending(drive) == acceptance.PROPOSAL
    assert np.abs(drive.point() - state).max() > 0
    np.testing.assert_array_equal(drive.state(), state)
    proposal = drive.point()
    drive.optimizer.propose()  # only after settle
    np.testing.assert_array_equal(drive.point(), proposal)


def test_weights_that_somebody_else_set_start_a_new_chain():
    """As `EarlyStopping(restore_best_weights=True)` does."""
    drive = started()
    drive.optimizer.settle()
    drive.variable.assign(np.full(20, 5.0, "float32"))
    drive.optimizer.propose()
    np.testing.assert_array_equal(drive.point(), np.full(20, 5.0))
    drive.step(1e3, np.zeros(20))  # far worse, and still the new state
    np.testing.assert_array_equal(drive.state(), np.full(20, 5.0))
    assert float(drive.optimizer.slots.energy) == pytest.approx(1e3 * TRAIN_SIZE)


def scales_of(optimizer):
    return np.array([float(numpy(scale)) for scale in optimizer.slots.scales])


def test_the_scales_of_the_pending_proposal_are_kept_with_it():
    """A new learning rate must not come between the directions of a move's density."""
    drive = started(beta=1.5, beta_adaptation=None)
    used = scales_of(drive.optimizer)
    drive.optimizer.learning_rate = 0.4
    np.testing.assert_array_equal(scales_of(drive.optimizer), used)
    drive.step(0.0, np.zeros(20))
    noise = (2 * 0.4 / TRAIN_SIZE**2) ** 0.5
    expected = [0.4, noise, 1.5]
    np.testing.assert_allclose(scales_of(drive.optimizer), expected, rtol=1e-6)


def test_fit_ends_settled_and_a_second_fit_goes_on():
    model = compiled(make())
    fit(model, epochs=3)
    states = model.optimizer.state_values()
    for variable, state in zip(model.trainable_variables, states, strict=True):
        np.testing.assert_array_equal(numpy(variable), numpy(state))
    settled = weights(model)
    energy = float(model.optimizer.slots.energy)
    fit(model, epochs=1)
    assert int(model.optimizer.iterations) == 24
    assert np.isfinite(energy)
    assert np.isfinite(weights(model)).all()
    assert np.abs(weights(model) - settled).max() < 1.0


def test_validation_sees_the_state():
    """With the callback, `val_loss` is the loss of the state, not of a proposal."""
    x, y = data()
    seen = []

    class Compare(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            states = self.model.optimizer.state_values()
            for variable, state in zip(
                self.model.trainable_variables, states, strict=True
            ):
                np.testing.assert_array_equal(numpy(variable), numpy(state))
            seen.append(logs["val_loss"])

    model = compiled(make())
    fit(
        model,
        epochs=3,
        callbacks=[mh.PosteriorSamples(), Compare()],
        validation_data=(x, y),
    )
    assert len(seen) == 3
    assert model.evaluate(x, y, verbose=0)[0] == pytest.approx(seen[-1], rel=1e-5)


def test_one_batch_per_epoch_still_moves():
    """Settling at each epoch's end must not turn every step into a refresh."""
    x, y = data()
    optimizer = mh.MHBT(0.01, train_size=TRAIN_SIZE, batch_size=TRAIN_SIZE, seed=1)
    model = compiled(optimizer)
    posterior = mh.PosteriorSamples()
    history = model.fit(
        x, y, batch_size=TRAIN_SIZE, epochs=20, verbose=0, callbacks=[posterior]
    )
    assert np.nanmean(history.history["acceptance"]) > 0.1
    draws = posterior.ensemble(model)._values[0]
    assert len(np.unique(numpy(draws)[:, 0, 0])) > 3


def test_beta_auto_is_chosen_from_the_first_gradients():
    drive = Drive(make(), np.ones(20))
    assert np.isnan(drive.optimizer.diagnostics()["beta"])
    drive.step(0.5, np.full(20, 3.0))
    # epsilon |g| / (s sqrt(d)) with s = sqrt(2 epsilon) / N and |g| = 3 sqrt(d)
    expected = 0.1 * 3.0 / ((2 * 0.1) ** 0.5 / TRAIN_SIZE)
    assert drive.optimizer.diagnostics()["beta"] == pytest.approx(expected, rel=1e-4)


def test_replay_changes_beta_at_the_end_of_an_epoch_alone():
    optimizer = make(beta=1.7)
    drive = Drive(optimizer, np.ones(20))
    betas = []
    for _ in range(2 * TRAIN_SIZE // BATCH_SIZE):
        point = drive.point()
        drive.step(0.5 * (point**2).mean(), point / 20)
        betas.append(optimizer.diagnostics()["beta"])
    steps = TRAIN_SIZE // BATCH_SIZE
    assert betas[: steps - 1] == [pytest.approx(1.7)] * (steps - 1)
    assert len(set(betas[steps - 1 : -1])) == 1
    assert set(betas) != {betas[0]}


def apply(optimizer, loss, gradients, variables=None):
    """One step on several variables, with the loss given by hand."""
    optimizer.observe_losses(keras.ops.convert_to_tensor(np.float32(loss)))
    gradients = [
        None if g is None else keras.ops.convert_to_tensor(np.float32(g))
        for g in gradients
    ]
    optimizer.apply(gradients, variables)


def rsgld(**options):
    return mh.RSGLD(0.1, train_size=10, batch_size=2, seed=0, **PAPER | options)


def test_gradients_that_do_not_match_the_variables_are_refused():
    variables = [keras.Variable(np.ones(2, "float32")) for _ in range(2)]
    message = "`grads` must have one gradient.*Received: 1 gradients for "
    with pytest.raises(ValueError, match=message + "0 variables"):
        apply(rsgld(), 1.0, [np.ones(2)])
    optimizer = rsgld()
    with pytest.raises(ValueError, match=message + "2 variables"):
        apply(optimizer, 1.0, [np.ones(2)], variables)
    with pytest.raises(ValueError, match=message + "2 variables"):
        apply(optimizer, 1.0, [np.ones(2)])
    apply(optimizer, 1.0, [np.ones(2)] * 2)
    assert int(optimizer.iterations) == 1


def test_beta_is_told_while_a_refresh_is_pending():
    proposal = mh.proposals.ReversibleLangevin(2.0, 1.0, normalized=True)
    kernel = mh.kernels.mhbt(0.5, proposal=proposal, refresh_probability=0.5)
    for chains in (1, 3):
        draws = mh.sample(
            kernel,
            [0.0, 0.0],
            log_density=lambda x: -0.5 * keras.ops.sum(keras.ops.square(x)),
            num_steps=6,
            num_chains=chains,
            progress=False,
        )
        np.testing.assert_array_equal(draws.info["beta"], np.full(chains, 2.0))


def test_chains_with_gradients_of_different_length_choose_their_own_betas():
    def sampled(init, chains):
        return mh.sample(
            mh.kernels.rsgld(0.5, noise_temperature=1.0, beta_adaptation=None),
            init,
            log_density=lambda x: -0.5 * keras.ops.sum(keras.ops.square(x)),
            num_steps=3,
            num_chains=chains,
            progress=False,
        ).info["beta"]

    starts = np.array([[1.0] * 4, [100.0] * 4], "float32")
    together = sampled(starts, 2)
    alone = [float(sampled(start, 1)[0]) for start in starts]
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert alone[1] > 10 * alone[0]
