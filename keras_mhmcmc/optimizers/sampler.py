"""The adapter: an algorithm as a Keras optimizer."""

import functools
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
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.optimizers import base_options
from keras_mhmcmc.optimizers import compiled_loss
from keras_mhmcmc.optimizers.arguments import configuration
from keras_mhmcmc.optimizers.arguments import given_arguments
from keras_mhmcmc.optimizers.arguments import recorded
from keras_mhmcmc.optimizers.arguments import serialized
from keras_mhmcmc.optimizers.chain import Chain
from keras_mhmcmc.optimizers.chain import Parts
from keras_mhmcmc.optimizers.energies import Energies
from keras_mhmcmc.optimizers.gradients import gradients_of_each
from keras_mhmcmc.optimizers.initializers import common_seed
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.initializers import fresh_seed
from keras_mhmcmc.optimizers.initializers import seeds_along_chains
from keras_mhmcmc.optimizers.interface import SamplerInterface
from keras_mhmcmc.optimizers.loss_check import LossCheck
from keras_mhmcmc.optimizers.model_states import ModelStates
from keras_mhmcmc.optimizers.moving_chain import MovingChain
from keras_mhmcmc.optimizers.proposing_chain import ProposingChain
from keras_mhmcmc.optimizers.replicas import Replicas
from keras_mhmcmc.optimizers.state_variables import StateVariables
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Evaluation
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.schedules import Schedule


class Sampler(SamplerInterface):
    """Abstract: an optimizer whose iterates are draws from a posterior.

    A final class is a signature, a docstring, and the algorithm that it runs. The
    algorithm gets the gradient of U/N and the energy U in nats, both with the prior,
    where U is N times the training loss minus the log prior.
    """

    usual_rate = 0.03  # of a sampler that is asked for by its name

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        sampler = super().__new__(cls)
        # Not by assignment: Keras refuses attributes before its own constructor ran.
        given = given_arguments(cls, args, kwargs)
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
        self._train_size, self._batch_size = None, batch_size
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
        # None: one chain. K: the variables have a leading chain axis of length K.
        self.num_chains: int | None = None
        self.model_states = ModelStates()
        self._observer = _backend.LossObserver()
        if chain is None and is_compared:
            chain = ProposingChain()
        self._chain: Chain = chain or MovingChain(nan_policy)
        self._replicas = Replicas()
        self._has_moved, self._planned = False, None
        self._check = LossCheck(check_model, check_step, is_compared)
        self._first_seed = self.seed if self.seed is not None else fresh_seed()

    # What Keras calls.

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the optimizer's variables for these model variables."""
        if self.built:
            return
        self._check_loss(is_step=False)  # an error in a step empties a model on JAX
        _backend.refuse_strategy([self.iterations, *variables])
        self._first_seed = common_seed(self._first_seed, self.seed is not None)
        base_options.check_variables(variables)
        super().build(variables)
        has_chains = self.num_chains is not None
        seeds = [self._first_seed]
        if self.num_chains is not None:
            seeds = seeds_along_chains(self._first_seed, self.num_chains)
        noise_state = self._add_per_chain(
            (2,),
            constant([[seed, 0] for seed in seeds]),
            _backend.SEED_DTYPE,
            "noise_state",
        )
        self._noise_state = noise_state
        stream = _backend.ChainsNoise if has_chains else _backend.NoiseStream
        self._noise = stream(noise_state)
        self._bound_prior = None
        if isinstance(self.prior, Prior):
            self._bound_prior = self.prior.bind(variables)
        energies = Energies(self._add_per_chain, lambda: self._chain.lost_chains())
        counts = (len(self.algorithm.traits.counts),)
        self._counts = self._add_per_chain(counts, "zeros", "float32", "counts")
        self.algorithm = self.algorithm.bind_weights(variables, has_chains)
        state = StateVariables(
            self.algorithm, variables, self._add_slot, self.num_chains
        )
        self._parts = Parts(
            type(self).__name__,
            state,
            energies,
            self.iterations,
            self._counts,
            self._evaluation,
            lambda: ops.cast(self.learning_rate, "float32"),
            self.temperature_now,
            lambda: self.algorithm,
        )
        self._chain.build(self._parts, self._add_per_chain)

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
        weights = self._parts.state.weights if self.built else []
        variables = list(weights if variables is None else variables)
        gradients = gradients_of_each(weights, variables, gradients)
        loss = self._observer.take(gradients)
        if loss is None and self.algorithm.traits.uses_energy:
            raise ValueError(compiled_loss.missing(type(self).__name__))
        idle = [i for i, gradient in enumerate(gradients) if gradient is None]
        what = self.algorithm.traits.counts_weights
        if idle and what:
            raise ValueError(
                f"Each weight must have a gradient: {what} depends on their number. "
                "Set `trainable = False` for the layers of the others. Received: "
                f"{self.name}, no gradient for {len(idle)} of {len(weights)} variables"
            )
        for i in idle:
            gradients[i] = ops.zeros_like(_backend.read([weights[i]])[0])
        gradients = _backend.dense(gradients, weights)
        if not self._replicas.is_checked:
            self._check_replicas(gradients)
        gradients, loss = self._replicas.reduce(
            gradients, loss, self._chain.take_changes()
        )
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
        state = self._parts.state
        position, energy = _backend.read(state.weights), loss
        if loss is not None:
            energy = self.train_size * ops.cast(loss, "float32")
        if self._bound_prior is not None:
            gradient = self._bound_prior.add_gradient(
                position, gradient, self.train_size
            )
            if energy is not None:
                energy = energy + self._bound_prior.energy(position, like=energy)
            # What does not move has no part in the density of a move.
            gradient = list(gradient)
            for i in idle:
                gradient[i] = ops.zeros_like(gradient[i])

        def step() -> None:
            self._step(gradient, energy, rate, idle)

        written = [*self.variables, *state.weights]
        self._chain.run(step, energy, gradient, written)

    def _step(
        self, gradient: Position, energy: Tensor, rate: Tensor, idle: list[int]
    ) -> None:
        self._has_moved = True
        algorithm, chain, parts = self.algorithm, self._chain, self._parts
        state = chain.read(keeps=bool(idle))
        evaluation = self._evaluation(algorithm.point(state), gradient, energy, rate)
        evaluation = evaluation._replace(restart=chain.restart(state))
        current, info = algorithm.decide(state, evaluation)
        if current.energy is not None:
            recorded = parts.energies.recorded(current.energy, info.log_weight)
            chain.write([parts.energies.variable], [recorded])
        if info.counts:
            counts = [info.counts[name] for name in algorithm.traits.counts]
            counts = ops.convert_to_tensor(self._counts) + ops.stack(counts, axis=-1)
            chain.write([self._counts], [counts])
        current = chain.between(current, info.accepted, keeps=bool(idle))
        state = algorithm.move(current, evaluation)
        point = algorithm.point(state)
        for i in idle:
            point[i] = current.position[i]
        chain.store(state)

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

    def _add_per_chain(
        self,
        shape: tuple[int, ...],
        initializer: Any,
        dtype: str,
        name: str,
        is_shared: bool = False,
    ) -> keras.Variable:
        """Add a variable that each chain has one of, or all chains together."""
        if self.num_chains is not None and not is_shared:
            shape = (self.num_chains, *shape)
        return self._add_slot(shape, initializer, dtype, name)

    def _add_slot(
        self,
        shape: tuple[int, ...],
        initializer: Any,
        dtype: str,
        name: str,
        layout: Any = None,
    ) -> keras.Variable:
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

    def _check_replicas(self, gradients: Position) -> None:
        state = [*self._parts.state.weights, *self._parts.state.all, self._noise_state]
        seeds = self._noise_state if self.seed is None else None
        self._replicas.check(gradients, [*state, self.iterations], seeds)

    def finalize_variable_values(self, var_list: Sequence[keras.Variable]) -> None:
        """Settle at the end of `fit`, and warn of what nobody was told."""
        _backend.put_back_values()
        self._replicas.is_checked = False
        self._check.forget()
        if self.built:
            self._chain.look_at_end(self._read_counts)
            self._tell_of_no_samples()

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

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        learning_rate = super().get_config()["learning_rate"]
        given = configuration(type(self), self._given)
        if "temperature" in given:  # as a number where it follows from the sizes
            given["temperature"] = serialized(self.temperature)
        return given | {"learning_rate": learning_rate}

    def __repr__(self) -> str:
        return call_text(type(self), self._given)

    # What `mh.PosteriorSamples` writes down.

    def noise_seed(self) -> int:
        """Return the seed of the noise; of the first chain, if there are several.

        A sampler that was loaded has the seed of the run that was saved.
        """
        if not self.built:
            return self._first_seed
        return int(np.ravel(ops.convert_to_numpy(self._noise_state))[0])

    def recorded_arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor for people to read and compare."""
        given = self._given | {"train_size": self.train_size}
        if "temperature" in given:  # as a number where it follows from the sizes
            given["temperature"] = self.temperature
        return recorded(type(self), given)

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
