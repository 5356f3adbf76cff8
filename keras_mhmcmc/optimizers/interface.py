"""What users and callbacks call on a sampler between steps."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.optimizers.chain import Chain
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.energies import over_chains
from keras_mhmcmc.optimizers.loss_terms import found_size
from keras_mhmcmc.optimizers.model_states import ModelStates
from keras_mhmcmc.optimizers.network_defaults import longest_warm_up
from keras_mhmcmc.optimizers.replicas import Replicas
from keras_mhmcmc.priors import BoundGaussian
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.schedules import Schedule

# The diagnostics that are summed over chains. All others are averaged.
_SUMMED = ("nonfinite",)
# The name in files. All other names there are numbers, or those of `ModelStates`.
_WARM_UP = "warm_up"
_LEAST = 4  # steps of a warm-up


class SamplerInterface(keras.optimizers.Optimizer):
    """Abstract: an optimizer with a chain, which `Sampler` builds and moves."""

    algorithm: Algorithm
    num_chains: int | None
    _chain: Chain
    _parts: Parts  # once the optimizer is built
    _replicas: Replicas
    _bound_prior: BoundGaussian | None
    _has_moved: bool  # a step was made or traced
    _planned: int | None  # the warm-up, if it was not given and a burn-in set it
    _given: dict[str, Any]
    model_states: ModelStates
    _has_keeper = False
    _counts: keras.Variable  # sums of what the algorithm counts
    _train_size: int | None  # None: no `fit` has told it yet
    _batch_size: int | None
    _prior: Prior | SpikeSlab | None
    _seed: int | None

    @property
    def train_size(self) -> int:
        """N, the number of training examples.

        Raises:
            ValueError: it is "auto", and no `fit` tells it.
        """
        self._look_for_train_size()
        return self._train_size  # type: ignore[return-value]

    def find_train_size(self, model: keras.Model | None, x: Any) -> None:
        """Take N from the data `x` of a compiled model, unless it is known."""
        if self._train_size is None:
            is_compared = self.algorithm.traits.compares_batches
            self._use_train_size(found_size(model, x, is_of_examples=is_compared))

    def _look_for_train_size(self, is_needed: bool = True) -> None:
        """Take N from the `fit` that runs, unless it is known."""
        if self._train_size is not None:
            return
        model, data = _backend.training_model(self), None
        if model is not None and self.processes == 1:  # others may have other data
            data = _backend.fitted_data(model)
        if is_needed or data is not None:
            self.find_train_size(model, data and data["x"])

    def _use_train_size(self, value: Any) -> None:
        hint = 'Or "auto", which reads it from `fit`.'
        size = _validate.integer("train_size", value, 1, hint)
        if self.algorithm.traits.compares_batches:
            _validate.batch_size(self._batch_size, size)
        self.algorithm = self.algorithm.bind_data_size(size, self._batch_size)
        self._train_size = self._given["train_size"] = size

    @property
    def batch_size(self) -> int | None:
        """m, the examples in a mini-batch, if the sampled distribution depends on m."""
        return self._batch_size

    @property
    def prior(self) -> Prior | SpikeSlab | None:
        """The prior of the weights. None is a flat prior."""
        return self._prior

    @property
    def seed(self) -> int | None:
        """The seed of the noise, as it was given."""
        return self._seed

    @property
    def temperature(self) -> float | Schedule:
        """T, the temperature of the target: a number or a schedule."""
        return self.algorithm.temperature

    @property
    def slots(self) -> Any:
        """The state of the built algorithm: a named tuple of variables."""
        return self._parts.state.structure

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor by name, as they were given."""
        return dict(self._given)

    @property
    def processes(self) -> int:
        """The number of processes that share each mini-batch and move one chain."""
        return self._replicas.processes

    @property
    def has_weights(self) -> bool:
        """Return whether samples have importance weights."""
        return self.algorithm.traits.has_weights

    @property
    def warm_up(self) -> int:
        """Return the number of first steps that are burn-in."""
        return self.algorithm.traits.warm_up

    def planned_warm_up(self, burn_in: int, steps: float = math.inf) -> int | None:
        """Return the length of a warm-up that was not given, None if it is fixed.

        Before the first step it becomes as long as a quarter of the run or half of the
        burn-in allows, the shortest of several.

        Args:
            burn_in: first steps of the run that give no sample.
            steps: of the run. Defaults to infinity, which stands for unknown.
        """
        if not self._has_default_warm_up() or self._is_on_its_way():
            return None
        default = self.warm_up_argument[1]
        planned = min(default, max(_LEAST, int(min(steps / 4, default)), burn_in // 2))
        if self.batch_size is not None:
            size = self.train_size, self.batch_size
            planned = max(planned, longest_warm_up(burn_in, *size))
        return min(planned, self._planned or planned)

    def plan_warm_up(self, burn_in: int, steps: float = math.inf) -> int:
        """Set the `planned_warm_up`, and return the number of first steps for it.

        Then it is an argument as if it had been given.
        """
        planned = self.planned_warm_up(burn_in, steps)
        if planned is not None:
            self._planned = planned
            self._set_warm_up(planned)
        return self.warm_up

    def _has_default_warm_up(self) -> bool:
        """Return whether there is a warm-up that was not given."""
        given = self._given.get(self.warm_up_argument[0], 0)
        return (given is None or self._planned is not None) and self.warm_up > 0

    def _is_on_its_way(self) -> bool:
        return int(ops.convert_to_numpy(self.iterations)) > 0

    def _set_warm_up(self, steps: int) -> None:
        if not self._has_moved:
            self.algorithm = self.algorithm.with_warm_up(steps)
            self._chain.use_warm_up(steps)
            if "warm_up" in self._given:  # the state has room for the longest pilot
                self._given["warm_up"] = steps

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, what Keras loses of the model, and a default warm-up."""
        super().save_own_variables(store)
        model = _backend.model_in_file(self)
        self.model_states.save(store, model, self.sampled_variables)
        if self._has_default_warm_up():
            store[_WARM_UP] = np.array(self.warm_up_argument[1])

    def load_own_variables(self, store: Any) -> None:
        """Load what `save_own_variables` saved."""
        model = _backend.model_in_file(self)
        entries = self.model_states.load(store, model, self.sampled_variables)
        steps = entries.pop(_WARM_UP, None)
        super().load_own_variables(entries)
        is_open = self._has_default_warm_up() and self._is_on_its_way()
        if steps is not None and is_open:
            self._set_warm_up(int(steps[()]))

    @property
    def steps_per_test(self) -> int | None:
        """Return after how many steps a callback calls `settle` within an epoch.

        None: at the end of an epoch alone.
        """
        return None

    @property
    def warm_up_argument(self) -> tuple[str, int]:
        """Return name and value of the argument that sets `warm_up`."""
        return self.algorithm.traits.warm_up_argument

    def _current_temperature(self) -> Tensor:
        """Return the temperature of the next step, as a step takes it."""
        if isinstance(self.temperature, Schedule):
            return self.temperature(self.iterations)
        return self.temperature

    def temperature_now(self) -> float:
        """Return the temperature of the next step."""
        _backend.return_values(self)
        return float(ops.convert_to_numpy(self._current_temperature()))

    def diagnostics(self) -> dict[str, float]:
        """Return what the sampler did since `reset_diagnostics`.

        `energy` is the mean of U in nats, over the points that were evaluated or, for
        a Metropolis-Hastings sampler, over the states of the chain. With several
        chains, counts are summed and all other numbers are averaged. The result is
        empty before the first step.
        """
        return {
            name: over_chains(values, is_count=name in _SUMMED)
            for name, values in self.chain_diagnostics().items()
        }

    def chain_diagnostics(self) -> dict[str, Array]:
        """Return the `diagnostics` of each chain: arrays (chains,) by name."""
        if not self.built:
            return {}
        _backend.return_values(self)
        arrays = self._parts.state.arrays()
        report = self.algorithm.summary(arrays, self._read_counts())
        report.setdefault("nonfinite", self._chain.lost_chains())
        energy = self._parts.energies.means()
        if not np.isnan(energy).all():
            report["energy"] = energy
        return {
            name: np.array(values, "float64").reshape(self.num_chains or 1)
            for name, values in report.items()
        }

    def _read_counts(self) -> dict[str, Array]:
        counts = np.moveaxis(ops.convert_to_numpy(self._counts), -1, 0)
        return dict(zip(self.algorithm.traits.counts, counts, strict=True))

    def reset_diagnostics(self) -> None:
        """Start the counts and means of `diagnostics` anew."""
        if self.built:
            _backend.return_values(self)
            self._counts.assign(np.zeros(self._counts.shape, "float32"))
            self._parts.energies.reset()

    @property
    def sampled_variables(self) -> list[keras.Variable]:
        """The variables of the model that the chain moves."""
        return self._parts.state.weights if self.built else []

    def state_values(self) -> list[Tensor]:
        """Return a copy of the current state: a tensor for each sampled variable."""
        _backend.return_values(self)
        return [ops.copy(value) for value in self._chain.state_values()]

    def prior_energies(self) -> Array:
        """Return -log prior of the current state of each chain, nats, (chains,).

        It is 0 without an `mh.priors.Gaussian`.
        """
        zeros = np.zeros(self.num_chains or 1)
        if self._bound_prior is None:
            return zeros
        like = ops.zeros(() if self.num_chains is None else self.num_chains)
        energies = self._bound_prior.energy(self.state_values(), like)
        return np.asarray(ops.convert_to_numpy(energies)).reshape(-1) + zeros

    def watch_samples(self) -> None:
        """Know that somebody keeps samples of this chain."""
        self._has_keeper = True

    def _tell_of_no_samples(self) -> None:
        """Warn, once, of a `fit` of a single chain that keeps its last state alone."""
        if self._has_keeper or self.num_chains is not None or not _backend.is_fitting():
            return
        self._has_keeper = True
        warn(
            f"This `fit` with {type(self).__name__} kept no sample of the posterior: "
            "the model has the last state of the chain alone. Pass "
            "`callbacks=[posterior]` with `posterior = mh.PosteriorSamples()`, "
            "and predict with `posterior.ensemble(model)`."
        )

    def mark_sample(self, listener: Callable[[], None] | None = None) -> None:
        """Mark the current state as a sample. The next step stores its energy.

        Several callbacks may mark samples. `sample_info` describes the sample that was
        marked last. Before a new mark, the listeners of the old one are called.

        Args:
            listener: function without arguments. `tell_of_samples` calls it once the
                energy of this sample is known, when `sample_info` still describes it.
        """
        _backend.return_values(self)
        self._chain.mark_sample(listener)

    def freeze(self) -> None:
        """End the adaptation of the learning rate, as the first sample does."""
        if self.built:
            _backend.return_values(self)
            self._chain.freeze()

    def await_sample(self, iteration: int, listener: Callable[[], None]) -> None:
        """Call `listener()` for the sample of `iteration`, if it was marked last."""
        if self._parts.energies.marked_at() == iteration:
            self._parts.energies.listen(listener)

    def forget_sample(self) -> None:
        """Await the energy of the marked sample no more: its weights are gone."""
        _backend.return_values(self)
        self._parts.energies.forget()

    def tell_of_samples(self) -> None:
        """Call the listeners of the marked sample, if its energy is known."""
        if self.built:
            self._parts.energies.notify()

    def sample_info(self) -> SampleInfo:
        """Return energy and log importance weight of the sample that was marked last.

        Until the next step evaluates the sample, the result describes the point before.
        """
        _backend.return_values(self)
        return self._chain.sample_info()

    def check_epoch(self) -> None:
        """Warn, once, if the run of an epoch shows wrong settings.

        Raises:
            FloatingPointError: a chain was stopped, and `nan_policy` is "raise".
        """
        _backend.return_values(self)
        self._chain.look_at_epoch(self._read_counts())

    def lost_chains(self) -> Array:
        """Return whether each chain has no finite state to sample, () or (chains,)."""
        if not self.built:
            return np.zeros(() if self.num_chains is None else self.num_chains, bool)
        _backend.return_values(self)
        return self._chain.lost_chains()

    def has_stopped(self) -> bool:
        """Return whether losses or gradients that are not finite stopped all chains."""
        if not self.built:
            return False
        _backend.return_values(self)
        return self._chain.has_stopped()

    def reason_of_loss(self) -> str:
        """Return why `lost_chains` have no state, and what to do."""
        return self._chain.reason_of_loss()

    def settle(self) -> None:
        """Put the current state of the chain into the model's variables.

        Only a Metropolis-Hastings sampler has anything to do: during `fit` its model
        holds the proposal that is evaluated next. `settle` drops this proposal. Unless
        `propose` draws another one, the next step evaluates the state itself on a new
        batch, which is an exact Metropolis-Hastings move. `mh.AMAGOLD` tests its path,
        and `mh.Barker` begins the test of its proposal anew.

        Call `settle` between steps only. It has no effect before the first step. `fit`
        calls it at its end, and `mh.PosteriorSamples` calls it at the end of each epoch
        and before validation.
        """
        if self.built:
            _backend.return_values(self)
            self._chain.settle()

    def propose(self) -> None:
        """Write a new proposal into the model's variables. Call it after `settle`.

        The next step then need not evaluate the state on another batch. The target is
        the same with and without `propose`. `propose` has no effect before the first
        step, without `settle`, or after somebody has set the weights.
        """
        if self.built:
            _backend.return_values(self)
            self._chain.propose()
