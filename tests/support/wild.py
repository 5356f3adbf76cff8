"""Any values at all, and changes of good ones, by chance."""

import decimal
import fractions

import keras
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.kinds import HUGE

# Integers that are taken may be sizes: those between would fill memory or time.
INTEGERS = st.integers(-3, 12) | st.sampled_from(
    [64, -(2**31), 2**31, 2**32, 2**53, 2**63, 2**64, HUGE, -HUGE]
)
FLOATS = st.floats(width=64) | st.sampled_from([1e-45, 1e38, 1e39, 1 - 1e-9, 1 + 1e-9])
# Functions are among the kinds, where it is known what they give.
ODD = [None, object(), ..., slice(3), decimal.Decimal("0.5"), fractions.Fraction(1, 2)]
ODD += [np.float16(0.5), np.int8(1), np.datetime64("2020-01-01"), memoryview(b"ab")]
ODD += [range(2), set()]
TEXTS = st.text(max_size=5) | st.binary(max_size=3)
SCALARS = INTEGERS | FLOATS | st.booleans() | TEXTS | st.complex_numbers()
SCALARS |= st.sampled_from(ODD)
ARRAYS = hnp.arrays(
    st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16", "U2", "S2", "M8[D]"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
KEYS = st.text(max_size=2) | st.integers()
NESTED = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=2)
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
def cases(draw, good, arguments):
    """One of these arguments, and a value for it."""
    argument = draw(st.sampled_from(arguments))
    strategies = [SCALARS, ARRAYS, NESTED]
    if argument in good:
        strategies += [neighbours(good[argument])] * 2
    return argument, draw(st.one_of(strategies))
