"""Regression data sets: diabetes, and nine of the UCI repository."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.datasets import files
from keras_mhmcmc.datasets.images import Pair

UCI = (
    "boston_housing",
    "concrete",
    "energy",
    "kin8nm",
    "naval_propulsion",
    "power_plant",
    "protein",
    "wine_quality_red",
    "yacht",
)
NAMES = ("diabetes", *UCI)
TEST_SHARE = 0.1


def rows(name: str, data_dir: PathLike | None = None) -> Pair:
    """Return all rows of a regression data set, in their own order and units.

    Use it to make your own splits. `load` returns split data.

    Args:
        name: "diabetes" or one of the UCI sets, as in `load`.
        data_dir: folder with the file of a UCI set, as in `load`.

    Returns:
        `(x, y)`: features of shape (N, D) and targets of shape (N,), in float64.

    Raises:
        ImportError: "diabetes" is asked for, and scikit-learn is not installed.
        ValueError: `name` is not a regression data set, or the file is missing or has
            other contents.

    Example:

    >>> x, y = rows("diabetes")
    >>> x.shape, float(x[0, 0]), float(y[0])  # the first patient is 59 years old
    ((442, 10), 59.0, 151.0)
    """
    _validate.choice("name", name, NAMES)
    if name == "diabetes":
        return _diabetes()
    archive = _archive(name, data_dir)
    x, y = archive.read("X", "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    are_numbers = all(np.issubdtype(a.dtype, np.number) for a in (x, y))
    if x.ndim != 2 or y.shape != (len(x),) or len(x) < 2 or not are_numbers:
        raise ValueError(
            "The arrays X and y must hold numbers of shape (N, D) and (N,), with N at "
            f"least 2. Received: shapes {x.shape} and {y.shape}, dtypes {x.dtype} and "
            f"{y.dtype}, from {archive.path!r}"
        )
    for name_of, array in (("X", x), ("y", y)):
        if not np.isfinite(array).all():
            raise ValueError(
                "The arrays X and y must be finite. Remove the other rows. Received: "
                f"{np.sum(~np.isfinite(array))} values of {name_of} that are NaN or "
                f"infinite, from {archive.path!r}"
            )
    return x.astype("float64"), y.astype("float64")


def load(name: str, data_dir: PathLike | None, split: int) -> tuple[Pair, Pair]:
    """Return `(x_train, y_train), (x_test, y_test)` of one split, in float32."""
    x, y = rows(name, data_dir)
    test = _test_rows(name, data_dir, len(x), split)
    train = np.setdiff1d(np.arange(len(x)), test)
    x, y = x.astype("float32"), y.astype("float32")
    return (x[train], y[train]), (x[test], y[test])


def _test_rows(name: str, data_dir: PathLike | None, count: int, split: int) -> Array:
    """Return the test rows of a split: the file's own, or a random tenth."""
    if name != "diabetes":
        archive = _archive(name, data_dir)
        if "test_index" in archive.names():
            (listed,) = archive.read("test_index")
            return _listed(listed, count, split, archive.path)
    order = np.random.default_rng(split).permutation(count)
    return order[: max(round(TEST_SHARE * count), 1)]


def _listed(listed: Array, count: int, split: int, path: str) -> Array:
    is_index = listed.ndim == 2 and np.issubdtype(listed.dtype, np.integer)
    if not is_index or listed.min() < 0 or listed.max() >= count:
        raise ValueError(
            "The array test_index must hold indices of rows of X, integers of shape "
            f"(splits, test rows). Received: shape {listed.shape} and dtype "
            f"{listed.dtype}, from {path!r}"
        )
    if split >= len(listed):
        raise ValueError(
            f"Argument `split` must be less than {len(listed)}, the number of splits "
            f"in {path!r}. Received: split={split}"
        )
    return listed[split]


def _diabetes() -> Pair:
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise ImportError(
            "The data set 'diabetes' comes with scikit-learn: "
            "pip install keras-mhmcmc[data]"
        ) from error
    x, y = load_diabetes(return_X_y=True, scaled=False)
    return x, y


def _archive(name: str, data_dir: PathLike | None) -> files.Archive:
    return files.find(
        data_dir,
        [f"{name}.npz", f"uci_{name}.npz"],
        "the arrays X (examples, features) and y (examples,), and optionally "
        "test_index (splits, test rows)",
        "Get the table from archive.ics.uci.edu and write it with `numpy.savez`.",
    )
