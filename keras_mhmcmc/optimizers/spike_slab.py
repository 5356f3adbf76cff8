"""What users call on the spike-and-slab samplers, besides what every sampler has."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._names import distinct
from keras_mhmcmc._types import Array
from keras_mhmcmc.algorithms.spike_slab import SpikeSlabSampler
from keras_mhmcmc.optimizers import compiled_loss
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.priors import SpikeSlab
from keras_mhmcmc.priors import checked_spike_slab
from keras_mhmcmc.priors import warn_of_regularizers
from keras_mhmcmc.samplers.base import Diffusion
from keras_mhmcmc.schedules import Schedule
from keras_mhmcmc.schedules import check_shares

LIKELIHOODS = ("categorical", "gaussian")


class SpikeSlabOptimizer(Sampler):
    """Abstract: a sampler that learns which weights of some kernels are small."""

    algorithm: SpikeSlabSampler

    def __init__(
        self,
        learning_rate: float | Schedule,
        *,
        base: Diffusion,
        prior: SpikeSlab,
        likelihood: str,
        step_size: float | Schedule | None,
        layer_temperatures: bool = False,
        **arguments: Any,
    ) -> None:
        checked_spike_slab(prior)
        check_shares("step_size", step_size)
        likelihood = _validate.choice("likelihood", likelihood, LIKELIHOODS)
        is_regression = likelihood == "gaussian"
        super().__init__(
            learning_rate,
            algorithm=SpikeSlabSampler(
                base, prior, is_regression, step_size, layer_temperatures
            ),
            prior=prior,
            check_model=compiled_loss.check_is_mean_squared_error
            if is_regression
            else compiled_loss.warn_of_no_likelihood,
            check_step=compiled_loss.check_adds_no_loss if is_regression else None,
            **arguments,
        )

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the optimizer's variables for these model variables."""
        if not self.built:
            warn_of_regularizers(variables)
        super().build(variables)

    def inclusion_probabilities(self) -> dict[str, Array]:
        """Return rho by variable path: how far each weight belongs to the slab.

        The numbers lie in [0, 1]. They are a mean-field fixed point, which can depend
        on `initial_inclusion`. They are not the posterior probability of the slab. The
        arrays have the shapes of the sparse kernels, with a leading axis if there are
        several chains. Before the first step there are none.
        """
        pairs = self.inclusion_by_variable()
        paths = distinct(variable.path for variable, _ in pairs)
        return dict(zip(paths, [array for _, array in pairs], strict=True))

    def inclusion_by_variable(self) -> list[tuple[keras.Variable, Array]]:
        """Return pairs of a sparse variable and its `inclusion_probabilities`."""
        if not self.built:
            return []
        spikes = self._parts.state.structure.latents.spike
        return [
            (self._parts.state.weights[i], 1.0 - _backend.host_value(spike))
            for i, spike in zip(self.algorithm.sparse, spikes, strict=True)
        ]
