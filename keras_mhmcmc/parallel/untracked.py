"""What `ParallelChains` holds and Keras must not track as part of it."""

from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc.parallel.history import ChainHistory
from keras_mhmcmc.parallel.history import ChainMetrics

Strategy = Literal["auto", "vmap", "loop"]


@dataclass
class Untracked:
    """The network, and what changes without being a weight."""

    template: keras.Model
    variables: list[keras.Variable]  # of the template: the trainable ones, the others
    metrics: ChainMetrics | None = None
    history: ChainHistory = field(default_factory=ChainHistory)
    strategy: Literal["vmap", "loop"] = "vmap"
    arguments: dict[str, Any] = field(default_factory=dict)  # of `compile`
    compilation: Any = None  # which one of the network belongs to the chains

    def compile(self, **arguments: Any) -> None:
        """Compile the network as the chains are, with an optimizer of its own."""
        own = self.template.optimizer if self.template.compiled else None
        # SGD, which never steps, has no slots that Keras would miss in a saved file.
        # Keras keeps the metrics of an earlier `compile` where the new ones are None.
        metrics = arguments["metrics"] or []
        self.template.compile(own or "sgd", **(arguments | {"metrics": metrics}))
        self.arguments, self.metrics = arguments, None
        self.compilation = _backend.compile_key(self.template)

    def compile_again(self) -> bool:
        """Compile the network again if others have done so since, and return it."""
        is_own = _backend.compile_key(self.template) is self.compilation
        if self.compilation is None or is_own:
            return False
        self.compile(**self.arguments)
        return True
