"""Processes and replicas that move one chain together, or each a chain of its own."""

import contextlib
from collections.abc import Iterator
from collections.abc import Sequence

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Position


@contextlib.contextmanager
def independent_processes() -> Iterator[None]:
    """Let each process of a group run chains of its own, on PyTorch.

    In a process group of `torch.distributed`, a sampler moves one chain in all
    processes together: they share the loss, the gradient and the noise. A sampler that
    is made inside `with mh.independent_processes():` does not know of the group. This
    includes samplers that are loaded with a model. Give each process its own seed, and
    its own `directory` for `mh.PosteriorSamples`.

    On JAX and TensorFlow there is nothing to switch: processes that are started without
    a cluster share nothing.

    Example:

    >>> import keras_mhmcmc as mh
    >>> rank = 0  # torch.distributed.get_rank()
    >>> with mh.independent_processes():
    ...     optimizer = mh.SGLD(0.1, train_size=1000, seed=100 + rank)
    """
    with _backend.independent_processes():
        yield


class Replicas:
    """The replicas that move the chain of a sampler.

    These are the replicas of `tf.distribute` or the processes of `torch.distributed`.
    """

    def __init__(self) -> None:
        self._is_shared = _backend.shares_chains()
        self.is_checked = False  # before the first step of a `fit`

    @property
    def processes(self) -> int:
        """The number of processes, each of which has a part of the batch."""
        return _backend.count_processes() if self._is_shared else 1

    def check(
        self,
        gradients: Position,
        variables: Sequence[keras.Variable],
        seeds: keras.Variable | None,
    ) -> None:
        """Raise a `ValueError` if the processes differ."""
        if self._is_shared:
            _backend.check_processes(gradients, variables, seeds)
        self.is_checked = True

    def reduce(
        self, gradients: Position, loss: Tensor, changes: int
    ) -> tuple[Position, Tensor]:
        """Return the gradients and the loss of the whole batch."""
        if not self._is_shared:
            return gradients, loss
        return _backend.over_replicas(gradients, loss, changes)
