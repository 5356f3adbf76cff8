"""Samplers by their names, as Keras takes the names of its own optimizers."""

import keras
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import data
from tests.support.models import fit
from tests.support.models import sequential

RATES = dict.fromkeys(("sgld", "sghmc", "sgnht", "csgld", "csghmc"), 0.03)
RATES |= {"psgld": 0.001, "sgmclmc": 0.3}


@pytest.mark.eager_and_compiled
def test_a_model_is_compiled_with_a_name(tmp_path):
    model = compiled("psgld")
    fit(model)
    assert isinstance(model.optimizer, mh.PSGLD)
    assert model.optimizer.train_size == 96
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    assert loaded.get_config() == model.optimizer.get_config()


@pytest.mark.parametrize("name", RATES)
def test_the_names_and_their_rates(name):
    for text in (name, name.upper()):
        for sampler in (
            keras.optimizers.get(text),
            compiled(text, mh.ParallelChains(sequential(), 2)).optimizer,
        ):
            assert type(sampler) is getattr(mh, name.upper())
            rate = float(keras.ops.convert_to_numpy(sampler.learning_rate))
            assert abs(rate - RATES[name]) < 1e-7


def test_chains_take_mixed_case_and_tell_all_names():
    chains = mh.ParallelChains(sequential(), 2)
    assert isinstance(compiled("PsgLd", chains).optimizer, mh.PSGLD)
    assert isinstance(compiled("Adam", chains).optimizer, keras.optimizers.Adam)
    with pytest.raises(ValueError, match="`optimizer` must be .*or the name") as error:
        compiled("mint", chains)
    for name in (*RATES, "adam", "sgd"):
        assert f" {name}," in str(error.value) or f" {name}." in str(error.value)


def test_rates_are_suggested_for_a_name():
    x, y = data()
    found = mh.suggest_learning_rate(
        compiled("sgd"), x, y, optimizer="sghmc", rates=[0.01], steps=4
    )
    assert "SGHMC" in str(found)
