"""Image data sets from scikit-learn, from files, or from tensorflow-datasets."""

import io
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Literal

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.datasets import files

Part = Literal["train", "test"]
Pair = tuple[Array, Array]  # inputs and targets

CHANNELS = {"mnist": 1, "fashion_mnist": 1, "kmnist": 1, "cifar10": 3, "cifar100": 3}


def digits() -> tuple[Pair, Pair]:
    """Return scikit-learn's digits as `(x_train, y_train), (x_test, y_test)`."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ImportError(
            "The data set 'digits' comes with scikit-learn: "
            "pip install keras-mhmcmc[data]"
        ) from error
    x, y = load_digits(return_X_y=True)
    x = (x / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    x_train, x_test, y_train, y_test = train_test_split(
        x, y.astype("int32"), test_size=0.2, random_state=0, stratify=y
    )
    return (x_train, y_train), (x_test, y_test)


def load(name: str, data_dir: PathLike | None, parts: Sequence[Part]) -> list[Pair]:
    """Return the images and labels of each part of a data set."""
    channels = CHANNELS[name]
    if data_dir is None:
        source, pairs = "tensorflow-datasets", _downloaded(name, parts)
    else:
        archive = _archive(name, data_dir, parts)
        source = archive.path
        if channels == 3 and f"jpg_{parts[0]}" in archive.names():
            pairs = [_decoded(archive, part) for part in parts]
        else:
            arrays = archive.read(*_keys(parts))
            pairs = list(zip(arrays[::2], arrays[1::2], strict=True))
    return [
        _checked(part, *pair, channels, source)
        for part, pair in zip(parts, pairs, strict=True)
    ]


def _keys(parts: Sequence[Part]) -> list[str]:
    return [key for key in files.KEYS if key.partition("_")[2] in parts]


def _archive(name: str, data_dir: PathLike, parts: Sequence[Part]) -> files.Archive:
    names = [f"{name}.npz"]
    contents = f"the arrays {', '.join(_keys(parts))}"
    remedy = "Omit it to download the set with tensorflow-datasets."
    if "train" in parts:
        remedy += " To read the test part alone, use `mh.datasets.load_test`."
    else:
        names.append(f"{name}_test.npz")
    return files.find(data_dir, names, contents, remedy)


def _decoded(archive: files.Archive, part: Part) -> Pair:
    """Return the images and labels of an archive of concatenated JPEG files."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "The JPEG images of this file need Pillow: pip install keras-mhmcmc[data]"
        ) from error
    stored, ends, labels = archive.read(f"jpg_{part}", f"off_{part}", f"y_{part}")
    content = stored.tobytes()
    images = []
    for i, (begin, end) in enumerate(zip(ends[:-1], ends[1:], strict=True)):
        try:
            image = Image.open(io.BytesIO(content[begin:end])).convert("RGB")
        except OSError as error:
            raise ValueError(
                f"The bytes off_{part}[{i}] to off_{part}[{i + 1}] of the array "
                f"jpg_{part} must be a JPEG file. Received: bytes {begin} to {end} of "
                f"{len(content)}, from {archive.path!r}"
            ) from error
        images.append(np.asarray(image))
    return np.stack(images), labels


def _downloaded(name: str, parts: Sequence[Part]) -> list[Pair]:
    """Return the images and labels of each part from tensorflow-datasets."""
    remedy = f"Or pass `data_dir`, a folder with {name}.npz."
    try:
        import tensorflow_datasets as tfds

        splits = tfds.load(name, split=list(parts), batch_size=1024, as_supervised=True)
        return [_joined(tfds.as_numpy(split)) for split in splits]
    except ImportError as error:
        raise ImportError(
            f"To download the data set {name!r}, install tensorflow-datasets and "
            f"TensorFlow: pip install keras-mhmcmc[data] tensorflow. {remedy}"
        ) from error
    except OSError as error:  # the errors of `requests` are of this type, too
        raise OSError(
            f"tensorflow-datasets could not download the data set {name!r}. "
            f"Try again with a connection to the internet. {remedy} "
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _joined(batches: Iterable[Pair]) -> Pair:
    x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return x, y


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
