"""Adversarial training: each step sees adversarial examples of its own weights."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._stored_model import WrapperModel
from keras_mhmcmc._stored_model import with_callback
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.ensemble.checks import check_trains_as_keras
from keras_mhmcmc.evaluation import checks

_SCALE = 128  # of the summed loss, whose gradients are at most of order 1
_STILL = 0.05  # share of examples without a gradient that is worth a warning


def training(
    model: keras.Model,
    epsilon: float,
    *,
    steps: int = 7,
    step_size: float | None = None,
    random_start: bool | None = None,
    clip: Sequence[float] | None = (0.0, 1.0),
    seed: int = 0,
) -> "AdversarialTraining":
    """Wrap a model such that each training step uses adversarial examples.

    It minimises the expected largest loss, E[max_{|d| <= epsilon} L(theta, x + d, y)].
    Compile and fit the result as any Keras model, with any optimizer. Before each step,
    projected gradient descent moves the mini-batch within `epsilon`, where the compiled
    loss is higher at the current weights. The model is in inference mode meanwhile. The
    logs of `fit` are those of adversarial examples; validation, `evaluate` and
    `predict` use the inputs as they are. `result.model` is `model`, with the trained
    weights. A step costs `steps` more gradients. The robust model usually has a lower
    accuracy on clean inputs. After the first epoch a warning tells if inputs are
    outside `clip`, or have a gradient of zero.

    Args:
        model: `keras.Model` with one input of floating-point numbers. It shares its
            weights with the result.
        epsilon: as in `fgsm`. With 0 the training is the usual one.
        steps: number of steps of the attack, at least 1. Defaults to 7. With 1 the
            attack is FGSM.
        step_size: as in `pgd`, but `epsilon` by default for one step.
        random_start: as in `pgd`. Defaults to None, which is True for more than one
            step.
        clip: smallest and largest valid input, an increasing pair. Adversarial examples
            lie between them. Defaults to (0, 1); None sets no limits.
        seed: integer that makes the random starts repeatable. Defaults to 0.

    Raises:
        ValueError: an argument is outside its range, or `model` has no trainable
            weights or a training step of its own; or, in `fit`, the inputs are an array
            outside `clip`, or are not floating-point numbers in one array.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> layer = keras.layers.Dense(2, activation="softmax")
    >>> model = keras.Sequential([keras.Input((3,)), layer])
    >>> robust = training(model, epsilon=0.1, steps=2)
    >>> robust.compile("adam", "sparse_categorical_crossentropy")
    >>> x, y = np.full((8, 3), 0.5), np.arange(8) % 2
    >>> history = robust.fit(x, y, verbose=0)
    >>> robust.model is model
    True

    Reference: Madry, Makelov, Schmidt, Tsipras and Vladu (2018), "Towards deep learning
    models resistant to adversarial attacks", eq. (2.1) and section 2.1. For one step:
    Goodfellow, Shlens and Szegedy (2015).
    """
    return AdversarialTraining(
        model, epsilon, steps, step_size, random_start, clip, seed
    )


@serializable
class AdversarialTraining(_backend.DataTrainer, WrapperModel):
    """A model that trains on adversarial examples; `training` has the arguments."""

    def __init__(
        self,
        model: keras.Model,
        epsilon: float,
        steps: int = 7,
        step_size: float | None = None,
        random_start: bool | None = None,
        clip: Sequence[float] | None = (0.0, 1.0),
        seed: int = 0,
        name: str = "adversarial_training",
    ) -> None:
        super().__init__(name=_validate.scope_name(name))
        self.epsilon = _validate.number("epsilon", epsilon, _validate.NOT_NEGATIVE)
        self.steps = _validate.integer("steps", steps, 1)
        if step_size is None:
            longest = 2.5 / self.steps if self.steps > 1 else 1.0
            step_size = min(longest * self.epsilon, _validate.LARGEST_NUMBER)
        interval = _validate.NOT_NEGATIVE
        self.step_size = _validate.number("step_size", step_size, interval)
        if random_start is None:
            random_start = self.steps > 1
        _validate.instance("random_start", random_start, bool, "True, False or None")
        self.random_start = random_start
        self.clip = checks.as_limits(clip)
        self.seed = _validate.seed(seed)
        check_trains_as_keras(model)
        self.model = model
        self.start_seeds = keras.random.SeedGenerator(self.seed)
        # Examples seen, those with a gradient of zero, and the largest distance of an
        # input from `clip`.
        self._seen = self.add_weight(
            shape=(3,), initializer="zeros", trainable=False, name="seen"
        )
        if isinstance(model, keras.Function):
            # Keras finds losses and metrics by these names.
            self.output_names = list(model.output_names)
        if model.built:
            self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return the prediction of the model."""
        return self.model(inputs, training=training)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        **options: Any,
    ) -> Any:
        """Train as `keras.Model.fit` does, on adversarial examples of `x`."""
        if isinstance(x, np.ndarray) or ops.is_tensor(x):
            checks.inputs_and_limits(x, self.clip)
        callbacks = with_callback(callbacks, _WarnOfWeakAttacks())
        return super().fit(x, y, batch_size, epochs, verbose, callbacks, **options)

    def change_data(self, data: Any) -> Any:
        """Return the mini-batch with adversarial examples in place of `x`."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if keras.tree.is_nested(x) or not keras.backend.is_float_dtype(x.dtype):
            raise ValueError(
                "Argument `x` of `fit` must be one array of floating-point numbers: an "
                "attack moves them by a fraction. Scale images of integers to [0, 1] "
                f"first. Received: x={x!r}"
            )
        if self.epsilon > 0.0:
            clean = ops.convert_to_tensor(x)
            x, is_moved = self._attack(clean, y, sample_weight)
            self._take_note(clean, is_moved)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def attack(self, x: Tensor, y: Any = None, sample_weight: Any = None) -> Tensor:
        """Return adversarial examples of a mini-batch, at the current weights."""
        return self._attack(ops.convert_to_tensor(x), y, sample_weight)[0]

    def _attack(self, x: Tensor, y: Any, sample_weight: Any) -> tuple[Tensor, Tensor]:
        """Return adversarial examples, and which of them had a gradient."""
        ends = self.clip or (-np.inf, np.inf)
        numbers = (self.epsilon, self.step_size, *ends)
        epsilon, size, low, high = (ops.cast(number, x.dtype) for number in numbers)
        # An input outside the limits, as in a data set that `fit` cannot check, stays.
        low, high, point = ops.minimum(x, low), ops.maximum(x, high), x
        if self.random_start:
            noise = keras.random.uniform(ops.shape(x), -1.0, 1.0, seed=self.start_seeds)
            point = ops.clip(x + epsilon * ops.cast(noise, x.dtype), low, high)
        differentiate = _backend.gradient_and_more(self._loss_of(x, y, sample_weight))
        rank = len(x.shape)

        def step(_: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            point, is_moved = state
            gradient, _ = differentiate(point)
            gradient = ops.where(ops.isfinite(gradient), gradient, 0.0)
            moved = point + size * ops.sign(gradient)
            moved = x + ops.clip(moved - x, -epsilon, epsilon)
            has_gradient = ops.any(gradient != 0.0, axis=tuple(range(1, rank)))
            return ops.clip(moved, low, high), ops.logical_or(is_moved, has_gradient)

        none = ops.zeros((ops.shape(x)[0],), "bool")
        point, is_moved = ops.fori_loop(0, self.steps, step, (point, none))
        return ops.stop_gradient(point), is_moved

    def _take_note(self, x: Tensor, is_moved: Tensor) -> None:
        """Count the examples of a mini-batch, and those without a gradient."""
        low, high = self.clip or (-np.inf, np.inf)
        outside = ops.maximum(low - ops.min(x), ops.max(x) - high)
        still = ops.sum(1.0 - ops.cast(is_moved, "float32"))
        count = ops.cast(ops.shape(x)[0], "float32")
        furthest = ops.maximum(self._seen[2], ops.cast(outside, "float32"))
        seen = [self._seen[0] + count, self._seen[1] + still, furthest]
        self._seen.assign(ops.stop_gradient(ops.stack(seen)))

    def _loss_of(self, x: Tensor, y: Any, sample_weight: Any) -> Any:
        """Return the compiled loss as a function of the inputs."""
        # It reads the variables now, and changes none: metrics and losses that layers
        # add stay in a scope.
        variables = self.trainable_variables + self.non_trainable_variables
        variables = variables + self.metrics_variables
        values = [variable.value for variable in variables]

        def loss(point: Tensor) -> tuple[Tensor, tuple[()]]:
            mapping = zip(variables, values, strict=True)
            with keras.StatelessScope(mapping, collect_losses=True):
                outputs = self(point, training=False)
                value = self.compute_loss(
                    point, y, outputs, sample_weight, training=False
                )
            # The sign alone counts. This scale keeps gradients in half precision from
            # underflow, where the loss is a mean over many examples.
            value = value * ops.cast(_SCALE * ops.shape(point)[0], value.dtype)
            # The second term makes the gradient zero, not None, if outputs ignore x.
            return value + 0.0 * ops.cast(ops.sum(point), value.dtype), ()

        return loss


class _WarnOfWeakAttacks(keras.callbacks.Callback):
    """Tell at the end of the first epoch what the attacks could not move."""

    def on_train_begin(self, logs: Any = None) -> None:
        self._is_told = False
        self.model._seen.assign(ops.zeros((3,)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._is_told:
            return
        self._is_told = True
        count, still, outside = ops.convert_to_numpy(self.model._seen).tolist()
        if outside > 0.0:
            low, high = self.model.clip
            warn(
                f"Inputs lie up to {outside:.3g} outside `clip`, here [{low:g}, "
                f"{high:g}], so the attacks could move them in one direction at most, "
                "and the training is hardly adversarial. Scale the inputs to this "
                "range, or pass their range as `clip`."
            )
        if still > _STILL * count:
            warn(
                f"The attack did not move {still:.0f} of {count:.0f} examples of the "
                "first epoch beyond its start: all gradients were zero or not finite. "
                "Let the model end in logits, with from_logits=True in the loss, and "
                "check it for square roots or logarithms of 0."
            )
