"""Values of each chain: the metrics' state, and what `fit` remembers of an epoch."""

import keras
import numpy as np
from keras import ops

from keras_mhmcmc.optimizers.sampler import Sampler


class ChainMetrics(keras.metrics.Metric):
    """The state of a template's metrics for each chain, and their results."""

    def __init__(self, template, num_chains):
        super().__init__(name="chains")
        self._template = template
        self._states = [
            self.add_variable(
                (num_chains, *variable.shape), "zeros", dtype=variable.dtype
            )
            for variable in template.metrics_variables
        ]
        # The loss first, as `evaluate` returns it; Keras 3.10 sorts the names.
        names = list(template.get_metrics_result())
        self.names = sorted(names, key=lambda name: name != "loss")
        # The step leaves here what the metrics say, shape (chains, names).
        self._results = self.add_variable(
            (num_chains, len(self.names)), "zeros", dtype="float32", name="results"
        )
        self.reset_state()

    def reset_state(self):
        """Every chain's metrics begin anew."""
        self._template.reset_metrics()
        for state, variable in zip(
            self._states, self._template.metrics_variables, strict=True
        ):
            state.assign(ops.broadcast_to(variable.value, state.shape))
        self._results.assign(ops.zeros(self._results.shape))

    def examples_seen(self):
        """The examples that the mean of the loss has counted since the reset."""
        places = {id(v): i for i, v in enumerate(self._template.metrics_variables)}
        for metric in self._template.metrics:
            if type(metric) is keras.metrics.Mean and metric.name == "loss":
                counts = self._states[places[id(metric.count)]]
                return round(float(ops.convert_to_numpy(counts)[0]))
        return 0

    def result(self):
        """The mean over chains of each metric, by name."""
        return self.means(self._results.value)

    def means(self, results):
        """The mean over chains of a tensor (chains, names), by name."""
        means = ops.mean(results, axis=0)
        return {name: means[index] for index, name in enumerate(self.names)}

    def by_chain(self):
        """The results of each chain: arrays (chains,) by name."""
        results = np.array(ops.convert_to_numpy(self._results))
        return {name: results[:, index] for index, name in enumerate(self.names)}


class ChainHistory(keras.callbacks.Callback):
    """Collects the values of each chain at the end of every epoch."""

    def __init__(self):
        super().__init__()
        self._epochs = {}
        self._training = None

    def as_arrays(self):
        """What was collected: arrays (epochs, chains) by name."""
        return {name: np.stack(values) for name, values in self._epochs.items()}

    def on_epoch_begin(self, epoch, logs=None):
        self._training = None

    def on_test_begin(self, logs=None):
        self._training = self.model.chain_results()

    def on_epoch_end(self, epoch, logs=None):
        values = self.model.chain_results()
        if self._training is not None:
            validation = {f"val_{name}": value for name, value in values.items()}
            values = self._training | validation
        if isinstance(self.model.optimizer, Sampler):
            values = values | self.model.optimizer.chain_diagnostics()
        for name, value in values.items():
            self._epochs.setdefault(name, []).append(value)
