"""Names for types that many signatures share."""

import os
from typing import Any

import numpy.typing as npt

# A tensor of the running backend. Shapes stand in comments beside the signatures.
Tensor = Any
Array = npt.NDArray[Any]
PathLike = str | os.PathLike[str]
