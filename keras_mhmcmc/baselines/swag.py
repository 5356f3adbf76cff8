"""`SWAG`: the callback that fits a Gaussian to the weights along a run."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc.baselines.moments import Floats
from keras_mhmcmc.baselines.moments import WeightMoments
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.of_samples import ensemble_of
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.store import chain_state_in
from keras_mhmcmc.posterior.store import host_copy


class SWAG(keras.callbacks.Callback):
    """Fit a Gaussian to the weights of the model during `fit`.

    The callback collects the mean of the trainable weights, the mean of their squares,
    and their last `rank` deviations from the mean. `ensemble` draws members from the
    Gaussian with these moments. The run itself does not change.

    Any Keras optimizer works. The paper uses SGD with a large constant learning rate,
    after a usual training that `burn_in` leaves out. With a rate that goes to 0, the
    weights come to rest, and the Gaussian is too narrow. With a sampler the callback
    collects states of its chain, all with the same weight.

    The moments are in memory alone. A second `fit` of the same run adds to them.

    Args:
        burn_in: iterations of the optimizer before the first collected weights, an
            integer that is at least 0. Defaults to 0.
        every: iterations between collected weights, an integer that is at least 1.
            Defaults to None: once, at the end of each epoch.
        rank: number of deviations to keep, K, an integer that is at least 2. Memory
            grows with it: each is as large as the model, in float64. Defaults to 20.

    Raises:
        ValueError: an argument is outside its range; or, in `fit`, the model is an
            `mh.ParallelChains`, or the callback has the moments of another run.

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

    Reference: Maddox, Garipov, Izmailov, Vetrov and Wilson (2019), "A simple baseline
    for Bayesian uncertainty in deep learning", algorithm 1.
    """

    def __init__(
        self, burn_in: int = 0, every: int | None = None, rank: int = 20
    ) -> None:
        super().__init__()
        self.burn_in = _validate.integer("burn_in", burn_in, 0)
        self.every = None if every is None else _validate.integer("every", every, 1)
        self.rank = _validate.integer("rank", rank, 2)
        self._moments = WeightMoments(self.rank)
        self._iterations: list[int] = []
        self._places: list[int] = []  # of the trainable weights in `model.weights`
        self._first: list[
            Array
        ] = []  # the other weights, when the first were collected
        self._last: list[Array] = []  # all weights, when the last were collected
        self._is_checked = False

    def __len__(self) -> int:
        """Return the number of collected states of the weights."""
        return len(self._iterations)

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the optimizer's iteration of each collected state, shape (states,)."""
        return np.array(self._iterations, int)

    @property
    def mean(self) -> list[Floats]:
        """Return the mean of each trainable weight, a list of float64 arrays."""
        return list(self._moments.mean)

    @property
    def variance(self) -> list[Floats]:
        """Return the variance of each trainable weight, a list of float64 arrays."""
        return self._moments.variance()

    @property
    def deviations(self) -> list[Floats]:
        """Return the last deviations from the mean, a list of arrays (K, ...).

        K is the number of collected states, and at most `rank`.
        """
        return [
            np.stack(arrays) for arrays in zip(*self._moments.deviations, strict=True)
        ]

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
        self._check_collected()
        self._check_same_weights(model)
        draws = self._moments.draw(members, seed, scale, diagonal)
        return ensemble_of(
            model, self._stacked(draws, members), np.ones(members), activation, chunk
        )

    def _stacked(self, draws: Sequence[Floats], members: int) -> list[Array]:
        """Return one array (members, ...) for each weight of the model."""
        drawn = dict(zip(self._places, draws, strict=True))
        first = iter(self._first)
        stacked = []
        for i, last in enumerate(self._last):
            shared = np.broadcast_to(last, (members, *last.shape))
            if i in drawn:
                stacked.append(drawn[i].astype(last.dtype))
            elif np.array_equal(next(first), last):
                stacked.append(shared)  # a frozen weight is stored once
            else:
                stacked.append(np.array(shared))  # statistics may be recalibrated
        return stacked

    def _check_collected(self) -> None:
        if len(self) < 2:
            raise ValueError(
                "There must be at least two collected states of the weights. Pass this "
                "callback to `model.fit(..., callbacks=[swag])`, and train for more "
                "iterations, or lower `burn_in` or `every`. "
                f"Received: {len(self)} states with burn_in={self.burn_in}, "
                f"every={self.every}"
            )
        if not all(np.isfinite(square).all() for square in self._moments.mean_square):
            raise ValueError(
                "The collected weights must be finite. The run has diverged: lower its "
                "learning rate, and train again with a new callback. Received: weights "
                "that are NaN or infinite"
            )

    def _check_same_weights(self, model: keras.Model) -> None:
        shapes = [tuple(variable.shape) for variable in model.weights]
        if not model.built or shapes != [array.shape for array in self._last]:
            raise ValueError(
                "Argument `model` must be the model that was trained, or a built one "
                "of the same architecture. "
                f"Received: a model with weights of shapes {shapes}"
            )

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        if isinstance(self.model, StackedModel):
            raise ValueError(
                "The model of `mh.SWAG` must be a single one. Train the model itself, "
                "or make a deep ensemble of the chains with `mh.deep_ensemble`. "
                f"Received: model={self.model!r}"
            )
        self._is_checked = False
        self._executed = int(self.model.steps_per_execution)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch_start = self._read_iteration()
        # Not in `on_train_begin`, where `BackupAndRestore` may load the model.
        if not self._is_checked and len(self) and self._epoch_start < self._passed():
            raise ValueError(
                "The callback `mh.SWAG` must not mix two runs: make a new one for this "
                f"`fit`. Received: a run at iteration {self._epoch_start}, and weights "
                f"that were collected at iteration {self._passed()}"
            )
        self._is_checked = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.every is None:
            return
        # On JAX each look at the model copies its state, so `batch` says when to look.
        # With `steps_per_execution`, Keras 3.10 tells the number of the first step.
        latest = self._epoch_start + batch + self._executed
        due = self._next_due(self.every)
        if latest >= due:
            iteration = self._read_iteration()
            if iteration >= due:
                self._collect(iteration)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self.every is None:
            iteration = self._read_iteration()
            if iteration > self.burn_in:
                self._collect(iteration)

    def _passed(self) -> int:
        return self._iterations[-1] if self._iterations else 0

    def _next_due(self, every: int) -> int:
        """Return the first iteration of this epoch that is due."""
        passed = max(self._passed(), self._epoch_start)
        return self.burn_in + every * (max(passed - self.burn_in, 0) // every + 1)

    def _read_iteration(self) -> int:
        return int(ops.convert_to_numpy(self.model.optimizer.iterations))

    def _collect(self, iteration: int) -> None:
        model = self.model
        trainable = {id(variable) for variable in model.trainable_weights}
        places = [i for i, v in enumerate(model.weights) if id(v) in trainable]
        with chain_state_in(model):
            values = [host_copy(variable) for variable in model.weights]
        if not len(self):
            self._places = places
            self._first = [v for i, v in enumerate(values) if i not in places]
        elif places != self._places:
            raise ValueError(
                "The callback `mh.SWAG` must see the same trainable weights in all of "
                "the run. After layers were frozen or made trainable, use a new one. "
                f"Received: {len(places)} trainable weights, before {len(self._places)}"
            )
        self._moments.add([values[i] for i in places])
        self._last = values
        self._iterations.append(iteration)
