"""Chains that run away, or never come down, give no ensemble, and say why."""

import math
import warnings

import keras
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import keras_mhmcmc as mh
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit import run_watch

X, Y = (values[:200] for values in load_diabetes(return_X_y=True))
X = (X - X.mean(0)) / X.std(0)
Y = ((Y - Y.mean()) / Y.std())[:, None]
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(200, 2)).astype("float32")
LABELS = (POINTS.sum(1) > 0.0).astype("int32")
LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(inputs, outputs, width=16):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input((inputs,)), layers.Dense(width, "relu"), layers.Dense(outputs)]
    )


def sampled(model, x, y, epochs=12, burn_in=42, data=None, callbacks=()):
    """The samples of a fit, and its warnings."""
    posterior = mh.PosteriorSamples(burn_in)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if data is None:
            model.fit(x, y, 32, epochs, 0, callbacks=[posterior, *callbacks])
        else:
            model.fit(data, epochs=epochs, verbose=0, callbacks=[posterior])
    return posterior, " ".join(str(w.message) for w in caught)


def regression(sampler, loss=None):
    model = network(10, 1)
    model.compile(sampler, loss or mh.losses.GaussianNLL(0.7))
    return model


ARGUMENTS = {"train_size": 200, "prior": mh.priors.Gaussian(1.0), "seed": 1}


@pytest.mark.parametrize("rate", [1.0, 30.0])
def test_a_runaway_regression_gives_no_ensemble(rate):
    model = regression(mh.PSGLD(rate, **ARGUMENTS))
    posterior, told = sampled(model, X, Y)
    assert "suggest_learning_rate" in told and "a constant prediction has" in told
    assert told.count("far above that of a prediction") == 1
    with pytest.raises(ValueError, match="suggest_learning_rate"):
        posterior.ensemble(model)


def test_a_chain_that_stopped_says_so_with_the_remedy():
    model = regression(mh.SGHMC(0.5, **ARGUMENTS))
    posterior, _ = sampled(model, X, Y)
    with pytest.raises(ValueError, match="stopped by SGHMC at step") as error:
        posterior.ensemble(model)
    assert "suggest_learning_rate" in str(error.value)


@pytest.mark.slow
def test_the_remedy_holds():
    model = regression(mh.SGHMC(0.5, **ARGUMENTS))
    rate = mh.suggest_learning_rate(model, X, Y).rate
    model = regression(mh.SGHMC(rate, **ARGUMENTS))
    posterior, told = sampled(model, X, Y, epochs=30)
    assert "no sample of a posterior" not in told
    mean = mh.predict_distribution(posterior.ensemble(model), X).mean()
    assert np.sqrt(np.mean((mean - Y) ** 2)) < 0.9  # 1 is the mean of the targets


@pytest.mark.parametrize(
    ("kind", "rate", "options"),
    [
        (mh.SGLD, 50.0, {}),
        (mh.SGHMC, 5.0, {}),
        (mh.SGHMC, 50.0, {}),
        (mh.PSGLD, 10.0, {}),
        (mh.RSGLD, 50.0, {"batch_size": 32, "warm_up": 20}),
    ],
)
def test_a_runaway_classifier_gives_no_ensemble(kind, rate, options):
    model = network(2, 2)
    model.compile(kind(rate, **options, **ARGUMENTS), LOGITS)
    posterior, told = sampled(model, POINTS, LABELS)
    assert "a constant prediction has 0.69" in told or "was stopped by" in told
    with pytest.raises(ValueError, match="sample of a posterior|suggest_learning_rate"):
        posterior.ensemble(model)


def test_weights_too_large_for_the_prior_are_left_out():
    """The first step ran away, and the chain came back to a low loss, not to the prior.

    A loss alone is above its limit by less than itself.
    """
    model = network(2, 2)
    model.compile(mh.PSGLD(3.0, **ARGUMENTS), LOGITS)
    losses = keras.callbacks.History()
    posterior, told = sampled(model, POINTS, LABELS, callbacks=[losses])
    assert "too large for the prior" in told
    newest = posterior._store.records[-1]
    assert newest.excess[0] > losses.history["loss"][-1]
    with pytest.raises(ValueError, match="no sample of a posterior: 6 of 6"):
        posterior.ensemble(model)


@pytest.mark.parametrize("kind", [mh.SGLD, mh.SGNHT, mh.PSGLD])
def test_targets_in_their_own_units_are_never_reached(kind):
    y = (5000.0 + 2000.0 * POINTS[:, :1]).astype("float32")
    model = network(2, 1)
    model.compile(kind(1e-6, train_size=200, seed=1), mh.losses.GaussianNLL(1.0))
    posterior, told = sampled(model, POINTS, y)
    assert "standardise the targets" in told and "has not come down" in told


def test_samples_of_slow_metropolis_steps_are_told():
    """A state's energy is that of a mini-batch that favoured it, and is too low."""
    constant = 0.5 * Y.var() / 0.49 + math.log(0.7) + 0.5 * math.log(2.0 * math.pi)
    for sampler, rate in [(mh.MHBT, 0.003), (mh.MHBT, 0.01), (mh.RSGLD, 0.1)]:
        model = regression(sampler(rate, batch_size=32, **ARGUMENTS))
        _, told = sampled(model, X, Y, epochs=20)
        is_high = model.evaluate(X, Y, verbose=0) > constant
        assert ("has not come down" in told) == is_high


def test_a_sound_chain_is_left_alone():
    model = regression(mh.SGLD(0.01, **ARGUMENTS))
    posterior, told = sampled(model, X, Y, epochs=20)
    assert "prediction that ignores" not in told
    ensemble = posterior.ensemble(model)
    assert ensemble.predict_members(X[:2]).shape[0] == len(posterior)


def thrown(variable, row=..., value=30.0, at=10):
    """A callback that throws a weight far away at the start of an epoch."""

    def throw(epoch, logs):
        if epoch == at:
            values = np.array(keras.ops.convert_to_numpy(variable))
            values[row] = value
            variable.assign(values)

    return keras.callbacks.LambdaCallback(on_epoch_begin=throw)


def test_a_burst_costs_its_own_samples(tmp_path):
    model = regression(mh.SGLD(0.01, **ARGUMENTS))
    posterior = mh.PosteriorSamples(42, directory=tmp_path)
    callbacks = [posterior, thrown(model.layers[-1].bias)]
    with pytest.warns(UserWarning, match="An ensemble leaves out"):
        model.fit(X, Y, 32, 40, 0, callbacks=callbacks)
    for kept in (posterior, mh.PosteriorSamples.load(tmp_path)):
        with pytest.warns(UserWarning, match=r"of 34 samples have a mean loss"):
            ensemble = kept.ensemble(model)
        assert 6 < len(ensemble.predict_members(X[:2])) < 34


def test_a_network_that_ran_away_and_died_at_a_constant_gives_no_ensemble():
    model = regression(mh.SGLD(0.01, **ARGUMENTS))
    hidden, last = model.layers[0].bias, model.layers[-1].bias
    posterior = mh.PosteriorSamples(42)
    callbacks = [
        posterior,
        thrown(last, value=3.0, at=0),
        thrown(last, at=1),
        thrown(hidden, value=-15.0, at=1),
    ]
    with pytest.warns(UserWarning, match="An ensemble leaves out"):
        model.fit(X, Y, 32, 60, 0, callbacks=callbacks)
    newest = np.array([record.excess[0] for record in posterior._store.records[-9:]])
    assert (newest > 0.0).all() and (newest < 0.3).all()  # at the constant
    with pytest.raises(ValueError, match="no sample of a posterior"):
        posterior.ensemble(model)


@pytest.mark.parametrize("is_hidden", [False, True])
def test_a_prior_that_hides_the_loss_is_that_of_a_runaway(monkeypatch, is_hidden):
    """Weights of 1e8: in float32 their energy has no digits for the loss."""
    model = regression(mh.RSGLD(0.01, batch_size=32, **ARGUMENTS))
    sampler, prior = model.optimizer, np.float32([9e19 if is_hidden else 20.0])
    monkeypatch.setattr(run_watch, "_prior_energies", lambda _: prior)
    energy = {"energy": prior + np.float32(300.0)}
    monkeypatch.setattr(sampler, "chain_diagnostics", lambda: energy)
    losses = run_watch._mean_losses(model, sampler)
    assert losses == pytest.approx([4.5e11 if is_hidden else 1.5], rel=1e-5)


def test_a_chain_of_several_that_ran_away_is_left_out():
    chains = mh.ParallelChains(network(10, 1), 3, seed=1)
    chains.compile(mh.SGLD(0.01, **ARGUMENTS), mh.losses.GaussianNLL(0.7))
    chains.build((None, 10))
    posterior = mh.PosteriorSamples(42)
    callbacks = [posterior, thrown(chains.weights[-1], row=1)]
    with pytest.warns(UserWarning, match="An ensemble leaves out"):
        chains.fit(X, Y, 32, 12, 0, callbacks=callbacks)
    with pytest.warns(UserWarning, match="1 of 3 chains have a mean loss"):
        assert len(posterior.predictions(chains, X[:2])) == 2
    with pytest.warns(UserWarning, match="6 of 18 samples have a mean loss"):
        members = posterior.ensemble(chains).predict_members(X[:2])
    assert len(members) == 12


@pytest.mark.parametrize("name", ["SGLD", "PSGLD", "SGHMC", "SGNHT"])
@pytest.mark.parametrize("size", [40, 64])
def test_three_epochs_of_samplers_that_always_move(name, size):
    rate = 0.002 if name == "PSGLD" else 0.05
    model = network(2, 2)
    sampler = getattr(mh, name)(rate, train_size=size, seed=1)
    model.compile(sampler, LOGITS)
    posterior = mh.PosteriorSamples()
    x, y = POINTS[:size], LABELS[:size]
    with pytest.warns(UserWarning, match="over the 3 epochs|not come down"):
        model.fit(x, y, 8, 3, 0, callbacks=[posterior], shuffle=False)


def test_three_epochs_of_a_new_chain():
    model = network(2, 2)
    model.compile(mh.SGLD(0.1, **ARGUMENTS), LOGITS)
    _, told = sampled(model, POINTS, LABELS, epochs=3, burn_in=0)
    assert "over the 3 epochs with kept samples" in told
    _, told = sampled(model, POINTS, LABELS, epochs=3, burn_in=0)  # goes on
    assert "epochs with kept samples" not in told


def known_data(loss, y, x=POINTS, outputs=1, **options):
    """The loss of a constant prediction, as a `fit` finds it."""
    found = []
    model = network(2, outputs)
    model.compile("sgd", loss)
    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: found.append(
            compiled_loss.constant_loss(model)
        )
    )
    model.fit(x, y, epochs=1, verbose=0, callbacks=[look], **options)
    return found[0]


def test_the_loss_of_a_constant_prediction():
    y = RNG.normal(3.0, 2.0, (200, 1)).astype("float32")
    normal = 0.5 * math.log(2.0 * math.pi)
    known = 0.5 * y.var() / 0.25 + math.log(0.5) + normal
    free = 0.5 + math.log(y.std()) + normal
    counts = RNG.poisson(4.0, (200, 1)).astype("float32")
    share = LABELS.mean()
    entropy = -share * math.log(share) - (1.0 - share) * math.log(1.0 - share)
    binary = keras.losses.BinaryCrossentropy(from_logits=True)
    one_hot = keras.losses.CategoricalCrossentropy(from_logits=True)
    for loss, target, outputs, wanted in [
        (mh.losses.GaussianNLL(0.5), y, 1, known),
        (mh.losses.GaussianNLL(), y, 2, free),
        (mh.losses.MixtureNLL(2), y, 6, free),
        ("mse", y, 1, y.var()),
        (LOGITS, LABELS, 2, entropy),
        (one_hot, np.eye(2)[LABELS], 2, entropy),
        (binary, LABELS[:, None], 1, entropy),
    ]:
        assert known_data(loss, target, outputs=outputs) == pytest.approx(wanted, 1e-3)
    assert 2.0 < known_data(mh.losses.PoissonNLL(), counts) < 2.3
    student = known_data(mh.losses.StudentTNLL(5.0), y, outputs=2)
    assert student == pytest.approx(free, abs=0.2)
    negative = known_data(mh.losses.NegativeBinomialNLL(), counts, outputs=2)
    assert 2.0 < negative < 3.0
    weights = np.full(200, 3.0)
    found = known_data("mse", y, sample_weight=weights)
    assert found is None or found == pytest.approx(3.0 * y.var(), 1e-3)
    assert known_data(lambda t, p: keras.ops.mean((t - p) ** 2), y) is None


def test_a_density_that_runs_away():
    """A step far beyond the stability limit of a narrow direction."""
    kernel = mh.kernels.sgld(learning_rate=2.1)
    start = np.zeros((2, 1), "float32")

    def log_density(x):
        return -0.5 * keras.ops.sum(x**2, axis=-1)

    with pytest.warns(UserWarning, match="2 of 2 chains ran away"):
        mh.sample(
            kernel,
            start,
            log_density=log_density,
            num_steps=60,
            num_chains=2,
            progress=False,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        mh.sample(
            mh.kernels.sgld(learning_rate=0.5),
            start,
            log_density=log_density,
            num_steps=60,
            num_chains=2,
            progress=False,
        )
