"""`mh.corrupt` against closed forms, `mh.evaluate_shift` against single scores."""

import matplotlib

matplotlib.use("Agg")

import keras
import numpy as np
import pytest
from matplotlib import pyplot

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation.shift import CORRUPTIONS

SIDE = 25  # severity 1 moves an image by one pixel of these


def images(count=6, channels=None, seed=0):
    shape = (count, SIDE, SIDE) + (() if channels is None else (channels,))
    return np.random.default_rng(seed).random(shape, dtype="float32")


def point(row, column, count=40):
    """Images with one bright pixel."""
    x = np.zeros((count, SIDE, SIDE), "float32")
    x[:, row, column] = 1.0
    return x


def moments(image):
    """Centre of mass and variance of an image along both axes."""
    shares = image / image.sum()
    grid = np.arange(SIDE)
    mean = [shares.sum(1) @ grid, shares.sum(0) @ grid]
    squares = [shares.sum(1) @ grid**2, shares.sum(0) @ grid**2]
    return np.array(mean), np.array(squares) - np.square(mean)


class TestCorrupt:
    @pytest.mark.parametrize("name", CORRUPTIONS)
    def test_shape_range_and_seed(self, name):
        for x in (images(), images(channels=3)):
            made = mh.corrupt(2 * x - 1, name, 3, seed=1, clip=(-1, 1))
            assert made.shape == x.shape and made.dtype == np.float32
            assert made.min() >= -1 and made.max() <= 1
            again = mh.corrupt(2 * x - 1, name, 3, seed=1, clip=(-1, 1))
            np.testing.assert_array_equal(made, again)
            # The unit of the numbers does not matter.
            scaled = mh.corrupt(255 * x, name, 3, seed=1, clip=(0, 255))
            np.testing.assert_allclose(scaled, 127.5 * (made + 1), atol=0.01)

    @pytest.mark.parametrize("name", ["blur", "rotation", "contrast", "translation"])
    def test_channels_first(self, name):
        x = images(channels=3)
        expected = np.moveaxis(mh.corrupt(x, name, 3), -1, 1)
        keras.config.set_image_data_format("channels_first")
        try:
            made = mh.corrupt(np.moveaxis(x, -1, 1), name, 3)
            flat = mh.corrupt(images(), name, 3)
        finally:
            keras.config.set_image_data_format("channels_last")
        np.testing.assert_array_equal(made, expected)
        np.testing.assert_array_equal(flat, mh.corrupt(images(), name, 3))

    def test_noise_has_its_standard_deviation(self):
        x = np.full((50, SIDE, SIDE), 0.5)
        for severity, sigma in ((1, 0.04), (3, 0.12)):  # 0.5 is 4 sigma and more
            noise = mh.corrupt(x, "gaussian_noise", severity) - 0.5
            error = sigma / np.sqrt(2 * noise.size)
            assert abs(noise.std() - sigma) < 4 * error
            assert abs(noise.mean()) < 4 * sigma / np.sqrt(noise.size)

    def test_contrast_shrinks_towards_the_mean_of_each_image(self):
        x = images()
        mean = x.mean((1, 2), keepdims=True)
        expected = mean + 0.4 * (x - mean)
        np.testing.assert_allclose(mh.corrupt(x, "contrast", 3), expected, atol=1e-6)

    def test_a_blurred_point_has_the_variance_of_the_density(self):
        made = mh.corrupt(point(12, 12, 1), "blur", 5)[0]
        mean, variance = moments(made)
        np.testing.assert_allclose(mean, 12.0, atol=1e-4)
        np.testing.assert_allclose(variance, (0.055 * SIDE) ** 2, rtol=0.02)

    def test_translation_by_a_pixel(self):
        found = {
            tuple(np.argwhere(made)[0] - 12)
            for made in mh.corrupt(point(12, 12), "translation", 1)
        }
        assert found == {(-1, 0), (1, 0), (0, -1), (0, 1)}

    def test_what_comes_in_from_outside_is_the_lower_end(self):
        made = mh.corrupt(np.ones((40, SIDE, SIDE)), "translation", 1, clip=(-1, 1))
        edges = [made[:, 0], made[:, -1], made[:, :, 0], made[:, :, -1]]
        assert sum((edge == -1).all(1).sum() for edge in edges) == 40

    def test_rotation_turns_a_point_by_the_angle_left_and_right(self):
        angles = set()
        for made in mh.corrupt(point(12, 22), "rotation", 3):
            offset = moments(made)[0] - 12.0
            assert np.hypot(*offset) == pytest.approx(10.0, abs=0.2)
            angles.add(round(np.degrees(np.arctan2(*offset))))
        assert angles == {25, -25}

    def test_rows_of_pixels_are_refused(self):
        with pytest.raises(ValueError, match=r"`x` must be images.*\(6, 625\)"):
            mh.corrupt(images().reshape(6, -1), "blur", 1)


@pytest.fixture
def case():
    """Two linear models of images, with more and less confidence."""
    x, models = images(40), {}
    for name, scale in (("sure", 20.0), ("unsure", 5.0)):
        head = keras.layers.Dense(2, activation="softmax")
        layers = [keras.Input((SIDE, SIDE)), keras.layers.Flatten(), head]
        model = keras.Sequential(layers)
        w = scale * np.random.default_rng(1).standard_normal((SIDE**2, 2)) / SIDE
        model.set_weights([w, -w.sum(0) / 2])
        models[name] = model
    labels = np.argmax(models["sure"].predict(x, verbose=0), axis=1)
    labels[:4] = 1 - labels[:4]
    return models, x, labels


def test_rows_are_the_scores_of_the_corrupted_images(case):
    models, x, y = case
    names = ["blur", "gaussian_noise"]
    table = mh.evaluate_shift(
        models, x, y, corruptions=names, severities=(2, 5), seed=3, bins=4
    )
    assert len(table.rows) == 2 * (1 + 2 * 2)
    for row in table.rows:
        made = x
        if row["severity"]:
            made = mh.corrupt(x, row["corruption"], row["severity"], seed=3)
        p = models[row["model"]].predict(made, verbose=0)
        assert row["accuracy"] == pytest.approx(mh.metrics.accuracy(p, y))
        assert row["nll"] == pytest.approx(mh.metrics.nll(p, y), rel=1e-4)
        assert row["ece"] == pytest.approx(mh.metrics.ece(p, y, 4), abs=1e-5)
    assert table.column("sure", "severity").tolist() == [0, 2, 5]
    each = [table.column("sure", "nll", name) for name in names]
    np.testing.assert_allclose(table.column("sure", "nll"), np.mean(each, axis=0))
    assert each[0][0] == each[1][0] and each[0][2] != each[1][2]


def test_rows_of_pixels_with_a_shape_give_the_same(case):
    models, x, y = case
    model = models["sure"]
    flat = keras.Sequential([keras.Input((SIDE**2,)), *model.layers[1:]])
    options = {"corruptions": ["rotation"], "severities": [4]}
    expected = mh.evaluate_shift({"a": model}, x, y, **options)
    rows = x.reshape(40, -1)
    found = mh.evaluate_shift(
        {"a": flat}, rows, y, image_shape=(SIDE, SIDE, 1), **options
    )
    assert str(found) == str(expected)


def test_corruptions_of_the_user(case):
    models, x, y = case
    arrays = {1: x * 0.5, 3: x * 0.25}
    own = {"half": lambda z, severity: z * 0.5**severity, "files": arrays}
    table = mh.evaluate_shift(models, x, y, corruptions=own, severities=(1, 3))
    scores = table.column("unsure", "nll", "half")
    expected = mh.metrics.nll(models["unsure"].predict(x / 8, verbose=0), y)
    assert scores[2] == pytest.approx(expected, rel=1e-4)
    assert table.column("unsure", "nll", "files")[1] == scores[1]
    with pytest.raises(
        ValueError, match=r"the severities \[1, 2\].*'files' with \[1, 3\]"
    ):
        mh.evaluate_shift(models, x, y, corruptions=own, severities=(1, 2))
    with pytest.raises(ValueError, match="shape of `x`.*'crop'"):
        crop = {"crop": lambda z, severity: z[:, 1:]}
        mh.evaluate_shift(models, x, y, corruptions=crop)


def test_the_table_prints_means(case):
    models, x, y = case
    text = str(mh.evaluate_shift(models, x, y, severities=(1, 2)))
    assert text.startswith("By severity, means over 5 corruptions; 0 is clean.\n")
    lines = text.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [
        *("accuracy", "sure", "unsure"),
        *("NLL", "sure", "unsure"),
        *("ECE", "sure", "unsure"),
    ]
    assert lines[0].split() == ["accuracy", "0", "1", "2"]
    assert lines[1].split()[1] == "0.9000"


def test_the_picture_has_lines_and_bands(case):
    models, x, y = case
    table = mh.evaluate_shift(models, x, y, severities=(1, 2))
    figure = mh.plots.shift(table)
    accuracy, nll, _ = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in accuracy.get_lines()}
    np.testing.assert_allclose(lines["sure"], 100 * table.column("sure", "accuracy"))
    assert len(nll.collections) == 2 and nll.get_ylabel() == "NLL (nats)"
    assert len(pyplot.get_fignums()) == 1


def test_inputs_in_other_units_are_told(case):
    models, x, y = case
    bytes_of = {1: (255 * x).astype("uint8")}
    with pytest.warns(UserWarning, match=r"corruptions\['fog'\].*other units.*255"):
        mh.evaluate_shift(models, x, y, corruptions={"fog": bytes_of}, severities=(1,))
