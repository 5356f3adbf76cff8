"""`PosteriorSamples`: the callback that keeps samples of the posterior during `fit`."""

import math
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Self

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._types import PathLike
from keras_mhmcmc.ensemble.checks import warn_of_few
from keras_mhmcmc.fit.data_watch import FitSizes
from keras_mhmcmc.fit.run_watch import ChainWatch
from keras_mhmcmc.fit.run_watch import Runaway
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import progress
from keras_mhmcmc.posterior.awaited import AwaitedSample
from keras_mhmcmc.posterior.awaited import entries
from keras_mhmcmc.posterior.checked_sampler import checked_sampler
from keras_mhmcmc.posterior.directory import DirectoryStore
from keras_mhmcmc.posterior.interrupts import Interrupts
from keras_mhmcmc.posterior.pool import loaded
from keras_mhmcmc.posterior.samples import Samples
from keras_mhmcmc.posterior.store import MemoryStore
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import chain_state_in


class PosteriorSamples(Samples, keras.callbacks.Callback):
    """Keep samples of the posterior during `fit`.

    A sample is the current state of the chain, with all weights of the model. Weights
    that no step changes, such as those of frozen layers, are kept once for all samples.
    A sample is never the proposal that a Metropolis-Hastings sampler keeps in the
    model. At the end of each epoch, before validation, the callback puts the state into
    the model, so that validation and checkpoints use it.

    The sampler's diagnostics (`acceptance`, `beta`, `energy`, ...) go into the epoch's
    `logs`: the progress bar, `History`, `TensorBoard` and `CSVLogger` show them.
    `nonfinite`, the number of evaluations that were not finite, is there only in an
    epoch that has some. Put this callback first in the list, so that the others see the
    state and the logs.

    Load a model from a checkpoint (`model.save`, `ModelCheckpoint`,
    `BackupAndRestore`), and the run continues in its directory. Samples from after the
    checkpoint are removed and drawn again: none is lost, and none comes twice.

    Any Keras optimizer works. The samples of an optimizer that is not a sampler are
    iterates of training, and a warning says so.

    Warnings tell what to do if sizes differ from those of `fit`, if a chain stands
    still, or if the energy rises. Ctrl-C ends `fit` after the current mini-batch, with
    the chain's state in the model and all samples kept. A second one ends `fit` now.

    Args:
        burn_in: iterations of the optimizer before the first sample, an integer that
            is at least 0. Defaults to 0. A longer `warm_up` or pilot of the sampler
            counts.
        every: iterations between samples, an integer that is at least 1. Defaults to
            None: one sample at the end of each epoch. With `steps_per_execution` above
            1, the callback keeps the first state that it sees after each multiple.
        directory: folder for the samples, one HDF5 file for each. If the folder holds
            samples of this run, the run continues there. Defaults to None, which keeps
            the samples in memory.
        max_samples: number of samples to keep; the newest stay. Defaults to None, which
            keeps all.
        weight_by: "learning_rate" weights each sample by the rate of the step that
            leaves it, as averages over a run with a decaying rate need. A callback that
            sets the rate must do so at the beginning of an epoch. Defaults to None,
            equal weights.

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

    Reference for `weight_by`: Welling and Teh (2011), "Bayesian learning via stochastic
    gradient Langevin dynamics", eq. (11).
    """

    def __init__(
        self,
        burn_in: int = 0,
        every: int | None = None,
        directory: PathLike | None = None,
        max_samples: int | None = None,
        weight_by: Literal["learning_rate"] | None = None,
    ) -> None:
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
        self.directory: PathLike | Sequence[PathLike] | None = directory
        self._store: Store = (
            MemoryStore() if directory is None else DirectoryStore(directory)
        )
        self._sizes = FitSizes()
        self._runaway = Runaway()
        self._interrupts = Interrupts()
        self._sampler: Sampler | None = None
        self._awaited: AwaitedSample | None = None
        self._reason: str | None = None  # why there was nothing to keep
        self._is_training = self._is_open = False
        self._warm_up = 0  # of the sampler

    @classmethod
    def load(
        cls, directory: PathLike | Sequence[PathLike], truncate: bool = False
    ) -> Self:
        """Load the samples that one run kept, or several runs of one posterior.

        A list of directories gives the chains of one posterior, which separate
        processes or machines may have run. Weights, energies and iterations then have
        the shape (samples, chains), and the chains have the order of the list. The
        chains of a directory that an `mh.ParallelChains` wrote follow each other.

        The weights of CSGLD and CSGHMC are normalised over all chains together: sample
        s of chain c has the weight S C exp(l[s, c]) / sum(exp(l)), with S samples of
        each of C chains. The log weight l that a chain stores is zeta log Psi(U), with
        the masses Psi that this chain has learned. With `partition="auto"` it is zeta
        log(Psi(U) / energy_gap). All chains learn the masses of the same posterior. So
        they can be compared once each chain has learned them: then every column of
        `weights` has a mean near 1. A mean far from 1 shows a chain that has not.

        Args:
            directory: the folder that `mh.PosteriorSamples(directory=...)` was given,
                or a list of such folders.
            truncate: whether chains of a list may have different numbers of samples.
                All chains then have as many as the shortest, and lose their newest
                samples. It has no effect on a single folder. Defaults to False.

        Returns:
            An `mh.PosteriorSamples` with the samples. Its arguments are the defaults.

        Raises:
            ValueError: a folder has no samples; or folders of a list are the same, have
                samples of other models, samplers or arguments, the same seed, or
                different numbers of samples without `truncate`.

        Example:

        >>> import tempfile
        >>> import keras
        >>> import numpy as np
        >>> import keras_mhmcmc as mh
        >>> folders = [tempfile.mkdtemp() for _ in range(2)]
        >>> for seed, folder in enumerate(folders):  # in a process each
        ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        ...     sampler = mh.SGLD(1e-3, train_size=64, seed=seed)
        ...     model.compile(sampler, mh.losses.GaussianNLL(noise_std=0.1))
        ...     posterior = mh.PosteriorSamples(every=1, directory=folder)
        ...     x, y = np.ones((64, 4)), np.ones(64)
        ...     history = model.fit(x, y, 16, verbose=0, callbacks=[posterior])
        >>> mh.PosteriorSamples.load(folders).weights.shape  # (samples, chains)
        (4, 2)
        """
        posterior = cls()
        posterior._store = loaded(directory, truncate)
        posterior.directory = directory
        return posterior

    def _check_not_empty(self) -> None:
        if len(self) == 0:
            raise ValueError(
                progress.why_empty(self._reason, self._next_due(0), self.burn_in)
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an empty callback with the same arguments, as KerasTuner needs it."""
        if self.directory is not None:
            raise ValueError(
                "A callback with a `directory` must not be copied, since two runs "
                "would write there. KerasTuner copies its callbacks: create this one "
                "in the `fit` of a `keras_tuner.HyperModel`, with a directory for each "
                f"trial. Received: directory={self.directory!r}"
            )
        return type(self)(
            self.burn_in, self.every, None, self.max_samples, self.weight_by
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: the samples, and not the model of the `fit`."""
        return self.__dict__ | {"_model": None, "_sampler": None, "_awaited": None}

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        self._sampler = sampler = checked_sampler(self.model)
        if sampler is None:
            self._awaited = None
        elif self._awaited is None or self._awaited.sampler is not sampler:
            self._awaited = AwaitedSample(self._store, sampler)
        self._executed = int(self.model.steps_per_execution)
        self._is_open = self._has_seen_batch = False
        self._is_training = self._is_epoch_finished = True
        self._watch = ChainWatch()
        self._interrupts.begin(self.model)
        if sampler is not None:
            self._sizes.weights.begin(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._iteration = progress.iteration_of(self.model)
        if not self._is_open:
            # Not in `on_train_begin`, where `BackupAndRestore` may load the model.
            self._open(epoch)
        self._is_epoch_finished = False
        self._epoch_start = self._iteration
        if self._sampler is not None:
            if self._awaited is not None:
                self._awaited.check_weights(self.model, self._iteration)
            self._sampler.reset_diagnostics()
            self._sampler.propose()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0 and self.weight_by is not None and len(self) > 0:
            # Another callback may have set the rate at the beginning of the epoch.
            self._store.weigh_last(self.model, self._sampler)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # `batch` gives the iteration: on JAX each look at the model copies its state.
        batch = progress.last_batch(self._executed, batch, self.params.get("steps"))
        if self._sampler is not None and not self._has_seen_batch:
            self._has_seen_batch = True
            self._sizes.check_batch(self.model, batch + 1)
            is_burnt = self._started + self.burn_in + self._warm_up > 0
            self._watch.begin(self._sampler, not is_burnt)
            self._runaway.begin(self.model, self._sampler, self._started == 0)
        self._sizes.weights.check(is_whole=False)
        is_last = batch + 1 >= (self.params.get("steps") or math.inf)
        at = self._iteration + batch + 1
        if self._sampler is not None and not is_last:
            progress.end_path_if_due(self, self._sampler, at, self._executed)
        if self.every is not None and at >= (due := self._next_due(self._passed())):
            iteration = progress.iteration_of(self.model)
            if iteration >= due:
                self._keep(self.model, iteration)
        if is_last:  # before other callbacks save the model at the end of the epoch
            self._finish_epoch()
        self._stop_if_interrupted()

    def on_test_begin(self, logs: Any = None) -> None:
        if self._is_inside_fit():
            self._finish_epoch()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._is_inside_fit():
            self._stop_if_interrupted()

    def _is_inside_fit(self) -> bool:
        """Return whether `fit` evaluates, which may fail without `on_train_end`."""
        return self._is_training and "epochs" in self.params

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._finish_epoch()
        if logs is not None:
            logs.update(progress.worth_showing(self._epoch_diagnostics))
        self._stop_if_interrupted()

    def on_train_end(self, logs: Any = None) -> None:
        self._is_training = False
        self._interrupts.end()
        if not self._is_open:  # `BackupAndRestore` found a finished run
            return
        self._is_open = False
        if self._sampler is not None:
            self._update_reason(self._sampler)
            self._sampler.tell_of_samples()
            records = self._store.records
            if not self._runaway.tell(self.model, records, is_over=True):
                self._watch.end(self._sampler, self.weight_by is not None)
        self._store.close()
        if len(self) > 1:
            warn_of_few(self.weights)
        if len(self) == 0 and self._reason is None:
            progress.warn_of_early_end(self.model, self._next_due(0), self.burn_in)

    def _stop_if_interrupted(self) -> None:
        """End `fit` as Ctrl-C does, with the state of the chain in the model."""
        if not self._interrupts.is_waiting():
            return
        self._interrupts.end()
        self._is_training = self._is_open = False
        if self._sampler is not None:
            self.model.optimizer.settle()
        self._store.close()
        raise KeyboardInterrupt

    def _finish_epoch(self) -> None:
        if self._is_epoch_finished:
            return
        model, iteration = self.model, progress.iteration_of(self.model)
        self._epoch_diagnostics: dict[str, float] = {}
        sampler = self._sampler
        if sampler is not None:
            if not model.stop_training:  # which ends an epoch in its middle
                self._sizes.check_epoch(model, iteration - self._epoch_start)
            sampler.tell_of_samples()
            sampler.settle()  # which may end in a test that the diagnostics count
            sampler.check_epoch()
            self._epoch_diagnostics = sampler.diagnostics()
            self._acceptance = self._epoch_diagnostics.get("acceptance")
            model.stop_training |= sampler.has_stopped()
            self._runaway.excess(model, sampler, is_sample=False)
        if self.every is None and iteration > max(self.burn_in, self._warm_up):
            self._keep(model, iteration)
        records = self._store.records
        is_kept = len(records) > 0 and records[-1].iteration > self._epoch_start
        self._watch.end_epoch(self._epoch_diagnostics, is_kept)
        self._runaway.tell(model, records)
        self._is_epoch_finished = True

    def _open(self, epoch: int) -> None:
        """Open the store, with the samples from before the model's iteration."""
        self._started, self._warm_up = self._iteration, 0
        self._store.join(self.model)
        steps = (self.params["epochs"] - epoch) * (self.params.get("steps") or math.inf)
        if self._sampler is not None:
            self._sampler.model_states.follow(self.model)
            self._sampler.watch_samples()
            planned = self._sampler.planned_warm_up(self.burn_in, steps)
            self._warm_up = self._sampler.warm_up if planned is None else planned
        if len(self) == 0:
            end, due = self._iteration + steps, self._next_due(self._passed())
            asked = self.burn_in, self.every, self._warm_up
            progress.check_reachable(end, due, *asked, self._sampler)
        if self._sampler is not None:
            self._warm_up = self._sampler.plan_warm_up(self.burn_in, steps)
        self._store.open(self.model, self._iteration)
        self._is_open = True
        if self._sampler is not None and len(self) > 0:
            self._sampler.freeze()
        if self._awaited is not None:
            self._awaited.resume(self._iteration)

    def _next_due(self, passed: int) -> int:
        """Return the first iteration after `passed` that may be kept."""
        return progress.next_due(max(passed, self._warm_up), self.burn_in, self.every)

    def _passed(self) -> int:
        """Return the iteration of the newest sample, or of the start of this run."""
        newest = self._store.records[-1].iteration if len(self) else 0
        return max(self._started, newest)

    def _keep(self, model: keras.Model, iteration: int) -> None:
        sampler = self._sampler
        if sampler is not None and self._update_reason(sampler):
            model.stop_training |= sampler.has_stopped()
            return
        log_rate = 0.0 if self.weight_by is None else progress.log_rate_of(model)
        record = Record(iteration, log_rate, log_rate=log_rate)
        if sampler is not None and self._awaited is not None:
            self._awaited.mark(iteration)
            record = record.described_by(sampler)
            record = record._replace(excess=self._runaway.excess(model, sampler))
        with chain_state_in(model):
            self._store.append(record, model)
            state = entries(model)
        self._watch.keep(state, progress.rate_of(model))
        if self._awaited is not None:
            self._awaited.remember(state)
        if self.max_samples is not None and len(self) > self.max_samples:
            self._store.drop(0)

    def _update_reason(self, sampler: Sampler) -> bool:
        """Return whether all chains are lost, and remember the reason."""
        is_lost = bool(sampler.lost_chains().all())
        self._reason = sampler.reason_of_loss() if is_lost else None
        return is_lost
