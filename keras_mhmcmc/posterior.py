"""`PosteriorSamples`: the callback that keeps samples of the posterior during `fit`."""

import math

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc.ensemble import ensemble_of
from keras_mhmcmc.ensemble import warn_of_few
from keras_mhmcmc.kernels import importance
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.sample_files import DirectoryStore
from keras_mhmcmc.sample_store import MemoryStore
from keras_mhmcmc.sample_store import Record
from keras_mhmcmc.sample_store import state_in
from keras_mhmcmc.stacked import StackedModel


class PosteriorSamples(keras.callbacks.Callback):
    """Keeps samples of the posterior during `fit`.

    A sample is the current state of the chain, with all of the model's weights; those
    that no step changes, as of frozen layers, are kept once for all samples. For a
    Metropolis-Hastings sampler it is never the proposal that stands in the model; at
    each epoch's end, before validation, the sampler is settled, so that validation and
    checkpoints see the state. `acceptance`, `beta`, `energy` and whatever else the
    sampler's diagnostics hold go into the epoch's `logs`, and so into the progress bar,
    `History`, `TensorBoard` and `CSVLogger`. Put it first among the callbacks, so that
    the others see what it settles and logs.

    A run that is loaded from a checkpoint (`model.save`, `ModelCheckpoint`,
    `BackupAndRestore`) goes on in its directory, with no sample lost or doubled: those
    from after the checkpoint are removed and drawn again.

    Works with any Keras optimizer; the samples of one that is not a sampler are its
    iterates.

    Args:
        burn_in: iterations of the optimizer after which the first sample may be kept,
            an integer that is at least 0.
        every: iterations between samples, an integer that is at least 1; None keeps
            one at the end of each epoch. With `steps_per_execution` above 1, the first
            state that can be seen after each multiple is kept.
        directory: folder for the samples, one HDF5 file each; None keeps them in
            memory. A folder that holds samples of this run is gone on with.
        max_samples: number of samples to keep, the newest ones; None keeps all.
        weight_by: "learning_rate" weights each sample by the rate of the step that
            leaves it, as averages over a run with a decaying rate need; None does not.

    Raises:
        ValueError: an argument is outside its range; or, at the start of `fit`, no
            iteration of it meets `burn_in` and `every`, the directory holds samples of
            another model or run, or Keras' loss scaling hides the sampler.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> model.compile(
    ...     optimizer=mh.SGLD(1e-3, train_size=64, seed=0),
    ...     loss=mh.losses.GaussianNLL(noise_std=0.1),
    ... )
    >>> posterior = mh.PosteriorSamples(burn_in=4, every=2)
    >>> history = model.fit(
    ...     np.ones((64, 4)), np.ones(64), batch_size=16, epochs=3, verbose=0,
    ...     callbacks=[posterior],
    ... )
    >>> posterior.iterations
    array([ 6,  8, 10, 12])
    >>> posterior.ensemble(model).predict(np.ones((5, 4)), verbose=0).shape
    (5, 1)

    Reference: of `weight_by`, Welling and Teh (2011), "Bayesian learning via stochastic
    gradient Langevin dynamics", eq. (11).
    """

    def __init__(
        self,
        burn_in=0,
        every=None,
        directory=None,
        max_samples=None,
        weight_by=None,
    ):
        super().__init__()
        self.burn_in = _validate.integer("burn_in", burn_in, 0)
        if every is not None:
            every = _validate.integer("every", every, 1)
        if max_samples is not None:
            max_samples = _validate.integer("max_samples", max_samples, 1)
        _validate.choice("weight_by", weight_by, (None, "learning_rate"))
        self.every = every
        self.weight_by = weight_by
        self.max_samples = max_samples
        self.directory = directory
        self._store = MemoryStore() if directory is None else DirectoryStore(directory)
        self._is_training = False
        self._is_open = False

    @classmethod
    def load(cls, directory):
        """The samples that a run kept in `directory`."""
        store = DirectoryStore(directory)
        if not store.records:
            raise ValueError(
                "Argument `directory` must be a folder with samples that "
                "`mh.PosteriorSamples(directory=...)` kept. Received: "
                f"directory={store.directory!r}, which has none."
            )
        posterior = cls()
        posterior.directory = directory
        posterior._store = store
        return posterior

    # What was kept.

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
        logs = np.array([record.log_weight for record in self._store.records])
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
        energies = [record.energy for record in self._store.records]
        return np.array([np.nan if u is None else u for u in energies], "float64")

    def ensemble(self, model, activation=None, chunk=None):
        """An `mh.Ensemble` of the samples.

        Args:
            model: the model that was sampled, or one of the same architecture. All
                chains of an `mh.ParallelChains` are members of the ensemble.
            activation: what turns the model's outputs into the quantity to average,
                as in `keras.activations.get`. None takes it from the loss that `model`
                is compiled with: softmax or sigmoid for a cross-entropy from logits,
                nothing otherwise.
            chunk: number of members evaluated side by side, as in `mh.Ensemble`.

        Raises:
            ValueError: there are no samples, or `model` has other weights.
        """
        self._check_not_empty()
        stacked, weights = self._store.read(model), self.weights
        if isinstance(model, StackedModel):
            # (draws, chains, ...): every draw of every chain is a member.
            stacked = [
                draws.reshape(-1, *draws.shape[2:])
                for draws in model.member_weights(stacked)
            ]
            if weights.ndim == 1:
                weights = np.repeat(weights, model.num_chains)
            weights = weights.reshape(-1)
            model = model.template
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
        draws = self._store.read(model)
        if isinstance(model, StackedModel):
            draws = [np.moveaxis(d, 1, 0) for d in model.member_weights(draws)]
            model = model.template
        else:
            draws = [draw[None] for draw in draws]
        names = [variable.path for variable in model.weights]
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
        members = self.ensemble(model, activation).predict_members(x, batch_size)

        def by_chain(outputs):
            outputs = outputs.reshape(len(self), -1, *outputs.shape[1:])
            return np.moveaxis(outputs, 1, 0)

        return keras.tree.map_structure(by_chain, members)

    def _check_not_empty(self):
        if len(self) == 0:
            raise ValueError(
                "There are no samples yet. Pass this callback to "
                "`model.fit(..., callbacks=[posterior])` for more than "
                f"burn_in={self.burn_in} iterations."
            )

    # What Keras calls.

    def on_train_begin(self, logs=None):
        if isinstance(self.model.optimizer, keras.optimizers.LossScaleOptimizer):
            raise ValueError(
                "Keras' loss scaling, which the policy 'mixed_float16' brings, hides "
                "the optimizer. Use 'mixed_bfloat16', or `model.compile(..., "
                "auto_scale_loss=False)`. Received: optimizer=LossScaleOptimizer"
            )
        self._is_open = False
        self._is_training = True
        self._is_epoch_finished = True

    def on_epoch_begin(self, epoch, logs=None):
        self._iteration = self._read_iteration(self.model)
        if not self._is_open:
            # Not at the start of training: `BackupAndRestore` may load the model there.
            self._open(epoch)
        self._is_epoch_finished = False
        if isinstance(self.model.optimizer, Sampler):
            self.model.optimizer.reset_diagnostics()
            self.model.optimizer.propose()

    def on_train_batch_end(self, batch, logs=None):
        # `batch` is counted here, since on JAX the model's state is copied each time
        # that a callback looks at it.
        if self.every is not None and self._iteration + batch + 1 >= self._next_due():
            iteration = self._read_iteration(self.model)
            if iteration >= self._next_due():
                self._keep(self.model, iteration)
        steps = self.params.get("steps")
        if steps is not None and batch + 1 >= steps:
            # Before any callback saves the model at the end of the epoch.
            self._finish_epoch()

    def on_test_begin(self, logs=None):
        if self._is_training:
            self._finish_epoch()

    def on_epoch_end(self, epoch, logs=None):
        self._finish_epoch()
        if logs is not None:
            logs.update(self._epoch_diagnostics)

    def on_train_end(self, logs=None):
        self._is_training = False
        if not self._is_open:  # `BackupAndRestore` found that nothing is left to do
            return
        self._is_open = False
        self._revise_last(self.model)
        self._store.flush()
        if len(self) > 1:
            warn_of_few(self.weights)

    def _finish_epoch(self):
        if self._is_epoch_finished:
            return
        model, iteration = self.model, self._read_iteration(self.model)
        self._epoch_diagnostics = {}
        if isinstance(model.optimizer, Sampler):
            self._revise_last(model)
            model.optimizer.check_epoch()
            self._epoch_diagnostics = model.optimizer.diagnostics()
            model.optimizer.settle()
            model.stop_training |= model.optimizer.has_stopped()
        if self.every is None and iteration > self.burn_in:
            self._keep(model, iteration)
        self._is_epoch_finished = True

    def _open(self, epoch):
        """Goes on with the samples up to where the model stands."""
        model = self.model
        if isinstance(model.optimizer, Sampler):
            model.optimizer.generators.follow(model)
        self._started = self._iteration
        self._check_reachable(epoch)
        self._store.open(model, self._iteration)
        self._is_open = True
        if self._awaits(model):
            if self._store.records[-1].iteration == self._iteration:
                # The checkpoint may be from just before the sample was marked.
                model.optimizer.mark_sample()
            self._revise_last(model)

    def _next_due(self):
        """The next multiple of `every` after what was seen of the chain."""
        newest = self._store.records[-1].iteration if len(self) else 0
        passed = max(self._started, newest) - self.burn_in
        return self.burn_in + (max(passed, 0) // self.every + 1) * self.every

    def _keep(self, model, iteration):
        if isinstance(model.optimizer, Sampler) and model.optimizer.has_stopped():
            model.stop_training = True
            return
        self._revise_last(model)
        log_rate = self._read_log_rate(model)
        record = Record(iteration, log_rate, log_rate=log_rate)
        if isinstance(model.optimizer, Sampler):
            model.optimizer.mark_sample()
            record = record.described_by(model.optimizer)
        with state_in(model):
            self._store.append(record, model)
        if self.max_samples is not None and len(self) > self.max_samples:
            self._store.drop_first()

    def _awaits(self, model):
        """Whether the newest sample has yet to get its own energy and weight."""
        if not isinstance(model.optimizer, Sampler) or not model.optimizer.built:
            return False
        return len(self) > 0 and not self._store.records[-1].is_final

    def _revise_last(self, model):
        """Gives the newest sample what it waits for, once it is evaluated."""
        if self._awaits(model):
            record = self._store.records[-1].described_by(model.optimizer)
            if record.is_final:
                self._store.revise_last(record)

    def _read_log_rate(self, model):
        """Log of the learning rate, if samples are weighted by it."""
        if self.weight_by is None:
            return 0.0
        rate = float(ops.convert_to_numpy(model.optimizer.learning_rate))
        return math.log(rate) if rate > 0.0 else -math.inf

    def _read_iteration(self, model):
        return int(ops.convert_to_numpy(model.optimizer.iterations))

    def _check_reachable(self, epoch):
        steps = self.params.get("steps") or math.inf
        last = self._iteration + steps * (self.params["epochs"] - epoch)
        first = self.burn_in + 1 if self.every is None else self._next_due()
        if len(self) == 0 and last < first:
            raise ValueError(
                "Arguments `burn_in` and `every` must leave an iteration to keep: this "
                f"`fit` ends at iteration {last}, and the first sample would be kept "
                f"at {first}. Lower them or train for more epochs. "
                f"Received: burn_in={self.burn_in}, every={self.every}"
            )
