"""R-hat and effective sample sizes of chains, and agreement with a reference."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn

if TYPE_CHECKING:
    import pandas

__all__ = ["Agreement", "agreement", "summary", "to_arviz"]

TASKS = ("classification", "regression")
_STILL = 1e-12  # share of the mean that rounding makes the deviation of a constant
_BLOCK = 1_000_000  # numbers that `w1` sorts at a time
_TOLERANCE = 1e-3  # of the sum of probabilities; half precision needs half of it


def __dir__() -> list[str]:
    return __all__


def to_arviz(
    posterior: dict[str, Any], sample_stats: dict[str, Any] | None = None
) -> Any:
    """Return named arrays as an ArviZ object, for its plots and statistics.

    It is an `InferenceData` from ArviZ 0.2x, or a `DataTree` from ArviZ 1.x.

    Args:
        posterior: dict from names to arrays of shape (chain, draw, ...).
        sample_stats: dict from names to arrays of shape (chain, draw), or None.

    Raises:
        ImportError: ArviZ is not installed.
        ValueError: an argument is not a dict of such arrays, or the numbers of chains
            and draws differ between arrays.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> group = mh.diagnostics.to_arviz({"x": np.zeros((4, 100))})
    >>> group["posterior"]["x"].shape
    (4, 100)
    """
    arviz = _arviz()
    groups = {"posterior": _checked_group("posterior", posterior)}
    is_empty = isinstance(sample_stats, dict) and not sample_stats
    if sample_stats is not None and not is_empty:
        groups["sample_stats"] = _checked_group("sample_stats", sample_stats)
    lengths = {array.shape[:2] for group in groups.values() for array in group.values()}
    if len(lengths) > 1:
        raise ValueError(
            "Arguments `posterior` and `sample_stats` must have arrays with the same "
            "numbers of chains and draws, the first two axes. Received: "
            f"{sorted(lengths)}"
        )
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def summary(draws: Any, names: str | Sequence[str] | None = None) -> "pandas.DataFrame":
    """Return mean, standard deviation, R-hat and effective sample sizes, by ArviZ.

    R-hat compares the chains, at least 2. It is near 1 if they agree; a common rule
    asks for less than 1.01. The effective sample size is the number of independent
    draws that would estimate the centre (bulk) or the 5% and 95% quantiles (tail)
    equally well. The `pandas.DataFrame` has a row for each scalar, named by its array
    and its index, and the columns `mean`, `sd`, `r_hat`, `ess_bulk` and `ess_tail`. The
    last three are NaN for fewer than 4 draws, and, with a warning, for a scalar that
    never changes or is not finite.

    Args:
        draws: a dict from names to arrays of shape (chain, draw, ...), such as
            {"p": posterior.predictions(model, x)}; or an ArviZ object, such as
            `posterior.to_arviz()`. The result of `mh.sample` has `summary` as a method.
        names: names of the quantities to list, or None for all.

    Raises:
        ImportError: ArviZ is not installed.
        ValueError: `draws` has another type, an array lacks the axes (chain, draw), or
            a name is unknown.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> mh.diagnostics.summary({"x": x})["r_hat"].round(1).tolist()
    [1.0]

    Reference: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021),
    "Rank-normalization, folding, and localization: an improved R-hat".
    """
    arviz = _arviz()
    arrays = _arrays(draws)
    listed = list(arrays) if names is None else names
    listed = [listed] if isinstance(listed, str) else listed
    is_list = isinstance(listed, list | tuple) and len(listed) > 0
    if not is_list or not all(isinstance(x, str) and x in arrays for x in listed):
        raise ValueError(
            f"Argument `names` must be one or a list of {', '.join(arrays)}, or None "
            f"for all. Received: names={_validate.shown(names)}"
        )
    arrays = {name: arrays[name] for name in listed}
    options = {"var_names": list(arrays), "round_to": "none"}
    table = arviz.summary(to_arviz(arrays), **options)
    table = table[["mean", "sd", "r_hat", "ess_bulk", "ess_tail"]].copy()
    # ArviZ gives the number of draws for a constant, and ranks infinity as a number.
    lost = ~(table["sd"] > _STILL * table["mean"].abs())  # NaN is lost, too
    table.loc[lost, ["r_hat", "ess_bulk", "ess_tail"]] = math.nan
    if lost.any():
        warn(
            f"{lost.sum()} of {len(table)} scalars never change or have values that "
            f"are NaN or infinite, and no R-hat: {', '.join(table.index[lost][:3])}, "
            "... Unless they are constants of the model, look at the acceptance of the "
            "chains, and lower the step size of chains that diverge."
        )
    return table


def _arrays(draws: Any) -> dict[str, Array]:
    """Return draws as a dict of float64 arrays of shape (chain, draw, ...)."""
    if not isinstance(draws, dict):
        try:
            group = draws["posterior"]
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(
                "Argument `draws` must be a dict of arrays (chain, draw, ...) or an "
                "ArviZ object with the group 'posterior'. The result of `mh.sample` "
                "has `draws.summary()` and `draws.to_arviz()`. Received: "
                f"{_validate.shown(draws)}"
            ) from error
        draws = {str(name): group[name].values for name in group.data_vars}
    arrays = _checked_group("draws", draws)
    return {name: array.astype("float64") for name, array in arrays.items()}


def _checked_group(argument: str, group: Any) -> dict[str, Array]:
    """Return a dict of arrays (chain, draw, ...) in their own dtypes, or raise."""
    is_dict = isinstance(group, dict) and len(group) > 0
    if not is_dict or not all(isinstance(name, str) for name in group):
        raise ValueError(
            f"Argument `{argument}` must be a dict from names to arrays of shape "
            "(chain, draw, ...), with at least one array. "
            f"Received: {argument}={_validate.shown(group)}"
        )
    arrays = {
        name: _validate.array(f"The entry {name!r} of `{argument}`", values, dtype=None)
        for name, values in group.items()
    }
    for name, array in arrays.items():
        if array.ndim < 2 or array.size == 0:
            raise ValueError(
                f"Argument `{argument}` must have arrays of shape (chain, draw, ...), "
                f"with at least one draw. Received: {name!r} of shape {array.shape}"
            )
    return arrays


def _arviz() -> Any:
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ: pip install keras-mhmcmc[stats]"
        ) from error
    return arviz


class Agreement(NamedTuple):
    """How near a sampler's predictions are to those of a reference posterior.

    R are the predictions of the reference's members, and P those of the sampler: of a
    class the probability, of a target the mean. i numbers examples, and k classes.

    | score | equation |
    |---|---|
    | `label_agreement` | `mean_i [argmax_k mean(P_ik) = argmax_k mean(R_ik)]` |
    | `total_variation` | `mean_i 1/2 sum_k abs(mean(P_ik) - mean(R_ik))` |
    | `w1` | `mean_i c sum_k W1(P_ik, R_ik)`, W1 the first Wasserstein distance |
    | `mean_error` | `rms_ik(mean(P_ik) - mean(R_ik)) / rms_ik(e_ik)` |
    | `sd_error` | `rms_ik(sd(P_ik) - sd(R_ik)) / rms_ik(s_ik)` |

    In a classification c is 1/2: `w1` is never below `total_variation`, and equals it
    for one member against one member. In a regression c is 1, and `w1` has the unit of
    the target. The Monte Carlo standard errors of mean(R) and sd(R), with the
    effective sample size ESS of the reference, are e = sd(R) / sqrt(ESS) and
    s = sd(R) sqrt((kurtosis(R) - 1) / (4 ESS)). E independent exact draws have errors
    of about sqrt(1 + ESS/E).

    A score is NaN if the arguments do not determine it: the first two for a regression,
    `w1` and `sd_error` without members, and the errors if ESS is unknown.
    """

    label_agreement: float
    total_variation: float
    w1: float
    mean_error: float
    sd_error: float


class _Predictions(NamedTuple):
    """Predictions for a `shape` (examples, classes) or (examples,)."""

    mean: Array  # of that shape
    sd: Array | None = None  # between members
    members: Array | None = None  # (members, *shape)


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

    The reference is a long run of an exact sampler on the same model and data. The
    members have equal weights: take `Draws.resample()` of weighted draws first.

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
            an array of the shape of `reference_mean`, such as `ess_bulk` of `summary`.
            Defaults to None: `mean_error` and `sd_error` are NaN.

    Raises:
        ValueError: an array has another shape, values that are not finite or no
            probabilities; or the reference does not vary.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> rng = np.random.default_rng(0)
    >>> reference, shifted = rng.normal(size=(1000, 20)), rng.normal(0.5, 1, (1000, 20))
    >>> options = {"task": "regression", "reference_ess": 1000}
    >>> score = mh.diagnostics.agreement(reference, shifted, **options)
    >>> bool(10.0 < score.mean_error < 20.0), bool(0.4 < score.w1 < 0.6)
    (True, True)

    Reference: Izmailov, Vikram, Hoffman and Wilson (2021), "What are Bayesian neural
    network posteriors really like?", section 6; for `w1`, Wilson, Izmailov, Hoffman,
    Gal, Li, Pradier, Vikram, Foong, Lotfi and Farquhar (2022), "Evaluating approximate
    inference in Bayesian deep learning", whose code has it as "w2".
    """
    _validate.choice("task", task, TASKS)
    is_classified = task == "classification"
    truth = _as_predictions("reference", reference, is_classified)
    found = _as_predictions("predictions", predictions, is_classified)
    shape = truth.mean.shape
    if found.mean.shape != shape:
        raise ValueError(
            "Argument `predictions` must be for the examples and classes of "
            "`reference`, in the same order. Take the reference of the same data set. "
            f"Received: predictions for {found.mean.shape}, reference for {shape}"
        )
    mean, sd, unit_of_mean, unit_of_sd = truth.mean, truth.sd, None, None
    if reference_mean is not None:
        lowest = -_validate.LARGEST_NUMBER
        mean = _as_numbers("reference_mean", reference_mean, [shape], lowest)
    if reference_sd is not None:
        sd = _as_numbers("reference_sd", reference_sd, [shape], 0.0)
    if reference_ess is not None:
        ess = _as_numbers("reference_ess", reference_ess, [shape, ()], 1.0)
        if sd is not None:
            unit_of_mean, unit_of_sd = _monte_carlo_errors(truth, sd, ess)
    distance = found.mean - mean
    is_same = found.mean.argmax(axis=-1) == mean.argmax(axis=-1)
    variation = 0.5 * np.abs(distance).sum(axis=-1)
    spread = None if sd is None or found.sd is None else found.sd - sd
    return Agreement(
        float(np.mean(is_same)) if is_classified else math.nan,
        float(np.mean(variation)) if is_classified else math.nan,
        _w1(truth.members, found.members, 0.5 if is_classified else 1.0),
        _ratio(distance, unit_of_mean),
        _ratio(spread, unit_of_sd),
    )


def _as_predictions(name: str, values: Any, is_classified: bool) -> _Predictions:
    """Return checked predictions, or raise a `ValueError`."""
    values = _validate.array(f"Argument `{name}`", values)
    axes, inner = (2, "examples, classes") if is_classified else (1, "examples")
    if not axes <= values.ndim <= axes + 2 or values.size == 0:
        raise ValueError(
            f"Argument `{name}` must have the shape ({inner}), (members, {inner}) or "
            f"(chains, draws, {inner}) for this task, with at least one example. "
            f"Received: shape {values.shape}"
        )
    if not is_classified and values.ndim > 1 and values.shape[-1] == 1:
        raise ValueError(
            f"Argument `{name}` must have at least two examples along its last axis. "
            f"Drop an axis of length 1 with {name}[..., 0]. "
            f"Received: shape {values.shape}"
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
            f"to 1 within {_TOLERANCE:g} over the last axis. Apply a softmax to "
            "logits, pass np.concatenate([1 - p, p], axis=-1) for a sigmoid p, or "
            'task="regression" for a regression. Received: values between '
            f"{low:g} and {high:g}, and a sum of {worst:.6g}"
        )
    if values.ndim == axes:
        return _Predictions(values)
    members = values.reshape(-1, *values.shape[values.ndim - axes :])
    return _Predictions(members.mean(axis=0), members.std(axis=0), members)


def _as_numbers(
    name: str, values: Any, shapes: Sequence[tuple[int, ...]], lowest: float
) -> Array:
    """Return what is known of the reference, finite numbers of a shape, or raise."""
    values = _validate.array(f"Argument `{name}`", values)
    is_good = (values >= lowest) & (values <= _validate.LARGEST_NUMBER)  # NaN is not
    if values.shape not in shapes or not np.all(is_good):
        least = f" of at least {lowest:g}" if lowest >= 0.0 else ""
        raise ValueError(
            f"Argument `{name}` must have finite numbers{least} in the shape of the "
            f"mean prediction, {' or '.join(map(str, shapes))}. "
            f"Received: {name}={_validate.shown(values)}"
        )
    return values


def _monte_carlo_errors(
    truth: _Predictions, sd: Array, sizes: Array
) -> tuple[Array | None, Array | None]:
    """Return the standard errors of the reference's means and standard deviations."""
    if not np.any(sd > 0.0):
        raise ValueError(
            "Arguments `reference` and `reference_sd` must vary between members: "
            "without variation there is no unit for the errors. Received: a standard "
            "deviation of 0 for every prediction"
        )
    of_mean = sd / np.sqrt(sizes)
    if truth.members is None or not np.any(truth.sd):
        return of_mean, None
    squares = np.square(truth.members - truth.mean)
    variance = squares.mean(axis=0)
    fourth = np.square(squares).mean(axis=0)
    ratio = np.divide(
        fourth, np.square(variance), np.ones_like(variance), where=variance > 0.0
    )
    return of_mean, sd * np.sqrt((ratio - 1.0) / (4.0 * sizes))


def _ratio(difference: Array | None, unit: Array | None) -> float:
    """Return the root mean square of a difference, in that of a unit."""
    # The unit of each prediction would give much weight to probabilities near 0, whose
    # Monte Carlo error is known least.
    if difference is None or unit is None:
        return math.nan
    lengths = [np.sqrt(np.mean(np.square(x))) for x in (difference, unit)]
    return float(lengths[0] / lengths[1]) if lengths[1] > 0.0 else math.nan


def _w1(truth: Array | None, found: Array | None, factor: float) -> float:
    """Return the mean over examples of `factor` times W1, summed over classes."""
    if truth is None or found is None:
        return math.nan
    n, m = len(truth), len(found)
    first, second = truth.reshape(n, -1), found.reshape(m, -1)
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
    return factor * total / truth.shape[1]
