"""Prior densities of the weights; they take the place of weight decay."""

import re

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import tensors

__all__ = ["Gaussian", "Prior"]


def __dir__() -> list[str]:
    return __all__


_PRECISE = _validate.Interval(1e-19)  # 1 / scale^2 is finite in float32


class Prior(Configurable):
    """Abstract: a prior density of the weights, not yet bound to any.

    A final class registers itself for serialisation and has `get_config`. `bind` gives
    an object with the methods of `BoundGaussian`.
    """

    def bind(self, variables):
        """The prior of these Keras variables, in this order."""
        raise NotImplementedError


@serializable
class Gaussian(Prior):
    """Independent normal priors N(0, scale^2) on the weights.

    Its energy, -log density without the constant, is |theta|^2 / (2 scale^2) in nats,
    at full-data scale: a weight decay of w in a mean loss is the prior with
    scale = 1 / sqrt(w N) for N training examples.

    Args:
        scale: standard deviation, greater than 0, of every weight; or a dict from
            regular expressions to standard deviations. Then a variable has the scale
            of the first pattern that is found in its `path` (such as
            "dense/kernel"), and a flat prior if none is.

    Raises:
        ValueError: a scale is not a positive number, or, when the optimizer is built,
            a pattern is found in no variable's path.

    Example:

    >>> import keras
    >>> variable = keras.Variable([3.0, 4.0], name="kernel", trainable=False)
    >>> prior = Gaussian({"kernel": 0.5}).bind([variable])
    >>> round(float(prior.energy([variable.value])), 3)
    50.0
    """

    def __init__(self, scale):
        if isinstance(scale, dict):
            if not scale:
                raise ValueError(
                    "Argument `scale` must have at least one pattern. For a flat prior "
                    "leave `prior` away. Received: scale={}"
                )
            for pattern in scale:
                _check_pattern(pattern)
            self.scale = {
                pattern: _checked_scale(value) for pattern, value in scale.items()
            }
        else:
            self.scale = _checked_scale(scale)

    def bind(self, variables):
        """The prior of these Keras variables."""
        if not isinstance(self.scale, dict):
            return BoundGaussian([self.scale**-2] * len(variables))
        paths = [variable.path for variable in variables]
        for pattern in self.scale:
            if not any(re.search(pattern, path) for path in paths):
                raise ValueError(
                    f"Argument `scale` has the pattern {pattern!r}, which is found in "
                    f"no variable's path. Received: variables with the paths "
                    + ", ".join(paths)
                )
        return BoundGaussian([self._precision(path) for path in paths])

    def _precision(self, path):
        for pattern, scale in self.scale.items():
            if re.search(pattern, path):
                return scale**-2
        return 0.0

    def get_config(self):
        """The arguments of the constructor."""
        return {"scale": self.scale}


def _checked_scale(value):
    value = _validate.number("scale", value, _validate.POSITIVE)
    return _validate.number("scale", value, _PRECISE)


def _check_pattern(pattern):
    try:
        re.compile(pattern)
        is_pattern = isinstance(pattern, str)
    except (re.error, TypeError):
        is_pattern = False
    if not is_pattern:
        raise ValueError(
            "Argument `scale` must have regular expressions as keys. "
            f"Received: scale={{{pattern!r}: ...}}"
        )


class BoundGaussian:
    """Normal priors of a known list of weights, with their precisions 1/scale^2."""

    def __init__(self, precisions):
        self._precisions = precisions

    def of(self, indices):
        """The priors of some of the weights."""
        return BoundGaussian([self._precisions[index] for index in indices])

    def energy(self, position, chains=False):
        """-log density in nats, without its constant; (K,) of them with `chains`."""
        terms = [
            0.5 * precision * tensors.sum_squares([x], chains)
            for precision, x in zip(self._precisions, position, strict=True)
            if precision > 0.0
        ]
        return sum(terms)

    def add_gradient(self, position, gradient, train_size):
        """`gradient` plus that of the energy over N, for each weight."""
        return [
            g + (precision / train_size) * x if precision > 0.0 else g
            for precision, x, g in zip(
                self._precisions, position, gradient, strict=True
            )
        ]
