"""The Square attack in the L2 ball: algorithm 3 in float64, and its limits."""

import functools

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.adversarial import square
from keras_mhmcmc.adversarial import square_search
from tests.adversarial.test_square import images
from tests.oracles import square_l2 as oracle
from tests.statistics.planting import wrap
from tests.support import attack_checks
from tests.support.attack_tools import farthest
from tests.support.attack_tools import lengths
from tests.support.attack_tools import linear
from tests.support.attack_tools import two_classes


@pytest.mark.parametrize("side", [3, 5, 6, 9])
def test_bumps_are_those_of_equation_2(side):
    np.testing.assert_allclose(square_search.bumps(side, side), oracle.bumps(side))


def test_the_bumps_of_a_row_are_in_its_halves():
    row = square_search.bumps(1, 7)
    assert row.shape == (1, 7)
    assert np.all(row[0, :3] > 0) and np.all(row[0, 3:] < 0)
    np.testing.assert_allclose(np.linalg.norm(row), 1.0)
    np.testing.assert_array_equal(square_search.bumps(1, 1), 1.0)


def test_sides_of_windows():
    window = functools.partial(square_search.window, norm="l2")
    assert window(0.8, (28, 28, 1)) == (25, 25)
    assert window(0.25, (8, 8, 3)) == (5, 5)  # odd
    assert window(1.0, (8, 8, 3)) == (7, 7)
    assert window(1e-9, (8, 8, 3)) == (3, 3)
    assert window(0.5, (2, 2, 1)) == (1, 1)
    assert window(0.5, (1, 10, 1)) == (1, 5)
    assert window(1e-9, (1, 2, 1)) == (1, 2)


def check_moves(shape=(9, 8, 2), examples=30, epsilon=0.5):
    """Each query is that of algorithm 3, with the places and signs of the draws."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(examples, *shape))
    change = rng.normal(size=x.shape)
    change *= 0.4 / np.sqrt(np.sum(change**2, axis=(1, 2, 3), keepdims=True))
    change[:10] = 0.0
    numbers = rng.random((examples, 5 + shape[2]))
    for side in (3, 5, 7):
        taken = square_search.l2_move(numbers, (side, side), shape)
        tensors = map(ops.convert_to_tensor, taken)
        current = ops.convert_to_tensor(change.astype("float32"))
        found = square_search.changed(current, square_search.Move(*tensors), epsilon)
        found = x + ops.convert_to_numpy(found)
        for i in range(examples):
            free = np.array([shape[0], shape[1]] * 2) - side + 1
            places = np.floor(numbers[i, :4] * free).astype(int)
            pattern = oracle.bumps(side)
            pattern = pattern.T if numbers[i, 4] < 0.5 else pattern
            signs = np.where(numbers[i, 5:] < 0.5, -1.0, 1.0)
            given = (epsilon, side, (places[:2], places[2:]), pattern, signs)
            exact = oracle.query(x[i], x[i] + change[i], *given)
            np.testing.assert_allclose(found[i], exact, atol=1e-5)
    assert np.abs(found - x - change).max() > 0.1


def test_moves_are_those_of_algorithm_3():
    check_moves()


def test_a_move_uses_all_of_epsilon():
    rng = np.random.default_rng(0)
    change = 0.01 * rng.normal(size=(20, 8, 8, 3)).astype("float32")
    taken = square_search.l2_move(rng.random((20, 8)), (5, 5), (8, 8, 3))
    tensors = square_search.Move(*map(ops.convert_to_tensor, taken))
    found = square_search.changed(ops.convert_to_tensor(change), tensors, 0.7)
    found = ops.convert_to_numpy(found)
    np.testing.assert_allclose(lengths(found, "l2"), 0.7, rtol=1e-5)


@pytest.mark.parametrize("shape, tiles", [((8, 8, 2), 2), ((17, 15, 1), 5)])
def test_the_start_is_a_grid_of_bumps(shape, tiles):
    x, y, model = images(shape, scale=1.0)
    options = {"y": y, "queries": 1, "norm": "l2", "clip": None, "from_logits": True}
    moved = square(model, x, 0.2, **options)
    is_moved = np.any(moved != x, axis=(1, 2, 3))
    assert is_moved.any()  # only where it helps
    change = (moved - x)[is_moved]
    np.testing.assert_allclose(lengths(change, "l2"), 0.2, rtol=1e-4)
    sides = [length // tiles for length in shape[:2]]
    tops = [
        (length - tiles * side) // 2 for length, side in zip(shape, sides, strict=False)
    ]
    tile = change[:, tops[0] : tops[0] + sides[0], tops[1] : tops[1] + sides[1]]
    expected = 0.2 / (tiles * np.sqrt(shape[2]))
    for channel in range(shape[2]):
        own = lengths(tile[..., channel], "l2")
        np.testing.assert_allclose(own, expected, rtol=1e-3)


def check_ball(clip=(0.25, 0.75)):
    attack_checks.check_in_the_ball(square, "l2", clip, queries=200)


@pytest.mark.parametrize("clip", [(0.25, 0.75), (-0.5, 2.0), None])
def test_in_the_ball_and_the_limits(clip):
    check_ball(clip)


def test_never_weaker_than_the_clean_input():
    attack_checks.check_never_weaker_than_the_clean_input(square, norm="l2", queries=30)


def check_near_the_best(queries=1000):
    """On a linear model of two classes the best margin is known. Most is found."""
    x, y, weights, bias, slope = two_classes()
    x, y = x[:8], np.ones(8, int)
    model = linear(weights, bias + [0.0, 20.0], None)  # no attack turns class 1
    options = {"y": y, "clip": None, "queries": queries, "norm": "l2"}
    moved = square(model, x, 0.1, from_logits=True, **options)
    best = farthest(x, y, slope, 0.1, "l2")
    share = ((moved - x) @ slope) / ((best - x) @ slope)
    assert np.all(share <= 1.0 + 1e-3) and np.all(share > 0.75)
    assert share.mean() > 0.85


def test_the_best_margin_of_a_linear_model_is_nearly_reached():
    check_near_the_best()


# Planted bugs.


def no_signs(real, *given):
    taken = real(*given)
    return taken._replace(pattern=np.abs(taken.pattern))


def windows_swapped(real, *given):
    taken = real(*given)
    return taken._replace(first=taken.either - taken.first)


def second_forgotten(real, *given):
    taken = real(*given)
    return taken._replace(either=taken.first)


def too_long(real, change, taken, epsilon):
    return real(change, taken, 1.1 * epsilon)


def no_direction(real, change, taken, epsilon):
    return real(0.0 * change, taken, epsilon)


@pytest.mark.parametrize(
    "name, bug, check",
    [
        ("l2_move", no_signs, check_moves),
        ("l2_move", windows_swapped, check_moves),
        ("l2_move", second_forgotten, check_moves),
        ("changed", too_long, check_moves),
        ("changed", too_long, check_ball),
        ("changed", no_direction, check_moves),
        ("changed", no_direction, check_near_the_best),
    ],
)
def test_a_planted_bug_is_found(name, bug, check, monkeypatch):
    wrap(monkeypatch, square_search, name, bug)
    with pytest.raises(AssertionError):
        check()
