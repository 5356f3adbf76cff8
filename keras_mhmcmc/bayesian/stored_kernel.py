"""The kernel of a `BayesianEnsemble` in a file, as far as a file can hold it."""

import dataclasses
import json
import re
import sys
from dataclasses import dataclass
from typing import Any

import keras

from keras_mhmcmc.samplers.base import Kernel

_PACKAGE = __name__.partition(".")[0] + "."


@dataclass(frozen=True)
class Unstored:
    """Stands for a kernel with functions or objects that Keras cannot load."""

    text: str

    def refuse(self) -> None:
        """Raise a `ValueError` that asks for the kernel."""
        raise ValueError(
            "Argument `sampler` must be given again: the file does not hold all of it, "
            "since Keras cannot load some part. Set `ensemble.sampler` to the kernel "
            f"before `fit`. Received: sampler={self.text}"
        )


def config_of(kernel: Kernel | Unstored) -> dict[str, Any]:
    """Return the configuration of a kernel."""
    if isinstance(kernel, Unstored):
        return {"kernel": None, "text": kernel.text}
    try:
        config = _serialized(kernel)
        json.dumps(config)
        _deserialized(config)
    except (TypeError, ValueError):
        config = None
    return {"kernel": config, "text": re.sub(" at 0x[0-9a-f]+", "", repr(kernel))}


def kernel_of(config: dict[str, Any]) -> Kernel | Unstored:
    """Return the kernel of a configuration."""
    if config["kernel"] is None:
        return Unstored(config["text"])
    try:
        kernel: Kernel = _deserialized(config["kernel"])
    except (TypeError, ValueError):  # a class of another version, or not imported
        return Unstored(config["text"])
    return kernel


def _serialized(part: Any) -> Any:
    """Return the configuration of a part: a class of this package, or any other."""
    kind = type(part)
    is_own = kind.__module__.startswith(_PACKAGE)
    if isinstance(part, tuple) and not is_own:
        return {"tuple": [_serialized(value) for value in part]}
    if is_own and isinstance(part, tuple):
        given = part._asdict()  # type: ignore[attr-defined]
    elif is_own and dataclasses.is_dataclass(part):
        fields = [field for field in dataclasses.fields(part) if field.init]
        given = {field.name: getattr(part, field.name) for field in fields}
        for field in fields:  # a function may be the default
            if given[field.name] is field.default:
                del given[field.name]
    else:
        return keras.saving.serialize_keras_object(part)
    arguments = {name: _serialized(value) for name, value in given.items()}
    return {"part": [kind.__module__, kind.__name__], "arguments": arguments}


def _deserialized(config: Any) -> Any:
    if isinstance(config, dict) and "tuple" in config:
        return tuple(_deserialized(value) for value in config["tuple"])
    if not (isinstance(config, dict) and "part" in config):
        return keras.saving.deserialize_keras_object(config)
    module, name = config["part"]
    kind = getattr(sys.modules.get(module), name, None)
    if not (module.startswith(_PACKAGE) and isinstance(kind, type)):
        raise ValueError(f"Part {name!r} is unknown: update keras_mhmcmc.")
    arguments = config["arguments"].items()
    return kind(**{name: _deserialized(value) for name, value in arguments})
