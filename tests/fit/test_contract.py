"""What every sampler does, whatever its law: one row of `samplers.SAMPLERS` each."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import optimizer_state
from tests.support.models import sequential
from tests.support.models import weights
from tests.support.samplers import METROPOLIS
from tests.support.samplers import SAMPLERS
from tests.support.samplers import TRAIN_SIZE
from tests.support.samplers import WITH_NOISE
from tests.support.samplers import WITH_PRIOR

pytestmark = pytest.mark.eager_and_compiled

BACKEND = keras.backend.backend()
EPOCHS = 12

every_sampler = pytest.mark.parametrize("name", SAMPLERS)
every_noisy_sampler = pytest.mark.parametrize("name", WITH_NOISE)
every_metropolis = pytest.mark.parametrize("name", METROPOLIS)


def make(name, **options):
    return SAMPLERS[name].make(**{"seed": 3, **options})


class Trained:
    """A model after `EPOCHS` epochs, in two calls of `fit`, with what was seen."""

    def __init__(self, name):
        optimizer = make(name)
        self.traces = 0
        step = optimizer._step

        def counting(*args):
            self.traces += 1
            return step(*args)

        optimizer._step = counting
        self.model = compiled(optimizer)
        self.before = weights(self.model)
        x, y = data()
        self.loss_before = self.model.evaluate(x, y, verbose=0)[0]
        self.posterior = mh.PosteriorSamples()
        fit(self.model, epochs=EPOCHS // 2, callbacks=[self.posterior])
        self.first_traces = self.traces
        self.history = fit(self.model, epochs=EPOCHS // 2, callbacks=[self.posterior])
        self.loss_after = self.model.evaluate(x, y, verbose=0)[0]


@pytest.fixture(scope="module")
def trained():
    runs = {}

    def get(name):
        if name not in runs:
            runs[name] = Trained(name)
        return runs[name]

    return get


@every_sampler
def test_fit_moves_the_weights_and_stays_finite(name, trained):
    run = trained(name)
    assert np.isfinite(run.history.history["loss"]).all()
    assert np.isfinite(weights(run.model)).all()
    assert np.abs(weights(run.model) - run.before).max() > 1e-4
    assert int(run.model.optimizer.iterations) == EPOCHS * 6


@pytest.mark.parametrize(
    "name", ["sgld", "psgld", "sghmc", "rsgld", "rsgld_paper", "esm"]
)
def test_the_loss_of_an_easy_problem_falls(name, trained):
    run = trained(name)
    assert run.loss_after < run.loss_before


@every_sampler
def test_the_step_is_traced_once(name, trained):
    run = trained(name)
    if BACKEND == "torch":  # eager: every step runs the Python code
        assert run.traces == EPOCHS * 6
    else:  # TensorFlow traces twice where an optimizer creates variables
        assert run.first_traces == (1 if BACKEND == "jax" else 2)
        assert run.traces == run.first_traces


@every_sampler
def test_diagnostics_reach_the_history(name, trained):
    history = trained(name).history.history
    assert np.isfinite(history["energy"]).all()
    assert ("acceptance" in history) == (name in METROPOLIS)
    if name in METROPOLIS:
        acceptance = np.array(history["acceptance"])
        assert ((acceptance >= 0) & (acceptance <= 1)).all()
        assert acceptance.max() > 0
        assert "nonfinite" not in history  # there was none
    if "reversible" in name or "rsgld" in name:
        assert min(history["beta"]) >= 1.0


@pytest.mark.parametrize("name", WITH_PRIOR)
def test_the_energy_is_the_loss_at_full_data_scale(name, trained):
    history = trained(name).history.history
    if name in METROPOLIS:
        # The states' energy, below that of the proposals and of its order.
        ratio = np.array(history["energy"]) / (TRAIN_SIZE * np.array(history["loss"]))
        assert ((ratio > 0.3) & (ratio < 1.5)).all()
    else:
        energies = TRAIN_SIZE * np.array(history["loss"])
        np.testing.assert_allclose(history["energy"], energies, rtol=1e-4)


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@every_sampler
def test_a_saved_and_loaded_model_goes_on_bit_for_bit(name, trained, tmp_path):
    whole = trained(name).model
    first = compiled(make(name))
    fit(first, epochs=EPOCHS // 3, callbacks=[mh.PosteriorSamples()])
    first.save(tmp_path / "model.keras")
    second = keras.models.load_model(tmp_path / "model.keras")
    assert second.optimizer.get_config() == first.optimizer.get_config()
    rest = EPOCHS - EPOCHS // 3
    fit(second, epochs=rest, callbacks=[mh.PosteriorSamples()])

    np.testing.assert_array_equal(weights(second), weights(whole))
    states = [optimizer_state(model.optimizer) for model in (second, whole)]
    for one, other in zip(*states, strict=True):
        np.testing.assert_array_equal(one, other)


def flat_walk(name, seed, steps=6):
    """States of the chain where the loss is 0 everywhere: moves are noise alone."""
    still = np.zeros((20, 10))
    drive = Drive(make(name, seed=seed), still)
    states = [drive.state(), *(drive.step(0.0, still) for _ in range(steps))]
    return np.array(states).reshape(steps + 1, -1)


@every_noisy_sampler
def test_each_iteration_uses_new_noise(name):
    moves = np.diff(flat_walk(name, seed=3, steps=8).astype("float64"), axis=0)
    moves = [move for move in moves if np.abs(move).max() > 0]
    row = SAMPLERS[name]
    assert len(moves) > row.noise_steps
    for k in range(row.noise_steps, len(moves)):
        fresh = moves[k] - row.momentum * moves[k - 1]
        assert np.abs(fresh).max() > 0
        earlier = moves[k - row.noise_steps]
        assert abs(np.corrcoef(fresh, earlier)[0, 1]) < 0.35


@every_noisy_sampler
def test_one_seed_repeats_exactly_and_two_seeds_differ(name):
    first, again, other = (flat_walk(name, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first[-1] - other[-1]).max() > 0
    # Neighbouring seeds share no noise, not even shifted by a step.
    moves, others = np.diff(first, axis=0), np.diff(other, axis=0)
    for move in moves[np.abs(moves).max(axis=1) > 0]:
        for candidate in others[np.abs(others).max(axis=1) > 0]:
            assert abs(np.corrcoef(move, candidate)[0, 1]) < 0.35


@every_sampler
def test_memory_is_as_documented(name):
    drive = Drive(make(name), np.zeros((41, 43)))
    slots = [v for v in drive.optimizer.variables if tuple(v.shape) == (41, 43)]
    assert len(slots) == SAMPLERS[name].copies
    others = [v for v in drive.optimizer.variables if tuple(v.shape) != (41, 43)]
    assert sum(np.prod(v.shape) for v in others) < 1600


@pytest.mark.parametrize("name", [n for n, row in SAMPLERS.items() if row.rests])
def test_a_learning_rate_schedule_is_used(name):
    """A rate that is 0 until step 3 holds the chain still that long."""

    class Late(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return keras.ops.where(step < 3, 0.0, 0.1)

        def get_config(self):
            return {}

    config = make(name).get_config() | {"learning_rate": Late()}
    drive = Drive(type(make(name)).from_config(config), np.ones((5, 10)))
    states = np.array([drive.step(0.0, np.zeros((5, 10))) for _ in range(10)])
    assert (states[:3] == 1.0).all()
    assert np.abs(states[-1] - 1.0).max() > 0


@pytest.mark.in_turn("jax", "tensorflow", "torch")
@pytest.mark.parametrize("name", WITH_PRIOR)
def test_the_prior_enters_energy_and_gradient(name):
    """With a flat loss the prior alone pulls the weights to zero."""
    optimizer = make(name, prior=mh.priors.Gaussian(0.1))
    drive = Drive(optimizer, np.ones(50))
    drive.step(0.0, np.zeros(50))
    # |theta|^2 / (2 scale^2) = 50 / 0.02
    np.testing.assert_allclose(optimizer.diagnostics()["energy"], 2500.0, rtol=1e-4)
    for _ in range(60):
        drive.step(0.0, np.zeros(50))
    assert np.abs(drive.state()).mean() < 1.0


@every_metropolis
def test_a_loss_that_never_arrived_is_an_error(name):
    optimizer = make(name)
    variable = keras.Variable(np.ones(3, "float32"))
    optimizer.build([variable])
    with pytest.raises(ValueError, match="optimizer.scale_loss"):
        optimizer.apply([keras.ops.zeros(3)])


@pytest.mark.parametrize("name", ["sgld", "psgld", "sghmc", "sgldsa", "sghmcsa"])
def test_samplers_without_a_ratio_need_no_loss(name):
    optimizer = make(name)
    variable = keras.Variable(np.ones((3, 1), "float32"))
    optimizer.apply([keras.ops.ones((3, 1))], [variable])
    assert np.abs(numpy(optimizer.state_values()[0]) - 1.0).max() > 0
    assert "energy" not in optimizer.diagnostics()


@every_sampler
def test_constraints_are_refused(name):
    variable = keras.Variable(np.ones(3, "float32"))
    variable.constraint = keras.constraints.NonNeg()
    with pytest.raises(ValueError, match="constraint"):
        make(name).build([variable])


def test_a_temperature_schedule_reaches_the_noise():
    class Off(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return keras.ops.where(step < 3, 0.0, 1.0)

        def get_config(self):
            return {}

    drive = Drive(make("sgld", temperature=Off()), np.ones(50))
    states = np.array([drive.step(0.0, np.zeros(50)) for _ in range(5)])
    assert (states[:3] == 1.0).all()
    assert np.abs(states[3] - 1.0).min() > 0


@pytest.mark.parametrize("name", ["sghmc", "rsgld"])
def test_the_users_own_exception_comes_through(name):
    class Boom(Exception):
        pass

    class Failing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise Boom

    model = compiled(make(name))
    with pytest.raises(Boom):
        fit(model, callbacks=[Failing()])
    assert np.isfinite(weights(model)).all()

    class FailingLoss(keras.losses.Loss):
        def call(self, y_true, y_pred):
            raise Boom

    model = sequential()
    model.compile(optimizer=make(name), loss=FailingLoss(), run_eagerly=True)
    with pytest.raises(Boom):
        fit(model)
