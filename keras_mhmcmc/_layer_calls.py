"""Watch the calls of a layer."""

import contextlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import keras


@contextlib.contextmanager
def noted(layer: keras.layers.Layer, note: Callable[[Any], None]) -> Iterator[None]:
    """Call `note` with the inputs of each call of `layer`."""
    call = layer.call

    def noting(inputs: Any, *arguments: Any, **options: Any) -> Any:
        note(inputs)
        return call(inputs, *arguments, **options)

    layer.call = noting
    try:
        yield
    finally:
        del layer.call
