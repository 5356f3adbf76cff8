"""A kernel may overwrite the memory of variables, and gives what it gives without."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import tensors

SHAPES = [(4, 3), (3,), ()]


def arrays(seed):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in SHAPES]


def lists(seed):
    return [ops.convert_to_tensor(array) for array in arrays(seed)]


def variables(seed):
    return [keras.Variable(array) for array in arrays(seed)]


def values(xs):
    return [np.array(ops.convert_to_numpy(x)) for x in xs]


def assert_equal(xs, ys):
    for x, y in zip(values(xs), values(ys), strict=True):
        np.testing.assert_array_equal(x, y)


TERMS = [(-0.5, lists(1)), (ops.convert_to_tensor(2.0), lists(2)), (0.25, lists(3))]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_sum_in_the_memory_of_variables_is_the_same_sum(count):
    own = variables(0)
    expected = tensors.add_terms(lists(0), *TERMS[:count])
    sums = tensors.add_terms(_backend.donated(own, _backend.read(own)), *TERMS[:count])
    assert_equal(sums, expected)
    _backend.write(own, sums)
    assert_equal(own, expected)


def test_a_sum_that_starts_elsewhere_leaves_that_as_it_was():
    own, others = variables(0), variables(4)
    start = _backend.donated(own, _backend.read(others))
    sums = tensors.add_terms(start, *TERMS)
    _backend.write(own, sums)
    assert_equal(own, tensors.add_terms(lists(4), *TERMS))
    assert_equal(others, lists(4))


def test_a_term_may_be_what_is_overwritten():
    own = variables(0)
    start = _backend.donated(own, _backend.read(own))
    sums = tensors.add_terms(start, (-0.25, start), (1.0, lists(1)))
    assert_equal(sums, tensors.add_terms(lists(0), (-0.25, lists(0)), (1.0, lists(1))))


def test_what_is_not_donated_is_not_overwritten():
    own = variables(0)
    tensors.add_terms(_backend.read(own), *TERMS)
    tensors.add_scaled(_backend.read(own), *TERMS[0])
    assert_equal(own, lists(0))


def test_a_result_is_not_overwritten_by_the_next_sum():
    own = variables(0)
    first = tensors.add_scaled(_backend.donated(own, _backend.read(own)), *TERMS[0])
    kept = values(first)
    tensors.add_scaled(first, *TERMS[1])
    assert_equal(first, kept)
