"""`deep_ensemble`: the networks of an `mh.ParallelChains` as one model."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.of_samples import ensemble_of
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
        activation: function that turns the model's outputs into the quantity to
            average, as in `mh.PosteriorSamples.ensemble`. Defaults to None.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `chains`, or of the
        first of several models.

    Raises:
        ValueError: `chains` is not trained, models are not built or have other weights
            than the first one, or one of the networks has weights that are NaN.

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
        members = [_weights_of(model, models[0]) for model in models]
        stacked = [np.stack(values) for values in zip(*members, strict=True)]
        return ensemble_of(models[0], stacked, np.ones(len(models)), activation, chunk)
    if not chains.compiled or not chains.optimizer.built:
        raise ValueError(
            "Argument `chains` must be trained: call its `compile` and `fit` first. "
            f"Received: chains={chains!r}"
        )
    with chain_state_in(chains):
        values = [host_copy(variable) for variable in chains.weights]
    stacked = chains.member_weights(values)
    return ensemble_of(
        chains.template, stacked, np.ones(chains.num_chains), activation, chunk
    )


def _weights_of(model: keras.Model, first: keras.Model) -> list[Array]:
    """Return the weights of a model that is built as `first` is."""
    hint = "an `mh.ParallelChains`, or a list of trained models"
    _validate.instance("chains", model, keras.Model, hint)
    if not model.built or _shapes(model) != _shapes(first):
        raise ValueError(
            "Argument `chains` must have built models of the same architecture: as "
            "many weights, with the same shapes. Build each with the same function. "
            f"Received: {model!r} with weights of the shapes {_shapes(model)} beside "
            f"{first!r} with {_shapes(first)}"
        )
    with chain_state_in(model):
        return [host_copy(variable) for variable in model.weights]


def _shapes(model: keras.Model) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in model.weights]
