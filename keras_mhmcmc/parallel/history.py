"""Metrics of each chain: their state in a step, and their values at each epoch."""

from typing import Any

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler


class ChainMetrics(keras.metrics.Metric):
    """The state of a template's metrics for each chain, and their results."""

    def __init__(self, template: keras.Model, num_chains: int) -> None:
        super().__init__(name="chains")
        self._template = template
        self._states = [
            self.add_variable(
                (num_chains, *variable.shape), "zeros", dtype=variable.dtype
            )
            for variable in template.metrics_variables
        ]
        # The loss first, as `evaluate` returns it, although Keras 3.10 sorts the names.
        names = list(template.get_metrics_result())
        self.names = sorted(names, key=lambda name: name != "loss")
        # Each step writes the metrics' results here, shape (chains, names).
        self._results = self.add_variable(
            (num_chains, len(self.names)), "zeros", dtype="float32", name="results"
        )
        self.reset_state()

    def reset_state(self) -> None:
        self._template.reset_metrics()
        for state, variable in zip(
            self._states, self._template.metrics_variables, strict=True
        ):
            state.assign(ops.broadcast_to(variable.value, state.shape))
        self._results.assign(ops.zeros(self._results.shape))

    def examples_seen(self) -> int:
        """Return the examples that the mean of the loss has counted since the reset."""
        places = {id(v): i for i, v in enumerate(self._template.metrics_variables)}
        for metric in self._template.metrics:
            if type(metric) is keras.metrics.Mean and metric.name == "loss":
                counts = self._states[places[id(metric.count)]]
                return round(float(ops.convert_to_numpy(counts)[0]))
        return 0

    def result(self) -> dict[str, Tensor]:
        return self.means(self._results.value)

    def means(self, results: Tensor) -> dict[str, Tensor]:
        """Return the mean over chains of a tensor (chains, names), by name."""
        means = ops.mean(results, axis=0)
        return {name: means[index] for index, name in enumerate(self.names)}

    def by_chain(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the results of each chain: arrays (chains,) by name."""
        results = np.array(ops.convert_to_numpy(self._results))
        return {name: results[:, index] for index, name in enumerate(self.names)}


class ChainHistory(keras.callbacks.Callback):
    """A record of each chain's metrics and diagnostics at the end of every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self._epochs: dict[str, list[Array]] = {}
        # Training metrics of the epoch, if validation has reset them.
        self._training: dict[str, Array] | None = None
        # Metrics at the end of the epoch.
        self._metrics: dict[str, Array] = {}

    def of_metrics(self) -> keras.callbacks.Callback:
        """Return the callback that reads the metrics before those of the user.

        These may evaluate other data. The diagnostics are read after them.
        """

        def take(epoch: int, logs: Any) -> None:
            self._metrics = self.model.chain_results()

        return keras.callbacks.LambdaCallback(on_epoch_end=take)

    def as_arrays(self) -> dict[str, Array]:
        return {name: np.stack(values) for name, values in self._epochs.items()}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._training = None

    def on_test_begin(self, logs: Any = None) -> None:
        self._training = self.model.chain_results()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        values = self._metrics
        if self._training is not None:
            validation = {f"val_{name}": value for name, value in values.items()}
            values = self._training | validation
        if isinstance(self.model.optimizer, Sampler):
            values = values | self.model.optimizer.chain_diagnostics()
        for name, value in values.items():
            self._epochs.setdefault(name, []).append(value)
