"""Questions about kept samples: weights, ensembles, chains, predictions."""

from typing import Any
from typing import Literal

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import diagnostics
from keras_mhmcmc._names import distinct
from keras_mhmcmc._serialize import call_text
from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.posterior import reading as sample_reading
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.samplers.parts import importance


class Samples:
    """Abstract: samples of a posterior, from one chain or from several.

    A final class provides the attributes below and `_check_not_empty`.
    """

    model: keras.Model  # of the last `fit`; None before it
    weight_by: Literal["learning_rate"] | None
    _store: Store
    _acceptance: float | None = None  # in the last epoch of a Metropolis sampler

    def _check_not_empty(self) -> None:
        """Raise a `ValueError` that says why there are no samples."""
        raise NotImplementedError

    def _warn_of_weights(self) -> None:
        """Warn if the samples have importance weights that differ."""
        weights = self.weights
        if np.ptp(weights) > 1e-6:
            warn(
                "The samples have importance weights, and they all count alike here. "
                "Weight your averages with `posterior.weights`, or use "
                "`posterior.ensemble(model)`. Received: weights between "
                f"{weights.min():.3g} and {weights.max():.3g}"
            )

    def __len__(self) -> int:
        return len(self._store.records)

    def __bool__(self) -> bool:
        # Not the length: `callback or None` must not drop an empty callback.
        return True

    def __repr__(self) -> str:
        call = call_text(type(self), vars(self))
        if len(self) == 0:
            return f"{call}: no samples yet"
        iterations = self.iterations
        found = [
            f"{len(self)} sample{'s' * (len(self) > 1)}",
            f"iterations {iterations.min()} to {iterations.max()}",
            f"weight ESS {self.weight_ess:.1f}",
        ]
        if self._acceptance is not None:
            found.append(f"acceptance {self._acceptance:.2f} in the last epoch")
        return f"{call}: {', '.join(found)}"

    @property
    def iterations(self) -> npt.NDArray[np.int_]:
        """Return the optimizer's iteration of each sample, shape (samples,).

        The shape is (samples, chains) if several directories were loaded.
        """
        return self._store.iterations

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """Return the samples' importance weights, which have mean 1.

        The shape is (samples,). If the chains of an `mh.ParallelChains` have their own
        weights, or if several directories were loaded, it is (samples, chains). The
        mean over all samples of all chains is 1, and not that of each chain.
        """
        logs = sample_reading.log_weights(self._store.records)
        if len(logs) == 0:
            return logs
        if logs.max() == -np.inf:
            raise ValueError(
                "Argument `weight_by` must leave a sample with a positive weight, but "
                "the learning rate is 0 at all samples. Use `weight_by=None`, or keep "
                "samples while the rate is positive. "
                f"Received: weight_by={self.weight_by!r}"
            )
        weights = np.exp(logs - logs.max())
        return weights / weights.mean()

    @property
    def weight_ess(self) -> float:
        """Return the effective sample size of the weights.

        It is the number of equally weighted samples that the weighted samples are
        worth: from 1 to the number of samples.
        """
        self._check_not_empty()
        return importance.effective_sample_size(self.weights)

    @property
    def energies(self) -> npt.NDArray[np.float64]:
        """Return U of each sample in nats, on the mini-batch that evaluated it.

        The shape is (samples,) or (samples, chains). An unknown energy is NaN, as for
        an optimizer that is not a sampler. Pass them to `mh.suggest_partition`.
        """
        return sample_reading.energies(self._store.records)

    def ensemble(
        self,
        model: keras.Model,
        activation: ActivationLike = None,
        chunk: int | None = None,
        recalibrate: Any = None,
    ) -> Ensemble:
        """Return an `mh.Ensemble` of the samples.

        Args:
            model: the model that was sampled, or one of the same architecture. All
                chains of an `mh.ParallelChains`, and of several directories, become
                members of the ensemble.
            activation: function that turns the model's outputs into the quantity to
                average, as in `keras.activations.get`. Defaults to None: softmax or
                sigmoid if `model` is compiled with a cross-entropy from logits, the
                identity otherwise. If the outputs need different functions, pass a
                list with one for each output.
            chunk: number of members to evaluate side by side, as in `mh.Ensemble`.
            recalibrate: inputs of training, or a data set, for `Ensemble.recalibrate`:
                each member then has the batch normalisation statistics of its own
                weights. Defaults to None: those of the run, which lag behind.

        Returns:
            An `mh.Ensemble`, compiled with the loss and metrics of `model`.

        Raises:
            ValueError: there are no samples, or `model` is not built or has other
                weights.
        """
        self._check_not_empty()
        if not model.built:
            raise ValueError(
                "Argument `model` must be a built model: call it on a batch of inputs "
                f"first. Received: model={model!r}"
            )
        stacked, weights, single = sample_reading.members(
            self._store, model, self.weights
        )
        ensemble = ensemble_of(single, stacked, weights, activation, chunk)
        if recalibrate is not None:
            ensemble.recalibrate(recalibrate)
        return ensemble

    def to_arviz(self, model: keras.Model | None = None) -> Any:
        """Return the samples as an ArviZ object, with variables named by their paths.

        Each variable is an array (chain, draw, ...). A single chain has chain axis 1.
        Several directories follow each other along the chain axis.

        Args:
            model: the model that was sampled. Defaults to None, the model of the last
                `fit`.

        Returns:
            An `InferenceData` with ArviZ 0.2x, a `DataTree` with ArviZ 1.x.

        Raises:
            ImportError: ArviZ is not installed.
            ValueError: there are no samples, or `model` is needed, as after `load`.
        """
        self._check_not_empty()
        model = model if model is not None else self.model
        if model is None:
            raise ValueError(
                "Argument `model` must be the model that was sampled: the files of "
                "samples do not have the names of its variables. Received: model=None"
            )
        self._warn_of_weights()
        draws, single = sample_reading.chains(self._store, model)
        names = distinct(variable.path for variable in single.weights)
        return diagnostics.to_arviz(dict(zip(names, draws, strict=True)))

    def predictions(
        self,
        model: keras.Model,
        x: Any,
        activation: ActivationLike = None,
        batch_size: int | None = None,
    ) -> Any:
        """Return the predictions of every sample, shape (chain, draw, examples, ...).

        Pass them to `mh.diagnostics.summary({"p": ...})`. The hidden units of a network
        can be exchanged without changing its outputs, so chains agree in their
        predictions sooner than in their weights. The samples count alike here: a
        warning comes if they have importance weights that differ.

        Args:
            model: the model that was sampled, or an `mh.ParallelChains`.
            x: inputs, as for `keras.Model.predict`.
            activation: as in `ensemble`. Defaults to None.
            batch_size: as for `keras.Model.predict`. Defaults to None, which is 32.

        Returns:
            An array, or a structure of arrays if the model has several outputs.

        Raises:
            ValueError: there are no samples, or `model` has other weights.
        """
        self._check_not_empty()
        self._warn_of_weights()
        chains, single = sample_reading.chains(self._store, model)
        count = len(chains[0]) * len(self)
        stacked = [array.reshape(count, *array.shape[2:]) for array in chains]
        ensemble = ensemble_of(single, stacked, np.ones(count), activation)
        members = ensemble.predict_members(x, batch_size)

        def by_chain(outputs: Array) -> Array:
            return outputs.reshape(-1, len(self), *outputs.shape[1:])

        return keras.tree.map_structure(by_chain, members)
