"""R-hat and effective sample sizes of chains, through ArviZ 0.2x and 1.x."""

import numpy as np

from keras_mhmcmc import _validate


def to_arviz(posterior, sample_stats=None):
    """Arrays by name as an ArviZ object, for its plots and statistics.

    Args:
        posterior: dict of arrays of shape (chain, draw, ...).
        sample_stats: dict of arrays of shape (chain, draw), or None.

    Returns:
        What this version of ArviZ works with: an `InferenceData` in 0.2x, a `DataTree`
        in 1.x.

    Raises:
        ImportError: ArviZ is not installed.
        ValueError: an argument is no dict of such arrays, with the same chains and
            draws.

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
            "Arguments `posterior` and `sample_stats` must have arrays of the same "
            "numbers of chains and draws, the first two axes. Received: "
            f"{sorted(lengths)}"
        )
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def summary(draws, names=None, max_rows=1000):
    """Mean, standard deviation, R-hat and effective sample sizes, as a data frame.

    R-hat compares the chains: they agree where it is near 1, below 1.01 by the common
    rule. The effective sample size is the number of independent draws that would
    estimate the centre (bulk) or the 5% and 95% quantiles (tail) as well.

    Args:
        draws: a dict of arrays of shape (chain, draw, ...), such as
            {"p": posterior.predictions(model, x)}; or an object of ArviZ, such as
            `posterior.to_arviz()` of `mh.PosteriorSamples`. What `mh.sample` returns
            has `summary` as a method.
        names: names of the quantities to list; None lists all.
        max_rows: the largest number of scalars that is listed; a network has more
            weights than anybody reads.

    Returns:
        A `pandas.DataFrame` with a row for each scalar, and the columns `mean`, `sd`,
        `r_hat`, `ess_bulk`, `ess_tail`.

    Raises:
        ImportError: ArviZ is not installed.
        ValueError: `draws` is something else, a name is unknown, an array has no axes
            (chain, draw), or there are more scalars than `max_rows`.

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

    arviz = _arviz()
    rows = scalars(draws, names, max_rows)
    table = {
        name: {
            "mean": values.mean(),
            "sd": values.std(ddof=1),
            "r_hat": float(arviz.rhat(values)),
            "ess_bulk": float(arviz.ess(values, method="bulk")),
            "ess_tail": float(arviz.ess(values, method="tail", prob=(0.05, 0.95))),
        }
        for name, values in rows.items()
    }
    return pandas.DataFrame.from_dict(table, orient="index")


def scalars(draws, names=None, max_rows=1000):
    """The scalars of draws by name, each with its place in its array.

    Args:
        draws: as in `summary`.
        names: names of the quantities to take; None takes all.
        max_rows: the largest number of scalars.

    Returns:
        A dict of arrays of shape (chain, draw), in float64.

    Raises:
        ValueError: as in `summary`.

    Example:

    >>> import numpy as np
    >>> list(scalars({"x": np.zeros((4, 100, 2))}))
    ['x[0]', 'x[1]']
    """
    max_rows = _validate.integer("max_rows", max_rows, 1)
    arrays = _chosen(_arrays(draws), names)
    rows = {
        name + _label(index, array.shape[2:]): array[(..., *index)]
        for name, array in arrays.items()
        for index in _indices(array, max_rows)
    }
    if len(rows) > max_rows:
        raise ValueError(
            f"Argument `names` must choose at most max_rows={max_rows} scalars. "
            f"Received: names={names!r}, with {len(rows)} scalars or more. The "
            f"quantities are: {', '.join(arrays)}"
        )
    return rows


def _arrays(draws):
    """A dict of arrays (chain, draw, ...)."""
    if not isinstance(draws, dict):
        try:
            group = draws["posterior"]
        except (IndexError, KeyError, TypeError) as error:
            raise ValueError(
                "Argument `draws` must be a dict of arrays (chain, draw, ...) or an "
                "object of ArviZ with a group 'posterior'. Received: "
                f"{_validate.shown(draws)}"
            ) from error
        draws = {str(name): group[name].values for name in group.data_vars}
    arrays = _checked_group("draws", draws)
    return {name: array.astype("float64") for name, array in arrays.items()}


def _checked_group(argument, group):
    """A dict of arrays (chain, draw, ...) in their own types, or a `ValueError`."""
    if not isinstance(group, dict) or not all(isinstance(name, str) for name in group):
        raise ValueError(
            f"Argument `{argument}` must be a dict from names to arrays of shape "
            f"(chain, draw, ...). Received: {argument}={_validate.shown(group)}"
        )
    arrays = {
        name: _validate.array(f"The entry {name!r} of `{argument}`", values, dtype=None)
        for name, values in group.items()
    }
    for name, array in arrays.items():
        if array.ndim < 2 or array.size == 0:
            raise ValueError(
                f"Argument `{argument}` must have arrays of shape (chain, draw, ...), "
                f"with a draw at least. Received: {name!r} of shape {array.shape}"
            )
    if not arrays:
        raise ValueError(
            f"Argument `{argument}` must have an array at least. "
            f"Received: {argument}={group!r}"
        )
    return arrays


def _chosen(arrays, names):
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


def _indices(array, max_rows):
    indices = np.ndindex(array.shape[2:])
    # One more than is allowed tells as well that there are too many.
    return [index for index, _ in zip(indices, range(max_rows + 1), strict=False)]


def _label(index, shape):
    return "[" + ", ".join(map(str, index)) + "]" if shape else ""


def _arviz():
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ: pip install keras-mhmcmc[stats]"
        ) from error
    return arviz
