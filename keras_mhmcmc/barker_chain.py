"""A model whose training step makes the Barker test of a proposal."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._stored_model import with_callback
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.ensemble.checks import check_trains_as_keras
from keras_mhmcmc.fit.arguments import refuse_loss_scaling
from keras_mhmcmc.fit.arguments import refuse_other_weights
from keras_mhmcmc.fit.compiled_loss import OF_LABELS
from keras_mhmcmc.fit.compiled_loss import name_of
from keras_mhmcmc.samplers.barker import Barker


@serializable
class BarkerChain(_backend.StepTrainer, WrapperModel):
    """A model that `mh.Barker` samples, with a test on mini-batches that grow.

    It samples exp(-U/T) approximately. `mh.Barker` describes the bias, the settings,
    and which models it suits. The test compares the losses of single examples at two
    sets of weights, which an optimizer does not get. So this model wraps another model,
    and shares its weights. Compile it with `mh.Barker`, and fit it like any model. An
    epoch must visit each example once, in random order: shuffle the data, as `fit`
    does.

    The compiled loss must be the mean of the negative log-likelihood over the examples,
    for one output, such as the cross-entropy of a class, or `mh.losses.GaussianNLL`.
    The model is in inference mode (`training=False`) at both sets of weights: dropout
    is off, and batch normalisation uses its moving statistics, which do not change. The
    loss and the metrics in the logs of `fit` are those of the state, in this mode. The
    attribute `model` of the result is the wrapped model.

    Args:
        model: `keras.Model` with one output. Layers with `trainable=False` stay as they
            are.
        name: name of the result. Defaults to "barker_chain".

    Raises:
        ValueError: `model` has no trainable weights or a training step of its own, or
            there are several processes or replicas; in `compile`, the optimizer is no
            `mh.Barker`; or, in `fit`, the loss is not one number for each example,
            weights of examples are given, the model adds to the loss, as regularisers
            do, or other layers train than at the first step.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    >>> chain = mh.BarkerChain(model)
    >>> barker = mh.Barker(0.05, train_size=200, seed=0)
    >>> chain.compile(barker, loss=mh.losses.GaussianNLL(noise_std=1.0))
    >>> posterior = mh.PosteriorSamples(burn_in=4, every=2)
    >>> x, y = np.random.default_rng(0).normal(size=(200, 4)), np.ones(200)
    >>> history = chain.fit(x, y, 50, epochs=3, verbose=0, callbacks=[posterior])
    >>> posterior.ensemble(chain).predict(x, verbose=0).shape
    (200, 1)

    Reference: that of `mh.Barker`.
    """

    def __init__(self, model: keras.Model, name: str = "barker_chain") -> None:
        super().__init__(name=_validate.scope_name(name))
        _backend.refuse_replicas("mh.BarkerChain")
        check_trains_as_keras(model)
        self.model = model
        if isinstance(model, keras.Function):
            # Keras finds losses and metrics by these names.
            self.output_names = list(model.output_names)
        if model.built:
            self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return the prediction of the model."""
        return self.model(inputs, training=training)

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        **options: Any,
    ) -> None:
        """Compile as `keras.Model.compile` does. `optimizer` is an `mh.Barker`."""
        _validate.instance("optimizer", optimizer, Barker, "an `mh.Barker`")
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **options)
        refuse_loss_scaling(self)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        config = _backend.portable(config)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        **options: Any,
    ) -> keras.callbacks.History:
        """Sample as `keras.Model.fit` trains."""
        if isinstance(self.optimizer, Barker):
            # A compiled step does not see that other layers are frozen now.
            refuse_other_weights(self.optimizer.sampled_variables, self)
        callbacks = with_callback(callbacks, _NewTests())
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **options)

    def own_step(self, data: Any) -> dict[str, Tensor]:
        """Add a mini-batch to the test, and return the logs."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if sample_weight is not None:
            raise ValueError(
                "Arguments `sample_weight` and `class_weight` of `fit` must be left "
                "out: a weight is no part of the likelihood of an example. Give an "
                "example with the weight k as k examples. "
                f"Received: sample_weight={_validate.shown(sample_weight)}"
            )
        proposal = self.optimizer.proposal()
        state = _backend.read(self.trainable_variables)
        here, outputs = self._example_losses(state, x, y)
        there, _ = self._example_losses(proposal, x, y)
        _backend.record_loss(self, ops.mean(here), ops.shape(here)[0])
        self.optimizer.test(here, there)
        return self.compute_metrics(x, y, outputs, None)

    def _example_losses(
        self, weights: Sequence[Tensor], x: Any, y: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of each example, (B,), and the outputs, in inference mode."""
        others = self.non_trainable_variables
        variables = [*self.trainable_variables, *others]
        values = [*weights, *_backend.read(others)]
        mapping = zip(variables, values, strict=True)
        with keras.StatelessScope(mapping, collect_losses=True):
            outputs = self.model(x, training=False)
            if self.model.losses:
                raise ValueError(
                    "Argument `model` must have no regularisers and add nothing to the "
                    "loss: such terms are not of single examples. Pass "
                    "`prior=mh.priors.Gaussian(scale)` to `mh.Barker` in their place. "
                    f"Received: {len(self.model.losses)} terms beside the loss"
                )
            return _losses_of_examples(self, y, outputs), outputs


class _NewTests(keras.callbacks.Callback):
    """Begin each epoch with a new test: a test reads no example twice."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.settle()


def _losses_of_examples(model: keras.Model, y: Any, outputs: Any) -> Tensor:
    """Return what the compiled loss is the mean of, (B,)."""
    losses = _backend.compiled_losses(model)
    if keras.tree.is_nested(outputs) or len(losses) != 1:
        raise ValueError(
            "Argument `loss` of `compile` must be one loss, and the model must have "
            "one output: the test adds up the losses of single examples. "
            f"Received: loss={_validate.shown(model.loss)}"
        )
    [(loss, weight)] = losses
    outputs = ops.convert_to_tensor(outputs, dtype=loss.dtype)
    if y is not None:
        y = ops.convert_to_tensor(y, dtype=loss.dtype)
    labels = math.prod(outputs.shape[1:]) if None not in outputs.shape[1:] else 1
    if labels > 1 and name_of(keras.tree.flatten(model.loss)[0]) == OF_LABELS:
        raise ValueError(
            "Argument `loss` of `compile` must be the negative log-likelihood of an "
            f"example, but the binary cross-entropy is a mean over its {labels} "
            "labels. Write a function that multiplies it by their number. Received: "
            f"loss={_validate.shown(model.loss)}"
        )
    nats = ops.convert_to_tensor(loss.call(y, outputs))
    shape, count = tuple(nats.shape), outputs.shape[0]
    is_of_examples = len(shape) > 0 and (None in (shape[0], count) or shape[0] == count)
    if not is_of_examples or any(length != 1 for length in shape[1:]):
        raise ValueError(
            "Argument `loss` of `compile` must give one number for each example, of "
            "which Keras takes the mean. Write a `keras.losses.Loss` whose `call` sums "
            "over all axes but the first, or a function that does so. "
            f"Received: a loss with the shape {shape} for outputs of the shape "
            f"{tuple(outputs.shape)}"
        )
    return weight * ops.reshape(nats, (-1,))
