"""`deep_ensemble`: the networks of an `mh.ParallelChains` as one model."""

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.of_samples import ensemble_of
from keras_mhmcmc.parallel.chains import ParallelChains
from keras_mhmcmc.posterior.store import chain_state_in
from keras_mhmcmc.posterior.store import host_copy


def deep_ensemble(
    chains: ParallelChains,
    activation: ActivationLike = None,
    chunk: int | None = None,
) -> Ensemble:
    """Return an ensemble of the networks that `chains` trained, as they are now.

    With Adam or another optimizer of Keras this is a deep ensemble: each network has
    its own first weights. All see the same mini-batches. With a sampler the members are
    the last states of the chains.

    Args:
        chains: a trained `mh.ParallelChains`.
        activation: function that turns the model's outputs into the quantity to
            average, as in `mh.PosteriorSamples.ensemble`. Defaults to None.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `chains`.

    Raises:
        ValueError: `chains` is not trained, or one of its networks has weights that are
            NaN.

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
    _validate.instance("chains", chains, ParallelChains, "an `mh.ParallelChains`")
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
