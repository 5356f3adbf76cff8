"""What contour samplers share: the learned density of the energy, as slots."""

import numbers
import warnings

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import partition as partition_
from keras_mhmcmc._backend import ops
from keras_mhmcmc.algorithms import contour
from keras_mhmcmc.optimizers.initializers import constant
from keras_mhmcmc.optimizers.sampler import Sampler
from keras_mhmcmc.schedules import Schedule

# What is added up between two resets.
_TALLY = ("count", "index", "multiplier", "first", "last")


_FEWEST = 10  # energies from which something can be said of a partition


class ContourSampler(Sampler):
    """Abstract: a sampler that flattens the energy and weights its samples.

    A final class moves the weights in `_move`, with the gradient scaled by
    `_multiplier`.
    """

    needs_loss = True
    has_weights = True

    def __init__(self, learning_rate, *, contour_arguments, **options):
        super().__init__(learning_rate, **options)
        self._contour_arguments = contour_arguments
        self._settings = partition_.contour_settings(**contour_arguments)
        self.partition = contour_arguments["partition"]
        self._has_warned = False

    def _build_slots(self, variables):
        bins = self._settings.contour.partitions
        self._log_masses = self.add_variable(
            self._chain_shape(bins),
            constant(self._settings.log_masses),
            "float32",
            name="log_masses",
        )
        self._visits = self.add_variable(
            self._chain_shape(bins), dtype="int32", name="visits"
        )
        self._tally = self.add_variable(
            self._chain_shape(len(_TALLY)), dtype="float32", name="tally"
        )
        # Log weights of the last point and of the last sample, and extreme energies.
        self._points = self.add_variable(
            self._chain_shape(4),
            constant([0.0, 0.0, np.inf, -np.inf]),
            "float32",
            name="points",
        )

    def _multiplier(self, energy):
        """The factor of the gradient; learns from the energy before."""
        settings = self._settings.contour
        place = contour.locate(energy, settings)
        log_masses = ops.convert_to_tensor(self._log_masses)
        if self._settings.adapt:
            size = self._settings.step_size
            if isinstance(size, Schedule):
                size = _backend.scalar(size(self._iterations))
            log_masses = contour.update_log_masses(log_masses, place, size, settings)
            log_masses = contour.normalized(log_masses)
            self._write([self._log_masses], [log_masses])
        temperature = self._current_temperature()
        factor, weight = contour.multiplier_and_log_weight(
            log_masses, place, temperature, settings
        )
        self._count(place, factor)
        self._keep(place, weight)
        return factor

    def _count(self, place, factor):
        settings = self._settings.contour
        visits = ops.convert_to_tensor(self._visits)
        self._write([self._visits], [contour.visited(visits, place, settings)])
        index = ops.cast(place.index, "float32")
        seen = [
            ops.ones_like(factor),
            index + 1.0,
            factor,
            ops.cast(place.index == 0, "float32"),
            ops.cast(place.index == settings.partitions - 1, "float32"),
        ]
        tally = ops.convert_to_tensor(self._tally) + ops.stack(seen, axis=-1)
        self._write([self._tally], [tally])

    def _keep(self, place, weight):
        """Keeps what is known of this point, and of the sample if it is one."""
        points = ops.convert_to_tensor(self._points)
        _, sample, low, high = ops.unstack(points, 4, axis=-1)
        sample = ops.where(self._energies.is_awaited(), weight, sample)
        low = ops.minimum(low, place.energy)
        high = ops.maximum(high, place.energy)
        points = ops.stack([weight, sample, low, high], axis=-1)
        self._write([self._points], [points])

    # What users and callbacks call.

    def learned_masses(self):
        """Return theta, the learned mass of each subregion, shape (partitions,).

        With several chains the shape is (chains, partitions). The sum over subregions
        is 1.
        """
        return np.exp(ops.convert_to_numpy(self._log_masses).astype("float64"))

    def visits(self):
        """Return the number of steps in each subregion, shape (partitions,).

        With several chains the shape is (chains, partitions).
        """
        return ops.convert_to_numpy(self._visits)

    def _log_weight_of_sample(self, is_final):
        return ops.convert_to_numpy(self._points)[..., int(is_final)]

    def check_epoch(self):
        """Warns, once, where most energies since the reset lie outside the partition.

        `mh.PosteriorSamples` calls it at each epoch's end.
        """
        super().check_epoch()
        tally = ops.convert_to_numpy(self._tally).reshape(-1, len(_TALLY)).sum(0)
        counts = dict(zip(_TALLY, tally, strict=True))
        if counts["count"] >= _FEWEST:
            self._warn(
                partition_.outside_message(
                    counts["first"] / counts["count"],
                    counts["last"] / counts["count"],
                    *self._extremes(),
                    self._settings.contour.partitions,
                )
            )

    def finalize_variable_values(self, var_list):
        """Looks at the chain and at the partition, at the end of `fit`."""
        super().finalize_variable_values(var_list)
        if self.built and _backend.hold_values([self._points, self._visits]):
            visits = self.visits().reshape(-1, self._settings.contour.partitions)
            if visits.sum() >= _FEWEST:
                message = partition_.run_message(
                    visits.sum(0), *self._extremes(), self._settings.contour
                )
                self._warn(message)

    def _extremes(self):
        points = ops.convert_to_numpy(self._points)
        return points[..., 2].min(), points[..., 3].max()

    def _warn(self, message):
        if message is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(message, stacklevel=4)

    def _counts(self):
        tally = np.moveaxis(ops.convert_to_numpy(self._tally), -1, 0)
        counts = dict(zip(_TALLY, tally, strict=True))
        steps = np.where(counts["count"] > 0, counts["count"], np.nan)
        return {
            "partition": counts["index"] / steps,
            "multiplier": counts["multiplier"] / steps,
        }

    def _count_variables(self):
        return [self._tally]

    def get_config(self):
        """Return the arguments of the constructor."""
        arguments = dict(self._contour_arguments)
        if arguments["masses"] is not None:
            arguments["masses"] = np.asarray(arguments["masses"], "float64").tolist()
        arguments = {name: _plain(value) for name, value in arguments.items()}
        return super().get_config() | arguments


def _plain(value):
    """Return what JSON can hold: other kinds of numbers become Python's own."""
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    return keras.saving.serialize_keras_object(value)
