"""The suite is tested in turn: it must fail for each bug that is planted.

`test_laws` shows that the same cells pass without the bug. pytest prints the table of
both at its end.
"""

import pytest

from tests.statistics import bugs_of_decisions
from tests.statistics import bugs_of_moves
from tests.statistics import bugs_of_thermostats
from tests.statistics import suite
from tests.statistics import table
from tests.statistics.planting import BUGS

# Importing them enters their bugs.
FAMILIES = (bugs_of_moves, bugs_of_decisions, bugs_of_thermostats)


def fails(name, sampler, target, monkeypatch, record_property):
    """Asserts that a cell of the suite fails under a bug."""
    bug = BUGS[name]
    plan, length = table.SHORT, "short"
    if bug.is_subtle:
        plan, length = table.SUBTLE, f"subtle {name}"
        healthy = suite.check(sampler, target, plan)
        record_property("law", (sampler, target, length, *healthy))
    bug.plant(monkeypatch)
    result = suite.measure(sampler, target, plan)
    record_property("bug", (name, bug.where, sampler, target, length, *result))
    with pytest.raises(AssertionError, match="misses its law|stands still"):
        suite.assert_law(result, sampler)


SHORT = {name: bug for name, bug in BUGS.items() if bug.is_short}


@pytest.mark.parametrize("name", SHORT)
def test_a_bug_of_each_kind_is_caught(name, monkeypatch, record_property):
    fails(name, *BUGS[name].cells[0], monkeypatch, record_property)


MORE = [
    (name, *cell)
    for name, bug in BUGS.items()
    for cell in bug.cells[1 if bug.is_short else 0 :]
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sampler", "target"), MORE)
def test_a_bug_is_caught_wherever_it_shows(
    name, sampler, target, monkeypatch, record_property
):
    fails(name, sampler, target, monkeypatch, record_property)


def test_each_bug_is_caught_where_the_suite_looks():
    """Without the bug, the cell of the short form is a test of its own."""
    short, every = table.cells(short=True), table.cells(short=False)
    for bug in BUGS.values():
        assert bug.cells[0] in (every if bug.is_subtle else short)
        assert set(bug.cells) <= set(every)


def test_the_short_form_has_a_bug_of_each_kind():
    kinds = [bug.kind for bug in SHORT.values()]
    assert sorted(kinds) == sorted({bug.kind for bug in BUGS.values()})
    assert len(kinds) == 17
