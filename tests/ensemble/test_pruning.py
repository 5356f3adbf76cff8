"""A copy of a network without the weights that its prior made small."""

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import numpy
from tests.support.models import sequential


@pytest.fixture(scope="module")
def model():
    prior = mh.priors.SpikeSlab("kernel", v0=1e-2, v1=1.0)
    optimizer = mh.SGHMCSA(0.05, train_size=96, prior=prior, step_size=0.1, seed=1)
    trained = compiled(optimizer)
    fit(trained, epochs=30)
    return trained


def test_weights_of_low_probability_are_zero_and_the_others_as_they_were(model):
    before = model.get_weights()
    pruned = mh.prune(model, model.optimizer, threshold=0.4)
    inclusion = list(model.optimizer.inclusion_probabilities().values())
    kernels = [i for i, v in enumerate(model.weights) if len(v.shape) == 2]
    masks = dict(zip(kernels, [rho >= 0.4 for rho in inclusion], strict=True))
    removed = sum(int((~mask).sum()) for mask in masks.values())
    assert 0 < removed < 56
    for i, (old, new) in enumerate(zip(before, pruned.get_weights(), strict=True)):
        np.testing.assert_array_equal(new, old * masks[i] if i in masks else old)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert pruned is not model


def test_the_report_has_both_evaluations(model, capsys):
    x, y = data()
    pruned = mh.prune(model, model.optimizer, threshold=0.4, x=x, y=y)
    first, names, before, after = capsys.readouterr().out.splitlines()
    zeros = sum(int((numpy(v) == 0).sum()) for v in pruned.weights if len(v.shape) == 2)
    assert first.startswith(f"{56 - zeros} of 56 sparse weights are left")
    columns = names.split()
    for line, one in ((before, model), (after, pruned)):
        values = one.evaluate(x, y, verbose=0, return_dict=True)
        shown = dict(zip(columns, line.split()[1:], strict=True))
        assert shown == {key: f"{value:.4f}" for key, value in values.items()}
    assert before.split()[0] == "before"


def test_without_a_threshold_nothing_is_removed(model):
    pruned = mh.prune(model, model.optimizer, threshold=0.0)
    x, _ = data()
    np.testing.assert_allclose(
        pruned.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6
    )


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "half", None])
def test_a_bad_threshold_is_named(model, threshold):
    with pytest.raises(ValueError, match="`threshold`"):
        mh.prune(model, model.optimizer, threshold=threshold)


def test_an_optimizer_without_probabilities_is_refused(model):
    with pytest.raises(ValueError, match="`optimizer` must be an `mh.SGLDSA`"):
        mh.prune(model, keras.optimizers.Adam())


def test_an_optimizer_of_another_model_is_refused(model):
    with pytest.raises(ValueError, match="belongs to another model"):
        mh.prune(sequential(), model.optimizer)


def test_an_optimizer_that_made_no_step_is_refused():
    prior = mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0)
    fresh = compiled(mh.SGLDSA(0.1, train_size=96, prior=prior))
    with pytest.raises(ValueError, match="has not made a step"):
        mh.prune(fresh, fresh.optimizer)
