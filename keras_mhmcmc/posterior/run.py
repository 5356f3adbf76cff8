"""What a folder of samples says about the run that wrote them."""

from typing import Any
from typing import NamedTuple

import keras

from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc.fit.sampler import Sampler

# What may differ between the chains of one posterior: their law is the same.
_OF_A_CHAIN = {"learning_rate", "name", "seed", "warm_up"}


class Run(NamedTuple):
    """The sampler of a run. An entry is None if it is unknown or does not apply."""

    seed: int | None = None  # of the sampler's noise
    sampler: str | None = None  # the name of its class
    arguments: dict[str, Any] | None = None  # of the sampler, as JSON has them
    chains: int | None = None  # of an `mh.ParallelChains`; None: a single chain


def run_of(model: keras.Model) -> Run:
    """Return what there is to say about a run of `model`."""
    chains = model.num_chains if isinstance(model, StackedModel) else None
    optimizer = model.optimizer
    if not isinstance(optimizer, Sampler):
        return Run(chains=chains)
    name, arguments = type(optimizer).__name__, optimizer.recorded_arguments()
    return Run(optimizer.noise_seed(), name, arguments, chains)


def differences(run: Run, other: Run) -> list[str]:
    """Return what makes two runs sample different laws, as "name=value, not value".

    Runs that say nothing about their sampler differ in nothing.
    """
    if run.arguments is None or other.arguments is None:
        return []
    if run.sampler != other.sampler:
        return [f"sampler={run.sampler!r}, not {other.sampler!r}"]
    names = sorted((run.arguments.keys() | other.arguments.keys()) - _OF_A_CHAIN)
    return [
        f"{name}={run.arguments.get(name)!r}, not {other.arguments.get(name)!r}"
        for name in names
        if run.arguments.get(name) != other.arguments.get(name)
    ]
