"""Image data sets as NumPy arrays, for examples and tests."""

import os
import zipfile

import numpy as np

from keras_mhmcmc import _validate

KEYS = ("x_train", "y_train", "x_test", "y_test")


def load(name, data_dir=None):
    """Loads the images and labels of a data set.

    Args:
        name: "digits" (8 x 8 pixels, bundled with scikit-learn; 1,437 images to train
            on and 360 to test on, split once and for all with the same share of each
            class), or "mnist" or "fashion_mnist" (28 x 28 pixels, 60,000 and 10,000),
            or "cifar10" or "cifar100" (32 x 32 pixels in colour, 50,000 and 10,000).
        data_dir: folder that holds `<name>.npz`, with the keys `x_train`, `y_train`,
            `x_test` and `y_test`: images in uint8, 0 to 255, of shape (N, H, W) or
            (N, H, W, 1), or (N, H, W, 3) of the sets in colour, and integer labels of
            shape (N,). None gets the set through tensorflow-datasets, which downloads
            it on first use. "digits" needs none.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: images in float32, in [0, 1], of shape
        (N, H, W, 1) or (N, H, W, 3), and labels in int32, of shape (N,).

    Raises:
        ImportError: scikit-learn ("digits"), or tensorflow-datasets (the others, when
            `data_dir` is None), is not installed.
        ValueError: `name` is none of the above, or the file is missing or has other
            contents.

    Example:

    >>> (x_train, y_train), (x_test, y_test) = load("digits")
    >>> x_train.shape, y_test.shape
    ((1437, 8, 8, 1), (360,))
    """
    _validate.choice("name", name, tuple(_LOADERS))
    x_train, y_train, x_test, y_test = _LOADERS[name](name, data_dir)
    return (x_train, y_train), (x_test, y_test)


def _digits(name, data_dir):
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ImportError(
            f"The data set {name!r} comes with scikit-learn: "
            "pip install keras-mhmcmc[data]"
        ) from error
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y.astype("int32"), test_size=0.2, random_state=0, stratify=y
    )
    return x_train, y_train, x_test, y_test


def _grey_images(name, data_dir):
    return _images(name, data_dir, channels=1)


def _colour_images(name, data_dir):
    return _images(name, data_dir, channels=3)


def _images(name, data_dir, channels):
    """A data set of images in uint8, from a file or tensorflow-datasets."""
    if data_dir is None:
        source, arrays = "tensorflow-datasets", _from_tensorflow_datasets(name)
    else:
        source = os.path.join(os.fspath(data_dir), f"{name}.npz")
        arrays = _from_file(name, source)
    x_train, y_train, x_test, y_test = arrays
    return (
        *_as_images_and_labels("train", x_train, y_train, channels, source),
        *_as_images_and_labels("test", x_test, y_test, channels, source),
    )


def _from_file(name, path):
    wanted = f"a folder with {name}.npz, which holds the arrays {', '.join(KEYS)}"
    if not os.path.isfile(path):
        raise ValueError(
            f"Argument `data_dir` must be {wanted}. Leave it away to get the set "
            f"through tensorflow-datasets. Received: no file at {path!r}"
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"Argument `data_dir` must be {wanted}. Write the file with "
            f"`numpy.savez_compressed`. Received: {path!r}, which is no .npz file"
        )
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in KEYS if key not in file.files]
        if missing:
            raise ValueError(
                f"Argument `data_dir` must be {wanted}. Received: {path!r}, which "
                f"lacks {', '.join(missing)} and holds {', '.join(file.files)}"
            )
        return [file[key] for key in KEYS]


def _from_tensorflow_datasets(name):
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise ImportError(
            f"The data set {name!r} is downloaded by tensorflow-datasets: "
            f"pip install keras-mhmcmc[data]. Or pass `data_dir`, a folder with "
            f"{name}.npz."
        ) from error
    splits = tfds.load(
        name, split=["train", "test"], batch_size=1024, as_supervised=True
    )
    arrays = []
    for split in splits:
        batches = list(tfds.as_numpy(split))  # pairs of images and labels
        arrays += [np.concatenate(parts) for parts in zip(*batches, strict=True)]
    return arrays


def _as_images_and_labels(split, x, y, channels, source):
    x, y = np.asarray(x), np.asarray(y)
    shapes = f"(N, H, W, {channels})"
    if channels == 1:
        shapes = f"(N, H, W) or {shapes}"
        if x.ndim == 3:
            x = x[..., None]
    is_bytes = x.dtype == np.uint8
    if x.ndim != 4 or x.shape[-1] != channels or not is_bytes or len(x) == 0:
        raise ValueError(
            f"The array x_{split} must hold images of shape {shapes} in uint8, 0 to "
            "255. "
            f"Received: shape {x.shape} and dtype {x.dtype}, from {source!r}"
        )
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"The array y_{split} must hold one integer for each of {len(x)} images. "
            f"Received: shape {y.shape} and dtype {y.dtype}, from {source!r}"
        )
    return x.astype("float32") / 255.0, y.astype("int32")


# A loader takes (name, data_dir) and returns the four arrays in the order of `KEYS`.
_LOADERS = {
    "digits": _digits,
    "mnist": _grey_images,
    "fashion_mnist": _grey_images,
    "cifar10": _colour_images,
    "cifar100": _colour_images,
}
