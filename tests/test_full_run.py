"""What passed when: a release needs each part green, and not long ago."""

import re
import warnings

import pytest

from tests import full_run

GREEN = {"commit": "new", "passed": 3, "failed": 0}
AGES = {"new": 2, "old": 101}


def found(**changes):
    """The problems of a part whose run on JAX is changed."""
    kept = {"docs": {name: GREEN for name in full_run.BACKENDS}}
    kept["docs"]["jax"] = GREEN | changes
    return full_run.problems(kept, ["docs"], AGES)


def test_a_green_and_fresh_part_has_no_problem():
    assert found() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"commit": "old"}, "docs ran on jax 101 commits ago"),
        ({"failed": 2}, "docs has 2 failures on jax"),
        ({"passed": 0}, "docs has 0 failures on jax"),
    ],
)
def test_a_stale_or_red_part_is_told(change, words):
    assert found(**change) == [words]


def test_a_part_that_never_ran_is_told():
    told = full_run.problems({}, ["docs"], AGES)
    assert told == [f"docs never ran on {name}" for name in full_run.BACKENDS]


def test_each_module_is_in_one_part():
    modules = [path for names in full_run.parts().values() for path in names]
    assert len(modules) == len(set(modules)) > 150
    assert {"docs", "examples", "package", "fit"} <= full_run.parts().keys()
    for part in full_run.PATTERNS:
        assert any(re.search(r"tests/test_", path) for path in full_run.parts()[part])


def test_no_part_is_red():
    """What is old or missing is a warning here, and an error of `--check`."""
    told = full_run.stale()
    if told:
        warnings.warn(f"make test-all: {'; '.join(told)}", stacklevel=1)
    assert not [sentence for sentence in told if "failures" in sentence]
