"""Models of this package that users save, each in one file for all backends."""

from collections.abc import Sequence
from typing import Any
from typing import Self

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._serialize import attributes
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import PathLike

_FOREIGN = (keras.layers.TorchModuleWrapper, keras.layers.TFSMLayer)


def with_callback(
    callbacks: Any,
    own: keras.callbacks.Callback,
    first: keras.callbacks.Callback | None = None,
) -> Any:
    """Return the argument `callbacks` of a `fit`, with `own` after the user's.

    `first` comes before them.
    """
    before = [] if first is None else [first]
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.callbacks[:0] = before
        callbacks.append(own)
        return callbacks
    given = [] if callbacks is None else callbacks
    return [*before, *keras.tree.flatten(given), own]


def check_layers(name: str, model: keras.Model) -> None:
    """Raise a `ValueError` if a network of several members would not be each member.

    A layer may carry states from one mini-batch to the next, or calls code of another
    library, which reads its own weights and not those of a member.
    """
    layers = _backend.inner_layers(model)
    carry = [x.name for x in layers if isinstance(x, keras.layers.RNN) and x.stateful]
    if carry:
        raise ValueError(
            f"Argument `{name}` must have no layers with `stateful=True`: they carry "
            "states from one mini-batch to the next, and the members have no states "
            "of their own. Pass the network built with `stateful=False`, which has the "
            f"same weights, and whole sequences. Received: {', '.join(carry)}"
        )
    foreign = [x.name for x in layers if isinstance(x, _FOREIGN)]
    if foreign:
        raise ValueError(
            f"Argument `{name}` must have no layers that wrap code of another library, "
            "which reads its own weights for all members. Write them with layers of "
            "Keras. Or fit one model for each chain, give it the weights of a sample "
            f"with `set_weights`, and predict. Received: {', '.join(foreign)}"
        )


class StoredModel(keras.Model):
    """Abstract: a model whose `.keras` file can be loaded with another backend.

    It does not cast its inputs: the layers inside do so, under their own policies. Its
    weights survive inputs that `predict` and `evaluate` refuse.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__(name=name, autocast=False)

    def save(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        **options: Any,
    ) -> None:
        """Save the model to a `.keras` file, as `keras.Model.save` does."""
        _backend.refuse_legacy_file(filepath)
        super().save(filepath, overwrite, zipped, **options)

    def predict(self, *args: Any, **options: Any) -> Any:
        """Return predictions, as `keras.Model.predict` does."""
        with _backend.values_kept(self):
            return super().predict(*args, **options)

    def evaluate(self, *args: Any, **options: Any) -> Any:
        """Return the loss and the metrics, as `keras.Model.evaluate` does."""
        with _backend.values_kept(self):
            return super().evaluate(*args, **options)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        super().compile_from_config(_backend.portable(config))

    def quantize(self, *args: Any, **options: Any) -> None:
        """Quantize the layers, as `keras.Model.quantize` does.

        Raises:
            NotImplementedError: the model stacks the weights of several networks, so
                it has no layers.
        """
        if not self.layers:
            raise NotImplementedError(
                f"{type(self).__name__} cannot be quantized: it stacks the weights of "
                "several networks, and Keras quantizes layers. Quantize a copy of the "
                "network itself, with the weights of one of them."
            )
        super().quantize(*args, **options)


class WrapperModel(StoredModel):
    """Abstract: a model with an argument `model`, which its configuration holds."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, attributes of the same names."""
        model = keras.saving.serialize_keras_object(self.model)
        return attributes(self) | {"model": model}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the model with these arguments. Its weights are loaded later."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))


class StackedModel(StoredModel):
    """Abstract: the weights of many members, stacked along a leading axis."""

    num_chains: int

    @property
    def template(self) -> keras.Model:
        """Return the model that gives every chain its architecture."""
        raise NotImplementedError

    def member_weights(self, arrays: Sequence[Array]) -> list[Array]:
        """Return those of `template.weights`, given arrays for all of `weights`.

        Each array has a leading axis of chains, or leading axes (samples, chains).
        """
        raise NotImplementedError

    def chain_results(self) -> dict[str, Array]:
        """Return the current metrics of each chain: arrays (chains,) by name."""
        raise NotImplementedError

    def examples_seen(self) -> int:
        """Return the examples of this epoch so far, in Keras' mean of the loss."""
        raise NotImplementedError
