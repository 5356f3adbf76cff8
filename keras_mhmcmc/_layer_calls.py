"""Watch the calls of a layer."""

import contextlib
import functools
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
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


@contextlib.contextmanager
def called(layers: Sequence[keras.layers.Layer]) -> Iterator[list[keras.layers.Layer]]:
    """Give a list that gets each of the layers whenever it is called."""
    found: list[keras.layers.Layer] = []
    with contextlib.ExitStack() as stack:
        for layer in layers:
            stack.enter_context(noted(layer, functools.partial(_append, found, layer)))
        yield found


def _append(found: list[Any], layer: Any, _: Any) -> None:
    found.append(layer)
