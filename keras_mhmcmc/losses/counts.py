"""Likelihoods of counts: Poisson and negative binomial."""

import numpy as np
from keras import ops

from keras_mhmcmc import _laws
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.losses.likelihood import Likelihood
from keras_mhmcmc.losses.likelihood import log_rate

_LEAST_MEAN = 1e-6
_LEAST_SIZE = 1e-4


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
