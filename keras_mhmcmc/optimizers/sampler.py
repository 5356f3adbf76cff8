"""What every sampler is besides its kernel: an abstract Keras optimizer."""

import functools

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc.optimizers import base_options
from keras_mhmcmc.optimizers import compiled_loss
from keras_mhmcmc.optimizers.energies import Energies
from keras_mhmcmc.optimizers.energies import SampleInfo
from keras_mhmcmc.optimizers.energies import over_chains
from keras_mhmcmc.optimizers.generator_states import GeneratorStates
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.initializers import fresh_seed
from keras_mhmcmc.optimizers.initializers import seeds_along_chains
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.schedules import Schedule


class Sampler(keras.optimizers.Optimizer):
    """Abstract: an optimizer whose iterates are draws from a posterior.

    A final class creates its slots in `_build_slots` and moves the weights in `_move`.
    It gets the gradient of U/N, prior included, and the energy U in nats, where U is N
    times the training loss minus the log prior.
    """

    # Whether `_move` can do without the loss (a custom loop may not provide it).
    needs_loss = False
    # Whether samples have importance weights.
    has_weights = False
    # Examples in a mini-batch, if the sampled distribution depends on it.
    batch_size = None
    # What `diagnostics` adds up over chains.
    _summed = ("nonfinite",)

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        temperature,
        prior,
        seed,
        name,
        options,
        guard=None,
    ):
        base_options.refuse(options)
        is_function = callable(learning_rate) and not isinstance(learning_rate, type)
        if not isinstance(learning_rate, Schedule) and not is_function:
            learning_rate = _validate.number(
                "learning_rate",
                learning_rate,
                _validate.NOT_NEGATIVE,
                hint="A `LearningRateSchedule` will do as well.",
            )
        name = _validate.scope_name(name)
        super().__init__(learning_rate=learning_rate, name=name)
        self.train_size = _validate.integer("train_size", train_size, 1)
        self.temperature = temperature
        self.prior = base_options.checked_prior(prior)
        self.seed = None if seed is None else _validate.seed(seed)
        # What stops a chain; None for a Metropolis-Hastings sampler, which rejects.
        self._guard = guard
        # None: one chain. K: the variables have a leading chain axis of length K.
        self.num_chains = None
        self._observer = _backend.LossObserver()
        self._energies = Energies()
        self._is_loss_checked = False
        self.generators = GeneratorStates()
        self._first_seed = self.seed if self.seed is not None else fresh_seed()

    # What a final class provides.

    def _build_slots(self, variables):
        """Creates the optimizer's variables, in the order of the file format."""
        raise NotImplementedError

    def _move(self, variables, position, gradient, energy, learning_rate):
        """Moves the weights by one step of the kernel.

        Returns the energy of the chain's state, or `energy`, which may be None.
        """
        raise NotImplementedError

    def _counts(self):
        """What `diagnostics` reports besides the energy: scalars, or arrays (K,)."""
        return {}

    def _count_variables(self):
        """The variables behind `_counts`, which a reset sets to zero."""
        return []

    # What Keras calls.

    def build(self, variables):
        """Creates the optimizer's variables for these model variables."""
        if self.built:
            return
        _backend.refuse_replicas()
        base_options.refuse_constraints(variables)
        super().build(variables)
        seeds = [self._first_seed]
        if self._has_chains:
            seeds = seeds_along_chains(self._first_seed, self.num_chains)
        self._noise_state = self.add_variable(
            shape=self._chain_shape(2),
            initializer=constant([[seed, 0] for seed in seeds]),
            dtype=_backend.SEED_DTYPE,
            name="noise_state",
        )
        stream = _backend.ChainsNoise if self._has_chains else _backend.NoiseStream
        self._noise = stream(self._noise_state)
        is_bound = isinstance(self.prior, Prior)
        self._bound_prior = self.prior.bind(variables) if is_bound else None
        self._energies.build(self, self._chain_shape())
        if self._guard is not None:
            stopped_at = self.add_variable(
                self._chain_shape(), constant(-1), "int32", name="stopped_at"
            )
            self._guard.build(stopped_at)
        self._build_slots(variables)

    @property
    def _has_chains(self):
        return self.num_chains is not None

    def _chain_shape(self, *shape):
        """The shape of a variable that each chain has one of."""
        return (self.num_chains, *shape) if self._has_chains else shape

    def use_chains(self, num_chains):
        """Makes this the optimizer of stacked variables, one chain along each row.

        `mh.ParallelChains` calls it before `build`. The losses of the chains then come
        through `observe_losses`.
        """
        if self.built and self.num_chains != num_chains:
            raise ValueError(
                "Argument `optimizer` must be new: this one has the state of a run of "
                "another model. Make it again with the same arguments, or with "
                "`type(optimizer).from_config(optimizer.get_config())`. "
                f"Received: optimizer={self.name!r}"
            )
        self.num_chains = num_chains

    def observe_losses(self, losses):
        """Keeps the chains' training losses, shape (K,), for the next `apply`."""
        self._check_loss()
        self._observer.keep(losses)

    def take_accepted(self):
        """Whether each chain took the point of this step; None: all of them did."""
        return None

    def _slots_of(self, slots, variables):
        return [slots[self._get_variable_index(variable)] for variable in variables]

    def scale_loss(self, loss):
        """Keeps the training loss for the next `apply`; returns it unchanged."""
        self._check_loss()
        return self._observer.observe(loss)

    def _check_loss(self):
        if not self._is_loss_checked:
            model = compiled_loss.training_model(self)
            if model is not None:
                self._check_model(model)
            self._is_loss_checked = True

    def _check_model(self, model):
        """Refuses a model whose weights or loss this sampler would misunderstand."""
        base_options.refuse_other_weights(self.sampled_variables, model)
        compiled_loss.check_is_mean(model)

    @_backend.unwarned
    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        variables = list(trainable_variables)
        loss = self._observer.take()
        if loss is None and self.needs_loss:
            raise ValueError(compiled_loss.missing(type(self).__name__))
        update = functools.partial(self._update, variables)
        if not self._has_chains:
            update = _backend.compiled_update(update, variables)
        rate = ops.cast(learning_rate, "float32")
        update(_backend.dense(grads, variables), loss, rate)

    def _update(self, variables, gradient, loss, learning_rate):
        position, rate = _backend.read(variables), _backend.scalar(learning_rate)
        if (energy := loss) is not None:
            energy = self.train_size * _backend.scalar(ops.cast(loss, "float32"))
        if self._bound_prior is not None:
            indices = [self._get_variable_index(variable) for variable in variables]
            prior = self._bound_prior.of(indices)
            gradient = prior.add_gradient(position, gradient, self.train_size)
            if energy is not None:
                energy = energy + prior.energy(position, self._has_chains)
                energy = _backend.scalar(energy)

        def step():
            new_energy = self._move(variables, position, gradient, energy, rate)
            if new_energy is not None:
                self._write(*self._energies.recorded(new_energy))

        if self._guard is None:
            return step()
        written = [*self.variables, *variables]
        self._guard.run(step, energy, gradient, self._iterations, written)

    def _write(self, variables, values):
        """Assigns values, but for chains that were stopped."""
        if self._guard is None:
            _backend.write(variables, values)
        else:
            self._guard.write(variables, values)

    def _current_temperature(self):
        if isinstance(self.temperature, Schedule):
            return _backend.scalar(self.temperature(self._iterations))
        return self.temperature

    # What users and callbacks call.

    def temperature_now(self):
        """The temperature of the next step, a float."""
        return float(ops.convert_to_numpy(self._current_temperature()))

    def diagnostics(self):
        """What the sampler did since `reset_diagnostics`, as a dict of floats.

        `energy` is the mean of U in nats, over the points that were evaluated or, for
        a Metropolis-Hastings sampler, over the states of the chain. Empty before the
        first step. Of several chains, counts are sums and all else means.
        """
        return {
            name: over_chains(values, is_count=name in self._summed)
            for name, values in self.chain_diagnostics().items()
        }

    def chain_diagnostics(self):
        """`diagnostics` of each chain, as a dict of arrays (chains,)."""
        if not self.built:
            return {}
        report = self._counts()
        if self._guard is not None:
            report["nonfinite"] = self._guard.stopped_chains()
        energy = self._energies.means()
        if not np.isnan(energy).all():
            report["energy"] = energy
        return {
            name: np.array(values, "float64").reshape(self.num_chains or 1)
            for name, values in report.items()
        }

    def reset_diagnostics(self):
        """Starts the counts and means of `diagnostics` anew."""
        if self.built:
            for variable in self._count_variables():
                variable.assign(ops.zeros(variable.shape, dtype=variable.dtype))
            self._energies.reset()

    @property
    def sampled_variables(self):
        """The variables that the chain moves, those of the model when it was built."""
        return self._trainable_variables if self.built else []

    def state_values(self):
        """The current state of the chain: a tensor for each sampled variable."""
        return _backend.read(self._trainable_variables)

    def mark_sample(self, listener=None):
        """Marks the current state as a sample. The next step stores its energy.

        Several callbacks may mark samples. `sample_info` describes the one that was
        marked last; whoever marked another one is told before.

        Args:
            listener: function without arguments. `tell_of_samples` calls it once the
                energy of this sample is known, when `sample_info` still describes it.
        """
        self._energies.mark(int(ops.convert_to_numpy(self.iterations)), listener)

    def await_sample(self, iteration, listener):
        """Has `listener` told of the sample of `iteration`, if it was marked last."""
        if self._energies.marked_at() == iteration:
            self._energies.listen(listener)

    def tell_of_samples(self):
        """Calls the listeners of the marked sample, if its energy is known."""
        if self.built:
            self._energies.tell()

    def sample_info(self):
        """Energy and log importance weight of the sample that was marked last.

        Returns:
            `SampleInfo`, numbers or arrays (chains,). Until the next step evaluates the
            sample, both are those of the point before.
        """
        is_final = not self._energies.is_waiting()
        log_weight = self._log_weight_of_sample(is_final)
        return SampleInfo(self._energies.of_sample(), log_weight, is_final)

    def _log_weight_of_sample(self, is_final):
        return np.zeros(self._chain_shape())

    def check_epoch(self):
        """Warns, once, if the run of an epoch shows wrong settings.

        Raises:
            FloatingPointError: a chain was stopped, and `nan_policy` is "raise".
        """
        if self._guard is not None:
            self._guard.report(type(self).__name__)

    def lost_chains(self):
        """Whether each chain has no finite state to sample: a bool, or (chains,)."""
        if not self.built or self._guard is None:
            return np.zeros(self._chain_shape(), bool)
        return self._guard.stopped_chains()

    def has_stopped(self):
        """Whether no chain goes on: all met a loss or gradient that was not finite."""
        return self.built and self._guard is not None and self._guard.has_stopped()

    def reason_of_loss(self):
        """Sentences that say why `lost_chains` have no state, and what to do."""
        return self._guard.message(type(self).__name__)

    def finalize_variable_values(self, var_list):
        """Warns at the end of `fit` of chains that were stopped."""
        self._is_loss_checked = False  # the next `fit` may have another one
        if self.built and self._guard is not None:
            self._guard.report(type(self).__name__)
            self._guard.reset()

    def settle(self):
        """Puts the current state of the chain into the model's variables.

        Only a Metropolis-Hastings sampler has anything to do here: during `fit` its
        model holds the proposal that is evaluated next.
        """

    def propose(self):
        """Goes on after `settle`: puts the point to evaluate next into the model."""

    def save_own_variables(self, store):
        """Saves the optimizer's variables, and where the model's generators stand."""
        super().save_own_variables(store)
        self.generators.save(store)

    def load_own_variables(self, store):
        """Loads what `save_own_variables` saved."""
        super().load_own_variables(self.generators.load(store))

    def get_config(self):
        """The arguments of the constructor."""
        learning_rate = super().get_config()["learning_rate"]
        serialize = keras.saving.serialize_keras_object
        return {
            "learning_rate": learning_rate,
            "train_size": self.train_size,
            "temperature": serialize(self.temperature),
            "prior": None if self.prior is None else serialize(self.prior),
            "seed": self.seed,
            "name": self.name,
        } | ({} if self._guard is None else {"nan_policy": self._guard.policy})

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The optimizer with these arguments; objects among them are restored."""
        restored = {
            key: keras.saving.deserialize_keras_object(value, custom_objects)
            if isinstance(value, dict) and "class_name" in value
            else value
            for key, value in config.items()
        }
        return cls(**restored)


def checked_temperature(temperature, interval):
    """A temperature that is a schedule or a number in `interval`."""
    if isinstance(temperature, Schedule):
        return temperature
    hint = "A `LearningRateSchedule` will do as well."
    return _validate.number("temperature", temperature, interval, hint=hint)
