"""`mh.evaluate` against scikit-learn and SciPy; the area under the curve."""

import sys
import types

import keras
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as oracle

import keras_mhmcmc as mh
from keras_mhmcmc.evaluation import metrics
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import softmax
from tests.support.models import numpy

FIXED = ("model", "members", "accuracy", "nll", "brier", "ece")
FIXED += ("adaptive_ece", "classwise_ece", "aurc", "entropy", "mutual_information")


def ensemble_case(activation="softmax"):
    """Two linear members with the weights 0.25 and 0.75, and their probabilities."""
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    ensemble = mh.Ensemble(linear(*first, None), 2, activation)
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], [0.25, 0.75])

    def members(x):
        x = x.astype("float64")
        return np.stack([softmax(x @ w + b) for w, b in (first, second)])

    return x, y, ensemble, members


class TestScores:
    def test_any_mapping_names_the_models(self):
        x, y, ensemble, _ = ensemble_case()
        view = types.MappingProxyType
        table = mh.evaluate(
            view({"e": ensemble}), x, y, ood=view({"far": x}), from_logits=False
        )
        assert table.rows[0]["model"] == "e"
        assert "auroc_far" in table.rows[0]

    @pytest.mark.parametrize("batch_size", [256, 7])
    def test_of_an_ensemble(self, batch_size):
        x, y, ensemble, members = ensemble_case()
        ood = np.random.default_rng(3).uniform(size=(25, 12)).astype("float32")
        (row,) = mh.evaluate({"e": ensemble}, x, y, ood=ood, batch_size=batch_size).rows
        uncertainty = []
        for inputs in (x, ood):
            each = members(inputs)
            mean = np.tensordot([0.25, 0.75], each, axes=1)
            entropy = stats.entropy(mean, axis=1)
            inside = np.tensordot([0.25, 0.75], stats.entropy(each, axis=2), axes=1)
            uncertainty.append((entropy, entropy - inside))
        mean = np.tensordot([0.25, 0.75], members(x), axes=1)
        is_ood = [False] * 40 + [True] * 25
        one_hot = np.eye(5)[y]
        expected = {
            "model": "e",
            "members": 2,
            "accuracy": oracle.accuracy_score(y, mean.argmax(axis=1)),
            "nll": oracle.log_loss(y, mean, labels=range(5)),
            "brier": np.sum((mean - one_hot) ** 2) / 40,
            "ece": metrics.ece(mean, y),
            "adaptive_ece": metrics.adaptive_ece(mean, y),
            "classwise_ece": metrics.classwise_ece(mean, y),
            "aurc": metrics.aurc(mean, y),
            "entropy": uncertainty[0][0].mean(),
            "mutual_information": uncertainty[0][1].mean(),
        }
        for area in (oracle.roc_auc_score, oracle.average_precision_score):
            start = "auroc" if area is oracle.roc_auc_score else "aupr"
            for name, index in ((f"{start}_ood", 0), (f"{start}_mi_ood", 1)):
                scores = np.concatenate([part[index] for part in uncertainty])
                expected[name] = area(is_ood, scores)
        assert list(row) == list(expected)
        assert row.pop("model") == expected.pop("model")
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-4), name
        # The members' weights count.
        assert row["mutual_information"] != pytest.approx(
            metrics.mutual_information(members(x)).mean(), rel=1e-2
        )

    def test_of_a_single_model(self):
        x, y, *parameters = linear_case()
        models = {"p": linear(*parameters), "z": linear(*parameters, None)}
        flags = {"p": False, "z": True}
        table = mh.evaluate(models, x, y, ood=1 - x, from_logits=flags)
        first, second = table.rows
        for name in ("members", "mutual_information", "auroc_mi_ood", "aupr_mi_ood"):
            assert first[name] == 1 or np.isnan(first[name])
        for name in (*FIXED[2:10], "auroc_ood", "aupr_ood"):
            assert first[name] == pytest.approx(second[name], rel=1e-5)

    def test_probabilities_that_are_called_logits(self):
        """A second softmax would give another NLL without a word."""
        x, y, *parameters = linear_case()
        models = {"p": linear(*parameters), "z": linear(*parameters, None)}
        with pytest.warns(UserWarning, match=r"models\['p'\].*look like probabilities"):
            mh.evaluate(models, x, y, from_logits=True)
        with pytest.warns(UserWarning, match="look like probabilities"):
            mh.temperature_scaling(models["p"], x, y, from_logits=True)
        inputs = keras.Input(x.shape[1:])
        one = keras.Model(inputs, models["p"](inputs)[:, :1])
        with pytest.warns(UserWarning, match=r"\[0, 1\]. Pass from_logits=False"):
            mh.evaluate({"one": one}, x, y % 2, from_logits=True)

    def test_of_an_ensemble_of_logits(self):
        """Its prediction is the softmax of the mean logits; members differ from it."""
        x, y, ensemble, members = ensemble_case(activation=None)
        models = {"e": ensemble}
        (row,) = mh.evaluate(models, x, y, from_logits=True).rows
        mean = softmax(numpy(ensemble(x)).astype("float64"))
        assert row["nll"] == pytest.approx(metrics.nll(mean, y), rel=1e-5)
        information = metrics.mutual_information(members(x), [0.25, 0.75])
        assert row["mutual_information"] == pytest.approx(information.mean(), rel=1e-3)

    def test_of_one_column(self):
        layer = keras.layers.Dense(1, activation="sigmoid")
        member = keras.Sequential([keras.Input((1,)), layer])
        ensemble = mh.Ensemble(member, 2)
        ensemble.set_members([np.array([[[4.0]], [[8.0]]]), np.zeros((2, 1))], [1, 1])
        x = np.array([[-1.0], [1.0], [0.5]])
        (row,) = mh.evaluate({"e": ensemble}, x, [0, 1, 1]).rows
        p = (1 / (1 + np.exp(-4 * x)) + 1 / (1 + np.exp(-8 * x))) / 2
        expected = oracle.log_loss([0, 1, 1], p[:, 0])
        assert row["nll"] == pytest.approx(expected, rel=1e-5)

    def test_of_mc_dropout(self):
        keras.utils.set_random_seed(0)
        stack = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.5)]
        last = keras.layers.Dense(5)
        model = keras.Sequential([keras.Input((12,)), *stack, last])
        x, y, *_ = linear_case()
        passes = mh.MCDropout(model, 10, "softmax")
        first, second = (mh.evaluate({"MC": passes}, x, y).rows[0] for _ in range(2))
        assert first == second
        members = passes.predict_members(x, batch_size=40)
        assert first["members"] == 10
        information = metrics.mutual_information(members).mean()
        assert first["mutual_information"] == pytest.approx(information, rel=0.3)


class TestTable:
    def table(self):
        x, y, ensemble, _ = ensemble_case()
        _, _, *parameters = linear_case()
        models = {"one network": linear(*parameters), "ensemble": ensemble}
        return mh.evaluate(models, x, y, ood={"inverted": 1 - x, "zeros": 0 * x})

    def test_text(self):
        lines = str(self.table()).splitlines()
        assert len(lines) == 3 and len(set(map(len, lines))) == 1
        for head in ("NLL", "AURC", "AUROC inverted", "AUROC MI zeros"):
            assert head in lines[0]
        # What is left out of the text is in the rows.
        assert "AUPR" not in lines[0] and "aupr_zeros" in self.table().rows[0]
        assert len(lines[0].split("AUROC")[0]) < 80
        assert lines[1].startswith("one network") and lines[1].count("—") == 3
        assert "—" not in lines[2]

    def test_columns(self, monkeypatch):
        table = self.table()
        names = [
            f"{area}_{score}{other}"
            for other in ("inverted", "zeros")
            for area in ("auroc", "aupr")
            for score in ("", "mi_")
        ]
        frame = table.to_pandas()
        assert list(frame.columns) == [*FIXED, *names]
        np.testing.assert_array_equal(table.column("members"), [1, 2])
        np.testing.assert_array_equal(table.column("nll"), frame["nll"])
        with pytest.raises(ValueError, match="`name` must be one of 'model'"):
            table.column("loss")
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            table.to_pandas()

    def test_progress(self, capsys):
        x, y, ensemble, _ = ensemble_case()
        mh.evaluate({"a": ensemble}, x, y)
        assert capsys.readouterr().out == ""
        mh.evaluate({"a": ensemble}, x, y, verbose=1)
        assert "1/1" in capsys.readouterr().out


def test_an_ensemble_is_traced_once():
    x, y, ensemble, _ = ensemble_case()
    calls = []
    activation = ensemble.activation

    def counting(outputs):
        calls.append(1)
        return activation(outputs)

    ensemble.activation = counting
    mh.evaluate({"e": ensemble}, x, y, ood=1 - x, batch_size=40)
    # On PyTorch each of two batches of two members; else a trace or two of a member.
    assert len(calls) == 4 if keras.backend.backend() == "torch" else len(calls) <= 2


@pytest.mark.parametrize(
    "change, message",
    [
        ({"x": [np.zeros((40, 12)), np.zeros((40, 2))]}, "several inputs"),
        ({"x": (np.zeros((40, 12)), np.zeros((40, 12)))}, "several inputs"),
        ({"x": {"a": np.zeros((40, 12))}}, "several inputs"),
        (
            {"ood": np.zeros((4, 3))},
            r"`ood` must have the shape .* \(12,\)",
        ),
    ],
)
def test_bad_arguments(change, message):
    x, y, *parameters = linear_case()
    good = {"models": {"a": linear(*parameters)}, "x": x, "y": y}
    with pytest.raises(ValueError, match=message):
        mh.evaluate(**(good | change))


@pytest.mark.parametrize("seed", range(4))
def test_a_certain_network_keeps_its_nll_in_an_ensemble(seed):
    """A probability of 1 in float32 stands for 1 - 2^-25, whatever the weights."""
    member = linear([[60.0]], [0.0], "sigmoid")
    ensemble = mh.Ensemble(member, 10, "linear")
    shares = np.random.default_rng(seed).uniform(0.1, 1.1, 10)
    stacked = [np.stack([array] * 10) for array in member.get_weights()]
    ensemble.set_members(stacked, shares)
    models, x = {"one": member, "ten": ensemble}, np.array([[1.0], [-1.0]])
    one, ten = mh.evaluate(models, x, [0, 0]).rows
    assert one["nll"] == pytest.approx(12.5 * np.log(2.0), rel=1e-6)
    assert ten["nll"] == pytest.approx(one["nll"], rel=0.05)
