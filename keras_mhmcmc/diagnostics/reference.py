"""Agreement of a sampler's predictions with those of a reference posterior.

R are the predictions of the reference's members, and P those of the sampler: of a class
the probability, of a target the mean. i numbers examples, and k classes.

| score              | equation                                              |
|--------------------|-------------------------------------------------------|
| `label_agreement`  | mean_i [argmax_k mean(P_ik) = argmax_k mean(R_ik)]    |
| `total_variation`  | mean_i 1/2 sum_k |mean(P_ik) - mean(R_ik)|            |
| `w1`               | mean_i c sum_k integral |F_ik^-1(p) - G_ik^-1(p)| dp  |
| `mean_error`       | rms_ik(mean(P_ik) - mean(R_ik)) / rms_ik(e_ik)        |
| `sd_error`         | rms_ik(sd(P_ik) - sd(R_ik)) / rms_ik(s_ik)            |

F and G are the distribution functions of P and R. c is 1/2 for probabilities, and 1 for
a regression. e and s are the Monte Carlo standard errors of mean(R) and sd(R):

    e = sd(R) / sqrt(ESS),    s = sd(R) sqrt((kurtosis(R) - 1) / (4 ESS))
"""

import dataclasses
import functools
import math
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.diagnostics.chains import arviz_module

TASKS = ("classification", "regression")
_TOLERANCE = 1e-3  # of the sum of probabilities; half precision needs half of it
_BLOCK = 1_000_000  # numbers that `w1` sorts at a time


class Agreement(NamedTuple):
    """How near a sampler's predictions are to those of a reference posterior.

    A score is NaN if the arguments do not determine it: the first two for a regression,
    `w1` and `sd_error` without members, and the errors if the effective sample size
    (ESS) of the reference is unknown.

    Attributes:
        label_agreement: share of examples with the same most probable class.
        total_variation: half the L1 distance of the mean probabilities, averaged over
            examples, in [0, 1].
        w1: first Wasserstein distance between the members' predictions, averaged over
            examples. In a regression its unit is that of the target. In a
            classification it is half the sum over the classes: it is never below
            `total_variation`, and equals it for one member against one member.
        mean_error: root mean square error of the mean prediction, in units of the
            Monte Carlo error of the reference. E independent exact draws have about
            sqrt(1 + ESS/E).
        sd_error: the same of the standard deviation between members.
    """

    label_agreement: float
    total_variation: float
    w1: float
    mean_error: float
    sd_error: float


@dataclasses.dataclass(frozen=True)
class _Predictions:
    """Checked predictions: of members, or their mean alone, without an `sd`."""

    values: Array  # (chains, draws, *shape), (members, *shape), or shape
    shape: tuple[int, ...]  # (examples, classes), or (examples,)

    @property
    def chains(self) -> Array | None:
        """Predictions of shape (chains, draws, columns), if there are chains."""
        if self.values.ndim < len(self.shape) + 2:
            return None
        return self.values.reshape(*self.values.shape[:2], -1)

    @functools.cached_property
    def members(self) -> Array | None:
        """The predictions of shape (members, *shape), if there are members."""
        if self.values.ndim == len(self.shape):
            return None
        return self.values.reshape(-1, *self.shape)

    @functools.cached_property
    def mean(self) -> Array:
        return self.values if self.members is None else self.members.mean(axis=0)

    @functools.cached_property
    def sd(self) -> Array | None:
        return None if self.members is None else self.members.std(axis=0)


def agreement(
    reference: Any,
    predictions: Any,
    *,
    task: str = "classification",
    reference_mean: Any = None,
    reference_sd: Any = None,
    reference_ess: Any = None,
) -> Agreement:
    """Compare a sampler's predictions with those of a reference posterior.

    The reference is a long run of an exact sampler on the same model and data. Good
    accuracy does not show that a sampler is right; near predictions do.

    The members have equal weights. Take `Draws.resample()` of weighted draws first.

    Args:
        reference: predictions of the reference posterior. For a classification:
            probabilities of shape (chains, draws, examples, classes), (members,
            examples, classes), or (examples, classes), the mean over the members. For a
            regression: means of the target, without the axis of classes. Several
            targets count as examples: reshape them to (members, examples * targets).
        predictions: predictions of the sampler for the same examples, in one of these
            shapes.
        task: "classification" or "regression". Defaults to "classification".
        reference_mean: means over all draws of the reference, if `reference` is only a
            part of them, of shape (examples, classes) or (examples,). Defaults to None.
        reference_sd: standard deviations over all draws, likewise. Defaults to None.
        reference_ess: effective sample size of the reference, at least 1: a number, or
            an array of the shape of `reference_mean`. Defaults to None: ArviZ finds
            it if `reference` has chains, and otherwise `mean_error` and `sd_error` are
            NaN. Give it with `reference_mean` and `reference_sd`.

    Raises:
        ImportError: ArviZ is not installed, and needed.
        ValueError: an array has another shape, values that are not finite or no
            probabilities; or the reference does not vary.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> rng = np.random.default_rng(0)
    >>> reference = rng.normal(size=(1000, 20))
    >>> exact, shifted = rng.normal(size=(1000, 20)), rng.normal(0.5, size=(1000, 20))
    >>> options = {"task": "regression", "reference_ess": 1000}
    >>> score = mh.diagnostics.agreement(reference, exact, **options)
    >>> bool(1.0 < score.mean_error < 2.0), bool(score.w1 < 0.1)
    (True, True)
    >>> score = mh.diagnostics.agreement(reference, shifted, **options)
    >>> bool(10.0 < score.mean_error < 20.0), bool(0.4 < score.w1 < 0.6)
    (True, True)

    Reference: Izmailov, Vikram, Hoffman and Wilson (2021), "What are Bayesian neural
    network posteriors really like?", section 6; for `w1`, Wilson, Izmailov, Hoffman,
    Gal, Li, Pradier, Vikram, Foong, Lotfi and Farquhar (2022), "Evaluating approximate
    inference in Bayesian deep learning", whose code has it as "w2".
    """
    _validate.choice("task", task, TASKS)
    truth = _as_predictions("reference", reference, task)
    found = _as_predictions("predictions", predictions, task)
    if found.shape != truth.shape:
        raise ValueError(
            "Argument `predictions` must be for the examples and classes of "
            "`reference`, in the same order. Take the reference of the same data set. "
            f"Received: predictions for {found.shape}, reference for {truth.shape}"
        )
    mean = _as_moment("reference_mean", reference_mean, truth)
    sd = _as_moment("reference_sd", reference_sd, truth)
    is_whole = reference_mean is None and reference_sd is None
    if reference_ess is None and not is_whole and truth.chains is not None:
        raise ValueError(
            "Argument `reference_ess` must be the effective sample size of the draws "
            "that `reference_mean` and `reference_sd` come from: that of `reference` "
            "alone would make the errors look too small. Received: reference_ess=None"
        )
    sizes = _sizes(truth, reference_ess)
    unit_of_mean, unit_of_sd = _monte_carlo_errors(truth, sd, sizes)
    mean = truth.mean if mean is None else mean
    sd = truth.sd if sd is None else sd
    is_classified = task == "classification"
    distance = found.mean - mean
    is_same = found.mean.argmax(axis=-1) == mean.argmax(axis=-1)
    variation = 0.5 * np.abs(distance).sum(axis=-1)
    spread = None if sd is None or found.sd is None else found.sd - sd
    return Agreement(
        float(np.mean(is_same)) if is_classified else math.nan,
        float(np.mean(variation)) if is_classified else math.nan,
        _w1(truth, found, 0.5 if is_classified else 1.0),
        _ratio(distance, unit_of_mean),
        _ratio(spread, unit_of_sd),
    )


def _as_predictions(name: str, values: Any, task: str) -> _Predictions:
    """Return checked predictions, or raise a `ValueError`."""
    values = _validate.array(f"Argument `{name}`", values)
    is_classified = task == "classification"
    axes = 2 if is_classified else 1
    shapes = "(examples, classes)" if is_classified else "(examples,)"
    inner = shapes[1:].removesuffix(",)").removesuffix(")")
    if not axes <= values.ndim <= axes + 2 or values.size == 0:
        raise ValueError(
            f"Argument `{name}` must have the shape {shapes}, (members, {inner}) or "
            f"(chains, draws, {inner}) for task={task!r}, with at least one example. "
            f"Received: shape {values.shape}"
        )
    if values.ndim > 1 and values.shape[-1] == 1:
        what, remedy = "examples", f"Drop an axis of length 1 with {name}[..., 0]."
        if is_classified:
            what, remedy = "classes", "Pass np.concatenate([1 - p, p], axis=-1) for a "
            remedy += 'sigmoid p, or task="regression" for a regression.'
        raise ValueError(
            f"Argument `{name}` must have at least two {what} along its last axis. "
            f"{remedy} Received: shape {values.shape}"
        )
    is_good = np.abs(values) <= _validate.LARGEST_NUMBER  # NaN is not
    if not np.all(is_good):
        raise ValueError(
            f"Argument `{name}` must be finite in float32. A chain that has diverged "
            f"predicts nothing: leave it out. Received: {np.sum(~is_good)} values that "
            "are NaN, infinite or too large"
        )
    sums = values.sum(axis=-1)
    worst = float(sums.flat[np.argmax(np.abs(sums - 1.0))])
    low, high = float(values.min()), float(values.max())
    is_outside = low < 0.0 or high > 1.0 + _TOLERANCE or abs(worst - 1.0) > _TOLERANCE
    if is_classified and is_outside:
        raise ValueError(
            f"Argument `{name}` must have probabilities, which lie in [0, 1] and sum "
            f"to 1 within {_TOLERANCE:g} over the last axis. Apply a softmax to logits "
            'first, or pass task="regression" for a regression. Received: values '
            f"between {low:g} and {high:g}, and a sum of {worst:.6g}"
        )
    return _Predictions(values, values.shape[values.ndim - axes :])


def _as_moment(name: str, values: Any, truth: _Predictions) -> Array | None:
    """Return a moment of the reference of the shape of its mean, or raise."""
    if values is None:
        return None
    values = _validate.array(f"Argument `{name}`", values)
    is_spread = name != "reference_mean"
    lowest = 0.0 if is_spread else -math.inf
    is_small = np.all(np.abs(values) <= _validate.LARGEST_NUMBER)  # NaN is not
    if values.shape != truth.shape or not (is_small and np.all(values >= lowest)):
        kind = "finite numbers of at least 0" if is_spread else "finite numbers"
        raise ValueError(
            f"Argument `{name}` must have {kind} in the shape of the mean prediction "
            f"of `reference`, here {truth.shape}. Received: {_validate.shown(values)}"
        )
    return values


def _sizes(truth: _Predictions, given: Any) -> tuple[Array, Array] | None:
    """Return effective sample sizes for the mean and for the standard deviation."""
    if given is not None:
        ess = _validate.array("Argument `reference_ess`", given)
        is_valid = np.all((ess >= 1.0) & np.isfinite(ess))
        if ess.shape not in ((), truth.shape) or not is_valid:
            raise ValueError(
                "Argument `reference_ess` must be a finite number of at least 1, or "
                f"such numbers in the shape {truth.shape} of the mean prediction. "
                f"Received: reference_ess={_validate.shown(given)}"
            )
        return ess, ess
    chains = truth.chains
    if chains is None:
        return None
    # A standard deviation is that of the mean of squared deviations.
    squares = np.square(chains - chains.mean(axis=(0, 1)))
    return _ess(chains).reshape(truth.shape), _ess(squares).reshape(truth.shape)


def _ess(chains: Array) -> Array:
    """Return the effective sample size of the mean of each column."""
    arviz = arviz_module()
    columns = np.moveaxis(chains, -1, 0)
    varies = columns.std(axis=(1, 2)) > 0.0
    ess = [
        float(arviz.ess(column, method="mean")) if varied else float(column.size)
        for column, varied in zip(columns, varies, strict=True)
    ]
    if not np.all(np.isfinite(ess)):
        raise ValueError(
            "Argument `reference` must have at least four draws in each chain. Pass "
            "`reference_ess` if the effective sample size is known otherwise. "
            f"Received: chains and draws {chains.shape[:2]}"
        )
    return np.array(ess)


def _monte_carlo_errors(
    truth: _Predictions, given_sd: Array | None, sizes: tuple[Array, Array] | None
) -> tuple[Array | None, Array | None]:
    """Return the standard errors of the reference's means and standard deviations."""
    sd = truth.sd if given_sd is None else given_sd
    if sizes is None or sd is None:
        return None, None
    if not np.any(sd > 0.0):
        name = "reference" if given_sd is None else "reference_sd"
        raise ValueError(
            f"Argument `{name}` must vary between members: without variation there is "
            "no unit for the errors. Received: a standard deviation of 0 for every "
            "prediction"
        )
    of_mean = sd / np.sqrt(sizes[0])
    if truth.members is None or not np.any(truth.sd):
        return of_mean, None
    squares = np.square(truth.members - truth.mean)
    variance = squares.mean(axis=0)
    fourth = np.square(squares).mean(axis=0)
    ratio = np.divide(
        fourth, np.square(variance), np.ones_like(variance), where=variance > 0.0
    )
    return of_mean, sd * np.sqrt((ratio - 1.0) / (4.0 * sizes[1]))


def _ratio(difference: Array | None, unit: Array | None) -> float:
    """Return the root mean square of a difference, in that of a unit."""
    # The unit of each prediction would give much weight to probabilities near 0, whose
    # Monte Carlo error is known least.
    if difference is None or unit is None:
        return math.nan
    lengths = [np.sqrt(np.mean(np.square(x))) for x in (difference, unit)]
    return float(lengths[0] / lengths[1]) if lengths[1] > 0.0 else math.nan


def _w1(truth: _Predictions, found: _Predictions, factor: float) -> float:
    """Return the mean over examples of `factor` times W1, summed over classes."""
    if truth.members is None or found.members is None:
        return math.nan
    first = truth.members.reshape(len(truth.members), -1)
    second = found.members.reshape(len(found.members), -1)
    n, m = len(first), len(second)
    # Quantile functions are constant between the levels i/n and j/m, times n m here.
    levels = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    width = np.diff(levels) / (n * m)
    rows, others = levels[:-1] // m, levels[:-1] // n
    total, block = 0.0, max(_BLOCK // (n + m), 1)
    for start in range(0, first.shape[1], block):
        columns = slice(start, start + block)
        left = np.sort(first[:, columns], axis=0)[rows]
        right = np.sort(second[:, columns], axis=0)[others]
        total += float(np.sum(width @ np.abs(left - right)))
    return factor * total / truth.shape[0]
