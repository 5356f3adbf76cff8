"""The adapter: an algorithm as a Keras optimizer."""

import functools
import math
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
from keras_mhmcmc.fit import arguments as constructor
from keras_mhmcmc.fit import base_options
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit import state
from keras_mhmcmc.fit.chain import Chain
from keras_mhmcmc.fit.chain import Parts
from keras_mhmcmc.fit.chain import ProposingChain
from keras_mhmcmc.fit.loss_terms import found_size
from keras_mhmcmc.fit.model_states import ModelStates
from keras_mhmcmc.fit.state import SampleInfo
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.priors import BoundGaussian
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.priors import warn_of_regularizers
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.schedules import Schedule

# The name in files. All other names there are numbers, or those of `ModelStates`.
_WARM_UP = "warm_up"
_LEAST = 4  # steps of a warm-up


class Sampler(keras.optimizers.Optimizer):
    """Abstract: an optimizer whose iterates are draws from a posterior.

    A final class is a signature, a docstring, and the algorithm that it runs. The
    algorithm gets the gradient of U/N and the energy U in nats, both with the prior,
    where U is N times the training loss minus the log prior.
    """

    usual_rate = 0.03  # of a sampler that is asked for by its name
    _given: dict[str, Any]  # the arguments of the constructor, as they were given
    _parts: Parts  # once the optimizer is built
    _has_keeper = False  # somebody keeps samples

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
        nan_policy: str | None = None,
        chain: Chain | None = None,
        check_model: compiled_loss.Check = compiled_loss.warn_of_no_likelihood,
        check_step: compiled_loss.Check | None = None,
    ) -> None:
        base_options.refuse(options, type(self))
        is_function = callable(learning_rate) and not isinstance(learning_rate, type)
        if not isinstance(learning_rate, Schedule) and not is_function:
            learning_rate = _validate.number(
                "learning_rate",
                learning_rate,
                _validate.NOT_NEGATIVE,
                hint="A `LearningRateSchedule` will do as well.",
            )
        super().__init__(learning_rate=learning_rate, name=_validate.scope_name(name))
        self._train_size: int | None = None  # no `fit` has told it yet
        self._batch_size = batch_size
        self.algorithm, is_compared = algorithm, algorithm.traits.compares_batches
        if is_compared:
            self._batch_size = _validate.integer("batch_size", batch_size, 1)
        if not (isinstance(train_size, str) and train_size == "auto"):
            self._use_train_size(train_size)
        self._prior = prior
        # A spike-and-slab prior is part of its algorithm.
        if algorithm.traits.takes_prior:
            base_options.check_prior(prior)
        self._seed = None if seed is None else _validate.seed(seed)
        self._first_seed: int = self._seed or 0
        if seed is None:
            self._first_seed = state.fresh_seed()
        # None: one chain. K: the variables have a leading chain axis of length K.
        self.num_chains: int | None = None
        self.model_states = ModelStates()
        self._observer = _backend.LossObserver()
        if chain is None:
            chain = ProposingChain() if is_compared else Chain(nan_policy)
        self._chain = chain
        # With the replicas of `tf.distribute` or the processes of `torch.distributed`.
        self._is_shared = _backend.shares_chains()
        self._are_equal = False  # the processes, checked in the first step of a `fit`
        self._bound_prior: BoundGaussian | None = None
        self._has_moved = False  # a step was made or traced
        # The warm-up, if it was not given and a burn-in set it.
        self._planned: int | None = None
        self._check = compiled_loss.LossCheck(check_model, check_step, is_compared)

    # What Keras calls.

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the optimizer's variables for these model variables."""
        if self.built:
            return
        self._check_loss(is_step=False)  # an error in a step empties a model on JAX
        _backend.refuse_strategy([self.iterations, *variables])
        self._first_seed = state.common_seed(self._first_seed, self.seed is not None)
        base_options.check_variables(variables)
        super().build(variables)
        has_chains = self.num_chains is not None
        seeds = state.seeds_along_chains(self._first_seed, self.num_chains or 1)
        first = state.constant([[seed, 0] for seed in seeds])
        self._noise_state = self._add((2,), first, _backend.SEED_DTYPE, "noise_state")
        stream = _backend.ChainsNoise if has_chains else _backend.NoiseStream
        self._noise = stream(self._noise_state)
        if self.prior is not None:
            warn_of_regularizers(variables)
        if isinstance(self.prior, Prior):
            self._bound_prior = self.prior.bind(variables)
        energies = state.Energies(self._add, self._chain.lost_chains)
        counts = (len(self.algorithm.traits.counts),)
        self._counts = self._add(counts, "zeros", "float32", "counts")
        self.algorithm = self.algorithm.bind_weights(variables, has_chains)
        slots = state.StateVariables(self.algorithm, variables, self._add)
        self._parts = Parts(
            type(self).__name__,
            slots,
            energies,
            self.iterations,
            self._counts,
            self._evaluation,
            lambda: ops.cast(self.learning_rate, "float32"),
            self.temperature_now,
            lambda: self.algorithm,
        )
        self._chain.build(self._parts, self._add)

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
        what = self.algorithm.traits.counts_weights
        gradients = state.gradients_of_each(weights, variables, gradients, what)
        loss = self._observer.take(gradients)
        if loss is None and self.algorithm.traits.uses_energy:
            raise ValueError(compiled_loss.missing(type(self).__name__))
        idle = [i for i, gradient in enumerate(gradients) if gradient is None]
        for i in idle:
            gradients[i] = ops.zeros_like(_backend.read([weights[i]])[0])
        gradients = _backend.dense(gradients, weights)
        changes = self._chain.take_changes()
        if self._is_shared:
            if not self._are_equal:
                self._check_processes(gradients)
            gradients, loss = _backend.over_replicas(gradients, loss, changes)
        update = functools.partial(self._update, idle)
        if self.num_chains is None and not idle:
            update = _backend.compiled_update(update, weights)
        update = _backend.on_each_replica(update, weights)
        rate = ops.cast(self.learning_rate, "float32")

        def step() -> None:
            update(gradients, loss, rate)
            self.iterations.assign_add(1)

        _backend.with_examples(step, has_chains=self.num_chains is not None)

    def _update(
        self, idle: list[int], gradient: Position, loss: Tensor, rate: Tensor
    ) -> None:
        """Move all weights but those of the indices `idle`."""
        weights = self._parts.state.weights
        position, energy = _backend.read(weights), loss
        if loss is not None:
            energy = self.train_size * ops.cast(loss, "float32")
        prior = self._bound_prior
        if prior is not None:
            gradient = prior.add_gradient(position, gradient, self.train_size)
            if energy is not None:
                energy = energy + prior.energy(position, like=energy)
            # What does not move has no part in the density of a move.
            gradient = list(gradient)
            for i in idle:
                gradient[i] = ops.zeros_like(gradient[i])

        step = functools.partial(self._step, gradient, energy, rate, idle)
        self._chain.run(step, energy, gradient, [*self.variables, *weights])

    def _step(
        self, gradient: Position, energy: Tensor, rate: Tensor, idle: list[int]
    ) -> None:
        self._has_moved = True
        algorithm, chain, parts = self.algorithm, self._chain, self._parts
        slots = chain.read(keeps=bool(idle))
        evaluation = self._evaluation(algorithm.point(slots), gradient, energy, rate)
        evaluation = evaluation._replace(restart=chain.restart(slots))
        current, info = algorithm.decide(slots, evaluation)
        if current.energy is not None:
            recorded = parts.energies.recorded(current.energy, info.log_weight)
            chain.write([parts.energies.variable], [recorded])
        if info.counts:
            counts = [info.counts[name] for name in algorithm.traits.counts]
            counts = ops.convert_to_tensor(self._counts) + ops.stack(counts, axis=-1)
            chain.write([self._counts], [counts])
        current = chain.between(current, info.accepted, keeps=bool(idle))
        slots = algorithm.move(current, evaluation)
        point = algorithm.point(slots)
        for i in idle:
            point[i] = current.position[i]
        chain.store(slots)

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
            self._current_temperature(),
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
        self._check.look(self, self.sampled_variables, is_step)
        self._look_for_train_size(is_step)

    def _check_processes(self, gradients: Position) -> None:
        """Raise a `ValueError` if the processes differ; copy a seed that none gave."""
        slots = [*self._parts.state.weights, *self._parts.state.all]
        seeds = self._noise_state if self.seed is None else None
        slots += [self._noise_state, self.iterations]
        _backend.check_processes(gradients, slots, seeds)
        self._are_equal = True

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        """Settle at the end of `fit`, and warn of what nobody was told."""
        _backend.put_back_values()
        self._are_equal = False
        self._check.forget()
        if self.built:
            self._chain.look_at_end(self._read_counts)
            self._tell_of_no_samples()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        learning_rate = super().get_config()["learning_rate"]
        given = constructor.configuration(type(self), self._given)
        if "temperature" in given:  # as a number where it follows from the sizes
            given["temperature"] = constructor.serialized(self.temperature)
        return given | {"learning_rate": learning_rate}

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
        """Load what `save_own_variables` saved."""
        model = _backend.model_in_file(self)
        entries = self.model_states.load(store, model, self.sampled_variables)
        steps = entries.pop(_WARM_UP, None)
        super().load_own_variables(entries)
        if steps is not None and self._has_default_warm_up() and self._has_steps():
            self._set_warm_up(int(steps[()]))

    # What users and callbacks call between steps.

    @property
    def _at_rest(self) -> Chain:
        """The chain, with its values in the variables: JAX holds them in a `fit`."""
        _backend.return_values(self)
        return self._chain

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
        return _backend.count_processes() if self._is_shared else 1

    @property
    def warm_up(self) -> int:
        """Return the number of first steps that are burn-in."""
        return self.algorithm.traits.warm_up

    def planned_warm_up(self, burn_in: int, steps: float = math.inf) -> int | None:
        """Return the length of a warm-up that was not given, None if it is fixed.

        It is at most a quarter of the `steps` of the run, or half of the burn-in.
        """
        if not self._has_default_warm_up() or self._has_steps():
            return None
        default = self.warm_up_argument[1]
        planned = min(default, max(_LEAST, int(min(steps / 4, default)), burn_in // 2))
        if self.batch_size is not None:
            size = self.train_size, self.batch_size
            planned = max(planned, constructor.longest_warm_up(burn_in, *size))
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

    def _has_steps(self) -> bool:
        return int(ops.convert_to_numpy(self.iterations)) > 0

    def _set_warm_up(self, steps: int) -> None:
        if not self._has_moved:
            self.algorithm = self.algorithm.with_warm_up(steps)
            if "warm_up" in self._given:  # the state has room for the longest pilot
                self._given["warm_up"] = steps

    @property
    def steps_per_test(self) -> int | None:
        """The steps after which a callback settles; None: at the end of an epoch."""
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
            self.energies.reset()
            self._counts.assign(np.zeros(self._counts.shape, "float32"))

    @property
    def sampled_variables(self) -> list[keras.Variable]:
        """The variables of the model that the chain moves."""
        return self._parts.state.weights if self.built else []

    def state_values(self) -> list[Tensor]:
        """Return a copy of the current state: a tensor for each sampled variable."""
        return [ops.copy(value) for value in self._at_rest.state_values()]

    def prior_energies(self, start: Sequence[keras.Variable] | None = None) -> Array:
        """Return -log of a Gaussian prior at the state of each chain, nats, (K,).

        `start`: the weights of a chain that has made no step.
        """
        zeros = np.zeros(self.num_chains or 1)
        if not isinstance(self.prior, Prior):
            return zeros
        bound = self._bound_prior if start is None else self.prior.bind(start)
        if bound is None:
            return zeros
        values = self.state_values() if start is None else [v.value for v in start]
        like = ops.zeros(() if self.num_chains is None else self.num_chains)
        energies = bound.energy(values, like)
        return np.asarray(ops.convert_to_numpy(energies)).reshape(-1) + zeros

    def watch_samples(self) -> None:
        """Know that somebody keeps samples of this chain."""
        self._has_keeper = True

    def _tell_of_no_samples(self) -> None:
        """Warn, once, of a `fit` of a single chain that keeps its last state alone."""
        if self._has_keeper or self.num_chains is not None or not _backend.is_fitting():
            return
        self._has_keeper = True
        tell("no samples", name=type(self).__name__)

    def mark_sample(self, listener: Callable[[], None] | None = None) -> None:
        """Mark the current state as a sample. The next step stores its energy.

        `tell_of_samples` calls `listener()` once it is known.
        """
        self._at_rest.mark_sample(listener)

    def freeze(self) -> None:
        """End the adaptation of the learning rate, as the first sample does."""
        if self.built:
            self._at_rest.freeze()

    @property
    def energies(self) -> state.Energies:
        """What is known of energies, and who awaits that of the marked sample."""
        _backend.return_values(self)
        return self._parts.energies

    def tell_of_samples(self) -> None:
        """Call those who await the energy of the marked sample, if it is known."""
        if self.built:
            self._parts.energies.notify()

    def sample_info(self) -> SampleInfo:
        """Return what is known of the sample that was marked last."""
        return self._at_rest.sample_info()

    def check_epoch(self) -> None:
        """Warn, once, if the run of an epoch shows wrong settings.

        Raises:
            FloatingPointError: a chain was stopped, and `nan_policy` is "raise".
        """
        self._at_rest.look_at_epoch(self._read_counts())

    def lost_chains(self) -> Array:
        """Return whether each chain has no finite state to sample, () or (chains,)."""
        if not self.built:
            return np.zeros(() if self.num_chains is None else self.num_chains, bool)
        return self._at_rest.lost_chains()

    def has_stopped(self) -> bool:
        """Return whether losses or gradients that are not finite stopped all chains."""
        return self.built and self._at_rest.has_stopped()

    def reason_of_loss(self) -> str:
        """Return why `lost_chains` have no state, and what to do."""
        return self._chain.reason_of_loss()

    def settle(self) -> None:
        """Put the current state of the chain into the model's variables.

        Call it between steps of a loop of your own. It drops the proposal that a
        Metropolis-Hastings sampler keeps in the model, and `mh.AMAGOLD` tests its path.
        """
        if self.built:
            self._at_rest.settle()

    def propose(self) -> None:
        """Write a new proposal into the model's variables. Call it after `settle`.

        Without it the next step evaluates the state on a new batch, an exact move, too.
        """
        if self.built:
            self._at_rest.propose()

    # What `mh.PosteriorSamples` writes down.

    def noise_seed(self) -> int:
        """Return the seed of the noise, of the first chain: in a file, of its run."""
        if not self.built:
            return self._first_seed
        return int(np.ravel(ops.convert_to_numpy(self._noise_state))[0])

    def recorded_arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor for people to read and compare."""
        given = self._given | {"train_size": self.train_size}
        if "temperature" in given:  # as a number where it follows from the sizes
            given["temperature"] = self.temperature
        return constructor.recorded(type(self), given)

    # What `mh.ParallelChains` calls.

    def use_chains(self, num_chains: int) -> None:
        """Make this the optimizer of stacked variables, one chain along each row.

        Call it before `build`. The losses then come through `observe_losses`.
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
        return self._chain.take_accepted()
