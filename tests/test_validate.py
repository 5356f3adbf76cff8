"""Each check of arguments: what it takes, what it gives back, and how it refuses."""

import fractions
import math
import numbers
import re

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from keras_mhmcmc import _validate
from tests.support import kinds
from tests.support import wild

# Deterministic, and no examples of an earlier run.
many = settings(max_examples=100, derandomize=True, deadline=None, database=None)
VALUES = wild.SCALARS | wild.ARRAYS | wild.NESTED | kinds.odd | kinds.no_array
NEAR_ENDS = [5e-324, 1e-46, 1e-38, 1e-7, 1 - 1e-12, 1 + 1e-12, 3e38, 3.5e38, 1e300]
NUMBERS = st.floats() | st.integers() | st.floats(-2, 12)
NUMBERS |= st.sampled_from([*NEAR_ENDS, *(-end for end in NEAR_ENDS), kinds.HUGE])
NUMBERS |= st.builds(
    lambda make, value: make(value),
    st.sampled_from([np.float32, np.float16, np.int8, fractions.Fraction]),
    st.integers(-3, 12),
)
ENDS = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 1.0, 10.0, math.inf])
INTERVALS = st.builds(_validate.Interval, ENDS, ENDS, st.booleans(), st.booleans())


def refused(check, *parts):
    """Asserts that `check` raises a `ValueError` whose message has all parts."""
    with pytest.raises(ValueError) as error:
        check()
    message = str(error.value)
    assert all(part in message for part in (*parts, "Received: ")), message
    assert len(message) < 1500


@many
@given(INTERVALS, NUMBERS)
def test_an_interval_holds_what_lies_between_its_ends(interval, value):
    above = value > interval.low or (value == interval.low and not interval.low_open)
    below = value < interval.high or (value == interval.high and not interval.high_open)
    assert interval.holds(value) == (above and below)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0.0,), "finite and at least 0"),
        ((0.0, math.inf, True), "finite and greater than 0"),
        ((0.0, 1.0), "in [0, 1)"),
        ((0.5, 1.0, True, False), "in (0.5, 1]"),
    ],
)
def test_an_interval_says_which_ends_it_has(arguments, text):
    assert str(_validate.Interval(*arguments)) == text


@many
@given(INTERVALS, NUMBERS | VALUES)
def test_a_number_lies_in_its_interval_also_in_32_bits(interval, value):
    left, right = "[("[interval.low_open], "])"[interval.high_open]
    kind = kinds.number(f"{left}{interval.low}, {interval.high}{right}")
    check = lambda: _validate.number("rate", value, interval, "A hint.")
    if kind.takes(value):
        assert type(check()) is float and check() == float(value)
    else:
        refused(check, "`rate`", str(interval), "A hint.")


@pytest.mark.parametrize("value", ["1", None, True, math.nan, 2, -1e-50, 1 - 1e-12])
def test_a_number_that_is_refused_is_shown(value):
    check = lambda: _validate.number("rate", value, _validate.Interval(0.0, 1.0))
    refused(check, "`rate` must be a number that is in [0, 1)", f"rate={value!r}")


@many
@given(st.integers(-5, 5), st.integers(0, 2**32), NUMBERS | VALUES)
def test_an_integer_lies_between_its_ends(low, high, value):
    check = lambda: _validate.integer("count", value, low, "A hint.", high)
    if kinds.integer(low, high).takes(value):
        assert type(check()) is int and check() == value
    else:
        refused(check, "`count`", "A hint.", f"count={_validate.shown(value)}")


def test_an_integer_says_which_end_is_passed():
    refused(lambda: _validate.integer("n", 0, 1), "at least 1", "n=0")
    refused(lambda: _validate.integer("n", 2**31, 1), f"at most {2**31 - 1}", "n=2147")


@many
@given(NUMBERS | VALUES)
def test_a_seed_is_what_every_backend_takes(value):
    if kinds.INTEGER.takes(value):
        assert _validate.seed(value) == value
    else:
        refused(lambda: _validate.seed(value), "`seed`", "2**31")


OPTIONS = ("backward", "2", None, True, 3, 0.5)


@many
@given(VALUES | st.sampled_from([*OPTIONS, 1, 3.0, np.float64(3), np.bool_(True)]))
def test_a_choice_is_one_of_its_options(value):
    check = lambda: _validate.choice("way", value, OPTIONS)
    plain = value.item() if isinstance(value, np.generic) else value
    scalars = str | numbers.Number | None
    if isinstance(plain, scalars) and plain in OPTIONS:
        assert any(check() is option for option in OPTIONS) and check() == plain
    else:
        listed = "'backward', '2', None, True, 3, 0.5"
        refused(check, f"`way` must be one of {listed}", _validate.shown(value))


@many
@given(VALUES)
def test_an_instance_is_given_back_itself(value):
    check = lambda: _validate.instance("given", value, (str, dict), "a text or a dict")
    if isinstance(value, str | dict):
        assert check() is value
    else:
        refused(check, "`given` must be a text or a dict", _validate.shown(value))


@many
@given(wild.ARRAYS)
def test_an_array_is_one_of_real_numbers(value):
    check = lambda: _validate.array("Argument `x`", value)
    if value.dtype.kind in "biuf":
        assert check().dtype == "float64"
        np.testing.assert_array_equal(check(), value)
        assert _validate.array("Argument `x`", value, dtype=None) is value
    else:
        refused(check, "Argument `x` must be an array of numbers")


@pytest.mark.parametrize("value", kinds.NO_ARRAY, ids=lambda value: "value")
def test_what_is_no_array_of_numbers_is_refused(value):
    refused(lambda: _validate.array("The entry 'a'", value), "The entry 'a' must be")


def test_an_array_may_be_a_tensor_or_nested_lists():
    tensor = keras.ops.convert_to_tensor([[1.0, 2.0]], "float32")
    for value in (tensor, [[1, 2]], ((1.0, 2.0),), [[np.float16(1), 2]]):
        np.testing.assert_array_equal(_validate.array("x", value), [[1.0, 2.0]])
    assert np.isinf(_validate.array("x", [1e300], "float32")).all()


@many
@given(st.integers(-1, 12), st.integers(1, 9))
def test_a_batch_is_no_larger_than_the_data(value, size):
    check = lambda: _validate.batch_size(value, size)
    if 1 <= value <= size:
        assert check() == value
    else:
        sizes = ["`train_size`", f"train_size={size}"] if value > 0 else []
        refused(check, "`batch_size`", f"batch_size={value}", *sizes)


@many
@given(st.text(max_size=4) | st.from_regex(r"[\w.-]{0,5}", fullmatch=True))
def test_a_name_is_one_that_every_backend_takes(value):
    signs = set(re.sub("[A-Za-z0-9]", "", value))
    if signs <= set("._-") and value[:1] not in ("_", "-"):
        assert _validate.scope_name(value) == value
    else:
        refused(lambda: _validate.scope_name(value), "`name`", "name=")


def test_an_activation_is_one_of_keras():
    relu = keras.activations.relu
    for value in ("relu", relu, keras.activations.serialize(relu)):
        assert _validate.activation(value) is relu
    assert _validate.activation(None) is keras.activations.linear


@many
@given(st.text(max_size=5) | st.integers() | st.lists(st.integers(), max_size=2))
def test_an_activation_that_keras_does_not_know_is_shown(value):
    shown = f"activation={_validate.shown(value)}"
    refused(lambda: _validate.activation(value), "`activation`", shown)


@many
@given(st.lists(st.integers(-1, 5), max_size=5), st.integers(1, 5))
def test_positions_leave_one_out(value, count):
    check = lambda: _validate.positions("shared", value, count, "member")
    if set(value) < set(range(count)):
        assert check() == tuple(sorted(set(value)))
    else:
        refused(check, "`shared`", "shared=")


@pytest.mark.parametrize("value", [None, 1, "ab", {0}, [0.0], [True], ["0"]])
def test_positions_are_a_list_of_integers(value):
    refused(lambda: _validate.positions("shared", value, 3, "member"), "`shared`")


SIDES = st.lists(st.sampled_from([None, 1, 3, 4]), max_size=3).map(tuple)
LENGTHS = st.lists(st.sampled_from([1, 3, 4]), max_size=3).map(tuple)


@settings(many, max_examples=60)
@given(SIDES, LENGTHS)
def test_examples_have_the_shape_that_the_model_takes(taken, shape):
    """But for a last axis of length 1, which Keras adds and drops."""
    model = keras.Sequential([keras.Input(taken), keras.layers.Identity()])
    forms = [shape, *([shape[:-1]] if shape[-1:] == (1,) else [])]
    forms += [(*shape, 1)] if taken[-1:] == (1,) else []
    fits = [
        all(a in (None, b) for a, b in zip(taken, form, strict=True))
        for form in forms
        if len(form) == len(taken)
    ]
    check = lambda: _validate.examples("x", (7, *shape), model)
    if any(fits):
        check()
    else:
        refused(check, "`x`", str(taken), str((7, *shape)))


def test_of_some_models_it_is_not_known_what_they_take():
    inputs = [keras.Input((3,)), keras.Input((3,))]
    several = keras.Model(inputs, keras.layers.Add()(inputs))
    for model in (type("Own", (keras.Model,), {})(), several):
        _validate.examples("x", (7, 9), model)


@many
@given(VALUES)
def test_a_value_is_shown_as_python_writes_it_but_for_its_length(value):
    text = repr(value)
    assert _validate.shown(value) == (text if len(text) <= 500 else f"{text[:500]}...")


def test_a_long_value_is_cut():
    assert len(_validate.shown("a" * 600)) == 503
    assert _validate.shown(kinds.PRINTLESS).startswith("int with an integer of")
