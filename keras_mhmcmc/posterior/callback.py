"""`PosteriorSamples`: the callback that keeps samples of the posterior during `fit`."""

import functools
import math

import keras
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.ensemble import warn_of_few
from keras_mhmcmc.optimizers.base_options import refuse_other_weights
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.parallel.stacked_model import StackedModel
from keras_mhmcmc.posterior.chain_watch import ChainWatch
from keras_mhmcmc.posterior.directory import DirectoryStore
from keras_mhmcmc.posterior.fit_sizes import FitSizes
from keras_mhmcmc.posterior.interrupts import Interrupts
from keras_mhmcmc.posterior.samples import Samples
from keras_mhmcmc.posterior.store import MemoryStore
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import state_in


class PosteriorSamples(Samples, keras.callbacks.Callback):
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

    Works with any Keras optimizer. The samples of one that is not a sampler are its
    iterates, and a warning says so.

    Warns, with numbers and what to do, of sizes that differ from those of `fit`, of a
    chain that stands still, and of an energy that rises. Ctrl-C ends `fit` after the
    mini-batch, with the state of the chain in the model and all samples kept; a second
    Ctrl-C ends it at once.

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
        self._sizes = FitSizes()
        self._interrupts = Interrupts()
        self._sampler = None
        self._reason = None  # why there was nothing to keep
        self._is_training = False
        self._is_open = False
        self._is_keeping = False

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

    def _check_not_empty(self):
        if len(self) > 0:
            return
        if self._reason is not None:
            raise ValueError(
                "There are no samples: none was kept before iteration "
                f"{self._first_due()}, the first one that `burn_in` and `every` leave. "
                f"{self._reason}"
            )
        raise ValueError(
            "There are no samples yet. Pass this callback to "
            "`model.fit(..., callbacks=[posterior])` for more than "
            f"burn_in={self.burn_in} iterations. A tool that copies its callbacks, as "
            "KerasTuner does, leaves this one empty: make it where `fit` is called."
        )

    def __deepcopy__(self, memo):
        """A new callback with the same arguments, and without the samples.

        KerasTuner copies callbacks for each trial.
        """
        if self.directory is not None:
            raise ValueError(
                "A callback with a `directory` must not be copied, since two runs "
                "would write there. KerasTuner copies its callbacks: make this one in "
                "the `fit` of a `keras_tuner.HyperModel`, with a directory for each "
                f"trial. Received: directory={self.directory!r}"
            )
        return type(self)(
            self.burn_in, self.every, None, self.max_samples, self.weight_by
        )

    # What Keras calls.

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            raise ValueError(
                "Keras' loss scaling, which the policy 'mixed_float16' brings, hides "
                "the optimizer. Use 'mixed_bfloat16', or `model.compile(..., "
                "auto_scale_loss=False)`. Received: optimizer=LossScaleOptimizer"
            )
        is_sampler = isinstance(optimizer, Sampler)
        if not is_sampler and not isinstance(self.model, StackedModel):
            warn(
                f"The optimizer {type(optimizer).__name__} is not a sampler: what is "
                "kept are iterates of training, and not samples of a posterior. Take "
                "one of `mh`, such as mh.SGHMC(...), to sample."
            )
        self._sampler = optimizer if is_sampler else None
        if is_sampler:
            refuse_other_weights(optimizer.sampled_variables, self.model)
        self._is_open = False
        self._is_training = True
        self._is_epoch_finished = True
        self._has_seen_batch = False
        self._watch = ChainWatch()
        self._interrupts.begin(self.model)

    def on_epoch_begin(self, epoch, logs=None):
        self._iteration = self._read_iteration(self.model)
        if not self._is_open:
            # Not at the start of training: `BackupAndRestore` may load the model there.
            self._open(epoch)
        self._is_epoch_finished = False
        self._epoch_start = self._iteration
        if self._sampler is not None:
            self._sampler.reset_diagnostics()
            self._sampler.propose()

    def on_train_batch_end(self, batch, logs=None):
        # `batch` is counted here, since on JAX the model's state is copied each time
        # that a callback looks at it.
        if self._sampler is not None and not self._has_seen_batch:
            self._has_seen_batch = True
            self._sizes.check_batch(self.model, batch + 1)
            self._watch.begin(self._sampler.diagnostics().get("energy"))
        if self.every is not None and self._iteration + batch + 1 >= self._next_due():
            iteration = self._read_iteration(self.model)
            if iteration >= self._next_due():
                self._keep(self.model, iteration)
        steps = self.params.get("steps")
        if steps is not None and batch + 1 >= steps:
            # Before any callback saves the model at the end of the epoch.
            self._finish_epoch()
        self._stop_if_interrupted()

    def on_test_begin(self, logs=None):
        if self._is_inside_fit():
            self._finish_epoch()

    def on_test_batch_end(self, batch, logs=None):
        if self._is_inside_fit():
            self._stop_if_interrupted()

    def _is_inside_fit(self):
        """Whether it is `fit` that evaluates; one that failed ends without a word."""
        return self._is_training and "epochs" in self.params

    def on_epoch_end(self, epoch, logs=None):
        self._finish_epoch()
        if logs is not None:
            logs.update(self._epoch_diagnostics)
        self._stop_if_interrupted()

    def on_train_end(self, logs=None):
        self._is_training = False
        self._interrupts.end()
        if not self._is_open:  # `BackupAndRestore` found that nothing is left to do
            return
        self._is_open = False
        if self._sampler is not None:
            self._is_lost()
            self._sampler.tell_of_samples()
            self._watch.end(self._sampler)
        self._store.flush()
        if len(self) > 1:
            warn_of_few(self.weights)

    def _stop_if_interrupted(self):
        """Ends `fit` as Ctrl-C does, with the state of the chain in the model."""
        if not self._interrupts.is_waiting():
            return
        self._interrupts.end()
        self._is_training = self._is_open = False
        if self._sampler is not None:
            self.model.optimizer.settle()
        self._store.flush()
        raise KeyboardInterrupt

    def _finish_epoch(self):
        if self._is_epoch_finished:
            return
        model, iteration = self.model, self._read_iteration(self.model)
        self._epoch_diagnostics = {}
        sampler = self._sampler
        if sampler is not None:
            if not model.stop_training:  # in the middle of the epoch
                self._sizes.check_epoch(model, iteration - self._epoch_start)
            sampler.tell_of_samples()
            sampler.check_epoch()
            self._epoch_diagnostics = sampler.diagnostics()
            sampler.settle()
            model.stop_training |= sampler.has_stopped()
        if self.every is None and iteration > self.burn_in:
            self._keep(model, iteration)
        records = self._store.records
        is_kept = len(records) > 0 and records[-1].iteration > self._epoch_start
        self._watch.end_epoch(self._epoch_diagnostics.get("energy"), is_kept)
        self._is_epoch_finished = True

    def _open(self, epoch):
        """Goes on with the samples up to where the model stands."""
        if self._sampler is not None:
            self._sampler.generators.follow(self.model)
        self._started = self._iteration
        self._check_reachable(epoch)
        self._store.open(self.model, self._iteration)
        self._is_open = True
        if self._awaits():
            iteration = self._store.records[-1].iteration
            listener = functools.partial(self._revise, iteration)
            if iteration == self._iteration:
                # The checkpoint may be from just before the sample was marked.
                self._sampler.mark_sample(listener)
            else:
                self._sampler.await_sample(iteration, listener)
                self._sampler.tell_of_samples()

    def _first_due(self):
        return self.burn_in + (1 if self.every is None else self.every)

    def _next_due(self):
        """The next multiple of `every` after what was seen of the chain."""
        newest = self._store.records[-1].iteration if len(self) else 0
        passed = max(self._started, newest) - self.burn_in
        return self.burn_in + (max(passed, 0) // self.every + 1) * self.every

    def _keep(self, model, iteration):
        sampler = self._sampler
        if sampler is not None and self._is_lost():
            model.stop_training |= sampler.has_stopped()
            return
        log_rate = self._read_log_rate(model)
        record = Record(iteration, log_rate, log_rate=log_rate)
        if sampler is not None:
            self._is_keeping = True
            sampler.mark_sample(functools.partial(self._revise, iteration))
            self._is_keeping = False
            record = record.described_by(sampler)
        with state_in(model):
            self._store.append(record, model)
            self._watch.keep(model)
        if self.max_samples is not None and len(self) > self.max_samples:
            self._store.drop_first()

    def _is_lost(self):
        """Whether there is no state to keep; remembers the reason."""
        is_lost = bool(self._sampler.lost_chains().all())
        self._reason = self._sampler.reason_of_loss() if is_lost else None
        return is_lost

    def _awaits(self):
        """Whether the newest sample has yet to get its own energy and weight."""
        if self._sampler is None or not self._sampler.built:
            return False
        return len(self) > 0 and not self._store.records[-1].is_final

    def _revise(self, iteration):
        """Gives the sample of an iteration its energy, which is known now."""
        if self._awaits() and self._store.records[-1].iteration == iteration:
            record = self._store.records[-1].revised_by(self._sampler)
            self._store.revise_last(record)
            if not self._is_keeping:  # which writes as well
                self._store.write()

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
