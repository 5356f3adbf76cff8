"""Warnings that point at the user's own line."""

import inspect
import types
import warnings


def warn(message: str) -> None:
    """Warn, and name the line outside this package and Keras that led here."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and _is_inside(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_inside(frame: types.FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in ("keras_mhmcmc", "keras")
