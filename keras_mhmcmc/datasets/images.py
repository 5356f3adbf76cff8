"""Sets of images: from scikit-learn, from files, or through tensorflow-datasets."""

import io

import numpy as np

from keras_mhmcmc.datasets import files

CHANNELS = {"mnist": 1, "fashion_mnist": 1, "kmnist": 1, "cifar10": 3, "cifar100": 3}


def digits():
    """The digits of scikit-learn: `(x_train, y_train), (x_test, y_test)`."""
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


def load(name, data_dir, parts):
    """A pair (images, labels) for each of `parts`, which are "train" and "test"."""
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
            pairs = zip(arrays[::2], arrays[1::2], strict=True)
    return tuple(
        _checked(part, *pair, channels, source)
        for part, pair in zip(parts, pairs, strict=True)
    )


def _keys(parts):
    return [key for key in files.KEYS if key.partition("_")[2] in parts]


def _archive(name, data_dir, parts):
    names = [f"{name}.npz"]
    contents = f"the arrays {', '.join(_keys(parts))}"
    remedy = "Leave it away to get the set through tensorflow-datasets."
    if "train" in parts:
        remedy += " The test part alone is read by `mh.datasets.load_test`."
    else:
        names.append(f"{name}_test.npz")
    return files.find(data_dir, names, contents, remedy)


def _decoded(archive, part):
    """Images from JPEG files, which stand one after the other in an array of bytes."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "The JPEG images of this file need Pillow: pip install keras-mhmcmc[data]"
        ) from error
    content, ends, labels = archive.read(f"jpg_{part}", f"off_{part}", f"y_{part}")
    content = content.tobytes()
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


def _downloaded(name, parts):
    remedy = f"Or pass `data_dir`, a folder with {name}.npz."
    try:
        import tensorflow_datasets as tfds

        splits = tfds.load(name, split=list(parts), batch_size=1024, as_supervised=True)
        return [_joined(tfds.as_numpy(split)) for split in splits]
    except ImportError as error:
        raise ImportError(
            f"The data set {name!r} is downloaded by tensorflow-datasets, which needs "
            f"TensorFlow: pip install keras-mhmcmc[data] tensorflow. {remedy}"
        ) from error
    except OSError as error:  # also what `requests` raises
        raise OSError(
            f"The data set {name!r} could not be downloaded by tensorflow-datasets. "
            f"Try again with a connection to the internet. {remedy} "
            f"Received: {type(error).__name__}: {error}"
        ) from error


def _joined(batches):
    return [np.concatenate(parts) for parts in zip(*batches, strict=True)]


def _checked(part, x, y, channels, source):
    """Images in [0, 1] and labels, from bytes of the right shapes."""
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
            "255. "
            f"Received: shape {x.shape} and dtype {x.dtype}, from {source!r}"
        )
    if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(
            f"The array y_{part} must hold one integer for each of {len(x)} images. "
            f"Received: shape {y.shape} and dtype {y.dtype}, from {source!r}"
        )
    return x.astype("float32") / 255.0, y.astype("int32")
