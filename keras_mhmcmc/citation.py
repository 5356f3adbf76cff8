"""BibTeX entries of the package and of the papers behind each sampler."""

import importlib.resources
from typing import Any

from keras_mhmcmc import _validate
from keras_mhmcmc._version import __version__

__all__ = ["citation"]


def __dir__() -> list[str]:
    return __all__


_PACKAGE = f"""\
@software{{keras_mhmcmc,
  title   = {{keras\\_mhmcmc: mini-batch MCMC samplers as Keras optimizers}},
  author  = {{{{The keras\\_mhmcmc authors}}}},
  version = {{{__version__}}},
  year    = {{2026}}
}}"""

# Keys of entries in `references.bib`, by the names of samplers and kernels in lower
# case.
_PAPERS: dict[str, tuple[str, ...]] = {
    "sgld": ("welling2011bayesian",),
    "psgld": ("li2016preconditioned",),
    "sghmc": ("chen2014stochastic",),
    "sgnht": ("ding2014bayesian",),
    "ivon": ("shen2024variational",),
    "amagold": ("zhang2020amagold",),
    "mhbt": ("wu2020minibatch",),
    "rsgld": ("wu2020minibatch",),
    "mint": ("li2017minibatch",),
    "csgld": ("deng2020contour",),
    "csghmc": ("deng2020contour", "chen2014stochastic"),
    "sgldsa": ("deng2019adaptive",),
    "sghmcsa": ("deng2019adaptive", "chen2014stochastic"),
    "esm": ("deng2019adaptive",),
    "barker": ("seita2017efficient",),
    "austerity": ("korattikara2014austerity",),
    "confidence": ("bardenet2014towards", "bardenet2017markov"),
    "smh": ("cornish2019scalable",),
    "tuna": ("zhang2020asymptotically", "yuan2024markov"),
    "poisson": ("zhang2019poisson", "zhang2020asymptotically", "yuan2024markov"),
    "hmc": ("neal2011mcmc",),
    "mclmc": ("robnik2023microcanonical", "robnik2023fluctuation"),
}


def citation(sampler: Any = None) -> str:
    """Return BibTeX entries to cite: the package, and the papers of a sampler.

    The spike-and-slab samplers follow an earlier version of the cited paper, with the
    title "Bayesian deep learning via stochastic gradient MCMC with a stochastic
    approximation adaptation".

    Args:
        sampler: a sampler such as `mh.RSGLD(...)`, its class, or a kernel for
            `mh.sample`, such as `mh.kernels.tuna(...)`. Defaults to None, the entry of
            the package alone.

    Raises:
        ValueError: `sampler` is not a sampler of this package.

    Example:

    >>> import keras_mhmcmc as mh
    >>> print(mh.citation(mh.MINT).splitlines()[-6])
    @article{li2017minibatch,
    """
    if sampler is None:
        return _PACKAGE
    kind = sampler if isinstance(sampler, type) else type(sampler)
    ours = [x for x in kind.__mro__ if x.__module__.startswith("keras_mhmcmc.")]
    keys = [x for base in ours for x in _PAPERS.get(base.__name__.lower(), ())]
    if not keys:
        raise ValueError(
            "Argument `sampler` must be a sampler such as `mh.RSGLD(...)`, its class, "
            "or None for the package alone. "
            f"Received: sampler={_validate.shown(sampler)}"
        )
    text = importlib.resources.files("keras_mhmcmc").joinpath("references.bib")
    entries = text.read_text(encoding="utf-8").strip().split("\n\n")
    of_key = {entry.partition("{")[2].partition(",")[0]: entry for entry in entries}
    return "\n\n".join([_PACKAGE, *(of_key[key] for key in keys)])
