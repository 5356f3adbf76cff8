"""`load`: every data set by its name, in one format."""

from keras_mhmcmc import _validate
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.datasets import images
from keras_mhmcmc.datasets import regression

NAMES = ("digits", *images.CHANNELS, *regression.NAMES)


def load(
    name: str, data_dir: PathLike | None = None, split: int = 0
) -> tuple[images.Pair, images.Pair]:
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
        ImportError: scikit-learn, tensorflow-datasets, TensorFlow or Pillow is needed
            and not installed.
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
    if name in regression.NAMES:
        return regression.load(name, data_dir, split)
    if split > 0:
        raise ValueError(
            f"Argument `split` must be 0: {name!r} has one split. "
            f"Received: split={split}"
        )
    if name == "digits":
        return images.digits()
    train, test = images.load(name, data_dir, ("train", "test"))
    return train, test


def load_test(name: str, data_dir: PathLike | None = None) -> images.Pair:
    """Load only the test part of a data set, such as out-of-distribution images.

    Args:
        name: as in `load`.
        data_dir: as in `load`. A file of images may have only the test part, and may
            be called `<name>_test.npz`.

    Returns:
        `(x_test, y_test)`, as in `load`.

    Raises:
        ImportError, OSError, ValueError: as in `load`.

    Example:

    >>> x_test, y_test = load_test("digits")
    >>> x_test.shape
    (360, 8, 8, 1)
    """
    _validate.choice("name", name, NAMES)
    if name in images.CHANNELS:
        return images.load(name, data_dir, ("test",))[0]
    return load(name, data_dir)[1]
