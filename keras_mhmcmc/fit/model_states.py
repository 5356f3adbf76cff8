"""What Keras changes or leaves out when it saves a model, saved with the sampler.

- The states of the generators of `Dropout` and similar layers are in no file. A loaded
  model would repeat its first masks.
- LoRA layers merge their factors into the kernel, and load factors of zero.
- `trainable` of a single variable is lost: a loaded model would sample it.
"""

from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc._types import Array

_GENERATOR, _WEIGHT, _SAMPLED = "generator_", "weight_", "sampled"


class ModelStates:
    """Save and load with an optimizer what a file of its model lacks."""

    def __init__(self) -> None:
        self._generators: list[keras.Variable] = []
        # Loaded values by name, until the variables are known.
        self._loaded: dict[str, Array] = {}

    def follow(self, model: keras.Model) -> None:
        """Save the generators of `model` from now on, and assign any loaded states."""
        kept = {id(variable) for variable in model.weights}
        self._generators = [v for v in model.variables if id(v) not in kept]
        self._restore()

    def save(
        self,
        store: MutableMapping[str, Any],
        model: keras.Model | None,
        sampled: Sequence[keras.Variable],
    ) -> None:
        """Add the states to a store of the optimizer's variables."""
        if model is not None:
            self.follow(model)
            changed = {id(v) for v in _backend.changed_by_saving(model)}
            for i, weight in enumerate(model.weights):
                if id(weight) in changed:
                    store[f"{_WEIGHT}{i}"] = ops.convert_to_numpy(weight)
            if sampled:
                store[_SAMPLED] = _indices(model, sampled)
        for name, state in (self._loaded or self._states()).items():
            store[name] = ops.convert_to_numpy(state)

    def load(
        self,
        store: Mapping[str, Any],
        model: keras.Model | None,
        sampled: Sequence[keras.Variable],
    ) -> dict[str, Any]:
        """Load the states from a store, and return its other entries."""
        entries = {name: store[name] for name in store.keys()}  # noqa: SIM118
        self._loaded = _taken(entries, _GENERATOR)
        weights = _taken(entries, _WEIGHT)
        saved = entries.pop(_SAMPLED, None)
        if model is None:
            self._restore()
            return entries
        same = saved is None or np.array_equal(saved[()], _indices(model, sampled))
        if sampled and not same:
            raise ValueError(
                "The trainable weights of the model must be those of the saved chain. "
                "Make the model as before the run, compile it with the same sampler, "
                "call `model.optimizer.build(model.trainable_variables)`, and then "
                "`model.load_weights` with this file. Received: a chain of "
                f"{len(saved[()])} weights, and a model with {len(sampled)} trainable "
                "weights"
            )
        self.follow(model)
        if weights:
            numbered = {int(n.removeprefix(_WEIGHT)): x for n, x in weights.items()}
            _backend.assign_after_loading(model, numbered)
        return entries

    def _states(self) -> dict[str, keras.Variable]:
        return {f"{_GENERATOR}{i}": v for i, v in enumerate(self._generators)}

    def _restore(self) -> None:
        """Assign the loaded states if their number fits the variables."""
        states = self._states()
        if states.keys() == self._loaded.keys():
            for name, variable in states.items():
                variable.assign(self._loaded[name])
            self._loaded = {}


def _taken(entries: dict[str, Any], prefix: str) -> dict[str, Array]:
    names = [name for name in entries if name.startswith(prefix)]
    return {name: entries.pop(name)[()] for name in names}


def _indices(model: keras.Model, sampled: Sequence[keras.Variable]) -> Array:
    """Return the positions of the sampled weights in `model`; -1: it has not got it."""
    places = {id(variable): i for i, variable in enumerate(model.weights)}
    return np.array([places.get(id(variable), -1) for variable in sampled])
