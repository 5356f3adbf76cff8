"""Kinds of arguments: which values each takes, and strategies for those it refuses."""

import decimal
import math
import numbers
import types
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

HUGE = 10**400  # no float is so large
PRINTLESS = 10**5000  # Python refuses to print it
NO_NUMBER = [None, True, np.bool_(True), "0.5", "", "auto", b"1", 1j, {}, {"a": 1}]
NO_NUMBER += [{0.5}, [], [0.5], (1, 2), np.array([1.0]), range(3), float, object()]
NO_NUMBER += [lambda x: x, np.datetime64("now"), decimal.Decimal("0.5")]
NO_ARRAY = ["0.5", ["0.5"], None, [None], {}, {"a": "b"}, {0.5}, float, b"0.5", 1j]
NO_ARRAY += [[1j, 0.5], [HUGE], lambda x: x, [[1.0], [1.0, 2.0]]]
NO_ARRAY += [np.array([0.5, "a"], object), np.array(["2020-01-01"], "M8[D]")]

odd = st.sampled_from(NO_NUMBER)
no_array = st.sampled_from(NO_ARRAY)
anything = odd | st.floats() | st.integers() | st.text(max_size=5)


@dataclass(frozen=True)
class Kind:
    """Values that an argument takes, and those that it is tested to refuse."""

    edges: tuple = ()  # tried in each run, but for those that are taken
    drawn: Any = anything  # the same, some of them in each run
    takes: Callable = lambda value: False
    is_shown: bool = True  # whether the error shows the value, not only the name

    def refused(self):
        return [value for value in self.edges if not self.takes(value)]

    def strategy(self):
        return self.drawn.filter(lambda value: not self.takes(value))

    def but(self, takes):
        """This kind, which takes more: by a function, of a class, or one text."""
        also = takes
        if isinstance(takes, str):
            also = lambda value: isinstance(value, str) and value == takes
        elif isinstance(takes, type):
            also = lambda value: isinstance(value, takes)
        return replace(self, takes=lambda value: also(value) or self.takes(value))

    @property
    def or_none(self):
        return self.but(types.NoneType)

    def __or__(self, values):
        """This kind, with more edges."""
        return replace(self, edges=(*self.edges, *values))


def listed(*values):
    """Nothing but these are refused, as far as a test can tell."""
    return Kind(values, st.sampled_from(values))


def unshown(*values):
    """Values that do not go with other arguments: the error names them, no more."""
    return replace(listed(*values), is_shown=False)


def number(interval):
    """A number in an interval, such as "[0, 1)", in 32 bits, too."""
    low, high = (float(end) for end in interval[1:-1].split(","))

    def takes(value):
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        value = value.item() if isinstance(value, np.generic) else value
        if not abs(value) <= 3e38:
            return False
        rounded = float(np.float32(value)) if abs(value) >= 2.0**-126 else 0.0
        above = low < rounded if interval[0] == "(" else low <= min(value, rounded)
        below = rounded < high if interval[-1] == ")" else max(value, rounded) <= high
        return above and below

    ends = (low, low - 1e-3, low + 5e-324, low + 1e-12, high, high + 1e-3, high - 1e-12)
    edges = (math.nan, math.inf, -math.inf, np.float32("nan"), HUGE, -HUGE, True, None)
    return Kind((*ends, *edges, "0.5", [0.5]), takes=takes)


def integer(low, high=2**31 - 1):
    """An integer in [low, high]."""

    def takes(value):
        is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return is_integer and low <= value <= high

    edges = (low - 1, high + 1, HUGE, -HUGE, PRINTLESS, float(low + 1), True, "1", None)
    return Kind((*edges, math.nan, np.float32(10), [1]), takes=takes)


def choice(*options):
    """One of some texts, flags, numbers, or None."""
    comparable = (str, int, float, np.bool_, types.NoneType)
    texts = [option for option in options if isinstance(option, str)]
    near = [f(text) for text in texts for f in (str.upper, str.encode, "{} ".format)]
    return Kind(
        (
            *near,
            *([text] for text in texts),
            "yes",
            "",
            None,
            2,
            True,
            math.nan,
            [True],
        ),
        takes=lambda value: isinstance(value, comparable) and value in options,
    )


def instance(classes, *near):
    """An object of some classes; what is `near` them, such as the classes, is none."""
    return Kind(near, takes=lambda value: isinstance(value, classes))


def array(good, interval="(-inf, inf)", *others, shapes=(), planted=(), empty=False):
    """Numbers like those of `good`, in an interval; with "[-inf", -inf is one, too.

    `others` are more values that are refused, `shapes` are shapes that are, and
    `planted` may not be among the numbers. Unless it may be `empty`, an array must have
    something along its first axis.
    """
    good = np.asarray(good, "float64")
    low, high = (float(end) for end in interval[1:-1].split(","))
    planted = [math.nan, *planted]
    if interval[0] == "(" or low > -math.inf:
        planted.append(low if interval[0] == "(" else low - 1e-3)
    if interval[-1] == ")" or high < math.inf:
        planted.append(high if interval[-1] == ")" else high + 1e-3)

    def plant(value, place=-1):
        result = good.copy()
        result.flat[place] = value
        return result

    shapes = [*shapes, *([] if empty else [(0, *good.shape[1:])])]
    edges = [np.resize(good, shape) for shape in shapes]
    edges += [
        good.astype("complex64"),
        good.astype("U5"),
        *map(plant, planted),
        *others,
    ]
    places = st.integers(0, good.size - 1)
    somewhere = st.builds(plant, st.sampled_from(planted), places)
    return Kind((*edges, [PRINTLESS]), st.sampled_from([*NO_ARRAY, *edges]) | somewhere)


COUNT = integer(1)
INTEGER = integer(0)
POSITIVE = number("(0, inf)")
NOT_NEGATIVE = number("[0, inf)")
AT_LEAST_ONE = number("[1, inf)")
NUMBER = number("(-inf, inf)")
SHARE = number("[0, 1)")
OPEN_SHARE = number("(0, 1)")
UP_TO_ONE = number("(0, 1]")
FLAG = choice(True, False)
STRICT_FLAG = instance(bool, 0, 1, np.bool_(True))
TEXT = instance(str)
