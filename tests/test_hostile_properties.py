"""Hostile input by chance: what is accepted is of use, the rest is refused by name."""

import decimal
import fractions
import inspect

import keras
import numpy as np
import pytest
from argument_tools import SAMPLERS
from hostile_parts import round_trip
from hostile_tools import HUGE
from hostile_tools import Row
from hostile_tools import faults_of
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_hostile_inputs import TABLE

import keras_mhmcmc as mh

pytestmark = pytest.mark.in_turn("torch")

EXAMPLES, MANY, FEW = 20, 300, 60


# A contour sampler keeps the number as it was given, a fraction, too.
NOT_DRAWN = dict.fromkeys([mh.CSGLD, mh.CSGHMC], ("options", "step_size"))


def sampler_row(cls, good):
    arguments = {"learning_rate": 0.1, "train_size": 100, "seed": None} | good
    names = list(inspect.signature(cls).parameters)
    names = [name for name in names if name not in NOT_DRAWN.get(cls, ("options",))]
    also = {"adapt": {"masses"}} if "adapt" in names else {}
    return Row(cls, lambda: arguments, dict.fromkeys(names, ()), round_trip, also)


ROWS = TABLE | {name: sampler_row(*given) for name, given in SAMPLERS.items()}

# Integers that are taken may be sizes: those between would fill memory or time.
INTEGERS = st.one_of(
    st.integers(-3, 12),
    st.sampled_from([64, -(2**31), 2**31, 2**32, 2**53, 2**63, 2**64, HUGE, -HUGE]),
)
FLOATS = st.floats(width=64) | st.sampled_from([1e-45, 1e38, 1e39, 1 - 1e-9, 1 + 1e-9])
# Functions are in the table, where it is known what they give.
ODD = [
    None,
    object(),
    ...,
    slice(3),
    decimal.Decimal("0.5"),
    fractions.Fraction(1, 2),
    np.float16(0.5),
    np.int8(1),
    np.datetime64("2020-01-01"),
    memoryview(b"ab"),
    range(2),
    set(),
]
SCALARS = (
    INTEGERS
    | FLOATS
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=3)
    | st.complex_numbers()
    | st.sampled_from(ODD)
)
ARRAYS = hnp.arrays(
    st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U2", "S2", "M8[D]"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2)
        | st.tuples(inner, inner)
    ),
    max_leaves=4,
)
CHANGES = [
    lambda x: [x],
    lambda x: str(x),
    lambda x: -np.asarray(x),
    lambda x: np.asarray(x) * 1e-40,
    lambda x: np.asarray(x, "float64") * 1e300,
    lambda x: np.asarray(x) + 0.5,
    lambda x: np.asarray(x) * np.nan,
    lambda x: np.asarray(x)[None],
    lambda x: np.asarray(x)[..., None],
    lambda x: np.asarray(x).T,
    lambda x: np.asarray(x).ravel()[1:],
    lambda x: np.asarray(x)[1:],
    lambda x: np.concatenate([x, x]),
    lambda x: np.asarray(x).astype(str),
    lambda x: np.asarray(x).astype(object),
    lambda x: np.asarray(x).astype(complex),
    lambda x: np.asarray(x).astype("float16"),
    lambda x: np.asarray(x).tolist(),
    lambda x: keras.ops.convert_to_tensor(x, "float32"),
    lambda x: keras.ops.convert_to_tensor(x, "bfloat16"),
    lambda x: np.where(np.arange(np.size(x)).reshape(np.shape(x)) == 1, np.nan, x),
]


@st.composite
def neighbours(draw, good):
    """A good value, changed in one or two ways; or, where that fails, another one."""
    value = good
    for change in draw(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2)):
        try:
            value = change(value)
        except Exception:  # a change of what has no numbers
            return draw(SCALARS)
    return value


@st.composite
def cases(draw, name):
    """An argument of a row and a value for it."""
    row = ROWS[name]
    argument = draw(st.sampled_from(sorted(row.bad)))
    good = row.good()
    strategies = [SCALARS, ARRAYS, NESTED]
    if argument in good:
        strategies += [neighbours(good[argument])] * 2
    return argument, draw(st.one_of(strategies))


def check(name, argument, value):
    row = ROWS[name]
    try:
        result = row.call(**row.good() | {argument: value})
    except (ValueError, TypeError) as error:
        names = {argument} | row.also.get(argument, set())
        faults = list(faults_of(error, names))
        assert not faults, faults
    else:
        row.usable(result)


def property_of(name, examples):
    """A test of a row, which hypothesis runs with this many examples."""
    for package in ROWS[name].needs:
        pytest.importorskip(package)

    @settings(max_examples=examples, derandomize=True, deadline=None, database=None)
    @given(cases(name))
    def run(case):
        check(name, *case)

    return run


DRAWN = [name for name in ROWS if ROWS[name].is_drawn]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in DRAWN if ROWS[name].is_quick])
def test_a_value_is_of_use_or_refused_by_name(name):
    property_of(name, EXAMPLES)()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DRAWN)
def test_many_values_are_of_use_or_refused_by_name(name):
    property_of(name, MANY if ROWS[name].is_quick else FEW)()
