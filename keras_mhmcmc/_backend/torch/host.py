"""PyTorch: scalars that can be read, and memory that may be overwritten."""

import contextlib
import contextvars

_TRACING = contextvars.ContextVar("tracing", default=False)
# Whether a step is traced, whose values a compiled program changes.
is_tracing = _TRACING.get


@contextlib.contextmanager
def tracing():
    """Trace a step in this scope: no scalar is known."""
    token = _TRACING.set(True)
    try:
        yield
    finally:
        _TRACING.reset(token)


def is_known(condition):
    """Return whether a scalar is on the host, where reading it stops no queue."""
    return condition.device.type == "cpu" and not is_tracing()


class Donated(list):
    """Tensors in the memory of variables, that a sum with them may overwrite."""
