"""The table of warnings: each row has a run that shows the harm, and is told."""

import ast
from pathlib import Path

import pytest

from keras_mhmcmc.fit import watch
from tests.support.package_files import files
from tests.support.package_files import parse

TESTS = Path(__file__).parent
ROOMS = ("fit/", "samplers/")
TELLING = ("tell", "text_of")


def rows_told():
    """The rows that are named where somebody warns."""
    calls = (
        node
        for path in files()
        if path.startswith(ROOMS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and node.args
    )
    for call in calls:
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name in TELLING and isinstance(call.args[0], ast.Constant):
            yield call.args[0].value


@pytest.mark.parametrize("row", watch.ROWS.values(), ids=list(watch.ROWS))
def test_the_run_of_a_warning_is_a_test(row):
    module, _, name = row.run.partition("::")
    assert f"\ndef test_{name}(" in (TESTS / f"test_{module}.py").read_text()


def test_each_row_is_told():
    assert set(rows_told()) == set(watch.ROWS)
