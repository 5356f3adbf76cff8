"""What can be asked of kept samples: weights, ensembles, chains, predictions."""

import keras
import numpy as np

from keras_mhmcmc import diagnostics
from keras_mhmcmc.algorithms import importance
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.posterior import reading as sample_reading


class Samples:
    """Abstract: samples of a posterior, of one chain or of several.

    A final class has a `_store`, the model `_model` of the last run or None,
    `weight_by`, and `_check_not_empty`.
    """

    def __len__(self):
        return len(self._store.records)

    @property
    def iterations(self):
        """The optimizer's iteration of each sample, shape (samples,)."""
        return np.array([record.iteration for record in self._store.records], int)

    @property
    def weights(self):
        """The importance weight of each sample, with mean 1, shape (samples,).

        Where the chains of an `mh.ParallelChains` have weights of their own, the shape
        is (samples, chains).
        """
        logs = sample_reading.log_weights(self._store.records)
        if len(logs) == 0:
            return logs
        if logs.max() == -np.inf:
            raise ValueError(
                "Argument `weight_by` must leave a sample with a weight: the learning "
                f"rate is 0 at each of these. Received: weight_by={self.weight_by!r}"
            )
        weights = np.exp(logs - logs.max())
        return weights / weights.mean()

    @property
    def weight_ess(self):
        """Effective sample size of the weights: 1 to the number of samples.

        How many equally weighted samples the weighted ones are worth.
        """
        self._check_not_empty()
        return importance.effective_sample_size(self.weights)

    @property
    def energies(self):
        """U of each sample in nats, on the mini-batch that evaluated it.

        Shape (samples,), or (samples, chains); NaN where it is not known, as with an
        optimizer that is not a sampler. `mh.suggest_partition` takes them.
        """
        return sample_reading.energies(self._store.records)

    def ensemble(self, model, activation=None, chunk=None):
        """An `mh.Ensemble` of the samples.

        Args:
            model: the model that was sampled, or one of the same architecture. All
                chains of an `mh.ParallelChains` are members of the ensemble.
            activation: what turns the model's outputs into the quantity to average,
                as in `keras.activations.get`. None takes it from the loss that `model`
                is compiled with: softmax or sigmoid for a cross-entropy from logits,
                nothing otherwise. Several outputs that need different ones ask for it.
            chunk: number of members evaluated side by side, as in `mh.Ensemble`.

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
        stacked, weights, model = sample_reading.members(
            self._store, model, self.weights
        )
        return ensemble_of(model, stacked, weights, activation, chunk)

    def to_arviz(self, model=None):
        """The samples as an ArviZ object, variables named by their paths.

        One chain, or those of an `mh.ParallelChains`: arrays (chain, draw, ...).

        Args:
            model: the model that was sampled; None is the one of the last `fit`.

        Raises:
            ImportError: ArviZ is not installed.
            ValueError: there are no samples, or no model is known, as after `load`.
        """
        self._check_not_empty()
        model = model if model is not None else self._model
        if model is None:
            raise ValueError(
                "Argument `model` must be the model that was sampled, since loaded "
                "samples do not know the names of its variables. Received: model=None"
            )
        draws, model = sample_reading.chains(self._store, model)
        names = sample_reading.distinct([v.path for v in model.weights])
        return diagnostics.to_arviz(dict(zip(names, draws, strict=True)))

    def predictions(self, model, x, activation=None, batch_size=None):
        """Predictions of every sample, shape (chain, draw, examples, ...).

        For `mh.diagnostics.summary({"p": ...})`: the weights of a network can be
        exchanged without changing it, so chains agree in their predictions sooner
        than in their weights.

        Args:
            model: the model that was sampled; an `mh.ParallelChains` has its chains.
            x: inputs, as for `keras.Model.predict`.
            activation: as in `ensemble`.
            batch_size: as for `keras.Model.predict`.

        Raises:
            ValueError: there are no samples, or `model` has other weights.
        """
        self._check_not_empty()
        chains, single = sample_reading.chains(self._store, model)
        count = len(chains[0]) * len(self)
        stacked = [array.reshape(count, *array.shape[2:]) for array in chains]
        ensemble = ensemble_of(single, stacked, np.ones(count), activation)
        members = ensemble.predict_members(x, batch_size)

        def by_chain(outputs):
            return outputs.reshape(-1, len(self), *outputs.shape[1:])

        return keras.tree.map_structure(by_chain, members)
