"""`load`: every data set by its name, in one form."""

from keras_mhmcmc import _validate
from keras_mhmcmc.datasets import images
from keras_mhmcmc.datasets import regression

NAMES = ("digits", *images.CHANNELS, *regression.NAMES)


def load(name, data_dir=None, split=0):
    """Loads a data set: inputs and targets to train on and to test on.

    Images are in [0, 1]. Regression sets are in their own units, which differ from
    column to column: `mh.datasets.standardized` brings them to one scale.

    - "digits": 8 x 8 pixels, 1,437 images to train on and 360 to test on; bundled with
      scikit-learn. Split once and for all, with the same share of each class.
    - "mnist", "fashion_mnist", "kmnist": 28 x 28 pixels, 60,000 and 10,000; from a
      file or through tensorflow-datasets.
    - "cifar10", "cifar100": 32 x 32 pixels in colour, 50,000 and 10,000; likewise.
    - "diabetes": 442 rows of 10 numbers; bundled with scikit-learn.
    - "boston_housing", "concrete", "energy", "kin8nm", "naval_propulsion",
      "power_plant", "protein", "wine_quality_red", "yacht": 308 to 45,730 rows of 4 to
      16 numbers, of the UCI repository (kin8nm: of Delve); from a file.

    Args:
        name: one of the names above.
        data_dir: folder with the file. Images: `<name>.npz` with the keys `x_train`,
            `y_train`, `x_test` and `y_test`: images in uint8, 0 to 255, of shape
            (N, H, W) or (N, H, W, 1), or (N, H, W, 3) in colour, and integer labels of
            shape (N,). In place of `x_train` a set in colour may have JPEG files one
            after the other, the bytes `jpg_train`, of which image i is
            `jpg_train[off_train[i]:off_train[i + 1]]`; and so for the test part. UCI
            sets: `<name>.npz` or `uci_<name>.npz` with `X`, shape (N, D), `y`, shape
            (N,), and, if it likes, `test_index`, shape (splits, test rows). None gets
            images through tensorflow-datasets, which needs TensorFlow, on any backend
            of Keras, and downloads a set on its first use.
        split: of a regression set, which of its splits, an integer that is at least
            0: a row of `test_index`, or, where the file has none, the seed of a random
            tenth to test on. The others have one split.

    Returns:
        `(x_train, y_train), (x_test, y_test)`. Images: float32, shape (N, H, W, 1) or
        (N, H, W, 3), and labels in int32, shape (N,). Regression: float32, shapes
        (N, D) and (N,).

    Raises:
        ImportError: scikit-learn, tensorflow-datasets, TensorFlow or Pillow is needed
            and not installed.
        OSError: the set could not be downloaded.
        ValueError: `name` is none of the above, the file is missing or has other
            contents, or there is no such `split`.

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
            f"Argument `split` must be 0, since {name!r} has one split. "
            f"Received: split={split}"
        )
    if name == "digits":
        return images.digits()
    return images.load(name, data_dir, ("train", "test"))


def load_test(name, data_dir=None):
    """Loads the test part of a data set alone, such as images to be uncertain about.

    Args:
        name: as in `load`.
        data_dir: as in `load`. Of images the file may have the test part alone, and
            may be called `<name>_test.npz`.

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
