"""The adapter: an algorithm as a Keras optimizer."""

import functools
import math
import random
import weakref
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Self

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._serialize import call_text
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import arguments as constructor
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit import state
from keras_mhmcmc.fit.state import SampleInfo
from keras_mhmcmc.fit.watch import Once
from keras_mhmcmc.fit.watch import reason_of_stop
from keras_mhmcmc.priors import BoundGaussian
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.priors import warn_of_regularizers
from keras_mhmcmc.samplers.base import RATE
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Current
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import at_step
from keras_mhmcmc.samplers.base import checked
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.schedules import Schedule

# The name in files. All other names there are numbers, or those of `ModelStates`.
_WARM_UP = "warm_up"


class Sampler(keras.optimizers.Optimizer):
    """Abstract: an optimizer whose iterates are draws from a posterior.

    A final class is a signature, a docstring, and the algorithm that it runs. The
    algorithm gets the gradient of U/N and the energy U in nats, both with the prior,
    where U is N times the training loss minus the log prior.

    The chain of a diffusion lies in the variables of the model. It stops in the step
    that meets a loss or gradient that is not finite. No step waits for the device: the
    step stores its number in a variable, and from then on nothing of the chain is
    written. The end of an epoch or of `fit` warns or raises. Other chains lie there in
    another way: that of `MetropolisSampler`, of `mh.AMAGOLD` and of `mh.Barker`.
    """

    usual_rate = 0.03  # of a sampler that is asked for by its name
    # The steps after which a callback settles; None: at the end of an epoch.
    steps_per_test: int | None = None
    _given: dict[str, Any]  # the arguments of the constructor, as they were given
    # Once the optimizer is built.
    _state: state.StateVariables
    _energies: state.Energies
    # The step, from 1, that stopped each chain, or -1; None: nothing stops a chain.
    _stopped_at: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        sampler = super().__new__(cls)
        # Not by assignment: Keras refuses attributes before its own constructor ran.
        given = constructor.given(cls, args, kwargs)
        object.__setattr__(sampler, "_given", given)
        return sampler

    def __init__(
        self,
        learning_rate: float | Schedule | Callable[[], Any],
        algorithm: Algorithm,
        train_size: int | Literal["auto"],
        prior: Prior | SpikeSlab | None,
        seed: int | None,
        name: str,
        options: dict[str, Any],
        *,
        batch_size: int | None = None,
        nan_policy: str = "stop",
        check_model: compiled_loss.Check = compiled_loss.warn_of_no_likelihood,
    ) -> None:
        constructor.refuse(options, type(self))
        is_function = callable(learning_rate) and not isinstance(learning_rate, type)
        if not is_function:
            learning_rate = checked("learning_rate", learning_rate, RATE)
        super().__init__(learning_rate=learning_rate, name=_validate.scope_name(name))
        self._train_size: int | None = None  # no `fit` has told it yet
        self._batch_size = batch_size
        self.algorithm = algorithm
        if algorithm.traits.compares_batches:
            self._batch_size = _validate.integer("batch_size", batch_size, 1)
        if not (isinstance(train_size, str) and train_size == "auto"):
            self._use_train_size(train_size)
        self._prior = prior
        # A spike-and-slab prior is part of its algorithm.
        if algorithm.traits.takes_prior:
            constructor.check_prior(prior)
        self._seed = None if seed is None else _validate.seed(seed)
        # `keras.utils.set_random_seed` makes Python's generator repeatable.
        self._first_seed = random.randint(1, 10**9) if seed is None else self._seed or 0
        # Whether to warn of a chain that was stopped, or to raise an error.
        self._policy = _validate.choice("nan_policy", nan_policy, ("stop", "raise"))
        # None: one chain. K: the variables have a leading chain axis of length K.
        self.num_chains: int | None = None
        self.model_states = state.ModelStates()
        self._observer = _backend.LossObserver()
        # With the replicas of `tf.distribute` or the processes of `torch.distributed`.
        self._is_shared = _backend.shares_chains()
        self._are_equal = False  # the processes, checked in the first step of a `fit`
        self._bound_prior: BoundGaussian | None = None
        self._has_moved = False  # a step was made or traced
        self._changes = 0  # of the state, between steps
        # The warm-up, if it was not given and a burn-in set it.
        self._planned: int | None = None
        # The model whose loss was checked in this `fit`, and its compilation.
        self._checked: weakref.ref[keras.Model] | None = None
        self._checked_key: Any = None
        self._check_model = check_model
        self.has_keeper = False  # somebody keeps samples
        self._watch = Once(type(self).__name__)
        self._reported = 0  # chains that were stopped

    # What Keras calls.

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the optimizer's variables for these model variables."""
        if self.built:
            return
        self._check_loss(is_step=False)  # an error in a step empties a model on JAX
        _backend.refuse_strategy([self.iterations, *variables])
        self._first_seed = state.common_seed(self._first_seed, self.seed is not None)
        constructor.check_variables(variables)
        super().build(variables)
        first = state.first_noise(self._first_seed, self.num_chains or 1)
        self._noise_state = self._add((2,), first, _backend.SEED_DTYPE, "noise_state")
        has_chains = self.num_chains is not None
        stream = _backend.ChainsNoise if has_chains else _backend.NoiseStream
        self._noise = stream(self._noise_state)
        if self.prior is not None:
            warn_of_regularizers(variables)
        if isinstance(self.prior, Prior):
            self._bound_prior = self.prior.bind(variables)
        self._energies = state.Energies(self._add, self._lost_chains)
        counts = (len(self.algorithm.traits.counts),)
        self._counts = self._add(counts, "zeros", "float32", "counts")
        self.algorithm = self.algorithm.bind_weights(variables, has_chains)
        self._state = state.StateVariables(self.algorithm, variables, self._add)
        self._build_chain()

    def _build_chain(self) -> None:
        """Add variables of the chain's own, after all others."""
        self._stopped_at = self._add((), state.constant(-1), "int32", "stopped_at")

    @_backend.uncompiled
    def apply(
        self,
        grads: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Move the weights by one step, given the gradients of the mean loss.

        Raises:
            ValueError: the loss did not arrive, there is no gradient, or a variable is
                not one that the sampler was built with.
        """
        gradients = list(grads)
        if not gradients:
            return
        self._check_loss()  # Keras' loss scaling does not call `scale_loss`
        variables = trainable_variables
        if variables is not None and not self.built:
            self.build(list(variables))
        weights = self.sampled_variables
        variables = list(weights if variables is None else variables)
        gradients = state.gradients_of_each(weights, variables, gradients)
        loss = self._observer.take(gradients)
        if loss is None and self.algorithm.traits.uses_energy:
            raise ValueError(compiled_loss.missing(type(self).__name__))
        gradients = _backend.dense(gradients, weights)
        changes, self._changes = self._changes, 0
        if self._is_shared:
            if not self._are_equal:
                self._check_processes(gradients)
            gradients, loss = _backend.over_replicas(gradients, loss, changes)
        update: Callable[..., None] = self._update
        if self.num_chains is None:
            update = _backend.compiled_update(update, weights)
        update = _backend.on_each_replica(update, weights)
        rate = self._rate()

        def step() -> None:
            update(gradients, loss, rate)
            self.iterations.assign_add(1)

        _backend.with_examples(step, has_chains=self.num_chains is not None)

    def _update(self, gradient: Position, loss: Tensor, rate: Tensor) -> None:
        """Move all weights of the chains that go on."""
        weights = self._state.weights
        position, energy = _backend.read(weights), loss
        if loss is not None:
            energy = self.train_size * ops.cast(loss, "float32")
        prior = self._bound_prior
        if prior is not None:
            gradient = prior.add_gradient(position, gradient, self.train_size)
            if energy is not None:
                energy = energy + prior.energy(position, like=energy)
        step = functools.partial(self._step, list(gradient), energy, rate)
        if self._stopped_at is None:
            step()
            return
        runs = state.go_on(self._stopped_at, gradient, energy, self.iterations)
        is_one = len(runs.shape) == 0
        if not (is_one and _backend.steps_if(runs, step)):
            step(runs)

    def _step(
        self, gradient: Position, energy: Tensor, rate: Tensor, runs: Tensor = None
    ) -> None:
        """Make a step of the chains that go on: `runs` tells which; None: all do."""
        self._has_moved = True
        algorithm = self.algorithm
        slots = self._read_state(can_overwrite=runs is None)
        evaluation = self._evaluation(algorithm.point(slots), gradient, energy, rate)
        evaluation = evaluation._replace(restart=self._restart(slots))
        current, info = algorithm.decide(slots, evaluation)
        if current.energy is not None:
            recorded = self._energies.recorded(current.energy, info.log_weight)
            state.write([self._energies.variable], [recorded], runs)
        if info.counts:
            counts = [info.counts[name] for name in algorithm.traits.counts]
            counts = ops.convert_to_tensor(self._counts) + ops.stack(counts, axis=-1)
            state.write([self._counts], [counts], runs)
        current = self._between(current, info.accepted)
        self._store(algorithm.move(current, evaluation), runs)

    def _read_state(self, can_overwrite: bool) -> Any:
        """Return the state as tensors, which the algorithm may overwrite."""
        return self._state.read(state.donated if can_overwrite else _backend.read)

    def _restart(self, slots: Any) -> Tensor:
        """Return whether the evaluated point starts a new chain; None: it does not."""

    def _between(self, current: Current, accepted: Tensor) -> Current:
        """Look at the step after the decision, and return `current` for the move."""
        return current

    def _store(self, slots: Any, runs: Tensor = None) -> None:
        state.write(self._state.all, leaves(slots), runs)

    def _rate(self) -> Tensor:
        return ops.cast(self.learning_rate, "float32")

    def _evaluation(
        self, point: Position, gradient: Position, energy: Tensor, rate: Tensor
    ) -> Evaluation:
        """Return the evaluation of a point, with the noise of the step."""
        traits, normals, uniforms = self.algorithm.traits, [], []
        if traits.uses_normals:
            count = max(traits.num_uniforms, 1)
            normals, uniforms = self._noise.draw(point, count)
            uniforms = ops.unstack(uniforms, count, axis=-1)
        return Evaluation(
            energy,
            gradient,
            normals,
            uniforms,
            ops.convert_to_tensor(self.iterations),
            rate,
            at_step(self.temperature, self.iterations),
            self.train_size,
        )

    def _add(
        self,
        shape: tuple[int, ...],
        initializer: Any,
        dtype: str,
        name: str,
        layout: Any = None,
        is_shared: bool = False,
    ) -> keras.Variable:
        """Add a variable that each chain has one of, or all chains together."""
        if self.num_chains is not None and not is_shared:
            shape = (self.num_chains, *shape)
        # Initializers, since on TensorFlow `build` may be traced into the step, where
        # an assignment would be repeated.
        return self.add_variable(shape, initializer, dtype, layout=layout, name=name)

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Keep the training loss for the next `apply`; return it unchanged."""
        self._check_loss()  # before a framework differentiates what is no mean
        return self._observer.observe(loss)

    def _check_loss(self, is_step: bool = True) -> None:
        """Raise a `ValueError` if the model that trains does not suit the sampler."""
        # Once in each `fit`. On JAX an error in a step would empty the model: `build`
        # looks, too.
        known = self._checked and self._checked()
        if known is None or _backend.compile_key(known) is not self._checked_key:
            model = _backend.training_model(self)
            if model is not None:
                self._check_model(model)
                constructor.refuse_loss_scaling(model)
                constructor.refuse_other_weights(self.sampled_variables, model)
                compiled_loss.check_is_mean(model)
                self._checked = weakref.ref(model)
                self._checked_key = _backend.compile_key(model)
        self._look_for_train_size(is_step)

    def _check_processes(self, gradients: Position) -> None:
        """Raise a `ValueError` if the processes differ; copy a seed that none gave."""
        slots = [*self._state.weights, *self._state.all]
        seeds = self._noise_state if self.seed is None else None
        slots += [self._noise_state, self.iterations]
        _backend.check_processes(gradients, slots, seeds)
        self._are_equal = True

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        """Settle at the end of `fit`, and warn of what nobody was told."""
        _backend.put_back_values()
        self._are_equal = False
        self._checked = None  # another `fit` may be that of another model
        if not self.built:
            return
        self._look_at_end()
        is_fitting = _backend.fitting_frame() is not None
        if self.num_chains is None and not self.has_keeper and is_fitting:
            self._watch.tell("no samples")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        learning_rate = super().get_config()["learning_rate"]
        config = constructor.configuration(type(self), self._resolved())
        return config | {"learning_rate": learning_rate}

    def _resolved(self) -> dict[str, Any]:
        """Return the arguments, with the temperature that follows from the sizes."""
        given = dict(self._given)
        if "temperature" in given:
            given["temperature"] = self.temperature
        return given

    def __repr__(self) -> str:
        return call_text(type(self), self._given)

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the optimizer with these arguments; objects are restored.

        Without a learning rate it has the usual one.
        """
        restored = {
            key: keras.saving.deserialize_keras_object(value, custom_objects)
            if isinstance(value, dict) and "class_name" in value
            else value
            for key, value in config.items()
        }
        return cls(**{"learning_rate": cls.usual_rate} | restored)

    def save_own_variables(self, store: Any) -> None:
        """Save the variables, what Keras loses of the model, and a default warm-up."""
        super().save_own_variables(store)
        model = _backend.model_in_file(self)
        self.model_states.save(store, model, self.sampled_variables)
        if self._has_default_warm_up():
            store[_WARM_UP] = np.array(self.warm_up_argument[1])

    def load_own_variables(self, store: Any) -> None:
        model = _backend.model_in_file(self)
        entries = self.model_states.load(store, model, self.sampled_variables)
        steps = entries.pop(_WARM_UP, None)
        super().load_own_variables(entries)
        if steps is not None and self._has_default_warm_up() and self._steps() > 0:
            self._set_warm_up(int(steps[()]))

    # The arguments, and what follows from them.

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
            self._use_train_size(
                compiled_loss.found_size(model, x, is_of_examples=is_compared)
            )

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
        return self._state.structure

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor by name, as they were given."""
        return dict(self._given)

    @property
    def processes(self) -> int:
        """The number of processes that share each mini-batch and move one chain."""
        return _backend.count_processes() if self._is_shared else 1

    @property
    def warm_up(self) -> int:
        """Return the number of first steps that are burn-in."""
        return self.algorithm.traits.warm_up

    @property
    def warm_up_argument(self) -> tuple[str, int]:
        """Return name and value of the argument that sets `warm_up`."""
        return self.algorithm.traits.warm_up_argument

    def planned_warm_up(self, burn_in: int, steps: float = math.inf) -> int | None:
        """Return the length of a warm-up that was not given, None if it is fixed."""
        if not self._has_default_warm_up() or self._steps() > 0:
            return None
        epoch = self.batch_size and self.train_size // self.batch_size
        default = self.warm_up_argument[1]
        planned = constructor.planned_warm_up(default, burn_in, steps, epoch)
        return min(planned, self._planned or planned)

    def plan_warm_up(self, burn_in: int, steps: float = math.inf) -> int:
        """Set the `planned_warm_up`, and return the number of first steps for it."""
        planned = self.planned_warm_up(burn_in, steps)
        if planned is not None:
            self._planned = planned
            self._set_warm_up(planned)
        return self.warm_up

    def _has_default_warm_up(self) -> bool:
        """Return whether there is a warm-up that was not given."""
        given = self._given.get(self.warm_up_argument[0], 0)
        return (given is None or self._planned is not None) and self.warm_up > 0

    def _steps(self) -> int:
        return int(ops.convert_to_numpy(self.iterations))

    def _set_warm_up(self, steps: int) -> None:
        if not self._has_moved:
            self.algorithm = self.algorithm.with_warm_up(steps)
            if "warm_up" in self._given:  # the state has room for the longest pilot
                self._given["warm_up"] = steps

    def temperature_now(self) -> float:
        """Return the temperature of the next step."""
        _backend.return_values(self)
        now = at_step(self.temperature, self.iterations)
        return float(ops.convert_to_numpy(now))

    # What users and callbacks call between steps. Each public method puts the values
    # into the variables first, since JAX holds them in a `fit`.

    def diagnostics(self) -> dict[str, float]:
        """Return what the sampler did since `reset_diagnostics`.

        Of several chains, counts are summed and other numbers, such as the mean
        `energy` in nats, averaged. The result is empty before the first step.
        """
        return {
            name: state.over_chains(values, name)
            for name, values in self.chain_diagnostics().items()
        }

    def chain_diagnostics(self) -> dict[str, Array]:
        """Return the `diagnostics` of each chain: arrays (chains,) by name."""
        if not self.built:
            return {}
        _backend.return_values(self)
        report = self.algorithm.summary(self._state.arrays(), self._read_counts())
        report.setdefault("nonfinite", self._lost_chains())
        energy = self._energies.means()
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
            self.energies.reset()
            self._counts.assign(np.zeros(self._counts.shape, "float32"))

    @property
    def sampled_variables(self) -> list[keras.Variable]:
        """The variables of the model that the chain moves."""
        return self._state.weights if self.built else []

    def state_values(self) -> list[Tensor]:
        """Return a copy of the current state: a tensor for each sampled variable."""
        _backend.return_values(self)
        return [ops.copy(value) for value in self._values()]

    def _values(self) -> list[Tensor]:
        return _backend.read(self._state.weights)

    def mark_sample(self, listener: Callable[[], None] | None = None) -> None:
        """Mark the current state as a sample, whose energy `listener` awaits."""
        self.energies.mark(self._steps(), listener)

    def freeze(self) -> None:
        """End the adaptation of the learning rate, as the first sample does."""

    @property
    def energies(self) -> state.Energies:
        """What is known of energies, and who awaits that of the marked sample."""
        _backend.return_values(self)
        return self._energies

    def sample_info(self) -> SampleInfo:
        """Return what is known of the sample that was marked last."""
        return self.energies.of_sample()

    def check_epoch(self) -> None:
        """Warn, once, if the run of an epoch shows wrong settings, or raise."""
        _backend.return_values(self)
        self._look_at_epoch(self._read_counts())

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        """Warn at the end of an epoch, whose counts are given."""
        self._report()

    def _look_at_end(self) -> None:
        """Warn at the end of `fit`. JAX holds no values then."""
        self._report()
        self._reported = 0  # another `fit` speaks again of the same chains

    def _report(self) -> None:
        """Warn or raise if chains were stopped since the last call."""
        count = int(self._lost_chains().sum())
        if count <= self._reported or _backend.error_leaves_fit():
            return  # an error on its way out of `fit` is not to be hidden by this one
        self._reported = count
        if self._policy == "raise":
            raise FloatingPointError(self.reason_of_loss())
        warn(self.reason_of_loss())

    def _settings(self) -> dict[str, float]:
        """Return learning rate and temperature of the next step, for a warning."""
        rate = float(np.min(ops.convert_to_numpy(self._rate())))
        return {"rate": rate, "temperature": self.temperature_now()}

    def lost_chains(self) -> Array:
        """Return whether each chain has no finite state to sample, () or (chains,)."""
        if not self.built:
            return np.zeros(() if self.num_chains is None else self.num_chains, bool)
        _backend.return_values(self)
        return self._lost_chains()

    def _lost_chains(self) -> Array:
        if not _backend.hold_values([self._stopped_at]):  # after a failed step on JAX
            return np.zeros(self._stopped_at.shape, bool)
        return ops.convert_to_numpy(self._stopped_at) >= 0

    def has_stopped(self) -> bool:
        """Return whether losses or gradients that are not finite stopped all chains."""
        return self.built and bool(self.lost_chains().all())

    def reason_of_loss(self) -> str:
        """Return why `lost_chains` have no state, and what to do."""
        stopped_at = np.ravel(ops.convert_to_numpy(self._stopped_at))
        return reason_of_stop(type(self).__name__, stopped_at)

    def settle(self) -> None:
        """Put the current state of the chain into the model's variables.

        Call it between steps of a loop of your own. It drops the proposal that a
        Metropolis-Hastings sampler keeps in the model, and `mh.AMAGOLD` tests its path.
        """
        if self.built:
            _backend.return_values(self)
            self._settle()

    def _settle(self) -> None:
        """Do nothing: the state is in the model."""

    def propose(self) -> None:
        """Write a new proposal into the model's variables. Call it after `settle`.

        Without it the next step evaluates the state on a new batch, an exact move, too.
        """

    # What `mh.PosteriorSamples` writes down.

    def noise_seed(self) -> int:
        """Return the seed of the noise, of the first chain: in a file, of its run."""
        if not self.built:
            return self._first_seed
        return int(np.ravel(ops.convert_to_numpy(self._noise_state))[0])

    def recorded_arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor for people to read and compare."""
        given = self._resolved() | {"train_size": self.train_size}
        return constructor.recorded(type(self), given)

    # What `mh.ParallelChains` calls.

    def use_chains(self, num_chains: int) -> None:
        """Make this the optimizer of stacked variables, before `build`.

        The losses then come through `observe_losses`.
        """
        if self.built and self.num_chains != num_chains:
            raise ValueError(
                "Argument `optimizer` must be new: this one has the state of a run of "
                "another model. Make it again with the same arguments, or with "
                "`type(optimizer).from_config(optimizer.get_config())`. "
                f"Received: optimizer={self.name!r}"
            )
        self.num_chains = num_chains

    def observe_losses(self, losses: Tensor) -> None:
        """Keep the training losses of the chains, shape (K,), for the next `apply`."""
        self._observer.keep(losses)

    def take_accepted(self) -> Tensor:
        """Return whether each chain took the point of this step; None: all did."""
