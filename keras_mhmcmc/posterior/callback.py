"""`PosteriorSamples`: the callback that keeps samples of the posterior during `fit`."""

import math
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Self

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _validate
from keras_mhmcmc import diagnostics
from keras_mhmcmc._names import distinct
from keras_mhmcmc._serialize import call_text
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.activations import ActivationLike
from keras_mhmcmc.ensemble.checks import warn_of_few
from keras_mhmcmc.ensemble.ensemble import Ensemble
from keras_mhmcmc.ensemble.ensemble import ensemble_of
from keras_mhmcmc.fit.arguments import refuse_loss_scaling
from keras_mhmcmc.fit.arguments import refuse_other_weights
from keras_mhmcmc.fit.run_watch import FitSizes
from keras_mhmcmc.fit.run_watch import SampleWatch
from keras_mhmcmc.fit.run_watch import rate_of
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.posterior import progress
from keras_mhmcmc.posterior import reading
from keras_mhmcmc.posterior.store import Record
from keras_mhmcmc.posterior.store import Store
from keras_mhmcmc.posterior.store import chain_state_in
from keras_mhmcmc.samplers.parts import importance


class PosteriorSamples(keras.callbacks.Callback):
    """Keep samples of the posterior during `fit`.

    A sample is the current state of the chain, with all weights of the model, and never
    the proposal that a Metropolis-Hastings sampler keeps there. Before validation, at
    the end of each epoch, the callback puts the state into the model, and the sampler's
    diagnostics (`acceptance`, `beta`, `energy`, ...) into the epoch's `logs`. Put this
    callback first in the list, so that the others see both.

    Load a model from a checkpoint (`model.save`, `ModelCheckpoint`,
    `BackupAndRestore`), and the run continues in its directory. Samples from after the
    checkpoint are removed and drawn again: none is lost, and none comes twice.

    Any Keras optimizer works. The samples of an optimizer that is not a sampler are
    iterates of training, and a warning says so.

    Ctrl-C ends `fit` after the current mini-batch, with the chain's state in the model
    and all samples kept. A second one ends `fit` now.

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
        max_samples: number of samples to keep; the newest stay. Defaults to None: all.
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
        self.every = None if every is None else _validate.integer("every", every, 1)
        if max_samples is not None:
            max_samples = _validate.integer("max_samples", max_samples, 1)
        self.max_samples = max_samples
        _validate.choice("weight_by", weight_by, (None, "learning_rate"))
        self.weight_by = weight_by
        self.directory: PathLike | Sequence[PathLike] | None = directory
        self._store = Store(directory)
        self._sizes = FitSizes()
        self._watch = SampleWatch()
        self._interrupts = progress.Interrupts()
        self._sampler: Sampler | None = None
        self._reason: str | None = None  # why there was nothing to keep
        self._is_training = self._is_open = False
        self._warm_up = 0  # of the sampler
        self._acceptance: float | None = None  # in the last epoch, if it is tested

    @classmethod
    def load(
        cls, directory: PathLike | Sequence[PathLike], truncate: bool = False
    ) -> Self:
        """Load the samples that one run kept, or several runs of one posterior.

        A list of directories, such as `load(["chain-0", "chain-1"])`, gives the chains
        of one posterior, which separate processes or machines may have run. Weights,
        energies and iterations then have the shape (samples, chains), and the chains
        have the order of the list. The chains of a directory that an
        `mh.ParallelChains` wrote follow each other.

        The weights of CSGLD and CSGHMC are normalised over all chains together: sample
        s of chain c has the weight S C exp(l[s, c]) / sum(exp(l)), with S samples of
        each of C chains and their log weights l. All chains learn the masses of the
        same posterior. Once each has learned them, every column of `weights` has a mean
        near 1. A mean far from 1 shows a chain that has not.

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
        """
        posterior = cls()
        posterior._store = reading.loaded(directory, truncate)
        posterior.directory = directory
        return posterior

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
        return self.__dict__ | {"_model": None, "_sampler": None}

    # Questions about the samples.

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
        logs = reading.log_weights(self._store.records)
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
        return reading.energies(self._store.records)

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
            activation: function that turns the outputs into the quantity to average, or
                a list with one for each output, as in `mh.Ensemble`. Defaults to None:
                softmax or sigmoid if `model` is compiled with a cross-entropy from
                logits, the identity otherwise.
            chunk: number of members to evaluate side by side, as in `mh.Ensemble`.
            recalibrate: inputs of training, or a data set, for `Ensemble.recalibrate`.
                Defaults to None: the statistics of the run, which lag behind.

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
        stacked, weights, single = reading.members(self._store, model, self.weights)
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
        draws, single = self.chains(model)
        names = distinct(variable.path for variable in single.weights)
        return diagnostics.to_arviz(dict(zip(names, draws, strict=True)))

    def chains(self, model: keras.Model) -> tuple[list[Array], keras.Model]:
        """Return arrays (chain, draw, ...) of all weights, and the model of a chain.

        Chains that were lost or ran away are left out. A warning comes if the samples
        have importance weights, which these arrays do not.

        Args:
            model: the model that was sampled, or one of the same architecture.
        """
        self._check_not_empty()
        weights = self.weights
        if np.ptp(weights) > 1e-6:
            warn(
                "The samples have importance weights, and they all count alike here. "
                "Weight your averages with `posterior.weights`, or use "
                "`posterior.ensemble(model)`. Received: weights between "
                f"{weights.min():.3g} and {weights.max():.3g}"
            )
        return reading.chains(self._store, model)

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
        chains, single = self.chains(model)
        count = len(chains[0]) * len(self)
        stacked = [array.reshape(count, *array.shape[2:]) for array in chains]
        ensemble = ensemble_of(single, stacked, np.ones(count), activation)
        members = ensemble.predict_members(x, batch_size)

        def by_chain(outputs: Array) -> Array:
            return outputs.reshape(-1, len(self), *outputs.shape[1:])

        return keras.tree.map_structure(by_chain, members)

    def _check_not_empty(self) -> None:
        if len(self) > 0:
            return
        if self._reason is not None:
            raise ValueError(
                "There are no samples, and the first was due at iteration "
                f"{self._next_due(0)}. {self._reason}"
            )
        raise ValueError(
            "There are no samples yet. Pass this callback to `model.fit(..., "
            f"callbacks=[posterior])` for more than burn_in={self.burn_in} iterations, "
            "and create it where `fit` is called if a tool copies its callbacks, as "
            "KerasTuner does."
        )

    # What Keras calls.

    def on_train_begin(self, logs: Any = None) -> None:
        self._sampler = _checked_sampler(self.model)
        self._executed = int(self.model.steps_per_execution)
        self._is_open = self._has_seen_batch = False
        self._is_training = self._is_epoch_finished = True
        self._watch.restart()
        self._interrupts.begin(self.model)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._iteration = progress.iteration_of(self.model)
        if not self._is_open:
            # Not in `on_train_begin`, where `BackupAndRestore` may load the model.
            self._open(epoch)
        self._is_epoch_finished = False
        self._epoch_start = self._iteration
        if self._sampler is not None:
            self._sampler.reset_diagnostics()
            self._sampler.propose()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0 and self.weight_by is not None and len(self) > 0:
            self._weigh_newest()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # `batch` gives the iteration: on JAX each look at the model copies its state.
        steps, sampler = self.params.get("steps"), self._sampler
        batch = progress.last_batch(self._executed, batch, steps)
        if sampler is not None and not self._has_seen_batch:
            self._has_seen_batch = True
            self._sizes.check_batch(self.model, batch + 1)
            is_burnt = self._started + self.burn_in + self._warm_up > 0
            self._watch.begin(self.model, sampler, self._started == 0, not is_burnt)
        is_last = batch + 1 >= (steps or math.inf)
        at = self._iteration + batch + 1
        path = None if sampler is None or is_last else sampler.steps_per_test
        if path is not None and at // path > (at - self._executed) // path:
            # The path of the sampler ends in the epoch. The next one begins.
            optimizer = self.model.optimizer
            optimizer.settle()
            optimizer.propose()
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
        # An error in `fit` leaves `_is_training`, and no `evaluate` has epochs.
        return self._is_training and "epochs" in self.params

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._finish_epoch()
        if logs is not None:
            shown = dict(self._epoch_diagnostics)
            if shown.get("nonfinite") == 0:
                del shown["nonfinite"]
            logs.update(shown)
        self._stop_if_interrupted()

    def on_train_end(self, logs: Any = None) -> None:
        self._is_training = False
        self._interrupts.end()
        if not self._is_open:  # `BackupAndRestore` found a finished run
            return
        self._is_open = False
        if self._sampler is not None:
            self._update_reason(self._sampler)
            self._sampler.energies.notify()
            self._watch.end(self.model, self._sampler, self._store.records)
        self._store.close()
        if len(self) > 1:
            warn_of_few(self.weights)
        if len(self) == 0 and self._reason is None:
            warn(
                f"This `fit` ended at iteration {progress.iteration_of(self.model)} "
                "and kept no sample: the first is due at iteration "
                f"{self._next_due(0)}. Lower `burn_in`, now {self.burn_in}, or train "
                "longer."
            )

    def _stop_if_interrupted(self) -> None:
        """End `fit` as Ctrl-C does, with the state of the chain in the model."""
        if not self._interrupts.is_waiting:
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
            sampler.energies.notify()
            sampler.settle()  # which may end in a test that the diagnostics count
            sampler.check_epoch()
            self._epoch_diagnostics = sampler.diagnostics()
            self._acceptance = self._epoch_diagnostics.get("acceptance")
            model.stop_training |= sampler.has_stopped()
            self._watch.excess(model, sampler, is_sample=False)
        if self.every is None and iteration > max(self.burn_in, self._warm_up):
            self._keep(model, iteration)
        records = self._store.records
        is_kept = len(records) > 0 and records[-1].iteration > self._epoch_start
        self._watch.end_epoch(self._epoch_diagnostics, records, is_kept)
        self._is_epoch_finished = True

    def _open(self, epoch: int) -> None:
        """Open the store, with the samples from before the model's iteration."""
        self._started, self._warm_up = self._iteration, 0
        self._store.join(self.model)
        steps = (self.params["epochs"] - epoch) * (self.params.get("steps") or math.inf)
        sampler = self._sampler
        if sampler is not None:
            sampler.model_states.follow(self.model)
            sampler.has_keeper = True
            self._watch.open(self.model, sampler)
            planned = sampler.planned_warm_up(self.burn_in, steps)
            self._warm_up = sampler.warm_up if planned is None else planned
        if len(self) == 0:
            self._check_reachable(self._iteration + steps)
        if sampler is not None:
            self._warm_up = sampler.plan_warm_up(self.burn_in, steps)
        self._store.open(self.model, self._iteration)
        self._is_open = True
        if sampler is not None:
            if len(self) > 0:
                sampler.freeze()
            self._store.await_newest(sampler, self._iteration)

    def _check_reachable(self, last: float) -> None:
        """Refuse a `fit` that keeps no sample, and warn of one that is mostly warm-up.

        `last` is its last iteration, infinite if it is unknown.
        """
        name, count = "", 0
        if self._sampler is not None and self._warm_up > self.burn_in:
            name, count = self._sampler.warm_up_argument
        first = self._next_due(self._passed())
        if last < first:
            raise ValueError(
                "Arguments `burn_in` and `every` must leave an iteration to keep: this "
                f"`fit` ends at iteration {last}, and the first sample would be kept "
                f"at {first}. Lower {f'`{name}` of the optimizer' if name else 'them'}"
                ", or train for more epochs. Received: burn_in="
                f"{self.burn_in}, every={self.every}{f', {name}={count}' * bool(name)}"
            )
        if name and last < 1.5 * self._warm_up:
            warn(
                f"This `fit` ends at iteration {last}, and its first {self._warm_up} "
                f"iterations give no samples, by `{name}` of the optimizer. Train for "
                f"more epochs, or lower `{name}`."
            )

    def _next_due(self, passed: int) -> int:
        """Return the first iteration after `passed` that may be kept."""
        passed = max(passed, self._warm_up)
        if self.every is None:  # if an epoch ends there
            return max(self.burn_in, passed) + 1
        multiple = max(passed - self.burn_in, 0) // self.every + 1
        return self.burn_in + multiple * self.every

    def _passed(self) -> int:
        """Return the iteration of the newest sample, or of the start of this run."""
        newest = self._store.records[-1].iteration if len(self) else 0
        return max(self._started, newest)

    def _keep(self, model: keras.Model, iteration: int) -> None:
        sampler = self._sampler
        if sampler is not None and self._update_reason(sampler):
            model.stop_training |= sampler.has_stopped()
            return
        log_rate = self._log_rate()
        record = Record(iteration, log_rate, log_rate=log_rate)
        if sampler is not None:
            self._store.mark(sampler, iteration)
            record = record.described_by(sampler)
            record = record._replace(excess=self._watch.excess(model, sampler))
        with chain_state_in(model):
            self._store.append(record, model)
        if self.max_samples is not None and len(self) > self.max_samples:
            self._store.drop(0)

    def _log_rate(self) -> float:
        """Return the log of the rate, -inf if it is 0, or 0 if it does not weigh."""
        rate = 1.0 if self.weight_by is None else rate_of(self.model.optimizer)
        return math.log(rate) if rate > 0.0 else -math.inf

    def _weigh_newest(self) -> None:
        """Give the newest sample the present rate, if it is the present state.

        Another callback may have set the rate at the beginning of the epoch.
        """
        newest, log_rate = self._store.records[-1], self._log_rate()
        is_present = newest.iteration == progress.iteration_of(self.model)
        if is_present and newest.log_rate != log_rate:
            record = newest._replace(log_rate=log_rate, log_weight=log_rate)
            if self._sampler is not None:
                record = record.revised_by(self._sampler)
            self._store.revise_last(record)

    def _update_reason(self, sampler: Sampler) -> bool:
        """Return whether all chains are lost, and remember the reason."""
        is_lost = bool(sampler.lost_chains().all())
        self._reason = sampler.reason_of_loss() if is_lost else None
        return is_lost


def _checked_sampler(model: keras.Model) -> Sampler | None:
    """Return the sampler of `model`, or None with a warning for another optimizer.

    Chains of an `mh.ParallelChains` may use any optimizer: they are a deep ensemble.
    """
    optimizer = model.optimizer
    refuse_loss_scaling(model)
    if isinstance(optimizer, Sampler):
        refuse_other_weights(optimizer.sampled_variables, model)
        return optimizer
    if not isinstance(model, StackedModel):
        warn(
            f"The optimizer {type(optimizer).__name__} is not a sampler: the kept "
            "weights are iterates of training, not samples of a posterior. Use an "
            "optimizer of `mh`, such as `mh.SGHMC(...)`, or `mh.swag` on the iterates."
        )
    return None
