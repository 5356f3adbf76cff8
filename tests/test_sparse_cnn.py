"""The example of sparse convolutional networks: networks, methods, a small run."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")

import keras
import numpy as np
import pytest
from matplotlib import pyplot

import keras_mhmcmc as mh
from tests.support.example_tools import load


@pytest.fixture(scope="module")
def cnn():
    """The module examples/sparse_cnn.py."""
    return load("sparse_cnn")


@pytest.fixture(scope="module")
def quick_run(cnn, tmp_path_factory):
    """Rows of a small run, by method, and the picture."""
    picture = tmp_path_factory.mktemp("cnn") / "new" / "picture.png"
    sizes = ["--epochs=6", "--train-size=700", "--attacked=100", "--members=3"]
    rows = cnn.main(["--quick", *sizes, "--output", str(picture)])
    return {row["method"]: row for row in rows}, picture


@pytest.mark.slow
def test_methods_learn_and_attacks_hurt(cnn, quick_run):
    rows, _ = quick_run
    assert tuple(rows) == cnn.METHODS
    for row in rows.values():
        assert row["accuracy"] > 60.0  # guessing would give 10
        assert 0.0 < row["nll"] < np.log(10)
        assert row["fgsm"][-1] < row["fgsm"][0] - 20.0
    assert rows["Vanilla"]["members"] == rows["Dropout"]["members"] == 1
    assert 1 < rows["SGHMC"]["members"] == rows["SGHMC-SA"]["members"] <= 3


@pytest.mark.slow
def test_sparsity_is_learned_by_one_method(quick_run):
    rows, _ = quick_run
    for method, row in rows.items():
        assert ("sparsity" in row) == (method == "SGHMC-SA")
    assert 0.0 <= rows["SGHMC-SA"]["sparsity"] <= 1.0
    assert rows["SGHMC-SA"]["weights"] == 128 * 50  # 2 x 2 pixels of 32 filters
    assert 0.1 < rows["SGHMC-SA"]["spike"] < 1.0  # more than at the start
    assert rows["SGHMC-SA"]["sigma"] > 0.0


@pytest.mark.slow
def test_picture_is_saved(quick_run):
    height, width = pyplot.imread(quick_run[1]).shape[:2]
    assert height > 600 and width > 1.3 * height


@pytest.mark.parametrize(
    ("name", "weights"), [("2-conv-2-fc", 681_506), ("2-conv-bn-3-fc", 494_154)]
)
def test_networks_are_those_of_the_paper(cnn, name, weights):
    network = cnn.models.NETWORKS[name]
    model = cnn.models.make_model(network, (28, 28, 1), 0.1307, 0.3081)
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == weights
    assert model.output_shape == (None, 10)
    norms = [x for x in model.layers if isinstance(x, keras.layers.BatchNormalization)]
    assert len(norms) == (name == "2-conv-bn-3-fc")


def test_model_takes_plain_pixels(cnn):
    network = cnn.models.small(cnn.models.NETWORKS["2-conv-2-fc"])
    model = cnn.models.make_model(network, (8, 8, 1), 0.25, 0.5)
    pixels = np.full((1, 8, 8, 1), 0.75, "float32")
    scaled = keras.ops.convert_to_numpy(model.layers[0](pixels))
    np.testing.assert_allclose(scaled, 1.0, rtol=1e-6)


def test_samplers_have_the_settings_of_the_paper(cnn):
    args = cnn.parse([])
    weights = 627_200
    sghmc = cnn.make_optimizer("SGHMC", 60_000, weights, args)
    sparse = cnn.make_optimizer("SGHMC-SA", 60_000, weights, args)
    assert isinstance(sghmc, mh.SGHMC) and isinstance(sparse, mh.SGHMCSA)
    config = sparse.prior.get_config()
    expected = {"v0": 1e-3, "v1": 1.0, "sigma": 0.1, "a": weights, "b": weights}
    assert {key: config[key] for key in expected} == expected
    for optimizer in (sghmc, sparse):
        rate = optimizer._learning_rate
        assert float(rate(0)) == pytest.approx(args.rate)
        # From iteration 100 on it falls as k^(-1/5).
        ratio = float(rate(64 * 10**6)) / float(rate(2 * 10**6))
        assert ratio == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("steps", "members"), [(1000, 20), (7, 20), (45, 4), (1, 3)])
def test_samples_are_of_the_second_half(cnn, steps, members):
    keep = cnn.kept(steps, members)
    first = keep["burn_in"] + keep["every"]
    kept = list(range(first, steps + 1, keep["every"]))
    assert 1 <= len(kept) <= members and first > steps // 2


def test_moved_image_is_shifted_and_turned(cnn):
    image = np.zeros((9, 9), "float32")
    image[2, 4] = 1.0  # above the centre
    shifted = cnn.models.moved(image, np.array([3, -2]), 0.0)
    assert shifted[5, 2] == pytest.approx(1.0) and shifted.sum() == pytest.approx(1.0)
    turned = cnn.models.moved(image, np.array([0, 0]), np.pi / 2)
    row, column = np.unravel_index(turned.argmax(), turned.shape)
    assert row == 4 and column in (2, 6) and turned.max() == pytest.approx(1.0)
    assert not cnn.models.moved(image, np.array([-4, 0]), 0.0).any()


def test_augmented_batches_are_new_each_epoch_and_keep_their_labels(cnn):
    # Bright and dark images, which no shift can confuse.
    y = np.arange(25) % 2
    x = np.where(y == 1, 1.0, 0.1).astype("float32")[:, None, None, None]
    x = np.broadcast_to(x, (25, 12, 12, 1))
    batches = cnn.models.Augmented(x, y, batch_size=10, seed=0)
    assert len(batches) == 3
    epochs = []
    for _ in range(2):
        parts = [batches[index] for index in range(3)]
        images, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
        assert images.shape == x.shape and images.dtype == np.float32
        np.testing.assert_array_equal(images.max(axis=(1, 2, 3)) > 0.5, labels == 1)
        assert images.min() >= 0.0 and images.max() <= 1.0 + 1e-6
        epochs.append(images)
        batches.on_epoch_end()
    assert not np.array_equal(*epochs)


@pytest.mark.slow
def test_augmented_training_runs(cnn):
    args = cnn.parse(["--quick", "--augment", "--epochs=1", "--batch-size=20"])
    args.network = cnn.models.small(cnn.models.NETWORKS["2-conv-bn-3-fc"])
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(40, 8, 8, 1)).astype("float32")
    train_set = (x, rng.integers(10, size=40))
    progress = cnn.Progress(1, images=40)
    predictor, _, logs = cnn.train("SGHMC-SA", train_set, args, progress)
    assert np.isfinite(logs["loss"]).all() and 0.0 <= logs["sparsity"][0] <= 1.0
    probabilities = predictor.predict(x, verbose=0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-4)


def test_finished_methods_are_not_run_again(cnn, tmp_path, monkeypatch):
    args = cnn.parse(["--quick", "--results", str(tmp_path / "new" / "rows.jsonl")])
    trained = []

    class Stopped(Exception):
        """An interruption."""

    def train(method, *_):
        trained.append(method)
        if len(trained) == 3:
            raise Stopped
        rho = {"fc1": np.array([0.25, 0.75])}
        optimizer = SimpleNamespace(inclusion_probabilities=lambda: rho)
        logs = dict.fromkeys(cnn.LATENTS, [0.5])
        model = SimpleNamespace(optimizer=optimizer)
        return SimpleNamespace(num_members=2), model, logs

    monkeypatch.setattr(cnn, "train", train)
    monkeypatch.setattr(cnn, "scored", lambda method, *_: {"accuracy": len(method)})
    monkeypatch.setattr(cnn.mh, "MCDropout", lambda *_: None)
    data = np.zeros((1, 8, 8, 1)), np.zeros(1)
    with pytest.raises(Stopped):
        cnn.run(data, data, args)
    rows, predictor = cnn.run(data, data, args)
    assert trained == ["Vanilla", "Dropout", "SGHMC", "SGHMC", "SGHMC-SA"]
    assert predictor.num_members == 2
    again, predictor = cnn.run(data, data, args)
    assert len(trained) == 5 and again == rows and predictor is None
    assert [row["method"] for row in rows] == list(cnn.METHODS)
    assert [row["accuracy"] for row in rows] == [len(name) for name in cnn.METHODS]
    args.sigma = 0.7  # a setting of one method, and then one of all
    cnn.run(data, data, args)
    args.seed = 1
    cnn.run(data, data, args)
    assert trained[5:] == ["SGHMC-SA", *cnn.TRAINED]


def test_picture_of_stored_rows_has_no_images(cnn, tmp_path):
    args = cnn.parse(["--output", str(tmp_path / "picture.png")])
    one = {"accuracy": 0.5, "nll": 1.0, "entropy": 1.0}
    curve = [{"epsilon": strength, **one} for strength in cnn.STRENGTHS]
    rows = [{"method": method, "curve": curve} for method in cnn.METHODS]
    cnn.draw(rows, None, None, args)
    assert pyplot.imread(args.output).shape[0] > 600


def test_table_is_aligned_and_has_the_paper(cnn):
    row = {"members": 1, "accuracy": 98.5, "nll": 0.05, "fgsm": [98.0] * 6}
    rows = [row | {"method": name, "seconds": 3.0} for name in cnn.METHODS]
    lines = cnn.as_text(rows, cnn.REPORTED["mnist"], augment=True).split("\n")
    assert len(lines) == 2 + len(rows) and len(set(map(len, lines))) == 1
    assert "99.75" in lines[-1] and "—" in lines[4]
    # Every blank of the legend is filled by `main`.
    counts = {"attacked": 1000, "weights": 5, "sparsity": 0.5, "spike": 0.4}
    legend = cnn.LEGEND.format(**counts, sigma=0.1, delta=0.5)
    assert "40.0% in the spike" in legend and "50.0% with" in legend


@pytest.mark.parametrize(
    "arguments", [["--epochs", "0"], ["--data", "cifar10"], ["--model", "lenet"]]
)
def test_bad_arguments_are_refused(cnn, arguments, capsys):
    with pytest.raises(SystemExit):
        cnn.main(arguments)
    assert arguments[0] in capsys.readouterr().err.split("error:")[1]
