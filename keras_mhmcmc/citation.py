"""BibTeX entries of the package and of the papers behind each sampler."""

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

_SGLD = """\
@inproceedings{welling2011bayesian,
  title     = {Bayesian Learning via Stochastic Gradient {Langevin} Dynamics},
  author    = {Welling, Max and Teh, Yee Whye},
  booktitle = {International Conference on Machine Learning},
  year      = {2011}
}"""

_PSGLD = """\
@inproceedings{li2016preconditioned,
  title     = {Preconditioned Stochastic Gradient {Langevin} Dynamics for Deep Neural
               Networks},
  author    = {Li, Chunyuan and Chen, Changyou and Carlson, David and Carin, Lawrence},
  booktitle = {AAAI Conference on Artificial Intelligence},
  year      = {2016}
}"""

_SGHMC = """\
@inproceedings{chen2014stochastic,
  title     = {Stochastic Gradient {Hamiltonian} {Monte} {Carlo}},
  author    = {Chen, Tianqi and Fox, Emily and Guestrin, Carlos},
  booktitle = {International Conference on Machine Learning},
  year      = {2014}
}"""

_SGNHT = """\
@inproceedings{ding2014bayesian,
  title     = {{Bayesian} Sampling Using Stochastic Gradient Thermostats},
  author    = {Ding, Nan and Fang, Youhan and Babbush, Ryan and Chen, Changyou and
               Skeel, Robert D. and Neven, Hartmut},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2014}
}"""

_AMAGOLD = """\
@inproceedings{zhang2020amagold,
  title     = {{AMAGOLD}: Amortized {Metropolis} Adjustment for Efficient Stochastic
               Gradient {MCMC}},
  author    = {Zhang, Ruqi and Cooper, A. Feder and De Sa, Christopher},
  booktitle = {International Conference on Artificial Intelligence and Statistics},
  year      = {2020}
}"""

_TUNA = """\
@inproceedings{zhang2020asymptotically,
  title     = {Asymptotically Optimal Exact Minibatch {Metropolis}-{Hastings}},
  author    = {Zhang, Ruqi and Cooper, A. Feder and De Sa, Christopher},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2020}
}"""

_POISSON = """\
@inproceedings{zhang2019poisson,
  title     = {{Poisson}-Minibatching for {Gibbs} Sampling with Convergence Rate
               Guarantees},
  author    = {Zhang, Ruqi and De Sa, Christopher},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2019}
}"""

_AUXILIARY = """\
@misc{yuan2024markov,
  title         = {{Markov} Chain {Monte} {Carlo} without Evaluating the Target: an
                   Auxiliary Variable Approach},
  author        = {Yuan, Wei and Wang, Guanyang},
  eprint        = {2406.05242},
  archiveprefix = {arXiv},
  year          = {2024}
}"""

_HMC = """\
@incollection{neal2011mcmc,
  title     = {{MCMC} Using {Hamiltonian} Dynamics},
  author    = {Neal, Radford M.},
  booktitle = {Handbook of {Markov} Chain {Monte} {Carlo}},
  publisher = {Chapman and Hall/CRC},
  year      = {2011}
}"""

_MICROCANONICAL = """\
@article{robnik2023microcanonical,
  title   = {Microcanonical {Hamiltonian} {Monte} {Carlo}},
  author  = {Robnik, Jakob and De Luca, G. Bruno and Silverstein, Eva and
             Seljak, Uro{\\v{s}}},
  journal = {Journal of Machine Learning Research},
  year    = {2023}
}"""

_FLUCTUATION = """\
@article{robnik2023fluctuation,
  title   = {Fluctuation without Dissipation: Microcanonical {Langevin} {Monte}
             {Carlo}},
  author  = {Robnik, Jakob and Seljak, Uro{\\v{s}}},
  journal = {arXiv preprint arXiv:2303.18221},
  year    = {2023}
}"""

_SMH = """\
@inproceedings{cornish2019scalable,
  title     = {Scalable {Metropolis}-{Hastings} for Exact {Bayesian} Inference with
               Large Datasets},
  author    = {Cornish, Rob and Vanetti, Paul and Bouchard-C{\\^o}t{\\'e}, Alexandre and
               Deligiannidis, George and Doucet, Arnaud},
  booktitle = {International Conference on Machine Learning},
  year      = {2019}
}"""

_MHBT = """\
@article{wu2020minibatch,
  title   = {Mini-batch {Metropolis}-{Hastings} with Reversible {SGLD} Proposal},
  author  = {Wu, Tung-Yu and Wang, Y. X. Rachel and Wong, Wing H.},
  journal = {Journal of the American Statistical Association},
  year    = {2020},
  doi     = {10.1080/01621459.2020.1782222}
}"""

_MINT = """\
@article{li2017minibatch,
  title   = {Mini-batch Tempered {MCMC}},
  author  = {Li, Dangna and Wong, Wing H.},
  journal = {arXiv preprint arXiv:1707.09705},
  year    = {2017}
}"""

_CONTOUR = """\
@inproceedings{deng2020contour,
  title     = {A Contour Stochastic Gradient {Langevin} Dynamics Algorithm for
               Simulations of Multi-modal Distributions},
  author    = {Deng, Wei and Lin, Guang and Liang, Faming},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2020}
}"""

_SPIKE_SLAB = """\
@inproceedings{deng2019adaptive,
  title     = {An Adaptive Empirical {Bayesian} Method for Sparse Deep Learning},
  author    = {Deng, Wei and Zhang, Xiao and Liang, Faming and Lin, Guang},
  booktitle = {Advances in Neural Information Processing Systems},
  pages     = {5563--5573},
  year      = {2019}
}"""

_BARKER = """\
@inproceedings{seita2017efficient,
  title     = {An Efficient Minibatch Acceptance Test for {Metropolis}-{Hastings}},
  author    = {Seita, Daniel and Pan, Xinlei and Chen, Haoyu and Canny, John},
  booktitle = {Conference on Uncertainty in Artificial Intelligence},
  year      = {2017}
}"""

_AUSTERITY = """\
@inproceedings{korattikara2014austerity,
  title     = {Austerity in {MCMC} Land: Cutting the {Metropolis}-{Hastings} Budget},
  author    = {Korattikara, Anoop and Chen, Yutian and Welling, Max},
  booktitle = {International Conference on Machine Learning},
  year      = {2014}
}"""

_CONFIDENCE = """\
@inproceedings{bardenet2014towards,
  title     = {Towards Scaling up {Markov} Chain {Monte} {Carlo}: an Adaptive
               Subsampling Approach},
  author    = {Bardenet, R{\\'e}mi and Doucet, Arnaud and Holmes, Chris},
  booktitle = {International Conference on Machine Learning},
  year      = {2014}
}"""

_TALL_DATA = """\
@article{bardenet2017markov,
  title   = {On {Markov} Chain {Monte} {Carlo} Methods for Tall Data},
  author  = {Bardenet, R{\\'e}mi and Doucet, Arnaud and Holmes, Chris},
  journal = {Journal of Machine Learning Research},
  year    = {2017}
}"""

# By the names of samplers and kernels, in lower case.
_PAPERS: dict[str, tuple[str, ...]] = {
    "sgld": (_SGLD,),
    "psgld": (_PSGLD,),
    "sghmc": (_SGHMC,),
    "sgnht": (_SGNHT,),
    "amagold": (_AMAGOLD,),
    "mhbt": (_MHBT,),
    "rsgld": (_MHBT,),
    "mint": (_MINT,),
    "csgld": (_CONTOUR,),
    "csghmc": (_CONTOUR, _SGHMC),
    "sgldsa": (_SPIKE_SLAB,),
    "sghmcsa": (_SPIKE_SLAB, _SGHMC),
    "esm": (_SPIKE_SLAB,),
    "barker": (_BARKER,),
    "austerity": (_AUSTERITY,),
    "confidence": (_CONFIDENCE, _TALL_DATA),
    "smh": (_SMH,),
    "tuna": (_TUNA, _AUXILIARY),
    "poisson": (_POISSON, _TUNA, _AUXILIARY),
    "hmc": (_HMC,),
    "mclmc": (_MICROCANONICAL, _FLUCTUATION),
}


def citation(sampler: Any = None) -> str:
    """Return BibTeX entries to cite: the package, and the papers of a sampler.

    The spike-and-slab samplers follow an earlier version of the cited paper, with the
    title "Bayesian deep learning via stochastic gradient MCMC with a stochastic
    approximation adaptation".

    Args:
        sampler: a sampler such as `mh.RSGLD(...)`, or its class, or a kernel
            for `mh.sample`, such as `mh.kernels.tuna(...)`.
            Defaults to None, the entry of the package alone.

    Returns:
        A string with an entry for the package and one for each paper.

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
    papers = [x for base in ours for x in _PAPERS.get(base.__name__.lower(), ())]
    if not papers:
        raise ValueError(
            "Argument `sampler` must be a sampler such as `mh.RSGLD(...)`, its class, "
            "or None for the package alone. "
            f"Received: sampler={_validate.shown(sampler)}"
        )
    return "\n\n".join([_PACKAGE, *papers])
