"""Names for types that many signatures share."""

import os
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import Protocol
from typing import runtime_checkable

import numpy.typing as npt

# A tensor of the running backend. Shapes stand in comments beside the signatures.
Tensor = Any
Array = npt.NDArray[Any]


@runtime_checkable
class SupportsArray(Protocol):
    """What NumPy reads as an array, such as a tensor or a `pandas.DataFrame`."""

    def __array__(self, *args: Any, **options: Any) -> Array: ...


# Inputs of a model: an array, or a dict or list of arrays for several inputs.
InputsLike = npt.ArrayLike | Mapping[str, npt.ArrayLike]
# Inputs, or a data set that `fit` takes: a `tf.data.Dataset`, a `DataLoader`, a
# `keras.utils.PyDataset`, or another iterable of batches, such as a generator.
DataLike = InputsLike | Iterable[Any]
PathLike = str | os.PathLike[str]
