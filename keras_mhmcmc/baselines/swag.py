"""`swag`: draws from a Gaussian that is fitted to the weights along a run.

Paper: Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), "A simple baseline for
Bayesian uncertainty in deep learning", section 3 and algorithm 1. With the mean m and
the variance s of the kept states, and the last K deviations D, a matrix with K columns:

    N(m, (diag(s) + D D^T / (K - 1)) / 2)    SWAG
    N(m, diag(s))                            SWAG-Diagonal
"""

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.posterior.callback import PosteriorSamples

Floats = npt.NDArray[np.float64]


def swag(
    posterior: PosteriorSamples,
    model: keras.Model,
    members: int = 30,
    *,
    rank: int = 20,
    seed: int = 0,
    scale: float = 1.0,
    diagonal: bool = False,
    activation: ActivationLike = None,
    chunk: int | None = None,
) -> Ensemble:
    """Draw members from the Gaussian of the weights that a run kept, as SWAG does.

    The law is N(mean, scale (diag(variance) + D D^T / (K - 1)) / 2), with the moments
    of the kept trainable weights. The columns of D are the last deviations from the
    mean of the states up to each. Of an `mh.ParallelChains` each network has a Gaussian
    of its own, which is MultiSWAG.

    Any Keras optimizer works. The paper uses SGD with a large constant rate, after a
    usual training that `burn_in` of the callback leaves out. With a rate that goes to
    0 the weights come to rest, and the Gaussian is too narrow. Weights that are not
    trainable have their last value: if the model has batch normalisation, call
    `ensemble.recalibrate(x)`.

    Args:
        posterior: the `mh.PosteriorSamples` of the run, with at least two states.
        model: the model that was trained, or one of the same architecture.
        members: draws for each network, an integer that is at least 1. Defaults to 30.
        rank: number of deviations, K, an integer that is at least 2. Defaults to 20.
        seed: integer that makes the draws repeatable, the same on each backend.
            Defaults to 0.
        scale: factor of the covariance, at least 0. With 0 all members have the mean.
            Defaults to 1.
        diagonal: whether to draw from N(mean, scale diag(variance)), the paper's
            SWAG-Diagonal. Defaults to False.
        activation: as in `mh.PosteriorSamples.ensemble`. Defaults to None.
        chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

    Returns:
        An `mh.Ensemble`, compiled with the loss and metrics of `model`.

    Raises:
        ValueError: an argument is outside its range, fewer than two states were kept,
            their weights are not finite, or `model` has others.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.05), "mse")
    >>> posterior = mh.PosteriorSamples(burn_in=4, every=2)
    >>> history = model.fit(
    ...     np.ones((64, 4)), np.ones(64), batch_size=16, epochs=3, verbose=0,
    ...     callbacks=[posterior],
    ... )
    >>> mh.swag(posterior, model, members=5).predict(np.ones((2, 4)), verbose=0).shape
    (2, 1)

    Reference: Maddox et al. (2019), section 3.3 and, for `diagonal`, section 3.2.
    Wilson and Izmailov (2020), "Bayesian deep learning and a probabilistic perspective
    of generalization", for MultiSWAG.
    """
    hint = "the callback of the run"
    _validate.instance("posterior", posterior, PosteriorSamples, hint)
    _validate.instance("model", model, keras.Model, "the model that was trained")
    members = _validate.integer("members", members, 1)
    rank = _validate.integer("rank", rank, 2)
    seed = _validate.seed(seed)
    scale = _validate.number("scale", scale, _validate.NOT_NEGATIVE)
    diagonal = _validate.choice("diagonal", diagonal, (True, False))
    if len(posterior) < 2:
        raise ValueError(
            "Argument `posterior` must have at least two states of the weights. Pass "
            "it to `model.fit(..., callbacks=[posterior])`, and train for more "
            "iterations, or lower its `burn_in` or `every`. Received: "
            f"{len(posterior)} states"
        )
    kept, single = posterior.chains(model)
    trainable = {id(variable) for variable in single.trainable_weights}
    places = [i for i, v in enumerate(single.weights) if id(v) in trainable]
    states = [kept[place].astype("float64") for place in places]
    networks = len(kept[0])  # none, if all were lost
    if not networks or not all(np.isfinite(values).all() for values in states):
        raise ValueError(
            "The kept weights must be finite. The run has diverged: lower its learning "
            "rate, and train again with a new callback. Received: weights that are NaN "
            "or infinite, or chains that were all lost"
        )
    rng = np.random.default_rng(seed)
    # Weights that never changed are views, and are stored once.
    stacked = [
        np.broadcast_to(values[0, -1], (members, *values.shape[2:]))
        if networks == 1 and values.strides[1] == 0
        else np.repeat(values[:, -1], members, axis=0)
        for values in kept
    ]
    drawn = [
        draws([values[k] for values in states], rank, rng, members, scale, diagonal)
        for k in range(networks)
    ]
    for place, values in zip(places, zip(*drawn, strict=True), strict=True):
        stacked[place] = np.concatenate(values).astype(kept[place].dtype)
    return ensemble_of(single, stacked, np.ones(networks * members), activation, chunk)


def last_deviations(states: Floats, rank: int) -> Floats:
    """Return the last deviations (K, ...) of states (S, ...) from the running mean."""
    counts = np.arange(1, len(states) + 1).reshape(-1, *[1] * (states.ndim - 1))
    return (states - np.cumsum(states, axis=0) / counts)[-rank:]


def draws(
    states: list[Floats],
    rank: int,
    rng: np.random.Generator,
    members: int,
    scale: float,
    diagonal: bool,
) -> list[Array]:
    """Return draws from the Gaussian of one run, (members, ...) for each weight."""
    share = scale if diagonal else 0.5 * scale
    columns = min(rank, len(states[0]))
    # (members, K): the same for all weights, which correlates them.
    common = rng.standard_normal((members, columns)) * np.sqrt(share / (columns - 1))
    drawn = []
    for values in states:
        draw = rng.standard_normal((members, *values.shape[1:]))
        draw *= np.sqrt(share * values.var(axis=0))
        if not diagonal:
            draw += np.tensordot(common, last_deviations(values, rank), axes=1)
        drawn.append(values.mean(axis=0) + draw)
    return drawn
