"""Processes that move a chain of their own each."""

import contextlib
from collections.abc import Iterator

from keras_mhmcmc import _backend


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
