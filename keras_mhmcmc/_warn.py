"""Warnings that point at the user's own line."""

import contextlib
import contextvars
import inspect
import types
import warnings
from collections.abc import Iterator

_IS_QUIET = contextvars.ContextVar("is_quiet", default=False)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Give no warnings of this package: what runs is a trial of the package's own."""
    token = _IS_QUIET.set(True)
    try:
        yield
    finally:
        _IS_QUIET.reset(token)


def warn(message: str) -> None:
    """Warn, and name the line outside this package and Keras that led here."""
    if _IS_QUIET.get():
        return
    level, frame = 1, inspect.currentframe()
    while frame is not None and _is_inside(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_inside(frame: types.FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in ("keras_mhmcmc", "keras", "contextlib")  # of decorators
