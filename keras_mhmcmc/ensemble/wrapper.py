"""Models that hold another model, and are saved with it."""

from typing import Any
from typing import Self

import keras

from keras_mhmcmc import _backend
from keras_mhmcmc._types import PathLike


class WrapperModel(keras.Model):
    """Abstract: a model with an argument `model`, which its configuration holds.

    A file of one backend can be loaded with another.
    """

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

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile with the result of `get_compile_config`, from any backend."""
        super().compile_from_config(_backend.portable(config))

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Self:
        """Return the model with these arguments. Its weights are loaded later."""
        model = _backend.made_again("model", config["model"], custom_objects)
        return cls(**(config | {"model": model}))
