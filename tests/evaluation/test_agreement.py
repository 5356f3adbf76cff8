"""Agreement with a reference: closed forms, SciPy, planted faults, refusals."""

import math

import numpy as np
import pytest

import keras_mhmcmc as mh

agreement = mh.diagnostics.agreement


def probabilities(seed, members=8, examples=6, classes=3, scale=1.0):
    """Softmax of normal logits, with a centre that all seeds share."""
    centre = np.random.default_rng(99).normal(size=(examples, classes))
    noise = np.random.default_rng(seed).normal(size=(members, examples, classes))
    logits = np.exp(2.0 * centre + scale * noise)
    return logits / logits.sum(axis=-1, keepdims=True)


def normals(seed, members, examples, mean=0.0, sd=1.0):
    return np.random.default_rng(seed).normal(mean, sd, size=(members, examples))


@pytest.mark.parametrize("block", [1, 30, 1_000_000])
@pytest.mark.parametrize(("n", "m"), [(7, 5), (6, 6), (4, 8), (1, 9), (1, 1)])
def test_w1_is_that_of_scipy(n, m, block, monkeypatch):
    stats = pytest.importorskip("scipy.stats")
    monkeypatch.setattr(mh.diagnostics, "_BLOCK", block)
    first, second = probabilities(0, n), probabilities(1, m)
    each = [
        [stats.wasserstein_distance(first[:, i, k], second[:, i, k]) for k in range(3)]
        for i in range(6)
    ]
    expected = np.mean(np.sum(each, axis=1)) / 2.0
    assert agreement(first, second).w1 == pytest.approx(expected, rel=1e-12)
    found = agreement(first[..., 0], second[..., 0], task="regression")
    assert found.w1 == pytest.approx(np.mean(each, axis=0)[0], rel=1e-12)


def test_labels_and_total_variation_by_hand():
    reference = [[0.6, 0.4, 0.0], [0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.2, 0.6, 0.2]]
    found = [[0.4, 0.6, 0.0], [0.1, 0.1, 0.8], [0.5, 0.2, 0.3], [0.2, 0.6, 0.2]]
    score = agreement(reference, found)
    assert score.label_agreement == 0.75
    assert score.total_variation == pytest.approx((0.2 + 0.1 + 0.1 + 0.0) / 4)
    assert math.isnan(score.w1)
    assert math.isnan(score.mean_error) and math.isnan(score.sd_error)


def test_scores_compare_mean_predictions_not_mean_labels():
    # Two of three members say class 0, but their mean says class 1.
    members = np.array([[[0.51, 0.49]], [[0.51, 0.49]], [[0.0, 1.0]]])
    assert agreement([[0.1, 0.9]], members).label_agreement == 1.0


def test_w1_is_the_total_variation_of_single_members_and_never_less():
    one, other = probabilities(0, 1), probabilities(1, 1)
    score = agreement(one, other)
    assert score.w1 == pytest.approx(score.total_variation) and score.w1 > 0.05
    score = agreement(probabilities(0, 50), probabilities(1, 50, scale=2.0))
    assert score.w1 > 1.2 * score.total_variation > 0.0


@pytest.mark.parametrize("members", [400, 100])
@pytest.mark.parametrize("is_skewed", [False, True])
def test_exact_draws_have_the_error_that_the_docstring_says(members, is_skewed):
    reference, found = normals(0, 400, 3000), normals(1, members, 3000)
    if is_skewed:
        reference, found = np.exp(0.5 * reference), np.exp(0.5 * found)
    score = agreement(reference, found, task="regression", reference_ess=400)
    expected = math.sqrt(1.0 + 400 / members)
    assert score.mean_error == pytest.approx(expected, rel=0.06)
    assert score.sd_error == pytest.approx(expected, rel=0.12)


def test_a_shift_in_units_of_the_monte_carlo_error():
    x = normals(0, 500, 4)
    error = x.std(axis=0) / math.sqrt(50)
    score = agreement(x, x + 0.3, task="regression", reference_ess=50)
    expected = 0.3 / math.sqrt(np.mean(error**2))
    assert score.mean_error == pytest.approx(expected)
    assert score.sd_error == pytest.approx(0.0, abs=1e-12)
    each = agreement(x, x + 0.3, task="regression", reference_ess=[50, 50, 50, 5e9])
    expected = 0.3 / math.sqrt(np.sum(error[:3] ** 2) / 4)
    assert each.mean_error == pytest.approx(expected, rel=1e-6)


def test_chains_of_both_are_members_of_one_posterior():
    x, found = probabilities(0, 60), probabilities(1, 60)
    chains = agreement(x.reshape(3, 20, 6, 3), found.reshape(2, 30, 6, 3))
    assert chains == pytest.approx(agreement(x, found), nan_ok=True)


def test_moments_of_all_draws_replace_those_of_the_members():
    everything, found = probabilities(0, 4000), probabilities(1, 3000)
    thinned = everything[::100]
    moments = {
        "reference_mean": everything.mean(axis=0),
        "reference_sd": everything.std(axis=0),
        "reference_ess": 4000,
    }
    whole = agreement(everything, found, reference_ess=4000)
    rough = agreement(thinned, found, reference_ess=4000)
    score = agreement(thinned, found, **moments)
    assert score.total_variation == pytest.approx(whole.total_variation)
    assert score.mean_error == pytest.approx(whole.mean_error)
    assert score.sd_error == pytest.approx(whole.sd_error, rel=0.3)
    assert score.w1 == rough.w1 and rough.mean_error > 3.0 * whole.mean_error
    # Moments alone are enough for the scores of means.
    score = agreement(everything.mean(axis=0), found, **moments)
    assert score.mean_error == pytest.approx(whole.mean_error)
    assert math.isnan(score.w1) and math.isnan(score.sd_error)


# Planted faults: what each score sees, beside independent exact draws.
SIZE = 1000
FAULTS = {
    "shifted by half a standard deviation": (
        lambda x: x + 0.5,
        {"mean_error", "w1"},
    ),
    "sampled at twice the temperature": (
        lambda x: math.sqrt(2.0) * x,
        {"sd_error", "w1"},
    ),
    "collapsed to the mean": (
        lambda x: np.zeros_like(x) + x.mean(axis=0),
        {"sd_error", "w1"},
    ),
    "with two modes of the right moments": (
        lambda x: np.sign(x),
        {"w1"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_shows_in_its_scores(fault):
    plant, seen = FAULTS[fault]
    reference, exact = normals(0, SIZE, 40), normals(1, SIZE, 40)
    options = {"task": "regression", "reference_ess": SIZE}
    sound = agreement(reference, exact, **options)
    faulty = agreement(reference, plant(exact), **options)
    for name in ("w1", "mean_error", "sd_error"):
        ratio = getattr(faulty, name) / getattr(sound, name)
        assert (ratio > 3.0) == (name in seen), (name, ratio)


GOOD = probabilities(0)
BROKEN = GOOD.copy()
BROKEN[0, 0, 0] = np.nan
LINE = normals(0, 5, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((GOOD, GOOD[:, :5]), "`predictions`.*the same data set.*5.*6"),
        ((GOOD, probabilities(0, classes=4)), "`predictions`.*the same data set"),
        ((GOOD, BROKEN), "`predictions`.*finite.*1 values"),
        ((GOOD, np.log(GOOD)), "`predictions`.*softmax.*regression"),
        ((GOOD, 0.99 * GOOD), "`predictions`.*sum of 0.99"),
        ((GOOD[..., :1], GOOD), r"`reference`.*probabilities.*1 - p"),
        ((GOOD[0, 0], GOOD), r"`reference`.*shape \(examples, classes\).*\(3,\)"),
    ],
)
def test_other_predictions_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        agreement(*arguments)


@pytest.mark.parametrize(
    ("reference", "options", "words"),
    [
        (LINE[..., None], {}, r"`reference`.*reference\[..., 0\]"),
        (0.0 * LINE, {"reference_ess": 5}, "`reference`.*vary"),
        (
            LINE,
            {"reference_ess": 5, "reference_sd": np.zeros(4)},
            "`reference_sd`.*vary",
        ),
    ],
)
def test_other_options_are_refused(reference, options, words):
    with pytest.raises(ValueError, match=words):
        agreement(reference, LINE, **{"task": "regression"} | options)
