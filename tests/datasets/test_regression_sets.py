"""Regression sets, their splits, and inputs on one scale."""

import numpy as np
import pytest

from keras_mhmcmc import datasets


def test_diabetes_is_in_its_own_units():
    from sklearn.datasets import load_diabetes

    x, y = datasets.rows("diabetes")
    theirs = load_diabetes(scaled=False)
    np.testing.assert_array_equal(x, theirs.data)
    np.testing.assert_array_equal(y, theirs.target)
    # Years, and kilograms per square metre.
    assert x[:, 0].min() >= 19 and x[:, 0].max() <= 79
    assert x[:, 2].min() >= 18 and x[:, 2].max() <= 43


def test_a_random_tenth_of_a_regression_set_is_for_the_test():
    x, y = datasets.rows("diabetes")
    (x_train, y_train), (x_test, y_test) = datasets.load("diabetes", split=1)
    assert x_train.shape == (398, 10) and x_test.shape == (44, 10)
    assert {a.dtype for a in (x_train, y_train, x_test, y_test)} == {np.dtype("f4")}
    ours = np.column_stack([np.r_[x_train, x_test], np.r_[y_train, y_test]])
    theirs = np.column_stack([x, y]).astype("float32")
    np.testing.assert_array_equal(
        ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)]
    )
    _, (other, _) = datasets.load("diabetes", split=2)
    assert not np.array_equal(other, x_test)


def table_contents(with_splits, count=20):
    rng = np.random.default_rng(0)
    contents = {"X": rng.normal(size=(count, 3)), "y": rng.normal(size=(count, 1))}
    if with_splits:
        contents["test_index"] = np.array([[3, 7], [0, 19]], "int32")
    return contents


@pytest.mark.parametrize("file", ["energy", "uci_energy"])
def test_splits_of_the_file_are_used(tmp_path, file):
    contents = table_contents(with_splits=True)
    np.savez(tmp_path / f"{file}.npz", **contents)
    (x_train, y_train), (x_test, y_test) = datasets.load("energy", tmp_path, split=1)
    x, y = contents["X"].astype("float32"), contents["y"][:, 0].astype("float32")
    np.testing.assert_array_equal(x_test, x[[0, 19]])
    np.testing.assert_array_equal(y_test, y[[0, 19]])
    np.testing.assert_array_equal(x_train, x[1:19])
    np.testing.assert_array_equal(y_train, y[1:19])
    with pytest.raises(
        ValueError, match="`split` must .* at most 1.*has 2 splits.*split=2"
    ):
        datasets.load("energy", tmp_path, split=2)


def test_a_file_without_splits_is_split_at_random(tmp_path):
    np.savez(tmp_path / "yacht.npz", **table_contents(with_splits=False))
    (x_train, _), (x_test, y_test) = datasets.load("yacht", tmp_path)
    assert x_train.shape == (18, 3) and x_test.shape == (2, 3) and y_test.shape == (2,)
    assert not np.isin(x_test, x_train).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros(20)}, r"X and y must hold numbers.*\(20,\)"),
        ({"X": np.full((20, 3), "a")}, "X and y must hold numbers.*<U1"),
        ({"y": np.zeros((20, 2))}, r"X and y must hold numbers.*\(20, 2\)"),
        ({"y": np.zeros(19)}, r"X and y must hold numbers.*\(19,\)"),
        ({"test_index": np.array([[20]])}, "test_index must hold indices of rows"),
        ({"test_index": np.array([0, 1])}, "test_index must hold indices of rows"),
    ],
)
def test_other_tables_are_refused(tmp_path, change, message):
    np.savez(tmp_path / "energy.npz", **(table_contents(True) | change))
    with pytest.raises(ValueError, match=message):
        datasets.load("energy", tmp_path)


def test_a_set_that_has_to_be_a_file_says_where_to_get_it():
    with pytest.raises(ValueError, match="`data_dir`.*uci_energy.npz.*archive.ics.uci"):
        datasets.load("energy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "digits", "split": 1},
            "`split` must .* at most 0. 'digits' has one split",
        ),
        ({"name": "diabetes", "split": -1}, "`split` must be an integer"),
        ({"name": "mnist", "data_dir": 3}, "`data_dir` must be a folder.*3"),
    ],
)
def test_other_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.load(**arguments)


def test_rows_are_of_regression_sets_alone():
    with pytest.raises(ValueError, match="`name` must be one of 'diabetes'.*'mnist'"):
        datasets.rows("mnist")


@pytest.mark.parametrize("axis", [0, (0, 1, 2)])
def test_parts_are_standardized_by_the_training_part(axis):
    rng = np.random.default_rng(0)
    train, test = rng.normal(3.0, 5.0, (50, 4, 4, 3)), rng.normal(size=(10, 4, 4, 3))
    ours = datasets.standardized(train, test, axis)
    mean, std = train.mean(axis), train.std(axis)
    for part, values in zip(ours, (train, test), strict=True):
        assert part.dtype == np.float32
        np.testing.assert_allclose(part, (values - mean) / std, atol=1e-5)


def test_means_of_many_pixels_are_not_lost():
    """float32 stops to count at 2**24 halves: the mean would be 0.33."""
    train = np.full((50_000, 1024, 1), 0.5, "float32")
    train[::2] = 0.25
    scaled, _ = datasets.standardized(train, train[:1], axis=(0, 1))
    assert scaled.min() == pytest.approx(-1.0) and scaled.max() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (np.ones((5, 2)), np.zeros((5, 3))),
        (np.ones((5, 1)), np.zeros((5, 3))),
        (np.ones((5, 2)), np.zeros(())),
        (np.ones((0, 2)), np.zeros((5, 2))),
    ],
)
def test_parts_that_do_not_fit_are_refused(train, test):
    with pytest.raises(ValueError, match="`test` must have the shape of `train`"):
        datasets.standardized(train, test)


@pytest.mark.parametrize("name", ["X", "y"])
def test_a_file_with_missing_numbers_is_refused(tmp_path, name):
    contents = table_contents(with_splits=False)
    contents[name][3, 0] = np.nan
    np.savez(tmp_path / "yacht.npz", **contents)
    with pytest.raises(ValueError, match="must be finite.*1 rows with NaN"):
        datasets.load("yacht", tmp_path)
