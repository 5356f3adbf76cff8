"""SGLD-SA, SGHMC-SA and ESM: what they sample, what they learn, what they refuse."""

import dataclasses

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.oracles import spike_slab as oracle
from tests.support.models import Drive
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential

N = 96
PRIOR = dict(v0=1e-2, v1=1.0)
SAMPLERS = {"sgldsa": mh.SGLDSA, "sghmcsa": mh.SGHMCSA, "esm": mh.ESM}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)
# With variances as large as these the prior says nothing.
FLAT = dict(v0=1e20, v1=1e21)


def make(name, rate=0.02, **options):
    """A sampler; options of its prior are given among its own."""
    of_prior = {"sparse": "kernel"} | PRIOR
    for field in dataclasses.fields(mh.priors.SpikeSlab):
        if field.name in options:
            of_prior[field.name] = options.pop(field.name)
    prior = mh.priors.SpikeSlab(**of_prior)
    options = {"train_size": N, "prior": prior, "seed": 3} | options
    return SAMPLERS[name](rate, **options)


def regression(optimizer, loss="mse"):
    """A linear model of 5 inputs, compiled, and data for it."""
    layer = keras.layers.Dense(1, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((5,)), layer])
    model.compile(optimizer, loss=loss)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 5)).astype("float32")
    y = x @ np.array([[2.0], [0.0], [0.0], [-1.0], [0.0]]) + rng.normal(size=(N, 1))
    return model, x, y.astype("float32")


def kernels_like(optimizer, start):
    """A variable with a path for `sparse`, and a drive of the optimizer on it."""
    drive = Drive.__new__(Drive)
    drive.optimizer = optimizer
    drive.variable = keras.Variable(np.asarray(start, "float32"), name="kernel")
    optimizer.build([drive.variable])
    return drive


# What is sampled.


@pytest.mark.parametrize(("name", "momentum"), [("sgldsa", None), ("sghmcsa", 0.9)])
def test_the_variance_is_that_of_the_prior_given_its_latents(name, momentum):
    """Where the loss is flat, beta is N(0, T sigma^2 / kappa), and a little more."""
    temperature, sigma, rate = 0.5, 0.8, 0.02
    options = dict(train_size=10, step_size=1e-20, sigma=sigma, temperature=temperature)
    drive = kernels_like(make(name, rate, **options), np.zeros((100, 100)))
    precision = (0.5 / PRIOR["v0"] + 0.5 / PRIOR["v1"]) / sigma**2
    step = rate / 10 * precision
    bias = 1 - step / 2 if momentum is None else 1 - step / (2 * (1 + momentum))
    squares = []
    for k in range(160):
        state = drive.step(0.0, np.zeros((100, 100)))
        if k >= 60 and k % 20 == 19:
            squares.append(np.mean(state**2))
    # 10^4 weights, hardly dependent over 20 steps of a relaxation time of 6.
    expected = temperature / precision / bias
    error = expected * np.sqrt(2.0 / (1e4 * len(squares)))
    assert abs(np.mean(squares) - expected) < 4 * error


def test_other_kernels_have_a_standard_normal_prior_and_biases_a_flat_one():
    optimizer = make("sgldsa", 0.5, temperature=0.0, sparse="dense_[0-9]*/kernel$")
    variables = [
        keras.Variable(np.ones(shape, "float32"), name=name)
        for shape, name in (((3, 2), "other"), ((2,), "bias"))
    ]
    sparse = keras.Variable(np.zeros((2, 2), "float32"), name="kernel")
    sparse._path = "model/dense_1/kernel"
    optimizer.build([*variables, sparse])
    optimizer.apply([keras.ops.zeros(v.shape) for v in [*variables, sparse]])
    np.testing.assert_allclose(numpy(variables[0]), 1 - 0.5 / N, rtol=1e-6)
    np.testing.assert_array_equal(numpy(variables[1]), 1.0)


@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_a_step_and_its_energy_are_those_of_the_oracle(likelihood):
    """One step without noise, from weights and latent variables that are known."""
    is_regression = likelihood == "gaussian"
    options = dict(likelihood=likelihood, temperature=0.0, step_size=0.25, sigma=0.7)
    drive = kernels_like(make("sgldsa", 0.1, **options), np.ones((4, 3)))
    rng = np.random.default_rng(1)
    gradient, loss = rng.normal(size=(4, 3)), 2.5
    state = drive.step(loss, gradient)

    groups, ones = (0,), np.ones((4, 3))
    old = oracle.first([(4, 3)], groups, 0.7, 0.5, **PRIOR)
    rest = dict(a=1.0, b=1.0, nu=1.0, lam=1.0)
    rss = N * loss if is_regression else None
    new = oracle.expected([ones], old, groups, examples=N, rss=rss, **PRIOR, **rest)
    new = oracle.averaged(old, new, 0.25)
    scale = 1 / (2 * new.sigma[0] ** 2) if is_regression else 1.0
    pull = scale * gradient + new.kappa[0] * ones / (N * new.sigma[0] ** 2)
    np.testing.assert_allclose(state, ones - 0.1 * pull, rtol=1e-5)
    energy = scale * N * loss + oracle.prior_energy([ones], new, groups)
    report = drive.optimizer.diagnostics()
    assert report["energy"] == pytest.approx(energy, rel=1e-5)
    assert report["sigma"] == pytest.approx(new.sigma[0], rel=1e-5)
    assert report["delta"] == pytest.approx(new.delta[0], rel=1e-5)
    (rho,) = drive.optimizer.inclusion_probabilities().values()
    np.testing.assert_allclose(rho, new.rho[0], rtol=1e-5)
    assert report["sparsity"] == np.mean(new.rho[0] < 0.5)


@pytest.mark.slow_on("tensorflow", "torch")
def test_a_regression_finds_its_predictors_and_its_noise():
    rate = mh.schedules.PowerDecay(0.1, 1.0, 1 / 3)
    options = dict(likelihood="gaussian", v0=1e-3, v1=100.0, b=5.0, step_size=0.02)
    model, x, y = regression(make("sgldsa", rate, **options))
    # Often in one epoch, since each call of the data costs more than the steps.
    x, y = np.tile(x, (50, 1)), np.tile(y, (50, 1))
    model.fit(x, y, batch_size=48, epochs=20, verbose=0)
    (rho,) = model.optimizer.inclusion_probabilities().values()
    assert rho.shape == (5, 1)
    assert rho[[0, 3]].min() > 0.9
    assert rho[[1, 2, 4]].max() < 0.5
    report = model.optimizer.diagnostics()
    assert report["sparsity"] == pytest.approx(0.6)
    assert 0.8 < report["sigma"] < 1.2


def test_each_layer_may_have_a_temperature_of_its_own():
    options = dict(layer_temperatures=True, train_size=1, **FLAT)
    optimizer = make("sgldsa", 0.5, **options)
    quiet, loud = (
        keras.Variable(np.zeros((50, 40), "float32"), name="kernel") for _ in range(2)
    )
    optimizer.build([quiet, loud])
    rng = np.random.default_rng(2)
    noise = rng.normal(size=(50, 40)).astype("float32")
    optimizer.apply([keras.ops.convert_to_tensor(s * noise) for s in (1e-3, 1e-1)])
    moves = [numpy(v) + 0.5 * s * noise for v, s in ((quiet, 1e-3), (loud, 1e-1))]
    assert moves[0].std() == pytest.approx(0.01, rel=0.1)
    assert moves[1].std() == pytest.approx(1.0, rel=0.1)


# Groups, chains, functions.


@pytest.mark.parametrize(("groups", "count"), [("layer", 2), ("all", 1)])
def test_groups_share_their_latent_variables(groups, count):
    model = compiled(make("sghmcsa", groups=groups))
    fit(model, epochs=2)
    assert model.optimizer.slots.latents.sigma.shape == (count,)
    probabilities = model.optimizer.inclusion_probabilities()
    kernels = [v for v in model.trainable_variables if len(v.shape) == 2]
    assert {path: v.shape for path, v in probabilities.items()} == {
        v.path: tuple(v.shape) for v in kernels
    }


@every_sampler
def test_chains_learn_each_for_itself(name):
    chains = mh.ParallelChains(sequential(), 2, seed=0)
    chains.compile(make(name), loss="sparse_categorical_crossentropy")
    alone = compiled(make(name))
    fit(chains, epochs=2)
    fit(alone, epochs=2)
    both = chains.optimizer.inclusion_probabilities()
    one = alone.optimizer.inclusion_probabilities()
    for many, single in zip(both.values(), one.values(), strict=True):
        assert many.shape == (2, *single.shape)
        assert np.abs(many[1] - many[0]).max() > 1e-4
        np.testing.assert_allclose(many[0], single, rtol=1e-4)


def test_layers_of_one_path_are_all_reported():
    optimizer = make("sgldsa")
    variables = [keras.Variable(np.ones((2, 2)), name="kernel") for _ in range(2)]
    for variable in variables:
        variable._path = "dense/kernel"
    optimizer.build(variables)
    assert list(optimizer.inclusion_probabilities()) == [
        "dense/kernel",
        "dense/kernel#2",
    ]


@keras.saving.register_keras_serializable(package="tests")
def is_wide(variable):
    return variable.shape[-1] == 7


def test_a_function_chooses_kernels_and_is_saved():
    model = compiled(make("sghmcsa", sparse=is_wide))
    fit(model, epochs=1)
    (probability,) = model.optimizer.inclusion_probabilities().values()
    assert probability.shape == (5, 7)
    config = model.optimizer.get_config()
    again = mh.SGHMCSA.from_config(config)
    assert again.get_config() == config
    assert again.prior == model.optimizer.prior and again.prior.sparse is is_wide


# What is refused at the first step.


@every_sampler
def test_a_pattern_that_chooses_nothing_lists_the_kernels(name):
    model = compiled(make(name, sparse="conv"))
    with pytest.raises(ValueError, match="sparse.*no kernel's path") as error:
        fit(model, epochs=1)
    for variable in model.trainable_variables:
        assert (variable.path in str(error.value)) == (len(variable.shape) == 2)


@every_sampler
@pytest.mark.parametrize(
    "loss",
    [
        "mean_absolute_error",
        mh.losses.GaussianNLL(1.0),
        keras.losses.MeanSquaredError(reduction="sum"),
        keras.losses.huber,
    ],
    ids=["mae", "nll", "sum", "huber"],
)
def test_a_regression_with_another_loss_is_refused(name, loss):
    model, x, y = regression(make(name, likelihood="gaussian"), loss)
    with pytest.raises(ValueError, match='`likelihood` must be "categorical"'):
        model.fit(x, y, verbose=0)


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        "mean_squared_error",
        keras.losses.MeanSquaredError(),
        keras.losses.mean_squared_error,
        ["mse"],
    ],
    ids=["mse", "name", "object", "function", "list"],
)
def test_a_regression_with_the_squared_error_runs(loss):
    model, x, y = regression(make("sgldsa", likelihood="gaussian"), loss)
    history = model.fit(x, y, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_a_regression_needs_the_loss():
    optimizer = make("sgldsa", likelihood="gaussian")
    variable = keras.Variable(np.ones((3, 2), "float32"), name="kernel")
    optimizer.build([variable])
    with pytest.raises(ValueError, match="optimizer.scale_loss"):
        optimizer.apply([keras.ops.zeros((3, 2))])


# Samples.


def test_samples_are_weighted_by_the_learning_rate():
    rate = mh.schedules.PowerDecay(0.05, 1.0, 0.5)
    model = compiled(make("sgldsa", rate))
    posterior = mh.PosteriorSamples(every=4, weight_by="learning_rate")
    fit(model, epochs=2, callbacks=[posterior])
    fit(model, epochs=2, callbacks=[posterior])
    assert posterior.iterations.tolist() == [4, 8, 12, 16, 20, 24]
    expected = (1.0 + posterior.iterations) ** -0.5
    np.testing.assert_allclose(posterior.weights, expected / expected.mean(), rtol=1e-5)
    x, _ = data()
    members = posterior.ensemble(model).predict_members(x)
    mean = np.tensordot(posterior.weights / 6, members, 1)
    averaged = posterior.ensemble(model).predict(x, verbose=0)
    np.testing.assert_allclose(averaged, mean, rtol=1e-4, atol=1e-6)


def test_importance_weights_and_learning_rates_are_multiplied():
    def samples(weight_by, directory=None):
        sampler = mh.CSGLD(
            mh.schedules.PowerDecay(0.05, 1.0, 0.5),
            train_size=N,
            partition=mh.EnergyPartition(20.0, 8.0, 40),
            zeta=1.0,
            seed=3,
        )
        posterior = mh.PosteriorSamples(every=4, weight_by=weight_by)
        fit(compiled(sampler), epochs=3, callbacks=[posterior])
        return posterior

    both, importance = samples("learning_rate"), samples(None)
    expected = importance.weights * (1.0 + importance.iterations) ** -0.5
    np.testing.assert_allclose(both.weights, expected / expected.mean(), rtol=1e-4)


def test_samples_without_any_weight_are_an_error():
    posterior = mh.PosteriorSamples(weight_by="learning_rate")
    fit(compiled(make("sgldsa", 0.0)), epochs=1, callbacks=[posterior])
    with pytest.raises(ValueError, match="`weight_by`.*learning rate is 0"):
        _ = posterior.weights
