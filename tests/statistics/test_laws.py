"""Every sampler has its law on every target; `table` says which law, and why not.

Chains start in the target, or at its moments, and are independent: the tolerances are
the standard errors of averages over chains, however slowly each of them moves.
"""

import inspect
import pathlib

import keras
import pytest

import keras_mhmcmc as mh
from tests.statistics import suite
from tests.statistics import table
from tests.statistics.targets import TARGETS
from tests.support import samplers


@pytest.mark.parametrize(("sampler", "target"), table.cells(short=True))
def test_a_sampler_has_its_law(sampler, target, record_property):
    result = suite.check(sampler, target, table.SHORT)
    record_property("law", (sampler, target, "short", *result))


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "target"), table.cells(short=False))
def test_a_sampler_has_its_law_in_long_runs(sampler, target, record_property):
    result = suite.check(sampler, target, table.LONG)
    record_property("law", (sampler, target, "long", *result))


def is_sampler(value):
    return inspect.isclass(value) and issubclass(value, keras.Optimizer)


ROOT = pathlib.Path(__file__).parent.parent.parent
# Their law is tested elsewhere, for a reason.
ELSEWHERE = {
    # Its paths are tested on the data of a `fit`, which the suite does not run.
    "AMAGOLD": "tests/fit/test_amagold.py",
    # It needs the losses of single examples, which the suite does not give.
    "Barker": "tests/samplers/test_barker_steps.py",
}


def test_no_sampler_is_left_out():
    """Every public sampler has a row, and every target or a reason not to."""
    public = {name for name in mh.__all__ if is_sampler(getattr(mh, name))}
    assert public - ELSEWHERE.keys() == samplers.OF_CLASSES.keys()
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())
    for row in table.SAMPLERS.values():
        law = row.law
        assert law.short and set(law.short) <= set(TARGETS) - set(law.without)
        assert all(len(reason) > 20 for reason in law.without.values())
