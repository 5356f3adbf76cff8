"""The states of a model's random generators, saved with the sampler.

Keras saves the weights of a model, but not the states of the generators of `Dropout`
and similar layers. A loaded model would repeat its first masks.
"""

from collections.abc import Mapping
from collections.abc import MutableMapping
from typing import Any

import keras
from keras import ops

from keras_mhmcmc._types import Array

_PREFIX = "generator_"


class GeneratorStates:
    """Save and load the states of a model's generators with an optimizer."""

    def __init__(self) -> None:
        self._variables: list[keras.Variable] = []
        # Loaded values by name, until the variables are known.
        self._loaded: dict[str, Array] = {}

    def follow(self, model: keras.Model) -> None:
        """Save the generators of `model` from now on, and assign any loaded states."""
        kept = {id(variable) for variable in model.weights}
        self._variables = [v for v in model.variables if id(v) not in kept]
        self._restore()

    def save(self, store: MutableMapping[str, Any]) -> None:
        """Add the states to a store of the optimizer's variables."""
        states = {_name(i): variable for i, variable in enumerate(self._variables)}
        for name, state in (self._loaded or states).items():
            store[name] = ops.convert_to_numpy(state)

    def load(self, store: Mapping[str, Any]) -> dict[str, Any]:
        """Load the states from a store, and return its other entries."""
        names = [name for name in store.keys() if name.startswith(_PREFIX)]  # noqa: SIM118
        self._loaded = {name: store[name][()] for name in names}
        self._restore()
        return {name: store[name] for name in store.keys() if name not in names}  # noqa: SIM118

    def _restore(self) -> None:
        """Assign the loaded states if their number fits the variables."""
        names = [_name(i) for i in range(len(self._variables))]
        if sorted(names) == sorted(self._loaded):
            for name, variable in zip(names, self._variables, strict=True):
                variable.assign(self._loaded[name])
            self._loaded = {}


def _name(index: int) -> str:
    return f"{_PREFIX}{index}"
