"""Names that tell variables apart."""

import pytest

from keras_mhmcmc._names import distinct


@pytest.mark.parametrize(
    "names, expected",
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "b", "a", "a"], ["a", "b", "a#2", "a#3"]),
        # A number that somebody gave already is not given again.
        (["a", "a", "a#2"], ["a", "a#2", "a#2#2"]),
        (["a#2", "a", "a"], ["a#2", "a", "a#3"]),
    ],
)
def test_repeated_names_get_a_number(names, expected):
    assert distinct(names) == expected
    assert len(set(expected)) == len(names)
