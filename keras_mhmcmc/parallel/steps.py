"""A training or test step of several chains, and the metrics of each chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeVar

import keras
import numpy as np
import numpy.typing as npt
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler

Value = TypeVar("Value")


def _copied(weights: Any) -> Any:
    """Return weights that Keras may multiply by a mask: PyTorch changes them."""
    return keras.tree.map_structure(lambda w: None if w is None else w * 1, weights)


@dataclass(frozen=True)
class ChainStep:
    """The parts that a step of several chains needs.

    `train` and `test` take and return `chains`, values of some or all chains along the
    first axis: `trainable`, `others`, in training the slots of the optimizer, then the
    metrics' state and results; and `shared`, the optimizer's scalars.
    """

    template: keras.Model
    variables: Sequence[keras.Variable]  # of the template, as `trainable` and `others`
    optimizer: keras.optimizers.Optimizer
    trainable: Sequence[keras.Variable]  # stacked, (chains, ...)
    others: Sequence[keras.Variable]  # not trainable; stacked
    metric_names: Sequence[str]

    def train(
        self, chains: Sequence[Tensor], shared: Sequence[Tensor], data: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Make one training step, and return the new `chains` and `shared`."""
        slots = [v for v in self.optimizer.variables if len(v.shape) > 0]
        counts = [len(self.trainable), len(self.others), len(slots)]
        trainable, others, slot_values, metrics = split(chains, counts)

        def evaluate(trainable: list[Tensor], rest: Any) -> tuple[Tensor, Any]:
            others, metrics = rest
            return self._evaluate(trainable, others, metrics, data, training=True)

        losses, gradients, (new_others, metrics) = _backend.chain_gradients(
            evaluate, trainable, (others, metrics)
        )
        values = [*trainable, *slot_values, *shared]
        values, accepted = self._apply(slots, values, losses, gradients)
        if accepted is not None:
            new_others = where_accepted(accepted, new_others, others)
        trainable, slot_values, new_shared = split(values, [counts[0], counts[2]])
        return [*trainable, *new_others, *slot_values, *metrics], new_shared

    def test(
        self, chains: Sequence[Tensor], shared: Sequence[Tensor], data: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        trainable, others, metrics = split(
            chains, [len(self.trainable), len(self.others)]
        )

        def evaluate(values: Any) -> tuple[list[Tensor], list[Tensor]]:
            trainable, others, metrics = values
            return self._evaluate(trainable, others, metrics, data, training=False)[1]

        new_others, metrics = _backend.chain_outputs(
            evaluate, [trainable, others, metrics]
        )
        return [*trainable, *new_others, *metrics], list(shared)

    def _apply(
        self,
        slots: Sequence[keras.Variable],
        values: Sequence[Tensor],
        losses: Tensor,
        gradients: Sequence[Tensor],
    ) -> tuple[list[Tensor], Tensor | None]:
        """Return new values of weights, slots and scalars, and who accepted."""
        shared = [v for v in self.optimizer.variables if len(v.shape) == 0]
        rows = [*self.trainable, *slots]
        accepted = None
        with (
            _backend.any_number_of_rows(rows),
            _backend.writable_optimizer(self.optimizer),
            keras.StatelessScope() as scope,
        ):
            for variable, value in zip([*rows, *shared], values, strict=True):
                scope.add_update((variable, value))
            if isinstance(self.optimizer, Sampler):
                self.optimizer.observe_losses(losses)
            self.optimizer.apply(gradients, self.trainable)
            if isinstance(self.optimizer, Sampler):
                accepted = self.optimizer.take_accepted()
        return [scope.get_current_value(v) for v in [*rows, *shared]], accepted

    def _evaluate(
        self,
        trainable: Sequence[Tensor],
        others: Sequence[Tensor],
        metrics: Sequence[Tensor],
        data: Any,
        training: bool,
    ) -> tuple[Tensor, tuple[list[Tensor], list[Tensor]]]:
        """Return the loss of one chain, and new values of `others` and `metrics`."""
        template = self.template
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        *states, _ = metrics
        variables = [*self.variables, *template.metrics_variables]
        mapping = zip(variables, [*trainable, *others, *states], strict=True)
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            predictions = _backend.step_outputs(template, x, training)
            loss = template.compute_loss(
                x, y, predictions, _copied(sample_weight), training=training
            )
            inputs = [part for part in keras.tree.flatten(x) if part is not None]
            size = ops.shape(inputs[0])[0]  # a tensor if the last batch may be short
            _backend.record_loss(template, loss, size)
            weights = _copied(sample_weight)
            logs = template.compute_metrics(x, y, predictions, weights)
        results = [
            ops.mean(ops.cast(logs[name], "float32")) for name in self.metric_names
        ]
        new = [scope.get_current_value(variable) for variable in variables]
        _, new_others, new_states = split(new, [len(trainable), len(others)])
        return loss, (new_others, [*new_states, ops.stack(results)])


def split(values: Sequence[Value], counts: Sequence[int]) -> list[list[Value]]:
    """Split `values` into lists of `counts` values, and a last list of the rest."""
    parts = []
    for count in counts:
        parts.append(list(values[:count]))
        values = values[count:]
    return [*parts, list(values)]


def where_accepted(
    accepted: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]
) -> list[Tensor]:
    """Return `new`, with `old` floating-point values in chains that did not accept."""
    return [
        ops.where(ops.reshape(accepted, (-1, *[1] * (len(x.shape) - 1))), x, y)
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype))
        else x
        for x, y in zip(new, old, strict=True)
    ]


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
        """Return a callback that reads metrics before those of the user evaluate."""

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
