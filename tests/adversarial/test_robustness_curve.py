"""The table of attacks: each model's accuracy, its own attack, and how it is shown."""

import sys

import numpy as np
import pytest

from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.evaluation import metrics
from tests.support.attack_tools import exact_direction
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import softmax


class TestRobustnessCurve:
    def test_accuracy_of_a_threshold(self):
        """p > 1/2 iff x > 1/2: an attack turns what is nearer to 1/2 than epsilon."""
        x = np.random.default_rng(0).uniform(size=(101, 1)).astype("float32")
        models, epsilons = {"a": linear([[-1, 1]], [0.5, -0.5])}, [0, 0.05, 0.2, 0.5]
        table = robustness_curve(models, x, x > 0.5, np.array(epsilons))
        right = [np.mean(np.abs(x - 0.5) >= epsilon) for epsilon in epsilons]
        np.testing.assert_allclose(table.column("a", "accuracy"), right)
        np.testing.assert_array_equal(table.column("a", "epsilon"), epsilons)
        assert np.all(np.diff(table.column("a", "nll")) > 0.0)

    def test_true_labels_are_the_default(self):
        """The attack on a model's own predictions stays available by name."""
        x, y, *parameters = linear_case()
        models = {"m": linear(*parameters)}
        default, true, own = (
            robustness_curve(models, x, y, [0.1], **options)
            for options in ({}, {"true_label": True}, {"true_label": False})
        )
        assert default.rows == true.rows != own.rows
        assert str(default).startswith("FGSM on the true labels, by strength")
        assert str(own).startswith("FGSM on each model's own predictions, by")

    @pytest.mark.parametrize("true_label", [False, True])
    def test_each_model_meets_its_own_attack(self, true_label):
        x, y, *first = linear_case()
        _, _, *second = linear_case(seed=1)
        models = {"one": linear(*first), "two": linear(*second, None)}
        options = {"true_label": true_label, "from_logits": {"one": False, "two": True}}
        table = robustness_curve(models, x, y, [0.1, 0.0], batch_size=7, **options)
        assert [row["model"] for row in table.rows] == ["one", "one", "two", "two"]
        for name, (weights, bias) in (("one", first), ("two", second)):
            attacked = (x @ weights + bias).argmax(axis=1)
            direction = exact_direction(x, y if true_label else attacked, weights, bias)
            for row, epsilon in enumerate((0.1, 0.0)):
                p = softmax((x + epsilon * np.sign(direction)) @ weights + bias)
                entropy = np.mean(metrics.predictive_entropy(p))
                scores = (metrics.accuracy(p, y), metrics.nll(p, y), entropy)
                columns = ("accuracy", "nll", "entropy")
                values = [table.column(name, column)[row] for column in columns]
                np.testing.assert_allclose(values, scores, rtol=1e-4)

    def test_one_column(self):
        models = {"two": linear([[-1.0, 1.0]], [0.5, -0.5])}
        models["p"] = linear([[2.0]], [-1.0], "sigmoid")
        models["z"] = linear([[2.0]], [-1.0], None)
        flags = {"p": False, "z": True, "two": False}
        x = np.linspace(0.0, 1.0, 12)[:, None]
        table = robustness_curve(models, x, x > 0.4, [0.0, 0.2], from_logits=flags)
        for column in ("accuracy", "nll", "entropy"):
            values = [table.column(name, column) for name in models]
            np.testing.assert_allclose(values, [values[0]] * 3, rtol=1e-5)

    def test_table(self, capsys, monkeypatch):
        x, y, *parameters = linear_case()
        models = {"MAP": linear(*parameters), "ensemble": linear(*parameters)}
        table = robustness_curve(models, x, y, [0.0, 0.031])
        assert capsys.readouterr().out == ""
        caption, *lines = str(table).splitlines()
        assert caption.startswith("FGSM on the true labels")
        assert len(lines) == 3 and len(set(map(len, lines))) == 1
        assert lines[0].split() == ["accuracy", "0", "0.031"]
        scores = table.column("ensemble", "accuracy")
        assert lines[2].split() == ["ensemble", *(f"{score:.4f}" for score in scores)]
        frame = table.to_pandas()
        assert list(frame.columns) == ["model", "epsilon", "accuracy", "nll", "entropy"]
        assert frame.to_dict("records") == table.rows
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            table.to_pandas()
        with pytest.raises(ValueError, match="`model` must be one of 'MAP', 'ens"):
            table.column("other", "nll")
        with pytest.raises(ValueError, match="`name` must be one of 'model', 'eps"):
            table.column("MAP", "loss")

    def test_an_attack_that_works_in_place_leaves_the_data(self):
        x, y, *parameters = linear_case()
        models, before = {"MAP": linear(*parameters)}, x.copy()

        def onto(classifier, x, epsilon, y, clip):
            x += np.clip(x + epsilon, 0.0, 1.0) - x
            return x

        table = robustness_curve(models, x, y, [0.1, 0.1, 0.0], attack=onto)
        accuracies = table.column("MAP", "nll")
        assert accuracies[0] == accuracies[1] != accuracies[2]
        np.testing.assert_array_equal(x, before)

    def test_strengths_of_less_than_a_grey_level_are_told(self):
        x, y, *parameters = linear_case()
        models = {"MAP": linear(*parameters)}
        for largest, is_told in ((8 / 255, True), (0.5, True), (1.5, False)):
            table = robustness_curve(
                models, 255 * x, y, [0.0, largest], clip=(0.0, 255.0)
            )
            told = [text for text in table.warnings if "units of the inputs" in text]
            assert len(told) == is_told, largest

    def test_progress(self, capsys):
        x, y, *parameters = linear_case()
        models = {"MAP": linear(*parameters), "ensemble": linear(*parameters)}
        robustness_curve(models, x, y, [0.0], verbose=2)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0] for line in lines] == [*models]
        robustness_curve(models, x, y, [0.0, 0.1, 0.2], verbose=1)
        assert "6/6" in capsys.readouterr().out
