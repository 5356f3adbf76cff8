"""Warnings that point at the user's own line."""

import inspect
import warnings


def warn(message):
    """Warns at the line of the user that led here, below this package and Keras."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and _is_inside(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def _is_inside(frame):
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in ("keras_mhmcmc", "keras")
