"""Auto-PGD against its paper's loop in float64 and closed forms; PGD in the L2 ball."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import Classifier
from keras_mhmcmc import Ensemble
from keras_mhmcmc.adversarial import apgd
from keras_mhmcmc.adversarial import fgsm
from keras_mhmcmc.adversarial import objective
from keras_mhmcmc.adversarial import pgd
from keras_mhmcmc.adversarial import robustness_curve
from keras_mhmcmc.adversarial.gradient_attacks import intervals
from tests.oracles import auto_pgd
from tests.support import attack_checks
from tests.support.attack_checks import GRADIENT_ATTACKS
from tests.support.attack_tools import judged
from tests.support.attack_tools import linear
from tests.support.attack_tools import linear_case
from tests.support.attack_tools import two_classes


def straight_case(seed=0):
    """`curved_case` for a linear model."""
    x, y, weights, bias = linear_case(seed)
    x, y = x[:12], y[:12]
    logits = lambda points: points @ weights.astype("float64") + bias
    logits.slope = lambda point, dz: weights.astype("float64") @ dz
    return x, y, linear(weights, bias, None), logits


CASES = {"linear": straight_case, "curved": attack_checks.curved_case}


def check_oracle_of_apgd(case="curved", loss="cross_entropy", norm="linf", steps=25):
    """The strongest point is that of the paper's loop in float64."""
    x, y, model, logits = CASES[case]()
    epsilon = {"linf": 0.15, "l2": 0.4}[norm]
    options = {"y": y, "loss": loss, "norm": norm, "steps": steps}
    moved = apgd(model, x, epsilon, from_logits=True, random_start=False, **options)
    for i, point in enumerate(x.astype("float64")):

        def f(point, label=y[i]):
            value, dz = auto_pgd.loss_and_slope(logits(point), label, loss)
            return value, logits.slope(point, dz)

        points = auto_pgd.run(f, point, epsilon, steps, norm)
        ranks = [(logits(p).argmax() != y[i], f(p)[0]) for p in points]
        best = max(range(len(points)), key=lambda k: ranks[k])
        given = np.asarray(moved[i], "float64")
        assert (logits(given).argmax() != y[i]) == ranks[best][0]
        np.testing.assert_allclose(f(given)[0], ranks[best][1], rtol=1e-4, atol=1e-5)
        # A loss is flat at its top: its error is about the square of this one.
        np.testing.assert_allclose(moved[i], points[best], atol=2e-3)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
def test_a_run_is_the_oracles(case, loss, norm):
    check_oracle_of_apgd(case, loss, norm)


@pytest.mark.parametrize("steps", [1, 2, 7, 30, 40, 100])
def test_runs_of_other_lengths_are_the_oracles(steps):
    check_oracle_of_apgd(steps=steps, norm="l2")


@pytest.mark.parametrize("features", [1, 64])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_the_nearest_point_of_the_ball_within_the_limits(features, epsilon):
    """No other admissible point is nearer, as the oracle's bisection finds."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(200, features))
    x[rng.random(x.shape) < 0.3] = 0.0  # as the border of a digit
    moved = x + 3.0 * epsilon * rng.normal(size=x.shape) / features**0.5
    x, moved = x.astype("float32"), moved.astype("float32")
    numbers = (np.float32(number) for number in (epsilon, 0.0, 1.0))
    given = [ops.convert_to_tensor(one) for one in (moved, x, *numbers)]
    found = ops.convert_to_numpy(objective.nearest(*given, "l2"))
    pairs = zip(moved.astype("float64"), x.astype("float64"), strict=True)
    exact = [auto_pgd.project(*pair, epsilon, "l2", 0.0, 1.0) for pair in pairs]
    np.testing.assert_allclose(found, exact, atol=1e-6)
    clipped = ops.convert_to_numpy(objective.project(*given, "l2"))
    assert features == 1 or np.abs(found - clipped).max() > 1e-3


def test_checkpoints():
    """Those of the paper for 100 steps, and of the oracle for others."""
    assert list(intervals(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    for steps in range(1, 300):
        found = intervals(steps)
        assert list(found) == [w for w in auto_pgd.checkpoints(steps) if w < steps]
        assert list(np.cumsum(list(found.values()))) == list(found)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", GRADIENT_ATTACKS.values(), ids=GRADIENT_ATTACKS)
@pytest.mark.parametrize("activation", ["softmax", None])
def test_a_linear_margin_is_raised_as_far_as_it_goes(attack, norm, activation):
    attack_checks.check_optimum_of_two_classes(attack, norm, activation)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("clip", [(0.25, 0.75), (-0.5, 2.0), None])
@pytest.mark.parametrize("attack", [pgd, apgd])
def test_in_the_ball_and_the_limits(attack, norm, clip):
    attack_checks.check_in_the_ball(attack, norm, clip, steps=8)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", [pgd, apgd])
def test_never_weaker_than_the_clean_input(attack, norm):
    check = attack_checks.check_never_weaker_than_the_clean_input
    check(attack, norm=norm, steps=2)


def test_a_curved_model_keeps_its_best():
    """Steps of PGD that jump over the top return what they have passed."""
    x, y, model, logits = attack_checks.curved_case()
    options = {"steps": 3, "step_size": 0.3, "random_start": False, "from_logits": True}
    fooled, loss = judged(pgd(model, x, 0.3, y=y, **options), y, logits)
    one = judged(fgsm(model, x, 0.3, y=y, from_logits=True), y, logits)
    last = pgd(model, x, 0.3, y=y, keep_strongest=False, **options)
    last = judged(last, y, logits)
    for other in (one, last, judged(x, y, logits)):
        assert np.all(fooled >= other[0])
        same = fooled == other[0]
        assert np.all(loss[same] >= other[1][same] - 1e-4)
    assert np.any(last[1] < loss - 0.01)  # or nothing is kept


def test_the_labels_are_attacked():
    """The loss of the given label rises, not that of another."""
    x, y, weights, bias = linear_case()
    logits = lambda points: points @ weights + bias
    for attack in (fgsm, *GRADIENT_ATTACKS.values()):
        moved = attack(linear(weights, bias), x, 0.05, y=y)
        assert np.all(judged(moved, y, logits)[1] > judged(x, y, logits)[1])


def test_l2_reaches_the_robust_accuracy_of_a_linear_model():
    """The margin over the length of the slope is the distance to the boundary."""
    x, y, weights, bias, slope = two_classes()
    distance = np.abs(x @ slope + bias[1]) / np.linalg.norm(slope)
    epsilons = [float(np.quantile(distance, share)) + 1e-4 for share in (0.2, 0.5, 0.8)]
    models = {"m": linear(weights, bias)}
    for attack in ("pgd", "apgd"):
        options = {"attack": attack, "norm": "l2", "clip": None, "steps": 30}
        table = robustness_curve(models, x, y, epsilons, **options)
        exact = [np.mean(distance >= epsilon) for epsilon in epsilons]
        np.testing.assert_allclose(table.column("m", "accuracy"), exact)
        assert "in the L2 ball" in str(table)


@pytest.mark.parametrize("attack", [pgd, apgd])
def test_starts_are_uniform_in_the_l2_ball(attack):
    """The share of the ball within r is r^d. A step of length 0 stays at the start."""
    x = np.full((400, 3), 0.5, "float32")
    model = linear(np.eye(3, 2), np.zeros(2))
    options = {"steps": 1, "norm": "l2", "clip": None, "seed": 3}
    if attack is pgd:
        options |= {"step_size": 0.0, "keep_strongest": False}
        change = pgd(model, x, 0.2, y=[0] * 400, **options) - x
        shares = (np.linalg.norm(change, axis=1) / 0.2) ** 3
        assert shares.max() <= 1 + 1e-4
        assert abs(shares.mean() - 0.5) < 4 * (1 / 12 / 400) ** 0.5
        assert np.all(np.abs(change.mean(axis=0)) < 4 * 0.2 / (5 * 400) ** 0.5)
    seeded = [attack(model, x, 0.2, **options | {"seed": seed}) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(seeded[0], seeded[1])
    assert attack is apgd or np.any(seeded[0] != seeded[2])


class TestRestarts:
    @pytest.mark.parametrize("attack", [pgd, apgd])
    def test_more_runs_are_never_weaker(self, attack):
        x, y, model, logits = attack_checks.curved_case()
        given = {"y": y, "steps": 3, "from_logits": True}
        results = [
            judged(attack(model, x, 0.2, restarts=count, **given), y, logits)
            for count in (1, 2, 5)
        ]
        for (fooled, loss), (more_fooled, more_loss) in zip(
            results, results[1:], strict=False
        ):
            assert np.all(more_fooled >= fooled)
            same = more_fooled == fooled
            assert np.all(more_loss[same] >= loss[same] - 1e-5)
        assert np.any(results[2][1] > results[0][1] + 1e-3)

    def test_the_first_run_is_that_without_restarts(self):
        """A single run has the numbers it had before there were restarts."""
        x, y, model, _ = attack_checks.curved_case()
        given = {"y": y, "steps": 3, "from_logits": True}
        one = pgd(model, x, 0.2, **given)
        np.testing.assert_array_equal(one, pgd(model, x, 0.2, restarts=1, **given))
        small = Classifier(model, from_logits=True, batch_size=5)
        many = apgd(model, x, 0.2, restarts=3, **given)
        del given["from_logits"]
        np.testing.assert_allclose(
            many, apgd(small, x, 0.2, restarts=3, **given), atol=1e-5
        )


def test_the_mean_probability_of_an_ensemble_is_attacked():
    """The ensemble of a model and itself is that model; a member is attacked alone."""
    x, y, *first = linear_case()
    _, _, *second = linear_case(seed=1)
    ensemble = Ensemble(linear(*first, None), 2, "softmax")
    pairs = zip(first, second, strict=True)
    ensemble.set_members([np.stack(pair) for pair in pairs], [0.25, 0.75])
    given = {"y": y, "steps": 5, "loss": "margin", "random_start": False}
    for index, parameters in enumerate((first, second)):
        moved = apgd(ensemble, x, 0.1, member=index, **given)
        alone = apgd(linear(*parameters), x, 0.1, **given)
        np.testing.assert_allclose(moved, alone, atol=1e-5)
    whole = apgd(ensemble, x, 0.1, **given)

    def mixed(points):
        shares = zip((0.25, 0.75), (first, second), strict=True)
        z = [(s, points @ w + b) for s, (w, b) in shares]
        powers = [(s, np.exp(v - v.max(axis=1, keepdims=True))) for s, v in z]
        return np.log(sum(s * p / p.sum(axis=1, keepdims=True) for s, p in powers))

    of_whole, of_member = judged(whole, y, mixed), judged(moved, y, mixed)
    assert of_whole[0].mean() >= of_member[0].mean()
    assert of_whole[1].mean() > of_member[1].mean()


def test_bad_arguments_of_apgd():
    given = linear(np.eye(2, 3), np.zeros(3)), np.full((4, 2), 0.5), 0.1
    with pytest.raises(ValueError, match="Argument `loss` must be one of 'cross_ent"):
        apgd(*given, loss="cw")
    with pytest.raises(ValueError, match="Argument `restarts` must be 1 unless"):
        apgd(*given, restarts=2, random_start=False)
