"""`ParallelChains`: each chain is what a plain model would have been."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import CLASSES
from tests.support.models import FEATURES
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

OPTIMIZERS = {
    **{name: case.make for name, case in SAMPLERS.items()},
    "sgd": lambda seed: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda seed: keras.optimizers.Adam(0.01),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
both_strategies = pytest.mark.parametrize("strategy", ["vmap", "loop"])


def parallel(name, num_chains=3, strategy="auto", model=None, seed=0, **options):
    """Compiled chains."""
    chains = mh.ParallelChains(
        model or sequential(), num_chains, seed=seed, strategy=strategy
    )
    return compiled(OPTIMIZERS[name](seed=3), chains, **options)


def chain(chains, index):
    """The trainable weights of one chain as one float64 vector."""
    rows = [numpy(variable)[index].ravel() for variable in chains.trainable_variables]
    return np.concatenate(rows).astype("float64")


def start(chains, index):
    """A plain model with the weights that a chain begins with."""
    model = sequential()
    for variable, stacked in zip(
        model.trainable_variables, chains.trainable_variables, strict=True
    ):
        variable.assign(numpy(stacked)[index])
    return model


@every_optimizer
def test_one_chain_is_the_plain_model(name):
    plain, one = compiled(OPTIMIZERS[name](seed=3)), parallel(name, 1)
    posteriors = mh.PosteriorSamples(), mh.PosteriorSamples()
    histories = [
        fit(model, epochs=3, callbacks=[posterior])
        for model, posterior in zip((plain, one), posteriors, strict=True)
    ]
    np.testing.assert_allclose(chain(one, 0), weights(plain), rtol=1e-5, atol=1e-6)
    ours, theirs = (history.history for history in reversed(histories))
    assert set(ours) == set(theirs)
    for key, values in theirs.items():
        np.testing.assert_allclose(ours[key], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rsgld", "adam"])
def test_both_strategies_are_the_same_chains(name):
    runs = [parallel(name, strategy=strategy) for strategy in ("vmap", "loop")]
    for run in runs:
        fit(run, epochs=3)
    assert [run.strategy for run in runs] == ["vmap", "loop"]
    for index in range(3):
        np.testing.assert_allclose(
            *(chain(run, index) for run in runs), rtol=1e-4, atol=1e-5
        )
    for one, other in zip(
        *(optimizer_state(run.optimizer) for run in runs), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@both_strategies
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_an_ensemble_of_plain_optimizers_is_as_many_fits(name, strategy):
    chains = parallel(name, strategy=strategy)
    plain = [compiled(OPTIMIZERS[name](seed=3), start(chains, k)) for k in range(3)]
    fit(chains, epochs=3)
    losses = []
    for index, model in enumerate(plain):
        losses.append(fit(model, epochs=3).history["loss"])
        np.testing.assert_allclose(
            chain(chains, index), weights(model), rtol=1e-4, atol=1e-5
        )
    by_chain = chains.chain_history["loss"]
    np.testing.assert_allclose(by_chain, np.transpose(losses), rtol=1e-4)
    np.testing.assert_allclose(
        chains.history.history["loss"], by_chain.mean(axis=1), rtol=1e-5
    )


def test_the_second_chain_is_a_plain_sampler_with_its_own_seed():
    """Its seed, from the row of the noise state, makes the plain sampler repeat it."""
    chains = parallel("mint")
    chains.build_optimizer()
    (state,) = [v for v in chains.optimizer.variables if v.name == "noise_state"]
    seed = int(numpy(state)[1, 0])
    assert seed not in (2, 3, 4)
    plain = compiled(OPTIMIZERS["mint"](seed=seed), start(chains, 1))
    fit(chains, epochs=3)
    fit(plain, epochs=3)
    np.testing.assert_allclose(chain(chains, 1), weights(plain), rtol=1e-4, atol=1e-5)


def test_chains_start_apart_and_repeat_with_their_seed():
    first, again, other = (
        mh.ParallelChains(sequential(), 4, seed=seed) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(chain(first, 0), weights(sequential()))
    for index in range(4):
        np.testing.assert_array_equal(chain(first, index), chain(again, index))
    for index in range(1, 4):
        assert np.abs(chain(first, index) - chain(other, index)).max() > 0.01
        kernel = numpy(first.trainable_variables[0])[index]
        # Glorot's bound of the layer's own initializer, and about its spread.
        limit = np.sqrt(6 / (FEATURES + 7))
        assert np.abs(kernel).max() <= limit
        assert 0.6 < kernel.std() / (limit / np.sqrt(3)) < 1.4
    starts = np.array([chain(first, index) for index in range(4)])
    correlations = np.corrcoef(starts[:, : FEATURES * 7])
    assert np.abs(correlations - np.eye(4)).max() < 0.6


@pytest.mark.parametrize("name", ["sgld", "sghmc", "rsgld"])
def test_chains_from_one_point_get_noise_of_their_own(name):
    chains = parallel(name)
    for variable in chains.trainable_variables:
        value = numpy(variable)
        variable.assign(np.broadcast_to(value[:1], value.shape))
    before = chain(chains, 0)
    fit(chains)
    moves = [chain(chains, index) - before for index in range(3)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert np.abs(moves[one] - moves[other]).max() > 1e-4


def test_every_chain_has_its_own_acceptance_and_beta():
    chains = parallel("rsgld", 5)
    history = fit(chains, epochs=6, callbacks=[mh.PosteriorSamples()])
    by_chain = chains.chain_history
    for name in ("acceptance", "beta", "energy", "nonfinite"):
        assert by_chain[name].shape == (6, 5)
    assert len(set(by_chain["beta"][-1])) > 1
    assert len(set(by_chain["acceptance"].sum(axis=0))) > 1
    for name in ("acceptance", "beta", "energy"):
        np.testing.assert_allclose(
            history.history[name], by_chain[name].mean(axis=1), rtol=1e-6
        )


@pytest.mark.parametrize("name", ["sgld", "rsgld", "adam"])
@both_strategies
def test_a_chain_whose_loss_is_not_finite_disturbs_no_other(name, strategy):
    runs = []
    for spoiled in (False, True):
        chains = parallel(name, strategy=strategy)
        if spoiled:
            kernel = chains.trainable_variables[0]
            value = numpy(kernel)
            value[1] = np.nan
            kernel.assign(value)
        fit(chains)
        runs.append(chains)
    assert np.isnan(chain(runs[1], 1)).any()
    for index in (0, 2):
        np.testing.assert_array_equal(*(chain(run, index) for run in runs))
    if name in METROPOLIS:
        report = runs[1].optimizer.chain_diagnostics()
        assert report["nonfinite"].tolist() == [0.0, 12.0, 0.0]
        assert np.isnan(report["acceptance"][1])
        assert np.isfinite(runs[1].optimizer.diagnostics()["acceptance"])


def test_the_prior_knows_the_variables_by_their_paths():
    """A flat loss leaves the prior alone, on one kernel of each chain."""
    template = sequential()
    path = template.trainable_variables[0].path
    prior = mh.priors.Gaussian({path: 0.1})
    chains = mh.ParallelChains(template, 3, seed=0)
    assert [v.path for v in chains.trainable_variables] == [
        v.path for v in template.trainable_variables
    ]
    optimizer = mh.SGLD(0.0, train_size=TRAIN_SIZE, prior=prior, seed=0)
    compiled(optimizer, chains)
    fit(chains, epochs=1)
    kernel = numpy(chains.trainable_variables[0]).astype("float64")
    squares = (kernel**2).sum(axis=(1, 2)) / (2 * 0.1**2)
    energy = optimizer.chain_diagnostics()["energy"]
    losses = TRAIN_SIZE * chains.chain_history["loss"][-1]
    np.testing.assert_allclose(energy - losses, squares, rtol=1e-3)


def test_shapes_of_predictions_and_of_metrics_by_chain():
    x, y = data()
    chains = parallel("sgd", 4)
    fit(chains, validation_data=(x, y))
    outputs = chains.predict(x, verbose=0, batch_size=40)
    assert outputs.shape == (4, TRAIN_SIZE, CLASSES)
    assert tuple(chains(x[:5]).shape) == (5, 4, CLASSES)
    by_chain = chains.evaluate_chains(x, y)
    assert set(by_chain) == {"loss", "accuracy"}
    accuracy = (outputs.argmax(-1) == y).mean(axis=1)
    np.testing.assert_allclose(by_chain["accuracy"], accuracy, rtol=1e-6)
    picked = np.take_along_axis(outputs, y[None, :, None], axis=2)
    losses = -np.log(picked).mean(axis=(1, 2))
    np.testing.assert_allclose(by_chain["loss"], losses, rtol=1e-5)
    mean, _ = chains.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(mean, losses.mean(), rtol=1e-5)
    history = chains.chain_history
    np.testing.assert_allclose(history["val_loss"][-1], losses, rtol=1e-5)
    assert history["val_accuracy"].shape == history["loss"].shape == (2, 4)
    assert np.abs(history["val_loss"] - history["loss"]).max() > 1e-4


def test_regularisers_and_sample_weights_count():
    def model():
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(
                    CLASSES,
                    "softmax",
                    kernel_regularizer=keras.regularizers.L2(0.1),
                    activity_regularizer=keras.regularizers.L2(0.1),
                    kernel_initializer=keras.initializers.GlorotUniform(seed=1),
                ),
            ]
        )

    plain = compiled(keras.optimizers.SGD(0.1), model())
    chains = parallel("sgd", 2, model=model())
    compiled(keras.optimizers.SGD(0.1), chains)
    sample_weight = np.linspace(0.5, 2.0, TRAIN_SIZE)
    for each in (plain, chains):
        fit(each, sample_weight=sample_weight)
    np.testing.assert_allclose(chain(chains, 0), weights(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.slow_on("tensorflow", "torch")
def test_chains_of_sgld_have_the_variance_of_the_closed_form():
    """A linear model with a Gaussian likelihood, at full batch: T / (L (1 - eta L/2)).

    200 chains after a burn-in of many times the relaxation time: independent draws,
    whose sample variance has the standard error sqrt(2 / 200) = 0.1 of itself; the
    mean over five epochs that are 50 steps apart has 0.045.
    """
    size, scale, rate = 50, 0.5, 0.02
    x = np.ones((size, 1), "float32")
    y = np.zeros(size, "float32")
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    chains = mh.ParallelChains(model, 200, seed=0)
    chains.compile(
        optimizer=mh.SGLD(rate, train_size=size, seed=5),
        loss=mh.losses.GaussianNLL(noise_std=scale),
    )
    precision = size / scale**2
    variances = []
    for _ in range(6):
        chains.fit(x, y, batch_size=size, epochs=40, verbose=0)
        variances.append(numpy(chains.trainable_variables[0]).var())
    expected = 1 / (precision * (1 - rate / size * precision / 2))
    assert abs(np.mean(variances[1:]) / expected - 1) < 4 * 0.045
