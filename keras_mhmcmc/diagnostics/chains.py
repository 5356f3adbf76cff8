"""R-hat and effective sample sizes of chains, from ArviZ 0.2x or 1.x."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn

if TYPE_CHECKING:
    import pandas

Scalars = dict[str, Array]  # of shape (chain, draw)


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
    arviz = arviz_module()
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


def summary(
    draws: Any, names: str | Sequence[str] | None = None, max_rows: int = 1000
) -> "pandas.DataFrame":
    """Return mean, standard deviation, R-hat and effective sample sizes.

    R-hat compares the chains, at least 2. It is near 1 if they agree; a common rule
    asks for less than 1.01. The effective sample size is the number of independent
    draws that would estimate the centre (bulk) or the 5% and 95% quantiles (tail)
    equally well. The `pandas.DataFrame` has a row for each scalar, and the columns
    `mean`, `sd`, `r_hat`, `ess_bulk` and `ess_tail`. The last three are NaN, with a
    warning, for a scalar that never changes or is not finite, and for fewer than 4
    draws.

    Args:
        draws: a dict from names to arrays of shape (chain, draw, ...), such as
            {"p": posterior.predictions(model, x)}; or an ArviZ object, such as
            `posterior.to_arviz()`. The result of `mh.sample` has `summary` as a method.
        names: names of the quantities to list, or None for all.
        max_rows: largest number of scalars to list, at least 1. Defaults to 1000.

    Raises:
        ImportError: ArviZ is not installed.
        ValueError: `draws` has another type, an array lacks the axes (chain, draw), a
            name is unknown, or there are more scalars than `max_rows`.

    Example:

    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> x = np.random.default_rng(0).normal(size=(4, 500))
    >>> mh.diagnostics.summary({"x": x})["r_hat"].round(1).tolist()
    [1.0]

    Reference: Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021),
    "Rank-normalization, folding, and localization: an improved R-hat".
    """
    import pandas

    arviz = arviz_module()
    rows = scalars(draws, names, max_rows)
    table = {
        name: {
            "mean": values.mean(),
            "sd": values.std(ddof=1),
            **_convergence(arviz, values),
        }
        for name, values in rows.items()
    }
    _warn_of_what_is_unknown(rows)
    return pandas.DataFrame.from_dict(table, orient="index")


_FEWEST_DRAWS = 4


def _convergence(arviz: Any, values: Array) -> dict[str, float]:
    """Return R-hat and effective sample sizes; NaN if they are not known."""
    # ArviZ gives the number of draws for a constant, and ranks infinity as a number.
    chains, draws = values.shape
    is_unknown = _stands_still(values) or not np.isfinite(values).all()
    if draws < _FEWEST_DRAWS or is_unknown:
        return dict.fromkeys(("r_hat", "ess_bulk", "ess_tail"), math.nan)
    return {
        "r_hat": float(arviz.rhat(values)) if chains > 1 else math.nan,
        "ess_bulk": float(arviz.ess(values, method="bulk")),
        "ess_tail": float(arviz.ess(values, method="tail", prob=(0.05, 0.95))),
    }


def _stands_still(values: Array) -> bool:
    """Return whether each chain has only one value."""
    return bool(np.all(values == values[:, :1]))


def _warn_of_what_is_unknown(rows: Scalars) -> None:
    """Name the scalars without R-hat, and draws whose axes seem exchanged."""
    chains, draws = next(iter(rows.values())).shape
    if chains > draws > 1:
        warn(
            f"The draws have {chains} chains of {draws} draws, and R-hat is wrong if "
            f"these are {draws} chains of {chains} draws. Exchange the first two axes "
            "in this case, as of `energies`, `weights` and `chain_history`."
        )
    if draws < _FEWEST_DRAWS:
        warn(
            "R-hat and the effective sample sizes are NaN: they need at least "
            f"{_FEWEST_DRAWS} draws of a chain, and there are {draws}."
        )
    elif chains == 1:
        warn(
            "R-hat is NaN: it compares chains, and there is one. Run at least two, "
            "such as with `num_chains=4`."
        )
    lost = [name for name, values in rows.items() if not np.isfinite(values).all()]
    if lost:
        warn(
            f"{len(lost)} of {len(rows)} scalars have values that are NaN or infinite, "
            f"and no R-hat: {_some(lost)}. A chain has diverged: lower its step size."
        )
    still = [name for name, values in rows.items() if _stands_still(values)]
    if still and draws >= _FEWEST_DRAWS:
        warn(
            f"{len(still)} of {len(rows)} scalars have the same value in all draws of "
            f"a chain, and no R-hat: {_some(still)}. If they are no constants of the "
            "model, the chain stands still: look at its acceptance."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + ", ..." * (len(names) > 3)


def scalars(
    draws: Any, names: str | Sequence[str] | None = None, max_rows: int = 1000
) -> Scalars:
    """Return each scalar of the draws, named by its array and its index.

    The dict has float64 arrays of shape (chain, draw). The arguments and errors are
    those of `summary`.

    Example:

    >>> import numpy as np
    >>> list(scalars({"x": np.zeros((4, 100, 2))}))
    ['x[0]', 'x[1]']
    """
    max_rows = _validate.integer("max_rows", max_rows, 1)
    arrays = _chosen(_arrays(draws), names)
    rows = {}
    for name, array in arrays.items():
        # One index more than allowed is enough to show that there are too many.
        for index in itertools.islice(np.ndindex(array.shape[2:]), max_rows + 1):
            label = f"[{', '.join(map(str, index))}]" if index else ""
            rows[name + label] = array[:, :, *index]
    if len(rows) > max_rows:
        raise ValueError(
            f"Argument `names` must choose at most max_rows={max_rows} scalars. "
            f"Received: names={names!r}, with {len(rows)} scalars or more. The "
            f"quantities are: {', '.join(arrays)}"
        )
    return rows


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


def _chosen(
    arrays: dict[str, Array], names: str | Sequence[str] | None
) -> dict[str, Array]:
    if names is None:
        return arrays
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(
            "Argument `names` must be a name or a list of names, or None for all. "
            f"Received: names={_validate.shown(names)}"
        )
    for name in names:
        if not isinstance(name, str) or name not in arrays:
            raise ValueError(
                f"Argument `names` must be among {', '.join(arrays)}. "
                f"Received: {_validate.shown(name)}"
            )
    return {name: arrays[name] for name in names}


def arviz_module() -> Any:
    """Return ArviZ, or raise an `ImportError` with the remedy."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ: pip install keras-mhmcmc[stats]"
        ) from error
    return arviz
