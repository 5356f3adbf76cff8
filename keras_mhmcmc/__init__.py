"""Mini-batch Metropolis-Hastings and Langevin samplers as Keras optimizers."""

from keras_mhmcmc import adversarial
from keras_mhmcmc import bounds
from keras_mhmcmc import datasets
from keras_mhmcmc import diagnostics
from keras_mhmcmc import expansions
from keras_mhmcmc import kernels
from keras_mhmcmc import losses
from keras_mhmcmc import plots
from keras_mhmcmc import priors
from keras_mhmcmc import proposals
from keras_mhmcmc import schedules
from keras_mhmcmc import targets
from keras_mhmcmc._version import __version__ as __version__
from keras_mhmcmc.barker_chain import BarkerChain
from keras_mhmcmc.baselines import deep_ensemble
from keras_mhmcmc.baselines import last_layer_laplace
from keras_mhmcmc.baselines import sample_last_layer
from keras_mhmcmc.baselines import swag
from keras_mhmcmc.bayesian import BayesianEnsemble
from keras_mhmcmc.ensemble import Ensemble
from keras_mhmcmc.ensemble import MCDropout
from keras_mhmcmc.ensemble import prune
from keras_mhmcmc.evaluation import Classifier
from keras_mhmcmc.evaluation import TemperatureScaled
from keras_mhmcmc.evaluation import conformal_intervals
from keras_mhmcmc.evaluation import conformal_sets
from keras_mhmcmc.evaluation import corrupt
from keras_mhmcmc.evaluation import evaluate
from keras_mhmcmc.evaluation import evaluate_shift
from keras_mhmcmc.evaluation import metrics
from keras_mhmcmc.evaluation import predict_distribution
from keras_mhmcmc.evaluation import temperature_scaling
from keras_mhmcmc.fit.state import independent_processes
from keras_mhmcmc.parallel import ParallelChains
from keras_mhmcmc.partition import EnergyPartition
from keras_mhmcmc.partition import suggest_partition
from keras_mhmcmc.posterior import PosteriorSamples
from keras_mhmcmc.samplers.amagold import AMAGOLD
from keras_mhmcmc.samplers.barker import Barker
from keras_mhmcmc.samplers.contour import CSGHMC
from keras_mhmcmc.samplers.contour import CSGLD
from keras_mhmcmc.samplers.ivon import IVON
from keras_mhmcmc.samplers.mhbt import MHBT
from keras_mhmcmc.samplers.mhbt import MINT
from keras_mhmcmc.samplers.mhbt import RSGLD
from keras_mhmcmc.samplers.psgld import PSGLD
from keras_mhmcmc.samplers.sghmc import SGHMC
from keras_mhmcmc.samplers.sgld import SGLD
from keras_mhmcmc.samplers.sgmclmc import SGMCLMC
from keras_mhmcmc.samplers.sgnht import SGNHT
from keras_mhmcmc.samplers.spike_slab import ESM
from keras_mhmcmc.samplers.spike_slab import SGHMCSA
from keras_mhmcmc.samplers.spike_slab import SGLDSA
from keras_mhmcmc.sampling import ChainState
from keras_mhmcmc.sampling import Draws
from keras_mhmcmc.sampling import equi_energy
from keras_mhmcmc.sampling import log_density
from keras_mhmcmc.sampling import replica_exchange
from keras_mhmcmc.sampling import sample
from keras_mhmcmc.tuning import suggest_learning_rate

__all__ = [
    "AMAGOLD",
    "Barker",
    "BarkerChain",
    "BayesianEnsemble",
    "CSGHMC",
    "CSGLD",
    "ChainState",
    "Classifier",
    "Draws",
    "ESM",
    "EnergyPartition",
    "Ensemble",
    "IVON",
    "MCDropout",
    "MHBT",
    "MINT",
    "PSGLD",
    "ParallelChains",
    "PosteriorSamples",
    "RSGLD",
    "SGHMC",
    "SGHMCSA",
    "SGLD",
    "SGLDSA",
    "SGMCLMC",
    "SGNHT",
    "TemperatureScaled",
    "adversarial",
    "bounds",
    "conformal_intervals",
    "conformal_sets",
    "corrupt",
    "datasets",
    "deep_ensemble",
    "diagnostics",
    "equi_energy",
    "evaluate",
    "evaluate_shift",
    "expansions",
    "independent_processes",
    "kernels",
    "last_layer_laplace",
    "log_density",
    "losses",
    "metrics",
    "plots",
    "predict_distribution",
    "priors",
    "proposals",
    "prune",
    "replica_exchange",
    "sample",
    "sample_last_layer",
    "schedules",
    "suggest_learning_rate",
    "suggest_partition",
    "swag",
    "targets",
    "temperature_scaling",
]


def __dir__() -> list[str]:
    return __all__
