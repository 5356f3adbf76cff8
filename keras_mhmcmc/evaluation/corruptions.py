"""`corrupt`: images that were noised, blurred, turned, faded or shifted.

The five corruptions need no data beyond the images. The kinds follow Hendrycks and
Dietterich (2019), "Benchmarking neural network robustness to common corruptions and
perturbations"; the sizes of the five severities are this package's, and scale with the
image, so that they suit small and large ones.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import cast

import keras
import numpy as np

from keras_mhmcmc import _data
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import DataLike
from keras_mhmcmc.evaluation.checks import inputs_and_limits
from keras_mhmcmc.evaluation.checks import warn_of_channels

_NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation, shares of the range
_BLUR = (0.012, 0.02, 0.03, 0.04, 0.055)  # standard deviation, shares of the height
_ROTATION = (8.0, 15.0, 25.0, 35.0, 50.0)  # degrees
_CONTRAST = (0.75, 0.55, 0.4, 0.25, 0.15)  # share of the contrast that is left
_TRANSLATION = (0.04, 0.08, 0.12, 0.17, 0.23)  # shares of height or width


def corrupt(
    x: DataLike,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    clip: Sequence[float] = (0.0, 1.0),
) -> Array:
    """Return corrupted images.

    | corruption | what happens to an image | severity 1 to 5 |
    |---|---|---|
    | `"gaussian_noise"` | normal noise is added to each number | standard deviation 0.04, 0.08, 0.12, 0.18, 0.26 of the range `clip` |
    | `"blur"` | a normal density blurs the image | standard deviation 1.2, 2, 3, 4, 5.5% of the height |
    | `"rotation"` | the image turns about its centre, left or right at random | 8, 15, 25, 35, 50 degrees |
    | `"contrast"` | the numbers shrink towards the image's mean | 75, 55, 40, 25, 15% are left |
    | `"translation"` | the image moves up, down, left or right at random | 4, 8, 12, 17, 23% of height or width |

    The lower end of `clip` fills what comes in from outside the image.

    Args:
        x: finite images in `clip`, shape (N, H, W) or (N, H, W, C); (N, C, H, W) if
            `keras.config.image_data_format()` is "channels_first"; or a data set that
            `fit` takes and that ends. It is read into memory, without its targets.
        corruption: name of the corruption.
        severity: an integer from 1 to 5.
        seed: integer seed of the noise and of the directions, at least 0. Severities
            share them. Defaults to 0.
        clip: smallest and largest valid number of an image. Defaults to (0, 1).

    Returns:
        float32 images in `clip`, with the shape of `x`.

    Raises:
        ImportError: SciPy is not installed.
        ValueError: an argument is outside its range.

    Example:

    >>> import numpy as np
    >>> x = np.zeros((1, 5, 5), "float32")
    >>> x[0, 2, 2] = 1.0
    >>> round(float(corrupt(x, "contrast", 3).max()), 3)
    0.424

    Reference: Hendrycks and Dietterich (2019), for the kinds of corruptions.
    """  # noqa: E501
    _validate.choice("corruption", corruption, tuple(CORRUPTIONS))
    severity = _validate.integer("severity", severity, 1, high=5)
    seed = _validate.seed(seed)
    x, limits = inputs_and_limits(_data.read(x).x, clip, is_bounded=True)
    low, high = cast(tuple[float, float], limits)
    if x.ndim not in (3, 4):
        raise ValueError(
            "Argument `x` must be images of shape (N, H, W) or (N, H, W, C). Reshape "
            f"rows of pixels first. Received: shape {x.shape}"
        )
    warn_of_channels(x)
    # The same directions at each severity. The images start at 0, which fills what
    # comes in from outside.
    rng = np.random.default_rng(seed)
    is_first = keras.config.image_data_format() == "channels_first"
    channels = 1 if is_first and x.ndim == 4 else -1
    images = np.moveaxis(x - low, channels, -1)
    images = CORRUPTIONS[corruption](images, high - low, severity - 1, rng)
    images = np.moveaxis(images, -1, channels)
    return np.clip(images + low, low, high).astype("float32")


def _noisy(x: Array, span: float, level: int, rng: np.random.Generator) -> Array:
    return x + _NOISE[level] * span * rng.standard_normal(x.shape, dtype="float32")


def _blurred(x: Array, span: float, level: int, rng: np.random.Generator) -> Array:
    width = _BLUR[level] * x.shape[1]
    widths = (0.0, width, width, 0.0)[: x.ndim]
    return np.asarray(_ndimage().gaussian_filter(x, widths, mode="nearest"))


def _rotated(x: Array, span: float, level: int, rng: np.random.Generator) -> Array:
    result = np.empty_like(x)
    is_left = rng.random(len(x)) < 0.5
    for chosen, sign in ((is_left, 1.0), (~is_left, -1.0)):
        if chosen.any():
            angle = sign * _ROTATION[level]
            options = {"axes": (1, 2), "reshape": False, "order": 1}
            result[chosen] = _ndimage().rotate(x[chosen], angle, **options)
    return result


def _faded(x: Array, span: float, level: int, rng: np.random.Generator) -> Array:
    mean = x.mean(axis=tuple(range(1, x.ndim)), keepdims=True)
    return np.asarray(mean + _CONTRAST[level] * (x - mean))


def _shifted(x: Array, span: float, level: int, rng: np.random.Generator) -> Array:
    result = np.empty_like(x)
    direction = rng.integers(4, size=len(x))
    for place in range(4):
        chosen = direction == place
        if chosen.any():
            axis, sign = 1 + place // 2, 1 - 2 * (place % 2)
            steps = [0.0] * x.ndim
            steps[axis] = sign * _TRANSLATION[level] * x.shape[axis]
            result[chosen] = _ndimage().shift(x[chosen], steps, order=1)
    return result


def _ndimage() -> Any:
    """Return `scipy.ndimage`, or raise an error that tells how to install it."""
    try:
        from scipy import ndimage
    except ImportError as error:
        raise ImportError(
            "Corruptions of images need SciPy: pip install keras-mhmcmc[data]"
        ) from error
    return ndimage


_Corruption = Callable[[Array, float, int, np.random.Generator], Array]
CORRUPTIONS: dict[str, _Corruption] = {
    "gaussian_noise": _noisy,
    "blur": _blurred,
    "rotation": _rotated,
    "contrast": _faded,
    "translation": _shifted,
}
