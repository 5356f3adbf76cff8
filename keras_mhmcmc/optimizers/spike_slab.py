"""What spike-and-slab samplers share: the latent variables of their prior, as slots."""

import dataclasses

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc import sparsity
from keras_mhmcmc._backend import ops
from keras_mhmcmc._names import distinct
from keras_mhmcmc.algorithms import layer_noise
from keras_mhmcmc.algorithms import spike_slab
from keras_mhmcmc.optimizers import compiled_loss
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import BoundGaussian
from keras_mhmcmc.schedules import Schedule


class SpikeSlabSampler(Sampler):
    """Abstract: a sampler that learns which weights of some kernels are to be small.

    A final class moves the weights in `_step`, given the gradient with all priors.
    """

    def __init__(self, learning_rate, *, sparse_prior, layer_temperatures, **options):
        super().__init__(learning_rate, prior=None, **options)
        self._sparsity = sparsity.checked_sparsity(**sparse_prior)
        self._layer_temperatures = _validate.choice(
            "layer_temperatures", layer_temperatures, (True, False)
        )
        self._is_regression = self._sparsity.likelihood == "gaussian"
        # The residuals of a regression are known by its loss alone.
        self.needs_loss = self._is_regression

    def _step(self, variables, position, gradient, learning_rate):
        """Moves the weights by one step of the kernel."""
        raise NotImplementedError

    def _build_slots(self, variables):
        settings, has_chains = self._sparsity, self._has_chains
        self._sparse = sparsity.chosen(settings.sparse, variables, has_chains)
        self._paths = distinct(variables[i].path for i in self._sparse)
        groups = sparsity.group_of_each(settings.groups, len(self._sparse))
        self._prior = spike_slab.SpikeSlab(
            settings.v0,
            settings.v1,
            settings.a,
            settings.b,
            settings.nu,
            settings.lam,
            groups,
        )
        # Standard normal priors on the other kernels, and flat ones on the rest.
        kernels = sparsity.are_kernels(variables, has_chains)
        self._others = BoundGaussian(
            [
                1.0 if is_kernel and i not in self._sparse else 0.0
                for i, is_kernel in enumerate(kernels)
            ]
        )
        first = settings.initial_inclusion
        first = settings.delta if first is None else first
        self._spikes = [
            self.add_variable(
                variables[i].shape,
                constant(1.0 - first),
                "float32",
                name="spike_probability",
                # As Keras does for slots: over the devices of `ModelParallel`.
                layout=getattr(variables[i], "_layout", None),
            )
            for i in self._sparse
        ]
        shape = self._chain_shape(max(groups) + 1)
        self._sigma = self.add_variable(
            shape, constant(settings.sigma), "float32", name="sigma"
        )
        self._delta = self.add_variable(
            shape, constant(settings.delta), "float32", name="delta"
        )
        if self._layer_temperatures:
            self._spreads = [
                self.add_variable(
                    self._chain_shape(), constant(np.nan), "float32", name="spread"
                )
                for _ in variables
            ]

    def _check_model(self, model):
        if self._is_regression:
            compiled_loss.check_is_mean_squared_error(model)
        super()._check_model(model)

    def _move(self, variables, position, gradient, energy, learning_rate):
        indices = [self._get_variable_index(variable) for variable in variables]
        weights = _backend.read([self._trainable_variables[i] for i in self._sparse])
        rss = energy if self._is_regression else None
        latents, weighted = self._learn(weights, rss)
        if self._is_regression:
            gradient, energy = spike_slab.of_residuals(gradient, energy, latents)

        others = self._others.of(indices)
        gradient = others.add_gradient(position, gradient, self.train_size)
        self._add_gradient_of_prior(indices, position, gradient, latents)
        if energy is not None:
            energy = energy + others.energy(position, self._has_chains)
            energy = energy + spike_slab.energy(weighted, latents, self._prior)
        self._step(variables, position, gradient, learning_rate)
        return energy

    def _learn(self, weights, rss):
        """The latent variables after the point that was just evaluated."""
        size = self._sparsity.step_size
        if isinstance(size, Schedule):
            size = _backend.scalar(size(self._iterations))
        old = spike_slab.Latents(
            _backend.read(self._spikes),
            ops.convert_to_tensor(self._sigma),
            ops.convert_to_tensor(self._delta),
        )
        latents, weighted = spike_slab.update_latents(
            weights,
            old,
            self._prior,
            step_size=size,
            train_size=self.train_size,
            rss=rss,
        )
        self._write(self._spikes, latents.spike)
        self._write([self._sigma, self._delta], [latents.sigma, latents.delta])
        return latents, weighted

    def _add_gradient_of_prior(self, indices, position, gradient, latents):
        """Adds to the gradients of the sparse kernels, in place in the list."""
        for place, index in enumerate(indices):
            if index in self._sparse:
                which = self._sparse.index(index)
                gradient[place] = spike_slab.add_gradient(
                    position[place],
                    gradient[place],
                    latents.spike[which],
                    latents.sigma[..., self._prior.groups[which]],
                    self._prior,
                    self.train_size,
                )

    def _draw(self, variables, position, gradient):
        """Normal draws; those of layers with temperatures of their own are scaled."""
        normals, _ = self._noise.draw(position, 1)
        if not self._layer_temperatures:
            return normals
        slots = self._slots_of(self._spreads, variables)
        spreads = ops.stack(_backend.read(slots), axis=-1)
        spreads = layer_noise.update_spreads(spreads, gradient)
        self._write(slots, ops.unstack(spreads, len(slots), axis=-1))
        return layer_noise.scaled(normals, spreads)

    # What users and callbacks call.

    def inclusion_probabilities(self):
        """rho, by variable path: how far each weight belongs to the slab, in [0, 1].

        A mean-field fixed point, which can depend on `initial_inclusion`, and not the
        posterior probability of the slab.
        Arrays shaped like the sparse kernels, with a leading axis where there are
        several chains. Empty before the first step.
        """
        inclusions = [inclusion for _, inclusion in self.inclusion_by_variable()]
        return dict(zip(self._paths, inclusions, strict=True)) if inclusions else {}

    def inclusion_by_variable(self):
        """Pairs of a sparse variable of the model and its `inclusion_probabilities`."""
        if not self.built:
            return []
        variables = [self._trainable_variables[i] for i in self._sparse]
        inclusions = [1.0 - ops.convert_to_numpy(spike) for spike in self._spikes]
        return list(zip(variables, inclusions, strict=True))

    def _counts(self):
        spikes = [ops.convert_to_numpy(s) for s in self._spikes]
        spikes = np.concatenate(
            [s.reshape(*self._chain_shape(-1)) for s in spikes], axis=-1
        )
        sigma, delta = map(ops.convert_to_numpy, (self._sigma, self._delta))
        return {
            "sparsity": np.mean(spikes > 0.5, axis=-1),
            "sigma": sigma.mean(axis=-1),
            "delta": delta.mean(axis=-1),
        }

    def get_config(self):
        """The arguments of the constructor."""
        serialize = keras.saving.serialize_keras_object
        arguments = dataclasses.asdict(self._sparsity)
        arguments["sparse"] = serialize(arguments["sparse"])
        arguments["step_size"] = serialize(arguments["step_size"])
        config = super().get_config()
        del config["prior"]
        return config | arguments | {"layer_temperatures": self._layer_temperatures}
