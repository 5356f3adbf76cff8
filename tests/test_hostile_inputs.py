"""Hostile input: every public callable refuses it, and names the argument."""

import pytest
from hostile_parts import PARTS
from hostile_tools import assert_names
from hostile_tools import described

TABLE = PARTS


def inputs():
    for name, row in TABLE.items():
        for argument, values in row.bad.items():
            for place, value in enumerate(values):
                label = f"{name}-{argument}-{place}-{described(value)}"
                yield pytest.param(name, argument, value, id=label)


@pytest.mark.parametrize(("name", "argument", "value"), inputs())
def test_a_bad_input_is_refused_by_name(name, argument, value):
    row = TABLE[name]
    for package in row.needs:
        pytest.importorskip(package)
    arguments = row.good() | {argument: value}
    with pytest.raises((ValueError, TypeError)) as error:
        row.call(**arguments)
    assert_names(error.value, {argument} | row.also.get(argument, set()))
    assert "eceived" in str(error.value)
