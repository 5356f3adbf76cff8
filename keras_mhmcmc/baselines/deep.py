"""`deep_ensemble`: trained networks as one model."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.parallel.chains import ParallelChains
from keras_mhmcmc.posterior.store import chain_state_in
from keras_mhmcmc.posterior.store import host_copy


def deep_ensemble(
    chains: ParallelChains | keras.Model | Sequence[keras.Model],
    activation: ActivationLike = None,
    chunk: int | None = None,
) -> Ensemble:
    """Return an ensemble of trained networks, as they are now.

    With Adam or another optimizer of Keras this is a deep ensemble: each network has
    its own first weights. Those of an `mh.ParallelChains` see the same
    mini-batches. With a sampler the members are the last states of the chains.

    Args:
        chains: a trained `mh.ParallelChains`, or a list of trained models of the same
            architecture.
        activation: as in `mh.PosteriorSamples.ensemble`. Defaults to None.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `chains`, or of the
        first of several models.

    Raises:
        ValueError: `chains` is not trained, a model is not built or has other weights
            than the first one, or a network has weights that are NaN.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> chains = mh.ParallelChains(model, num_chains=3, seed=0)
    >>> chains.compile("adam", "mse")
    >>> history = chains.fit(np.ones((64, 4)), np.ones(64), verbose=0)
    >>> deep_ensemble(chains).predict(np.ones((5, 4)), verbose=0).shape
    (5, 1)

    Reference: Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable
    predictive uncertainty estimation using deep ensembles".
    """
    if not isinstance(chains, ParallelChains):
        models = chains if isinstance(chains, list | tuple) and chains else [chains]
        first = models[0]
        members = [_weights_of(model, first) for model in models]
        stacked = [np.stack(values) for values in zip(*members, strict=True)]
    elif not chains.compiled or not chains.optimizer.built:
        raise ValueError(
            "Argument `chains` must be trained: call its `compile` and `fit` first. "
            f"Received: chains={chains!r}"
        )
    else:
        first, stacked = chains.template, chains.member_weights(_values(chains))
    return ensemble_of(first, stacked, np.ones(len(stacked[0])), activation, chunk)


def _weights_of(model: keras.Model, first: keras.Model) -> list[Array]:
    """Return the weights of a model that is built as `first` is."""
    hint = "an `mh.ParallelChains`, or a list of trained models"
    _validate.instance("chains", model, keras.Model, hint)
    found, wanted = ([tuple(v.shape) for v in one.weights] for one in (model, first))
    if not model.built or found != wanted:
        raise ValueError(
            "Argument `chains` must have built models of the same architecture: as "
            "many weights, with the same shapes. Build each with the same function. "
            f"Received: {model!r} with weights of the shapes {found} beside "
            f"{first!r} with {wanted}"
        )
    return _values(model)


def _values(model: keras.Model) -> list[Array]:
    """Return the weights of a model, in the current state of its chain."""
    with chain_state_in(model):
        return [host_copy(variable) for variable in model.weights]
