"""Every sampler has its law on every target; `table` says which law, and why not.

Chains start in the target, or at its moments, and are independent: the tolerances are
the standard errors of averages over chains, however slowly each of them moves.
"""

import cases
import pytest
import suite
import table
from targets import TARGETS


@pytest.mark.parametrize(("sampler", "target"), table.cells(short=True))
def test_a_sampler_has_its_law(sampler, target, record_property):
    result = suite.check(sampler, target, table.SHORT)
    record_property("law", (sampler, target, "short", *result))


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "target"), table.cells(short=False))
def test_a_sampler_has_its_law_in_long_runs(sampler, target, record_property):
    result = suite.check(sampler, target, table.LONG)
    record_property("law", (sampler, target, "long", *result))


def test_no_sampler_is_left_out():
    """Every sampler of the contract has a row, and every target or a reason not to."""
    target = TARGETS["gaussian"]
    tested = {type(row.make(target, 0)) for row in table.SAMPLERS.values()}
    assert {type(case.make()) for case in cases.SAMPLERS.values()} == tested
    for name, row in table.SAMPLERS.items():
        short = [target for sampler, target in table.cells(True) if sampler == name]
        assert short and set(short) <= set(TARGETS) - set(row.without)
        assert all(len(reason) > 20 for reason in row.without.values())
