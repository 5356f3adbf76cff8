"""The strongest of several attacks, attacks by name, and attacks on other models."""

import functools

import keras
import numpy as np
import pytest

from keras_mhmcmc import Classifier
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial import square
from keras_mhmcmc.adversarial import strongest
from keras_mhmcmc.adversarial import transfer
from tests.support.attack_checks import curved_case
from tests.support.attack_tools import judged
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case

SMALL = (
    functools.partial(pgd, steps=3),
    functools.partial(apgd, steps=6),
    functools.partial(apgd, steps=6, loss="margin"),
    functools.partial(square, queries=20),
)


def threshold(value):
    """A model that predicts class 1 of inputs (n, 1) above a value."""
    layer = keras.layers.Dense(1, activation="sigmoid")
    model = keras.Sequential([keras.Input((1,)), layer])
    model.set_weights([np.array([[8.0]]), np.array([-8.0 * value])])
    return model


X = np.array([[0.3], [0.45], [0.55], [0.7]], "float32")
Y = np.array([0, 0, 1, 1])


def shifted(by):
    """An attack that moves all inputs by one value of the ball."""

    def attack(model, x, epsilon, *, y, clip):
        return np.clip(x + by * epsilon, *clip)

    return attack


class TestStrongest:
    def test_the_first_that_misleads_or_the_highest_loss(self):
        """Of four inputs beside 0.5: both, up, down and neither mislead the model."""
        attacks = [shifted(0.2), shifted(1.0), shifted(-1.0), shifted(-0.3)]
        moved = strongest(threshold(0.5), X, Y, 0.1, attacks=attacks)
        # 0.3 and 0.7 are never misled: as near to 0.5 as they come. 0.45 is misled by
        # 0.1, and 0.55 by -0.1.
        np.testing.assert_allclose(moved[:, 0], [0.4, 0.55, 0.45, 0.6], atol=1e-6)
        again = strongest(threshold(0.5), X, Y, 0.1, attacks=attacks[::-1])
        np.testing.assert_allclose(again, moved, atol=1e-6)
        both = [shifted(0.7), shifted(1.0)]
        moved = strongest(threshold(0.5), X, Y, 0.1, attacks=both)
        np.testing.assert_allclose(moved[1], 0.52, atol=1e-6)  # the first one

    def test_never_weaker_than_one_of_them(self):
        x, y, model, logits = curved_case()
        classifier = Classifier(model, from_logits=True)
        worst = judged(strongest(classifier, x, y, 0.1, attacks=SMALL), y, logits)
        each = [judged(a(classifier, x, 0.1, y=y), y, logits) for a in SMALL]
        assert np.all(worst[0] == np.any([fooled for fooled, _ in each], axis=0))
        losses = np.max([loss for _, loss in each], axis=0)
        right = ~worst[0]
        np.testing.assert_allclose(worst[1][right], losses[right], rtol=1e-5)

    def test_names_are_the_functions_of_these_names(self):
        x, y, model, _ = curved_case()
        given = {"y": y, "seed": 5}
        classifier = Classifier(model, from_logits=True)
        for name, attack in (("pgd", pgd), ("apgd", apgd)):
            alone = attack(classifier, x, 0.1, **given)
            moved = strongest(classifier, x, y, 0.1, attacks=[name], seed=5)
            np.testing.assert_array_equal(moved, alone)
        margin = apgd(classifier, x, 0.1, loss="margin", **given)
        moved = strongest(classifier, x, y, 0.1, attacks=["apgd_margin"], seed=5)
        np.testing.assert_array_equal(moved, margin)
        np.testing.assert_array_equal(strongest(classifier, x, y, 0.0), x)

    @pytest.mark.parametrize(
        "options, text",
        [
            ({"attacks": [lambda *_, **__: 1.0]}, "`attacks` must be a function that"),
            ({"y": None}, "`y` must be the true labels"),
            ({"member": 0, "attacks": [pgd]}, "`member` must be None if `attacks"),
        ],
    )
    def test_bad_arguments(self, options, text):
        good = {"model": threshold(0.5), "x": X, "y": Y, "epsilon": 0.1}
        with pytest.raises(ValueError, match=f"Argument {text}"):
            strongest(**good | options)


def test_a_regression_model_is_told():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.set_weights([np.array([[3.0]]), np.zeros(1)])
    for attack in (pgd, apgd, square):
        with pytest.raises(ValueError, match="a regression, which has no classes"):
            attack(model, X, 0.1)


class TestCurve:
    @pytest.mark.parametrize(
        "attack, options, caption",
        [
            ("apgd", {"steps": 4}, "APGD of 4 steps from a random input on the true"),
            (
                "apgd",
                {"steps": 2, "restarts": 3, "norm": "l2"},
                "APGD of 2 steps from a random input, 3 runs, in the L2 ball, on",
            ),
            ("apgd_margin", {"steps": 4}, "APGD on the margin of 4 steps from a"),
            ("square", {"queries": 9}, "Square of 9 queries on the true labels, by"),
            ("strongest", {"attacks": ["fgsm"]}, "The strongest of FGSM on the true"),
            ("strongest", {"attacks": SMALL[:2]}, "The strongest of PGD (steps=3), A"),
        ],
    )
    def test_captions(self, attack, options, caption):
        models = {"m": threshold(0.5)}
        table = robustness_curve(models, X, Y, [0.0, 0.1], attack=attack, **options)
        assert str(table).startswith(caption)
        assert table.column("m", "accuracy")[1] == 0.5

    @pytest.mark.parametrize(
        "attack, options, text",
        [
            ("fgsm", {"steps": 3}, "`steps` must be omitted: .* takes no options"),
            (pgd, {"steps": 3}, "`steps` must be omitted: .* takes no options"),
            (
                "square",
                {"steps": 3},
                "attack='square' takes `queries`, `initial_share`",
            ),
            ("apgd_margin", {"loss": "margin"}, "`loss` must be omitted: "),
            ("strongest", {"attacks": []}, "`attacks` must be a list or tuple of at"),
        ],
    )
    def test_bad_options(self, attack, options, text):
        with pytest.raises(ValueError, match=text):
            models = {"m": threshold(0.5)}
            robustness_curve(models, X, Y, [0.1], attack=attack, **options)


class TestTransfer:
    MODELS = {"low": 0.4, "high": 0.6}

    def models(self):
        return {name: threshold(value) for name, value in self.MODELS.items()}

    def test_each_target_meets_the_attacks_on_each_source(self):
        """Accuracies of thresholds, of which the attacks on both are the same."""
        models = self.models()
        table = transfer(models, models, X, Y, 0.1, attack="fgsm")
        assert table.sources == table.targets == ["low", "high"]
        # The inputs become 0.4, 0.55, 0.45 and 0.6, whatever the threshold is.
        expected = {
            name: np.mean((X[:, 0] > v) == Y) for name, v in self.MODELS.items()
        }
        np.testing.assert_allclose(table.matrix("clean_accuracy")[0], [0.75, 0.75])
        assert expected == {"low": 0.75, "high": 0.75}
        np.testing.assert_allclose(table.matrix(), [[0.5, 0.5]] * 2, atol=0.26)

    def test_the_diagonal_is_a_robustness_curve(self):
        x, y, *first = linear_case()
        _, _, *second = linear_case(seed=1)
        models = {"one": linear(*first), "two": linear(*second)}
        options = {"attack": "pgd", "steps": 3}
        table = transfer(models, models, x, y, 0.1, **options)
        curve = robustness_curve(models, x, y, [0.1], **options)
        for place, name in enumerate(models):
            for column in ("accuracy", "nll"):
                own = table.matrix(column)[place, place]
                assert own == curve.column(name, column)[0]
        # An attack on one linear model is nothing for another, as far as they differ.
        losses = table.matrix("nll")
        assert np.all(np.diag(losses) > losses[::-1].diagonal())

    def test_sources_and_targets_may_differ(self):
        sources = {"low": threshold(0.4)}
        targets = {"high": linear([[8.0]], [-4.8], None), "low": threshold(0.4)}
        flags = {"low": False, "high": True}
        table = transfer(sources, targets, X, Y, 0.1, from_logits=flags, attack=pgd)
        assert table.matrix().shape == (1, 2)
        same = transfer(sources, self.models(), X, Y, 0.1, attack=pgd)
        np.testing.assert_allclose(table.matrix()[0], same.matrix()[0, ::-1])
        clean = transfer(sources, self.models(), X, Y, 0.0)
        np.testing.assert_array_equal(clean.matrix(), clean.matrix("clean_accuracy"))

    def test_table(self):
        table = transfer(self.models(), self.models(), X, Y, 0.1, steps=2)
        caption, head, *lines = str(table).splitlines()
        assert caption.startswith("PGD of 2 steps from a random input of strength 0.1 ")
        assert head.split() == ["attack", "low", "high"]
        assert [line.rsplit(maxsplit=2)[0] for line in lines] == [
            "clean",
            "on low",
            "on high",
        ]
        assert len({len(line) for line in (head, *lines)}) == 1
        frame = table.to_pandas()
        assert frame.to_dict("records") == table.rows and len(frame) == 4
        with pytest.raises(ValueError, match="`name` must be one of 'accuracy', 'nll'"):
            table.matrix("source")

    @pytest.mark.parametrize(
        "options, text",
        [
            ({"sources": {"a": 1}}, r"`sources\['a'\]` must be a `keras.Model`"),
            ({"from_logits": {"b": True}}, "`from_logits` must be.*the names of `sour"),
            ({"attack": "cw"}, "`attack` must be 'fgsm', 'pgd', .* or a function"),
            ({"attack": "fgsm", "steps": 2}, "`steps` must be omitted"),
        ],
    )
    def test_bad_arguments(self, options, text):
        models = {"a": threshold(0.5)}
        good = {"sources": models, "targets": models, "x": X, "y": Y, "epsilon": 0.1}
        with pytest.raises(ValueError, match=f"Argument.*{text}"):
            transfer(**good | options)
