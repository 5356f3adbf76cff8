"""One training or test step of several chains, as functions of tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeVar

import keras
from keras import ops

from keras_mhmcmc import _backend
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
        """Apply the gradients, and return the new values and which chains accepted.

        `values` are those of weights, slots and scalars. None: all chains accepted.
        """
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
