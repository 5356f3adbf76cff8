"""Losses that are mean negative log-likelihoods, in nats per example."""

import math
from collections.abc import Sequence
from typing import Any
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _laws
from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import PrintedAsCall
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn

_FEW = 20  # fewer targets tell nothing about a grid
_KNEE = 30.0  # above it a rate grows linearly with the output, and cannot overflow
_LEAST_DF = 2.01  # the variance is finite above 2
_STD_KNEE = 0.0  # output above which a deviation grows linearly
_LEAST_MEAN = 1e-6
_LEAST_SIZE = 1e-4


class Likelihood(PrintedAsCall, keras.losses.Loss):
    """Abstract: a negative log-likelihood, in nats per example.

    It sums over the targets of an example and averages over examples. Targets are
    independent given the outputs. The last axis of the model's outputs has
    `outputs(D)` numbers for D targets: first one number for each target, then the next
    number for each.

    A mask of the predictions leaves out positions, such as those of padding: an example
    is worth the sum over its other positions. Sample weights multiply examples.

    Args:
        name: name of the loss.
        reduction: as in `keras.losses.Loss`. Keep the default, the mean over examples:
            the samplers expect this unit.

    Raises:
        ValueError: an argument is outside its range; or, when the loss is computed,
            the model has not as many outputs as the targets need.
    """

    noise_std: float | None = None  # deviation of the noise, where it is known
    min_std = math.inf  # smallest deviation that it can predict; counts have none

    def __init__(
        self,
        name: str | None = None,
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        kinds = (str, type(None))
        _validate.instance("name", name, kinds, "a text, or None")
        _validate.scope_name(name)
        hint = 'a text such as "sum_over_batch_size", or None'
        _validate.instance("reduction", reduction, kinds, hint)
        super().__init__(name=name, reduction=reduction)

    @property
    def _parts(self) -> int:
        """Number of outputs of one target."""
        raise NotImplementedError

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        """Return the nats of each target. Each of its outputs has its shape."""
        raise NotImplementedError

    def _law(self, *parts: Array) -> _laws.Law:
        """Return the law of targets given outputs (members, examples, targets)."""
        raise NotImplementedError

    def outputs(self, targets: int) -> int:
        """Return the number of outputs that a model needs for so many targets.

        Args:
            targets: number of targets of an example, at least 1.
        """
        return self._parts * _validate.integer("targets", targets, 1)

    def mixture(self, outputs: Array) -> _laws.Law:
        """Return what the members of an ensemble predict.

        Args:
            outputs: their outputs, shape (members, examples, columns).

        Raises:
            ValueError: the number of columns is no multiple of what a target needs.
        """
        columns = outputs.shape[2]
        if columns % self._parts:
            raise ValueError(
                f"The model must have {self._parts} outputs for each target of "
                f"`{self!r}`. Received: {columns} outputs"
            )
        return self._law(*np.split(np.asarray(outputs, "float64"), self._parts, axis=2))

    def constant(self, y: Array) -> Array:
        """Return the outputs of a good prediction that is the same for all examples.

        Args:
            y: targets of examples, shape (N, ...).

        Returns:
            An array of the shape of one example's outputs.
        """
        y = np.asarray(y, "float64")
        parts = self._constant(y.mean(axis=0), y.std(axis=0))
        return np.concatenate([np.atleast_1d(part) for part in parts], axis=-1)

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        """Return each output of a target with this mean and standard deviation."""
        raise NotImplementedError

    def warn_of_grid(self, y: Array) -> None:
        """Warn if targets have few distinct values, and the deviation is free.

        Args:
            y: targets of examples, shape (N, ...).
        """
        if self.noise_std is not None or len(y) < _FEW:
            return
        for column in np.asarray(y, "float64").reshape(len(y), -1).T:
            values = np.unique(column)
            gap = float(np.min(np.diff(values), initial=np.inf))
            if len(values) <= len(column) / 10 and 2.0 * self.min_std < gap < np.inf:
                warn(
                    f"A target has {len(values)} distinct values in {len(column)} "
                    f"examples, at least {gap:g} apart: a density whose deviation is "
                    "free grows without bound on such a grid. Set "
                    f"min_std={0.5 * gap:g}, half of a step, or use a likelihood of "
                    f"counts or classes. Received: {self!r}"
                )
                return

    def __call__(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None
    ) -> Tensor:
        """Return the mean of the nats of the examples, or what `reduction` says."""
        mask = _backend.mask_of(y_pred)
        if mask is not None:
            # Keras would apply the mask of positions to the sums over positions.
            y_true, y_pred = (y_true, mask), ops.multiply(y_pred, 1.0)
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true: Any, y_pred: Tensor) -> Tensor:
        """Return the nats of each example, shape (N,)."""
        y_true, mask = y_true if isinstance(y_true, tuple) else (y_true, None)
        y_pred = ops.convert_to_tensor(y_pred)
        y_true = ops.cast(y_true, y_pred.dtype)
        self._check_shapes(tuple(y_true.shape), tuple(y_pred.shape))
        parts = [y_pred]
        if self._parts > 1:
            parts = ops.split(y_pred, self._parts, axis=-1)
        y_true = ops.reshape(y_true, ops.shape(parts[0]))
        nats = self._nats(y_true, *parts)
        if mask is not None:
            while len(mask.shape) < len(nats.shape):
                mask = ops.expand_dims(mask, -1)
            nats = ops.where(mask > 0.5, nats, 0.0)
        return ops.sum(ops.reshape(nats, (ops.shape(nats)[0], -1)), axis=1)

    def _check_shapes(
        self, y_true: Sequence[int | None], y_pred: Sequence[int | None]
    ) -> None:
        """Raise a `ValueError` if a model has other outputs than the targets need."""
        width = None if not y_pred else y_pred[-1]
        if self._parts > 1 and width is not None:
            each = width // self._parts if width % self._parts == 0 else -1
            shapes = [list(y_true), [*y_pred[:-1], each]]
        else:
            shapes = [list(y_true), list(y_pred)]
        for shape in shapes:
            while len(shape) > 1 and shape[-1] == 1:
                shape.pop()
        fits = len(shapes[0]) == len(shapes[1]) > 0
        # A length of None is unknown until the step runs.
        pairs = zip(*shapes, strict=True) if fits else []
        if fits and all(a == b or None in (a, b) for a, b in pairs):
            return
        if self._parts == 1:
            raise ValueError(
                "Arguments `y_true` and `y_pred`, the targets and the model's outputs, "
                "must have the same shape (examples, ...), apart from last axes of "
                f"length 1. Received: y_true of shape {tuple(y_true)} and y_pred of "
                f"shape {tuple(y_pred)}"
            )
        targets = y_true[-1] if len(y_true) == len(y_pred) and y_true else 1
        needed = f"{self._parts} outputs for each target"
        if targets and targets > 0:
            needed = f"{self.outputs(targets)} outputs for {targets} target(s)"
        raise ValueError(
            f"Argument `y_pred`, the model's outputs, must have {needed} along its "
            f"last axis: `{self!r}` needs {self._parts} for each target. Let the last "
            f"layer have as many. Received: y_true of shape {tuple(y_true)} and y_pred "
            f"of shape {tuple(y_pred)}"
        )


def log_rate(xp: Any, raw: Any, knee: float = _KNEE) -> Any:
    """Return the logarithm of exp(raw), which grows linearly above the knee.

    `xp` is `numpy` or `keras.ops`.
    """
    return xp.minimum(raw, knee) + xp.log1p(xp.maximum(raw - knee, 0.0))


def _raw(std: Any) -> Any:
    """Return the outputs that mean these deviations, up to the floor."""
    return np.where(std < 1.0, np.log(std), std - 1.0)


class _WithDeviation(Likelihood):
    """Abstract: a likelihood with a deviation among its outputs, and a floor for it."""

    def __init__(
        self,
        min_std: float,
        name: str | None,
        reduction: str | None,
    ) -> None:
        super().__init__(name=name, reduction=reduction)
        self.min_std = _validate.number("min_std", min_std, _validate.POSITIVE)

    def _log_std(self, raw: Tensor) -> Tensor:
        """Return the logarithm of the deviation, which is finite for all outputs.

        std = min_std + exp(s) if s < 0, else min_std + 1 + s. Above the deviation of
        all targets an exponential would let single samples, far from the data, predict
        a deviation that no mean of samples forgets.
        """
        floor = math.log(self.min_std)
        return floor + ops.softplus(log_rate(ops, raw, _STD_KNEE) - floor)

    def _std(self, raw: Array) -> Array:
        return self.min_std + np.exp(log_rate(np, raw, _STD_KNEE))

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        raw = _raw(np.maximum(std, self.min_std))
        return [mean, raw, np.zeros_like(mean)][: self._parts]


@serializable
class GaussianNLL(_WithDeviation):
    """Negative log-likelihood of targets with normal noise.

    The targets are y = mean + std * Z with standard normal noise Z. With a known noise
    the model outputs the mean of each of D targets. Without it the noise depends on
    the input, and the last axis of the outputs has 2 D numbers: D means, then D
    numbers s with std = min_std + exp(s), or min_std + 1 + s if s > 0. The mean squared
    error is no likelihood, because it does not depend on the size of the noise.

    Args:
        noise_std: standard deviation of the noise, in units of the target, greater
            than 0. Defaults to None: the model predicts it for each example.
        min_std: smallest standard deviation that the model can predict, in units of
            the target, greater than 0. About a thousandth of the target's own
            deviation suits most data; for targets that are rounded, half of their
            step. Without a floor a density grows without bound where targets repeat.
            Defaults to 0.001, for targets of deviation 1.
        name: name of the loss. Defaults to "gaussian_nll".
        reduction: as in `keras.losses.Loss`. Keep the default, the mean over examples:
            the samplers expect this unit.

    Raises:
        ValueError: an argument is outside its range; or, when the loss is computed,
            the model has not as many outputs as the targets need.

    Example:

    >>> loss = GaussianNLL(noise_std=0.5)
    >>> round(float(loss([[0.0]], [[1.0]])), 4)
    2.2258
    >>> predicted = GaussianNLL()  # a mean of 1, and a deviation of exp(0) + 0.001
    >>> round(float(predicted([[0.0]], [[1.0, 0.0]])), 4)
    1.4189
    """

    def __init__(
        self,
        noise_std: float | Literal["learned"] | None = None,
        *,
        min_std: float = 1e-3,
        name: str | None = "gaussian_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(min_std, name, reduction)
        if isinstance(noise_std, str) and noise_std == "learned":
            raise ValueError(
                "Argument `noise_std` must be a number or None: Keras does not train "
                "the variables of a loss. For one deviation for all data, end the "
                "network in `mh.losses.LearnedDeviation()`, and use None. Received: "
                'noise_std="learned"'
            )
        if noise_std is not None:
            noise_std = _validate.number("noise_std", noise_std, _validate.POSITIVE)
        self.noise_std = noise_std

    @property
    def _parts(self) -> int:
        return 2 if self.noise_std is None else 1

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        if self.noise_std is None:
            log_std = self._log_std(parts[1])
            residual = (y_true - parts[0]) * ops.exp(-log_std)
        else:
            log_std = math.log(self.noise_std)
            residual = (y_true - parts[0]) / self.noise_std
        return 0.5 * ops.square(residual) + (log_std + 0.5 * math.log(2.0 * math.pi))

    def _law(self, *parts: Array) -> _laws.Law:
        means, ones = parts[0][None], np.ones_like(parts[0][None])
        noise = self.noise_std
        stds = self._std(parts[1])[None] if noise is None else noise * ones
        return _laws.NormalLaw(means, stds, ones)


@serializable
class LearnedDeviation(keras.layers.Layer):
    """Append one deviation for all data to the means that a network predicts.

    The outputs are those of `GaussianNLL()`: D means, then D numbers s, which tell the
    deviation. Here s is a weight of the network, so a sampler samples it with the
    others. It suits noise that does not depend on the input.

    Args:
        initial: the deviation before training, in units of the target, greater than 0.
            Defaults to 1.0, for targets of deviation 1.
        options: as for `keras.layers.Layer`.

    Raises:
        ValueError: `initial` is not greater than 0.

    Example:

    >>> import keras
    >>> means = keras.layers.Dense(1)
    >>> network = keras.Sequential([keras.Input((3,)), means, LearnedDeviation()])
    >>> network.output_shape
    (None, 2)
    """

    def __init__(self, initial: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        self.initial = _validate.number("initial", initial, _validate.POSITIVE)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Make the weights, one for each mean."""
        start = keras.initializers.Constant(float(_raw(self.initial)))
        shape = (input_shape[-1],)
        self.raw = self.add_weight(shape=shape, initializer=start, name="raw_std")

    def call(self, means: Tensor) -> Tensor:
        """Return the means, then the output that tells the deviation of each."""
        raw = ops.broadcast_to(self.raw, ops.shape(means))
        return ops.concatenate([means, ops.cast(raw, means.dtype)], axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {"initial": self.initial, **super().get_config()}


@serializable
class StudentTNLL(_WithDeviation):
    """Negative log-likelihood of targets with noise of Student's t distribution.

    The targets are y = centre + scale * T. Heavy tails make outliers cheap. The last
    axis of the outputs has 3 D numbers for D targets: D centres, then D numbers s that
    give the scale as in `GaussianNLL`, then D numbers t with 2.01 + exp(t) degrees of
    freedom. If these are known, it has 2 D numbers.

    Args:
        df: degrees of freedom, greater than 2: the variance is finite. Defaults to
            None: the model predicts them for each example.
        min_std: smallest scale, as in `GaussianNLL`. Defaults to 0.001.
        name: name of the loss. Defaults to "student_t_nll".
        reduction: as in `GaussianNLL`.

    Raises:
        ValueError: as in `GaussianNLL`.

    Example:

    >>> loss = StudentTNLL(df=4.0)
    >>> round(float(loss([[100.0]], [[0.0, 0.0]])), 2)  # normal noise: 5000.92
    20.54
    """

    def __init__(
        self,
        df: float | None = None,
        *,
        min_std: float = 1e-3,
        name: str | None = "student_t_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(min_std, name, reduction)
        if df is not None:
            above = _validate.Interval(2.0, low_open=True)
            df = _validate.number("df", df, above)
        self.df = df

    @property
    def _parts(self) -> int:
        return 3 if self.df is None else 2

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        log_std = self._log_std(parts[1])
        z = (y_true - parts[0]) * ops.exp(-log_std)
        df = ops.ones_like(z) * (self.df or 0.0)
        if self.df is None:
            df = _LEAST_DF + ops.exp(log_rate(ops, parts[2]))
        return log_std - _laws.student_t_log_prob(ops, z, df)

    def _law(self, *parts: Array) -> _laws.Law:
        df = np.full_like(parts[0], self.df or 0.0)
        if self.df is None:
            df = _LEAST_DF + np.exp(log_rate(np, parts[2]))
        return _laws.StudentTLaw(parts[0], self._std(parts[1]), df)


@serializable
class MixtureNLL(_WithDeviation):
    """Negative log-likelihood of targets whose law is a mixture of normals.

    It suits targets with several likely values for one input. The last axis of the
    outputs has 3 K D numbers for K components of D targets: K times D means, then K
    times D numbers s that give deviations as in `GaussianNLL`, then K times D logits of
    the components. Each target has its own components.

    Args:
        components: number of components K, at least 1.
        min_std: smallest standard deviation, as in `GaussianNLL`. Defaults to 0.001.
        name: name of the loss. Defaults to "mixture_nll".
        reduction: as in `GaussianNLL`.

    Raises:
        ValueError: as in `GaussianNLL`.

    Example:

    >>> loss = MixtureNLL(2)
    >>> loss.outputs(1)
    6
    >>> round(float(loss([[1.0]], [[1.0, -1.0, 0.0, 0.0, 0.0, 0.0]])), 4)
    1.4857

    Reference: Bishop (1994), "Mixture density networks".
    """

    def __init__(
        self,
        components: int,
        *,
        min_std: float = 1e-3,
        name: str | None = "mixture_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(min_std, name, reduction)
        self.components = _validate.integer("components", components, 1)

    @property
    def _parts(self) -> int:
        return 3 * self.components

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        means, raw, logits = (ops.stack(group) for group in self._groups(parts))
        log_std = self._log_std(raw)
        squares = ops.square((y_true - means) * ops.exp(-log_std))
        logs = ops.log_softmax(logits, axis=0) - log_std - 0.5 * squares
        return 0.5 * math.log(2.0 * math.pi) - ops.logsumexp(logs, axis=0)

    def _law(self, *parts: Array) -> _laws.Law:
        means, raw, logits = (np.stack(group) for group in self._groups(parts))
        shares = np.exp(logits - np.logaddexp.reduce(logits, axis=0))
        return _laws.NormalLaw(means, self._std(raw), shares)

    def _groups(self, parts: Sequence[Any]) -> list[Sequence[Any]]:
        count = self.components
        return [parts[start : start + count] for start in (0, count, 2 * count)]

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        parts = (mean, _raw(np.maximum(std, self.min_std)), np.zeros_like(mean))
        return [part for part in parts for _ in range(self.components)]


@serializable
class PoissonNLL(Likelihood):
    """Negative log-likelihood of counts with Poisson laws, all its constants included.

    The model outputs the logarithm of the rate of each target. Above 30 the rate grows
    linearly, exp(30) (s - 29), so that it cannot overflow.

    Args:
        name: name of the loss. Defaults to "poisson_nll".
        reduction: as in `GaussianNLL`.

    Raises:
        ValueError: as in `GaussianNLL`.

    Example:

    >>> round(float(PoissonNLL()([[2.0]], [[0.0]])), 4)  # 1 + log 2!
    1.6931
    """

    def __init__(
        self,
        name: str | None = "poisson_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(name=name, reduction=reduction)

    @property
    def _parts(self) -> int:
        return 1

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        log_mean = log_rate(ops, parts[0])
        return -_laws.count_log_prob(ops, y_true, ops.exp(log_mean), log_mean)

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        return [np.log(np.maximum(mean, _LEAST_MEAN))]

    def _law(self, *parts: Array) -> _laws.Law:
        return _laws.PoissonLaw(np.exp(log_rate(np, parts[0])))


@serializable
class NegativeBinomialNLL(Likelihood):
    """Negative log-likelihood of counts that vary more than Poisson counts.

    The last axis of the outputs has 2 D numbers for D targets: D logarithms of the
    rate, as in `PoissonNLL`, then D numbers s with size = 0.0001 + exp(s). The variance
    is rate + rate^2 / size.

    Args:
        name: name of the loss. Defaults to "negative_binomial_nll".
        reduction: as in `GaussianNLL`.

    Raises:
        ValueError: as in `GaussianNLL`.

    Example:

    >>> loss = NegativeBinomialNLL()
    >>> round(float(loss([[0.0]], [[0.0, 0.0]])), 3)  # a geometric law: log 2
    0.693
    """

    def __init__(
        self,
        name: str | None = "negative_binomial_nll",
        reduction: str | None = "sum_over_batch_size",
    ) -> None:
        super().__init__(name=name, reduction=reduction)

    @property
    def _parts(self) -> int:
        return 2

    def _nats(self, y_true: Tensor, *parts: Tensor) -> Tensor:
        log_mean = log_rate(ops, parts[0])
        size = _LEAST_SIZE + ops.exp(log_rate(ops, parts[1]))
        rate = ops.exp(log_mean)
        return -_laws.count_log_prob(ops, y_true, rate, log_mean, size)

    def _constant(self, mean: Array, std: Array) -> list[Array]:
        return [np.log(np.maximum(mean, _LEAST_MEAN)), np.zeros_like(mean)]

    def _law(self, *parts: Array) -> _laws.Law:
        sizes = _LEAST_SIZE + np.exp(log_rate(np, parts[1]))
        return _laws.NegativeBinomialLaw(np.exp(log_rate(np, parts[0])), sizes)
