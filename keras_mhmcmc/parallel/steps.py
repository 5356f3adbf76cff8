"""One training or test step of several chains, as functions of tensors."""

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Literal
from typing import TypeVar

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.parallel.stacked_values import split
from keras_mhmcmc.parallel.stacked_values import where_accepted

Value = TypeVar("Value")
Way = Literal["vmap", "loop"]


@dataclass(frozen=True)
class ChainStep:
    """The parts that a step of several chains needs.

    `train` and `test` take and return two lists of values. `chains` are those of
    variables that each chain has, for some or all of the chains along the first axis:
    `trainable`, `others`, then (in training) the slots of the optimizer, then the
    metrics' state and results. `shared` are the optimizer's scalars, which all chains
    have in common.
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
        """Evaluate a mini-batch, and return the new `chains` and `shared`."""
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

        Args:
            slots: the optimizer's variables that each chain has.
            values: of the weights, of `slots`, then of the optimizer's scalars.
            losses: loss of each chain, shape (chains,).
            gradients: gradient of each weight, shape (chains, ...).

        Returns:
            The new values, and a boolean tensor (chains,). None stands for acceptance
            in all chains.
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
                x, y, predictions, sample_weight, training=training
            )
            inputs = [part for part in keras.tree.flatten(x) if part is not None]
            size = ops.shape(inputs[0])[0]  # a tensor if the last batch may be short
            _backend.record_loss(template, loss, size)
            logs = template.compute_metrics(x, y, predictions, sample_weight)
        results = [
            ops.mean(ops.cast(logs[name], "float32")) for name in self.metric_names
        ]
        new = [scope.get_current_value(variable) for variable in variables]
        _, new_others, new_states = split(new, [len(trainable), len(others)])
        return loss, (new_others, [*new_states, ops.stack(results)])


def in_one_pass(
    run: Callable[[int], Value], num_chains: int, strategy: Way, asked: str
) -> tuple[Value, Way]:
    """Return what `run` gives, and how the chains are evaluated from now on.

    Args:
        run: takes the number of chains that are evaluated at a time.
        num_chains: number of chains.
        strategy: "vmap" or "loop".
        asked: what the user asked for. "auto" loops where a layer cannot be vectorised.
    """
    if strategy == "loop":
        return run(1), "loop"
    try:
        return run(num_chains), "vmap"
    except Exception as error:  # frameworks have no type for what they cannot do
        failure = error
    try:
        outputs = run(1)
    except Exception as error:  # of the network itself
        error.add_note(
            "If one model trains without this error, a layer cannot be traced. Put it "
            "into the pipeline of the data, or fit one model for each chain."
        )
        raise
    # Keras names the layer in the first line, and has the reason in bold below.
    parts = [part.strip().split("\n")[0] for part in str(failure).split("\x1b[1m")]
    line = " ".join(parts[:2]).removesuffix("\x1b[0m")
    reason = f"{type(failure).__name__}: {line[:200]}"
    if asked == "vmap":
        raise ValueError(
            'Argument `strategy` must be "loop" or "auto" for this model, which has a '
            "layer that cannot be vectorised. "
            f'Received: strategy="vmap", and the error {reason}'
        ) from failure
    warn(
        "The chains are evaluated one after the other, since a layer cannot be "
        f'vectorised ({reason}). With `strategy="loop"` they are so from the start.'
    )
    return outputs, "loop"
