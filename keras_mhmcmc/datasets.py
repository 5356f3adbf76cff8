"""Data sets as NumPy arrays, for examples and tests.

Images come from scikit-learn, from files, or from tensorflow-datasets; regressions from
scikit-learn or from files.
"""

import io
import os
import zipfile
from collections.abc import Sequence
from typing import Any
from typing import Literal

import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike

__all__ = ["load", "load_test", "rows", "standardized"]

Part = Literal["train", "test"]
Pair = tuple[Array, Array]  # inputs and targets

KEYS = ("x_train", "y_train", "x_test", "y_test")
CHANNELS = {"mnist": 1, "fashion_mnist": 1, "kmnist": 1, "cifar10": 3, "cifar100": 3}
REGRESSIONS = (
    "diabetes",
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
NAMES = ("digits", *CHANNELS, *REGRESSIONS)
TEST_SHARE = 0.1


def __dir__() -> list[str]:
    return __all__


def load(
    name: str, data_dir: PathLike | None = None, split: int = 0
) -> tuple[Pair, Pair]:
    """Load a data set, split into training and test data.

    Images are in [0, 1]. Regression data is in its own units, which differ from column
    to column. Use `mh.datasets.standardized` to scale it.

    - "digits": images of 8 x 8 pixels, 1,437 for training and 360 for testing; comes
      with scikit-learn. The one split has the same share of each class in both parts.
    - "mnist", "fashion_mnist", "kmnist": images of 28 x 28 pixels, 60,000 and 10,000;
      from a file or from tensorflow-datasets.
    - "cifar10", "cifar100": colour images of 32 x 32 pixels, 50,000 and 10,000; from a
      file or from tensorflow-datasets.
    - "diabetes": regression with 442 rows of 10 numbers; comes with scikit-learn.
    - "boston_housing", "concrete", "energy", "kin8nm", "naval_propulsion",
      "power_plant", "protein", "wine_quality_red", "yacht": regression with 308 to
      45,730 rows of 4 to 16 numbers; from a file. The source is the UCI repository
      (kin8nm: Delve).

    Files have these formats.

    - Images: `<name>.npz` with the keys `x_train`, `y_train`, `x_test` and `y_test`.
      Images are uint8, 0 to 255, of shape (N, H, W) or (N, H, W, 1), or (N, H, W, 3)
      in colour. Labels are integers of shape (N,). A colour data set may instead have
      concatenated JPEG files: the bytes `jpg_train` and the offsets `off_train`. Image
      i is `jpg_train[off_train[i]:off_train[i + 1]]`. The same holds for the test part.
    - Regression: `<name>.npz` or `uci_<name>.npz` with `X`, shape (N, D), and `y`,
      shape (N,). The optional `test_index`, shape (splits, test rows), lists the test
      rows of each split.

    Args:
        name: one of the names above.
        data_dir: folder with the file. Defaults to None: images are downloaded with
            tensorflow-datasets on the first use. It needs TensorFlow, whatever the
            Keras backend is.
        split: index of the split, an integer that is at least 0. Only regression data
            has more than split 0. It is a row of `test_index`. If the file has none,
            it is the seed of a random test set of a tenth of the rows. Defaults to 0.

    Returns:
        `(x_train, y_train), (x_test, y_test)`. Images are float32, shape (N, H, W, 1)
        or (N, H, W, 3), and labels int32, shape (N,). Regression data is float32,
        shapes (N, D) and (N,).

    Raises:
        ImportError: a package is missing. The error tells how to install it.
        OSError: the download failed.
        ValueError: `name` is unknown, the file is missing or has other contents, or
            there is no such `split`.

    Example:

    >>> (x_train, y_train), (x_test, y_test) = load("digits")
    >>> x_train.shape, y_test.shape
    ((1437, 8, 8, 1), (360,))
    """
    _validate.choice("name", name, NAMES)
    split = _validate.integer("split", split, 0)
    if name in REGRESSIONS:
        x, y = (array.astype("float32") for array in rows(name, data_dir))
        test = _test_rows(name, data_dir, len(x), split)
        train = np.setdiff1d(np.arange(len(x)), test)
        return (x[train], y[train]), (x[test], y[test])
    _validate.integer("split", split, 0, f"{name!r} has one split.", high=0)
    if name == "digits":
        x, y = _of_sklearn("digits")
        from sklearn.model_selection import train_test_split

        x = (x / 16.0).astype("float32").reshape(-1, 8, 8, 1)
        x_train, x_test, y_train, y_test = train_test_split(
            x, y.astype("int32"), test_size=0.2, random_state=0, stratify=y
        )
        return (x_train, y_train), (x_test, y_test)
    first, second = _images(name, data_dir, ("train", "test"))
    return first, second


def load_test(name: str, data_dir: PathLike | None = None) -> Pair:
    """Load only the test part of a data set, such as out-of-distribution images.

    Args:
        name: as in `load`.
        data_dir: as in `load`. A file of images may have only the test part, and may
            be called `<name>_test.npz`.

    Returns:
        `(x_test, y_test)`, as in `load`, with the same errors.

    Example:

    >>> x_test, y_test = load_test("digits")
    >>> x_test.shape
    (360, 8, 8, 1)
    """
    _validate.choice("name", name, NAMES)
    if name in CHANNELS:
        return _images(name, data_dir, ("test",))[0]
    return load(name, data_dir)[1]


def rows(name: str, data_dir: PathLike | None = None) -> Pair:
    """Return all rows of a regression data set, in their own order and units.

    Use it to make your own splits. `load` returns split data.

    Args:
        name: "diabetes" or one of the UCI sets, as in `load`.
        data_dir: folder with the file of a UCI set, as in `load`.

    Returns:
        `(x, y)`: features of shape (N, D) and targets of shape (N,), in float64.

    Raises:
        ImportError, ValueError: as in `load`.

    Example:

    >>> x, y = rows("diabetes")
    >>> x.shape, float(x[0, 0]), float(y[0])  # the first patient is 59 years old
    ((442, 10), 59.0, 151.0)
    """
    _validate.choice("name", name, REGRESSIONS)
    if name == "diabetes":
        return _of_sklearn(name)
    path = _table(name, data_dir)
    x, y = _read(path, "X", "y")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    are_numbers = all(np.issubdtype(a.dtype, np.number) for a in (x, y))
    if x.ndim != 2 or y.shape != (len(x),) or len(x) < 2 or not are_numbers:
        raise ValueError(
            "The arrays X and y must hold numbers of shape (N, D) and (N,), with N at "
            f"least 2. Received: shapes {x.shape} and {y.shape}, dtypes {x.dtype} and "
            f"{y.dtype}, from {path!r}"
        )
    are_finite = np.isfinite(x).all(axis=1) & np.isfinite(y)
    if not are_finite.all():
        raise ValueError(
            "The arrays X and y must be finite. Remove the other rows. Received: "
            f"{np.sum(~are_finite)} rows with NaN or infinity, from {path!r}"
        )
    return x.astype("float64"), y.astype("float64")


def standardized(
    train: npt.ArrayLike, test: npt.ArrayLike, axis: int | tuple[int, ...] = 0
) -> tuple[Array, Array]:
    """Scale both parts so that the training part has mean 0 and deviation 1.

    Args:
        train: array, such as features of shape (N, D).
        test: array with the shape of `train`, except for its lengths along `axis`.
        axis: axes of the mean and the standard deviation, as for `numpy.mean`: 0 for
            features, (0, 1, 2) for the channels of images. Defaults to 0.

    Returns:
        `(train, test)` in float32. A feature that is constant in `train` becomes 0
        there.

    Raises:
        ValueError: the arrays are not finite or do not match, or `train` is empty.
        IndexError, TypeError: `axis` names no axis of `train`.

    Example:

    >>> import numpy as np
    >>> train, test = standardized(np.array([[1.0, 5.0], [3.0, 5.0]]), [[4.0, 6.0]])
    >>> train.tolist(), test.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[2.0, 1.0]])
    """
    train, test = _finite("train", train), _finite("test", test)
    if (
        train.size == 0
        or train.ndim != test.ndim
        or np.any(np.delete(train.shape, axis) != np.delete(test.shape, axis))
    ):
        raise ValueError(
            "Argument `test` must have the shape of `train`, except along `axis`, and "
            f"`train` must not be empty. Received: shapes {train.shape} and "
            f"{test.shape}, {axis=}"
        )
    if train.dtype.kind != "f" or train.dtype == "float16":
        train = train.astype("float64")
    # Sums in float64: a float32 sum of millions of pixels stops growing.
    mean = train.mean(axis, dtype="float64", keepdims=True).astype(train.dtype)
    # The mean of equal numbers may be rounded.
    is_constant = train.max(axis, keepdims=True) == train.min(axis, keepdims=True)
    mean = np.where(is_constant, train.max(axis, keepdims=True), mean)
    centred = train - mean
    std = np.sqrt(np.square(centred, dtype="float64").mean(axis, keepdims=True))
    std = np.where(std > 0.0, std, 1.0).astype(train.dtype)
    return (centred / std).astype("float32"), ((test - mean) / std).astype("float32")


def _finite(name: str, values: npt.ArrayLike) -> Array:
    array = _validate.array(f"Argument `{name}`", values, dtype=None)
    if not np.isfinite(array).all():
        raise ValueError(
            f"Argument `{name}` must be finite. Remove or repair the other rows. "
            f"Received: {np.sum(~np.isfinite(array))} values that are NaN or infinite"
        )
    return array


def _test_rows(name: str, data_dir: PathLike | None, count: int, split: int) -> Array:
    """Return the test rows of a split: the file's own, or a random tenth."""
    path = None if name == "diabetes" else _table(name, data_dir)
    if path is None or "test_index" not in _names(path):
        order = np.random.default_rng(split).permutation(count)
        return order[: max(round(TEST_SHARE * count), 1)]
    (listed,) = _read(path, "test_index")
    is_index = listed.ndim == 2 and np.issubdtype(listed.dtype, np.integer)
    if not is_index or listed.min() < 0 or listed.max() >= count:
        raise ValueError(
            "The array test_index must hold indices of rows of X, integers of shape "
            f"(splits, test rows). Received: shape {listed.shape} and dtype "
            f"{listed.dtype}, from {path!r}"
        )
    hint = f"{path!r} has {len(listed)} splits."
    return listed[_validate.integer("split", split, 0, hint, high=len(listed) - 1)]


def _table(name: str, data_dir: PathLike | None) -> str:
    return _find(
        data_dir,
        [f"{name}.npz", f"uci_{name}.npz"],
        "the arrays X (examples, features) and y (examples,), and optionally "
        "test_index (splits, test rows)",
        "Get the table from archive.ics.uci.edu and write it with `numpy.savez`",
    )


def _of_sklearn(name: str) -> Pair:
    try:
        from sklearn.datasets import load_diabetes
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            f"The data set {name!r} comes with scikit-learn: "
            "pip install keras-mhmcmc[data]"
        ) from error
    if name == "digits":
        pair: Pair = load_digits(return_X_y=True)
    else:
        pair = load_diabetes(return_X_y=True, scaled=False)
    return pair


def _images(name: str, data_dir: PathLike | None, parts: Sequence[Part]) -> list[Pair]:
    channels = CHANNELS[name]
    if data_dir is None:
        source, pairs = "tensorflow-datasets", _downloaded(name, parts)
    else:
        keys = [key for key in KEYS if key.partition("_")[2] in parts]
        names = [f"{name}.npz"]
        remedy = "Omit it to download the set with tensorflow-datasets"
        if "train" in parts:
            remedy += ", or read the test part alone with `mh.datasets.load_test`"
        else:
            names.append(f"{name}_test.npz")
        source = _find(data_dir, names, f"the arrays {', '.join(keys)}", remedy)
        if channels == 3 and f"jpg_{parts[0]}" in _names(source):
            pairs = [_decoded(source, part) for part in parts]
        else:
            arrays = _read(source, *keys)
            pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    return [
        _checked(part, *pair, channels, source)
        for part, pair in zip(parts, pairs, strict=True)
    ]


def _decoded(path: str, part: Part) -> Pair:
    """Return the images and labels of an archive of concatenated JPEG files."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "The JPEG images of this file need Pillow: pip install keras-mhmcmc[data]"
        ) from error
    stored, ends, labels = _read(path, f"jpg_{part}", f"off_{part}", f"y_{part}")
    content = stored.tobytes()
    images = []
    for i, (begin, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        try:
            image = Image.open(io.BytesIO(content[begin:end])).convert("RGB")
        except OSError as error:
            raise ValueError(
                f"The bytes off_{part}[{i}] to off_{part}[{i + 1}] of the array "
                f"jpg_{part} must be a JPEG file. Received: bytes {begin} to {end} of "
                f"{len(content)}, from {path!r}"
            ) from error
        images.append(np.asarray(image))
    return np.stack(images), labels


def _downloaded(name: str, parts: Sequence[Part]) -> list[Pair]:
    remedy = f"or pass `data_dir`, a folder with {name}.npz"
    try:
        import tensorflow_datasets as tfds

        splits = tfds.load(name, split=list(parts), batch_size=1024, as_supervised=True)
        batches = [zip(*tfds.as_numpy(split), strict=True) for split in splits]
        return [(np.concatenate(x), np.concatenate(y)) for x, y in batches]
    except ImportError as error:
        raise ImportError(
            f"To download the data set {name!r}, install tensorflow-datasets and "
            f"TensorFlow: pip install keras-mhmcmc[data] tensorflow, {remedy}"
        ) from error
    except OSError as error:  # the errors of `requests` are of this type, too
        raise OSError(
            f"tensorflow-datasets could not download the data set {name!r}. "
            f"Try again with a connection to the internet, {remedy}. "
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _checked(part: Part, x: Array, y: Array, channels: int, source: str) -> Pair:
    """Return images in [0, 1] and labels, or raise a `ValueError`."""
    x, y = np.asarray(x), np.asarray(y)
    shapes = f"(N, H, W, {channels})"
    if channels == 1:
        shapes = f"(N, H, W) or {shapes}"
        if x.ndim == 3:
            x = x[..., None]
    is_bytes = x.dtype == np.uint8
    if x.ndim != 4 or x.shape[-1] != channels or not is_bytes or len(x) == 0:
        raise ValueError(
            f"The array x_{part} must hold images of shape {shapes} in uint8, 0 to "
            f"255. Received: shape {x.shape} and dtype {x.dtype}, from {source!r}"
        )
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"The array y_{part} must hold one integer for each of {len(x)} images. "
            f"Received: shape {y.shape} and dtype {y.dtype}, from {source!r}"
        )
    return x.astype("float32") / 255.0, y.astype("int32")


def _find(data_dir: Any, names: Sequence[str], contents: str, remedy: str) -> str:
    """Return the path of the first `.npz` file of `names` that a folder has."""
    wanted = f"a folder with {' or '.join(names)}, which holds {contents}. {remedy}"
    _validate.instance("data_dir", data_dir, (str, os.PathLike), wanted)
    paths = [os.path.join(os.fspath(data_dir), name) for name in names]
    found = next(filter(os.path.isfile, paths), None)
    if found is None:
        raise ValueError(
            f"Argument `data_dir` must be {wanted}. "
            f"Received: no such file in {_validate.shown(os.fspath(data_dir))}"
        )
    if not zipfile.is_zipfile(found):
        raise ValueError(
            f"The file {found!r} must be an .npz file, with {contents}. Write it with "
            "`numpy.savez_compressed`. Received: another format"
        )
    return found


def _names(path: str) -> list[str]:
    with np.load(path, allow_pickle=False) as file:
        return list(file.files)


def _read(path: str, *keys: str) -> list[Array]:
    """Return the arrays of these names, or raise a `ValueError`."""
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in keys if key not in file.files]
        if missing:
            raise ValueError(
                "Argument `data_dir` must be a folder whose file holds the arrays "
                f"{', '.join(keys)}. Received: {path!r}, which lacks "
                f"{', '.join(missing)} and holds {', '.join(file.files)}"
            )
        return [file[key] for key in keys]
