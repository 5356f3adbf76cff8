"""The outputs of a model, and what an argument of `compile` has for each of them."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

tree = keras.tree


class Outputs:
    """The outputs of a model, in the order of `keras.tree.flatten`.

    Losses, their weights and metrics may be one for all outputs, a structure like that
    of the outputs, a flat list, or a dict by the names of the outputs. The outputs of a
    subclass of `keras.Model` are taken to have the structure of its loss.

    Args:
        model: the compiled model.
        count: number of outputs of a subclass that has one loss for all of them.
    """

    def __init__(self, model: keras.Model, count: int = 1) -> None:
        self._names: list[str] = []
        self._structure = model.loss if tree.is_nested(model.loss) else [None] * count
        if isinstance(model, keras.Function):
            self._structure, self._names = model.output, list(model.output_names)
        self.count = len(tree.flatten(self._structure))

    def listed(self, values: Any) -> list[Any]:
        """Return the value of each output, None where there is none."""
        found: list[Any] = [None] * self.count
        self.changed(values, found.__setitem__, range(self.count))
        return found

    def changed(
        self, values: Any, change: Callable[[Any, Any], Any], options: Sequence[Any]
    ) -> Any:
        """Return `values` after change(option of the output, value) for each value.

        One value for several outputs becomes one for each. Values that `change` turns
        into None are left out where an output has several.

        Raises:
            ValueError: it is not known which output a value belongs to.
        """
        # A list may also be several losses of one output. Equal options need no order.
        is_one = len(set(options)) == 1 and (self.count == 1 or not self._names)
        own = options[0] if is_one else tree.pack_sequence_as(self._structure, options)
        return self._changed(values, change, own)

    def _changed(
        self, values: Any, change: Callable[[Any, Any], Any], options: Any
    ) -> Any:
        is_one = not tree.is_nested(options)
        if values is None:
            return None
        if isinstance(values, dict):
            if not is_one and not isinstance(options, dict):
                options = dict(zip(self._names, tree.flatten(options), strict=False))
            unknown = [] if is_one else sorted(set(values) - set(options))
            if unknown:
                raise ValueError(
                    "The losses and metrics of a model whose outputs have different "
                    "activations must say to which output they belong: pass `loss` of "
                    "`compile` as a dict by the names of the outputs. Received: "
                    f"values for {unknown}, where the known names are {sorted(options)}"
                )
            return {
                name: self._changed(value, change, options if is_one else options[name])
                for name, value in values.items()
            }
        if isinstance(values, list | tuple):
            if is_one:
                options = [options] * len(values)
            elif isinstance(options, dict) or len(options) != len(values):
                options = tree.flatten(options)
            new = [
                self._changed(value, change, option)
                for value, option in zip(values, options, strict=False)
            ]
            new = [each for each in new if each is not None or not is_one]
            return tuple(new) if isinstance(values, tuple) else new
        return tree.map_structure(lambda option: change(option, values), options)
