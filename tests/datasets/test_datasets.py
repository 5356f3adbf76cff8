"""The data sets: shapes, units, sources, and what is said when one is missing."""

import io
import sys
import types

import numpy as np
import pytest

from keras_mhmcmc import datasets


def arrays():
    """The four arrays of a tiny set of 3 x 5 pixels."""
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(256, size=(6, 3, 5), dtype="uint8"),
        "y_train": rng.integers(10, size=6, dtype="uint8"),
        "x_test": rng.integers(256, size=(4, 3, 5), dtype="uint8"),
        "y_test": rng.integers(10, size=4, dtype="uint8"),
    }


def check_units(images, labels):
    assert images.dtype == np.float32
    assert images.ndim == 4 and images.shape[-1] == 1
    assert images.min() >= 0.0 and images.max() <= 1.0
    assert labels.dtype == np.int32
    assert labels.shape == (len(images),)


def test_digits_are_those_of_scikit_learn_split_once_and_for_all():
    from sklearn.datasets import load_digits

    (x_train, y_train), (x_test, y_test) = datasets.load("digits")
    assert x_train.shape == (1437, 8, 8, 1) and x_test.shape == (360, 8, 8, 1)
    check_units(x_train, y_train)
    check_units(x_test, y_test)
    (again, _), (_, labels_again) = datasets.load("digits")
    np.testing.assert_array_equal(again, x_train)
    np.testing.assert_array_equal(labels_again, y_test)
    images = 16.0 * np.concatenate([x_train, x_test]).reshape(1797, 64)
    labels = np.concatenate([y_train, y_test])
    ours, theirs = np.c_[images, labels], np.c_[load_digits(return_X_y=True)]
    np.testing.assert_array_equal(
        ours[np.lexsort(ours.T)], theirs[np.lexsort(theirs.T)]
    )
    # The share of each class in the test part is off by less than one image.
    assert np.all(np.abs(np.bincount(y_test) - np.bincount(labels) * 360 / 1797) < 1.0)


@pytest.mark.parametrize(
    ("name", "channels"),
    [("mnist", ()), ("fashion_mnist", (1,)), ("cifar10", (3,)), ("cifar100", (3,))],
)
def test_a_file_is_read(tmp_path, name, channels):
    contents, rng = arrays(), np.random.default_rng(0)
    for key in ("x_train", "x_test"):
        shape = (*contents[key].shape, *channels)
        contents[key] = rng.integers(256, size=shape, dtype="uint8")
    np.savez_compressed(tmp_path / f"{name}.npz", **contents)
    for part, (x, y) in zip(
        ("train", "test"), datasets.load(name, tmp_path), strict=True
    ):
        assert x.shape == (len(x), 3, 5, *(channels or (1,)))
        assert x.dtype == np.float32 and y.dtype == np.int32
        expected = contents[f"x_{part}"].reshape(x.shape) / 255
        np.testing.assert_allclose(x, expected, atol=1e-7)
        np.testing.assert_array_equal(y, contents[f"y_{part}"])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="`data_dir`.*mnist.npz.*x_train.*Received"):
        datasets.load("mnist", data_dir=tmp_path)


def test_missing_keys_are_named(tmp_path):
    contents = arrays()
    del contents["y_test"], contents["x_train"]
    np.savez(tmp_path / "mnist.npz", **contents)
    with pytest.raises(ValueError, match="lacks x_train, y_test and holds"):
        datasets.load("mnist", data_dir=tmp_path)


def test_a_file_of_another_format_is_refused(tmp_path):
    (tmp_path / "mnist.npz").write_text("not an archive")
    with pytest.raises(ValueError, match="mnist.npz.* must be an .npz file"):
        datasets.load("mnist", data_dir=tmp_path)


def test_pickles_are_never_loaded(tmp_path):
    contents = arrays() | {"y_train": np.array([print] * 6, dtype=object)}
    np.savez(tmp_path / "mnist.npz", **contents)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        datasets.load("mnist", data_dir=tmp_path)


GREY = r"x_train must .*shape \(N, H, W, 3\) in"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((6, 3, 5))}, "x_train must hold images.*float64"),
        ({"x_test": np.zeros((4, 15), "uint8")}, r"x_test must .*\(4, 15\)"),
        ({"x_test": np.zeros((4, 3, 5, 3), "uint8")}, r"x_test must .*\(4, 3, 5, 3\)"),
        ({"y_train": np.zeros(5, "int64")}, r"y_train must .* 6 images.*\(5,\)"),
        ({"y_test": np.zeros(4)}, "y_test must hold one integer.*float64"),
        ({"x_train": np.zeros((6, 3, 5), "uint8")}, GREY),
        ({"x_train": np.zeros((6, 3, 5, 1), "uint8")}, GREY),
    ],
)
def test_other_contents_are_refused(tmp_path, change, message):
    name = "cifar10" if message == GREY else "mnist"
    np.savez(tmp_path / f"{name}.npz", **(arrays() | change))
    with pytest.raises(ValueError, match=message):
        datasets.load(name, data_dir=tmp_path)


def test_tensorflow_datasets_is_asked_for_both_splits(monkeypatch):
    contents = arrays()
    calls = []

    def load(name, *, split, batch_size, as_supervised):
        calls.append((name, split, as_supervised))
        return [batches(contents[f"x_{p}"], contents[f"y_{p}"]) for p in split]

    def batches(images, labels, size=4):
        for i in range(0, len(images), size):
            yield images[i : i + size, ..., None], labels[i : i + size].astype("int64")

    fake = types.SimpleNamespace(load=load, as_numpy=lambda split: split)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    (x_train, y_train), (x_test, y_test) = datasets.load("fashion_mnist")
    assert calls == [("fashion_mnist", ["train", "test"], True)]
    check_units(x_train, y_train)
    check_units(x_test, y_test)
    np.testing.assert_array_equal(y_train, contents["y_train"])
    np.testing.assert_array_equal(y_test, contents["y_test"])
    pixels = contents["x_train"][..., None] / 255
    np.testing.assert_allclose(x_train, pixels, atol=1e-7)


def mocked_tensorflow_datasets():
    """It needs TensorFlow, on every backend of Keras."""
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    tfds = pytest.importorskip(
        "tensorflow_datasets", reason="tensorflow-datasets is not installed"
    )
    return tfds.testing.mock_data(num_examples=7)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("mnist", (28, 28, 1), 10),
        ("fashion_mnist", (28, 28, 1), 10),
        ("kmnist", (28, 28, 1), 10),
        ("cifar10", (32, 32, 3), 10),
        ("cifar100", (32, 32, 3), 100),
    ],
)
def test_the_real_tensorflow_datasets(name, shape, classes):
    with mocked_tensorflow_datasets():
        parts = datasets.load(name)
    for x, y in parts:
        assert x.shape == (7, *shape) and x.dtype == np.float32
        assert x.min() >= 0.0 and x.max() <= 1.0 and np.ptp(x) > 0.5
        assert y.shape == (7,) and y.dtype == np.int32
        assert y.min() >= 0 and y.max() < classes


def test_the_test_part_alone_is_asked_of_tensorflow_datasets():
    with mocked_tensorflow_datasets():
        x, y = datasets.load_test("kmnist")
    assert x.shape == (7, 28, 28, 1)
    check_units(x, y)


@pytest.mark.parametrize(
    ("cause", "kind", "message"),
    [
        (
            ConnectionError("no route"),
            OSError,
            "not download the data set 'cifar10'.*`data_dir`.*cifar10.npz.*no route",
        ),
        (
            ModuleNotFoundError("No module named 'tensorflow'"),
            ImportError,
            r"and TensorFlow: pip install keras-mhmcmc\[data\] tensorflow",
        ),
    ],
)
def test_a_download_that_fails_names_the_remedy(monkeypatch, cause, kind, message):
    def load(name, **options):
        raise cause

    fake = types.SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", fake)
    with pytest.raises(kind, match=message):
        datasets.load("cifar10")


@pytest.mark.parametrize(
    ("name", "module"),
    [("mnist", "tensorflow_datasets"), ("digits", "sklearn.datasets")],
)
def test_a_missing_package_names_the_extra(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)  # what makes an import fail
    with pytest.raises(ImportError, match=r"pip install keras-mhmcmc\[data\]"):
        datasets.load(name)


@pytest.mark.parametrize("name", ["cifar", None, 3])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="`name` must be one of 'digits'.*Received"):
        datasets.load(name)


@pytest.mark.parametrize("file", ["kmnist", "kmnist_test"])
def test_a_file_may_have_the_test_part_alone(tmp_path, file):
    contents = arrays()
    part = {key: contents[key] for key in ("x_test", "y_test")}
    np.savez(tmp_path / f"{file}.npz", **part)
    x, y = datasets.load_test("kmnist", data_dir=tmp_path)
    check_units(x, y)
    np.testing.assert_allclose(x[..., 0], contents["x_test"] / 255, atol=1e-7)
    np.testing.assert_array_equal(y, contents["y_test"])
    # Both parts were asked for: nothing empty is handed out in place of one.
    with pytest.raises(ValueError, match="kmnist.npz.*`mh.datasets.load_test`|lacks"):
        datasets.load("kmnist", data_dir=tmp_path)


def test_the_test_part_is_that_of_load(tmp_path):
    np.savez(tmp_path / "mnist.npz", **arrays())
    for name in ("mnist", "digits", "diabetes"):
        for part, other in zip(
            datasets.load_test(name, tmp_path),
            datasets.load(name, tmp_path)[1],
            strict=True,
        ):
            np.testing.assert_array_equal(part, other)


def jpeg_arrays(part, images, labels):
    """Images as JPEG files, one after the other."""
    from PIL import Image

    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "jpeg", quality=95, subsampling=0)
        files.append(file.getvalue())
    return {
        f"jpg_{part}": np.frombuffer(b"".join(files), "uint8"),
        f"off_{part}": np.cumsum([0, *map(len, files)]),
        f"y_{part}": labels,
    }


def jpeg_contents():
    """Images of one colour each, which JPEG keeps to a few grey levels."""
    pytest.importorskip("PIL", reason="Pillow is not installed")
    colours = np.random.default_rng(0).integers(256, size=(5, 1, 1, 3), dtype="uint8")
    images = np.broadcast_to(colours, (5, 8, 8, 3)).copy()
    labels = np.arange(5, dtype="uint8")
    contents = jpeg_arrays("train", images[:3], labels[:3])
    return images, contents | jpeg_arrays("test", images[3:], labels[3:])


def test_jpeg_files_are_decoded(tmp_path):
    images, contents = jpeg_contents()
    np.savez(tmp_path / "cifar10.npz", **contents)
    (x_train, y_train), (x_test, y_test) = datasets.load("cifar10", tmp_path)
    assert x_train.dtype == np.float32 and y_train.dtype == np.int32
    x = np.concatenate([x_train, x_test])
    np.testing.assert_allclose(x, images / 255, atol=4 / 255)
    assert [*y_train, *y_test] == [0, 1, 2, 3, 4]


def test_broken_jpeg_files_are_named(tmp_path):
    _, contents = jpeg_contents()
    contents["jpg_train"] = np.zeros_like(contents["jpg_train"])
    np.savez(tmp_path / "cifar10.npz", **contents)
    with pytest.raises(ValueError, match=r"off_train\[0\].*must be a JPEG file"):
        datasets.load("cifar10", tmp_path)


@pytest.mark.parametrize("value", [0.1, 1.1, 5.0, 1e6 + 0.1])
def test_a_constant_column_becomes_0_though_its_mean_is_rounded(value):
    train = np.stack([np.full(442, value), np.arange(442.0)], axis=1)
    found, other = datasets.standardized(train, train[:2] + 0.25)
    np.testing.assert_array_equal(found[:, 0], 0.0)
    np.testing.assert_allclose(other[:, 0], 0.25, rtol=1e-6)
