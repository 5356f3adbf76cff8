"""R-hat, effective sample sizes, trace and rank plots of chains, through ArviZ."""


def to_arviz(posterior, sample_stats=None):
    """Arrays (chain, draw, ...) by name as an ArviZ object; ArviZ 0.2x and 1.x.

    Args:
        posterior: dict of arrays of shape (chain, draw, ...).
        sample_stats: dict of arrays of shape (chain, draw), or None.

    Raises:
        ImportError: ArviZ is not installed.
    """
    arviz = _arviz()
    groups = {"posterior": posterior}
    if sample_stats:
        groups["sample_stats"] = sample_stats
    if _is_one(arviz):
        return arviz.from_dict(groups)
    return arviz.from_dict(**groups)


def _is_one(arviz):
    return int(arviz.__version__.split(".")[0]) >= 1


def _arviz():
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            "Diagnostics of chains need ArviZ: pip install keras-mhmcmc[stats]"
        ) from error
    return arviz
