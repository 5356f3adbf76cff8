"""`SWAG`: the callback that fits a Gaussian to the weights along a run.

Paper: Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), "A simple baseline for
Bayesian uncertainty in deep learning", section 3 and algorithm 1. With the mean m and
the variance s of the kept states, and the last K deviations D, a matrix with K columns:

    N(m, (diag(s) + D D^T / (K - 1)) / 2)    SWAG
    N(m, diag(s))                            SWAG-Diagonal
"""

from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.posterior import progress
from keras_mhmcmc.posterior.record import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import chain_state_in

Floats = npt.NDArray[np.float64]


class SWAG(keras.callbacks.Callback):
    """Fit a Gaussian to the weights of the model during `fit`.

    The callback keeps states of the weights. `ensemble` draws members from the Gaussian
    with the mean and variance of the trainable weights, and their last `rank`
    deviations from the mean of the states up to each. The run itself does not change.

    Any Keras optimizer works. The paper uses SGD with a large constant learning rate,
    after a usual training that `burn_in` leaves out. With a rate that goes to 0, the
    weights come to rest, and the Gaussian is too narrow. With a sampler the callback
    collects states of its chain, all with the same weight.

    The states are in memory alone: keep some tens of them. A second `fit` of the same
    run adds to them.

    Args:
        burn_in: iterations of the optimizer before the first collected weights, an
            integer that is at least 0. Defaults to 0.
        every: iterations between collected weights, an integer that is at least 1.
            Defaults to None: once, at the end of each epoch.
        rank: number of deviations, K, an integer that is at least 2. Defaults to 20.

    Raises:
        ValueError: an argument is outside its range; or, in `fit`, the model is an
            `mh.ParallelChains`, or the callback has states of another run.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(0.05), "mse")
    >>> swag = mh.SWAG(burn_in=4, every=2, rank=3)
    >>> history = model.fit(
    ...     np.ones((64, 4)), np.ones(64), batch_size=16, epochs=3, verbose=0,
    ...     callbacks=[swag],
    ... )
    >>> swag.iterations
    array([ 6,  8, 10, 12])
    >>> swag.ensemble(model, members=5).predict(np.ones((2, 4)), verbose=0).shape
    (2, 1)

    Reference: Maddox et al. (2019), "A simple baseline for Bayesian uncertainty in deep
    learning", algorithm 1.
    """

    def __init__(
        self, burn_in: int = 0, every: int | None = None, rank: int = 20
    ) -> None:
        super().__init__()
        self.burn_in = _validate.integer("burn_in", burn_in, 0)
        self.every = None if every is None else _validate.integer("every", every, 1)
        self.rank = _validate.integer("rank", rank, 2)
        self._store = Store()
        self._places: list[int] = []  # of the trainable weights in `model.weights`
        self._is_checked = False

    def __len__(self) -> int:
        """Return the number of collected states of the weights."""
        return len(self._store.records)

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the optimizer's iteration of each collected state, shape (states,)."""
        return np.array([record.iteration for record in self._store.records], int)

    @property
    def mean(self) -> list[Floats]:
        """Return the mean of each trainable weight, a list of float64 arrays."""
        return [states.mean(axis=0) for states in self._states()]

    @property
    def variance(self) -> list[Floats]:
        """Return the variance of each trainable weight, as `mean`."""
        return [states.var(axis=0) for states in self._states()]

    @property
    def deviations(self) -> list[Floats]:
        """Return the last deviations from the mean, a list of arrays (K, ...).

        Each is from the mean of the states up to its own, as in algorithm 1. There are
        at most `rank`.
        """
        return [last_deviations(states, self.rank) for states in self._states()]

    def _states(self) -> list[Floats]:
        """Return the states (states, ...) of each trainable weight."""
        kept = self._store.read(self.model) if len(self) else []
        return [kept[place].astype("float64") for place in self._places]

    def ensemble(
        self,
        model: keras.Model,
        members: int = 30,
        seed: int = 0,
        scale: float = 1.0,
        diagonal: bool = False,
        activation: ActivationLike = None,
        chunk: int | None = None,
    ) -> Ensemble:
        """Draw members from N(mean, scale (diag(variance) + D D^T / (K - 1)) / 2).

        D has the K deviations as columns. Weights that are not trainable have the value
        of the last collected state. If the model has batch normalisation, call
        `ensemble.recalibrate(x)`: its statistics then fit the weights of each member.

        Args:
            model: the model that was trained, or one of the same architecture.
            members: number of draws, an integer that is at least 1. Defaults to 30.
            seed: integer that makes the draws repeatable, the same on each backend.
                Defaults to 0.
            scale: factor of the covariance, at least 0. With 0 all members have the
                mean. Defaults to 1.
            diagonal: whether to draw from N(mean, scale diag(variance)), the paper's
                SWAG-Diagonal. Defaults to False.
            activation: as in `mh.PosteriorSamples.ensemble`. Defaults to None.
            chunk: number of members to evaluate side by side, as in `mh.Ensemble`.

        Returns:
            An `mh.Ensemble`, compiled with the loss and metrics of `model`.

        Raises:
            ValueError: an argument is outside its range, fewer than two states were
                collected, their weights are not finite, or `model` has others.

        Reference: Maddox et al. (2019), section 3.3 and, for `diagonal`, section 3.2.
        """
        _validate.instance("model", model, keras.Model, "the model that was trained")
        members = _validate.integer("members", members, 1)
        seed = _validate.seed(seed)
        scale = _validate.number("scale", scale, _validate.NOT_NEGATIVE)
        diagonal = _validate.choice("diagonal", diagonal, (True, False))
        if len(self) < 2:
            raise ValueError(
                "There must be at least two collected states of the weights. Pass this "
                "callback to `model.fit(..., callbacks=[swag])`, and train for more "
                "iterations, or lower `burn_in` or `every`. Received: "
                f"{len(self)} states with burn_in={self.burn_in}, every={self.every}"
            )
        kept = self._store.read(model)  # which refuses a model of other weights
        states = [kept[place].astype("float64") for place in self._places]
        if not all(np.isfinite(values).all() for values in states):
            raise ValueError(
                "The collected weights must be finite. The run has diverged: lower its "
                "learning rate, and train again with a new callback. Received: weights "
                "that are NaN or infinite"
            )
        rng = np.random.default_rng(seed)
        drawn = draws(states, self.rank, rng, members, scale, diagonal)
        # Weights that never changed are views, and are stored once.
        stacked = [
            np.broadcast_to(values[-1], (members, *values.shape[1:]))
            if values.strides[0] == 0
            else np.repeat(values[-1:], members, axis=0)
            for values in kept
        ]
        for place, values in zip(self._places, drawn, strict=True):
            stacked[place] = values.astype(kept[place].dtype)
        return ensemble_of(model, stacked, np.ones(members), activation, chunk)

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        if isinstance(self.model, StackedModel):
            raise ValueError(
                "The model of `mh.SWAG` must be a single one. Train the model itself, "
                "or make a deep ensemble of the chains with `mh.deep_ensemble`. "
                f"Received: model={self.model!r}"
            )
        self._is_checked = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch_start = progress.iteration_of(self.model)
        # Not in `on_train_begin`, where `BackupAndRestore` may load the model.
        if not self._is_checked and self._epoch_start < self._passed():
            raise ValueError(
                "The callback `mh.SWAG` must not mix two runs: make a new one for this "
                f"`fit`. Received: a run at iteration {self._epoch_start}, and weights "
                f"that were collected at iteration {self._passed()}"
            )
        self._is_checked = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # On JAX each look at the model copies its state, so `batch` says when to look.
        executed = int(self.model.steps_per_execution)
        batch = progress.last_batch(executed, batch, self.params.get("steps"))
        passed = max(self._passed(), self._epoch_start)
        due = progress.next_due(passed, self.burn_in, self.every)
        if self.every is not None and self._epoch_start + batch + 1 >= due:
            iteration = progress.iteration_of(self.model)
            if iteration >= due:
                self._collect(iteration)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        iteration = progress.iteration_of(self.model)
        if self.every is None and iteration > self.burn_in:
            self._collect(iteration)

    def _passed(self) -> int:
        return int(self.iterations[-1]) if len(self) else 0

    def _collect(self, iteration: int) -> None:
        trainable = {id(variable) for variable in self.model.trainable_weights}
        places = [i for i, v in enumerate(self.model.weights) if id(v) in trainable]
        if len(self) and places != self._places:
            raise ValueError(
                "The callback `mh.SWAG` must see the same trainable weights in all of "
                "the run. After layers were frozen or made trainable, use a new one. "
                f"Received: {len(places)} trainable weights, before {len(self._places)}"
            )
        self._places = places
        with chain_state_in(self.model):
            self._store.append(Record(iteration, 0.0), self.model)


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
    """Return draws from the Gaussian, one array (members, ...) for each weight."""
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
