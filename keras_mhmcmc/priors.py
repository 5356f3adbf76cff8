"""Prior distributions of the weights, which take the place of weight decay."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import Configurable
from keras_mhmcmc._serialize import call_text
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors

__all__ = ["Gaussian", "Prior", "SpikeSlab"]


def __dir__() -> list[str]:
    return __all__


_PRECISE = _validate.Interval(1e-19)  # 1 / scale^2 is finite in float32
_INSIDE = _validate.Interval(0.0, 1.0, low_open=True)
_AT_LEAST_ONE = _validate.Interval(1.0)

_GROUPINGS = ("layer", "all")
_HYPERPARAMETERS = {
    "v0": _validate.POSITIVE,
    "v1": _validate.POSITIVE,
    "a": _AT_LEAST_ONE,
    "b": _AT_LEAST_ONE,
    "nu": _validate.POSITIVE,
    "lam": _validate.POSITIVE,
    "sigma": _validate.POSITIVE,
    "delta": _INSIDE,
}


class Prior(Configurable):
    """Abstract: a prior density, before the weights are known.

    A final class registers itself for serialisation. Its `bind` returns an object with
    the methods of `BoundGaussian`.
    """

    def bind(self, variables: Sequence[Any]) -> "BoundGaussian":
        """Return the prior of these Keras variables, in this order."""
        raise NotImplementedError


@serializable
class Gaussian(Prior):
    """Independent normal priors N(0, scale^2) on the weights.

    The energy, -log density without its constant, is |theta|^2 / (2 scale^2) in nats at
    full-data scale. A weight decay of w in a mean loss is the prior with
    scale = 1 / sqrt(w N) for N training examples.

    Args:
        scale: standard deviation of every weight, greater than 0; or a dict from
            regular expressions to standard deviations. With a dict, a variable has the
            scale of the first pattern that matches a part of its `path`, such as
            "dense/kernel". A variable that no pattern matches has a flat prior.

    Raises:
        ValueError: a scale is not a positive number. When the optimizer is built: a
            pattern matches no variable.

    Example:

    >>> import keras
    >>> variable = keras.Variable([3.0, 4.0], name="kernel", trainable=False)
    >>> prior = Gaussian({"kernel": 0.5}).bind([variable])
    >>> round(float(prior.energy([variable.value], like=0.0)), 3)
    50.0
    """

    def __init__(self, scale: float | dict[str, float]) -> None:
        if isinstance(scale, dict):
            if not scale:
                raise ValueError(
                    "Argument `scale` must have at least one pattern. For a flat prior "
                    "leave out `prior`. Received: scale={}"
                )
            for pattern in scale:
                if not _is_pattern(pattern):
                    raise ValueError(
                        "Argument `scale` must have regular expressions as keys. "
                        f"Received: scale={{{pattern!r}: ...}}"
                    )
            self.scale: float | dict[str, float] = {
                pattern: _checked_scale(value) for pattern, value in scale.items()
            }
        else:
            self.scale = _checked_scale(scale)

    def bind(self, variables: Sequence[Any]) -> "BoundGaussian":
        """Return the prior of these Keras variables, in this order."""
        if not isinstance(self.scale, dict):
            return BoundGaussian([self.scale**-2] * len(variables))
        paths = [variable.path for variable in variables]
        for pattern in self.scale:
            if not any(re.search(pattern, path) for path in paths):
                raise ValueError(
                    "Argument `scale` must have patterns that match the path of a "
                    f"variable. Received: the pattern {pattern!r}, and the paths "
                    + ", ".join(paths)
                )
            if not any(_first_match(self.scale, path) == pattern for path in paths):
                raise ValueError(
                    "Argument `scale` must have patterns that each have a variable of "
                    "their own: the first one that matches a path gives its scale. Put "
                    "special patterns before general ones. Received: the pattern "
                    f"{pattern!r}, whose variables match patterns before it: "
                    f"{list(self.scale)}"
                )
        return BoundGaussian([_precision(self.scale, path) for path in paths])


def _checked_scale(value: Any) -> float:
    value = _validate.number("scale", value, _validate.POSITIVE)
    return _validate.number("scale", value, _PRECISE)


def _first_match(scales: dict[str, float], path: str) -> str | None:
    """Return the pattern that gives the variable with this path its scale, if any."""
    return next((pattern for pattern in scales if re.search(pattern, path)), None)


def _precision(scales: dict[str, float], path: str) -> float:
    """Return 1/scale^2 of the variable with this path; 0 for a flat prior."""
    pattern = _first_match(scales, path)
    return 0.0 if pattern is None else scales[pattern] ** -2


def warn_of_regularizers(variables: Sequence[Any]) -> None:
    paths = [v.path for v in variables if v.regularizer is not None]
    if paths:
        warn(
            "A regularizer is a second prior beside `prior`: Keras adds it to the mean "
            "loss, and the sampler multiplies that by `train_size`. Build the layers "
            f"without it. Received: {len(paths)} variables with a regularizer, such as "
            f"'{paths[0]}'"
        )


class BoundGaussian:
    """Normal priors of a list of weights, with precisions 1/scale^2."""

    def __init__(self, precisions: Sequence[float]) -> None:
        self._precisions = precisions

    @property
    def precisions(self) -> list[float]:
        """Return 1/scale^2 of each weight, 0 for a flat prior."""
        return list(self._precisions)

    def energy(self, position: Position, like: Tensor) -> Tensor:
        """Return -log density in nats, without its constant, () or (K,) as `like`."""
        terms = [
            0.5 * precision * tensors.sum_squares([x], like)
            for precision, x in zip(self._precisions, position, strict=True)
            if precision > 0.0
        ]
        return sum(terms)

    def add_gradient(
        self, position: Position, gradient: Position, train_size: int
    ) -> Position:
        """Return `gradient` plus the gradient of the energy over N, for each weight."""
        return [
            g + (precision / train_size) * x if precision > 0.0 else g
            for precision, x, g in zip(
                self._precisions, position, gradient, strict=True
            )
        ]


@serializable
@dataclasses.dataclass(frozen=True, repr=False)
class SpikeSlab(Configurable):
    """A spike-and-slab prior, with which a sampler learns which weights are small.

    A weight of a sparse kernel has the prior N(0, sigma^2 v0) in the narrow spike, and
    N(0, sigma^2 v1) in the wide slab. A share delta of the weights is in the slab. The
    sampler learns sigma, delta, and for each weight rho: 1 in the slab, 0 in the spike.
    The other kernels have the prior N(0, 1). All other weights, such as biases, have a
    flat prior. `mh.SGLDSA`, `mh.SGHMCSA` and `mh.ESM` take this prior. Its arguments
    cannot be changed, and two priors with the same arguments are equal.

    Args:
        sparse: chooses the sparse kernels: a regular expression that matches a part of
            their paths, or a function that takes a Keras variable and returns a bool.
            A kernel is a variable with at least two axes whose path does not end with
            "bias".
        v0: variance of the spike divided by sigma^2, greater than 0.
        v1: variance of the slab divided by sigma^2, greater than `v0`.
        a: at least 1. The prior of delta is Beta(a, b).
        b: at least 1. Set b to the number of sparse weights to favour sparse solutions.
        nu: greater than 0. The prior of sigma^2 is IG(nu/2, nu lam/2).
        lam: scale of the prior of sigma^2, greater than 0.
        sigma: initial sigma, greater than 0. In a regression, sigma is the standard
            deviation of the noise, in units of the targets.
        delta: initial delta, in (0, 1).
        initial_inclusion: initial rho of all sparse weights, in (0, 1). None is
            `delta`. The value can decide where rho ends. With a value near 1 all
            weights start in the slab, and those that the data do not need move to the
            spike.
        groups: "layer" gives each sparse kernel a sigma and a delta of its own, except
            that in a regression all kernels share one sigma. "all" gives all kernels
            one sigma and one delta.

    Raises:
        ValueError: an argument is outside its range. At the first step: `sparse`
            chooses no kernel.

    Example:

    >>> prior = SpikeSlab("dense/kernel", v0=1e-3, v1=1.0)
    >>> prior.delta
    0.5
    >>> SpikeSlab.from_config(prior.get_config()) == prior
    True

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.
    """

    sparse: Any
    _: dataclasses.KW_ONLY
    v0: float
    v1: float
    a: float = 1.0
    b: float = 1.0
    nu: float = 1.0
    lam: float = 1.0
    sigma: float = 1.0
    delta: float = 0.5
    initial_inclusion: float | None = None
    groups: str = "layer"

    def __post_init__(self) -> None:
        if not (callable(self.sparse) or _is_pattern(self.sparse)):
            raise ValueError(
                "Argument `sparse` must be a regular expression that matches the paths "
                'of the sparse kernels, such as "dense/kernel", or a function of a '
                f"variable. Received: sparse={_validate.shown(self.sparse)}"
            )
        checked: dict[str, Any] = {
            name: _validate.number(name, getattr(self, name), interval)
            for name, interval in _HYPERPARAMETERS.items()
        }
        if checked["v0"] >= checked["v1"]:
            raise ValueError(
                "Argument `v0`, the variance of the spike, must be less than `v1`, the "
                f"variance of the slab. Received: v0={checked['v0']!r}, "
                f"v1={checked['v1']!r}"
            )
        if self.initial_inclusion is not None:
            checked["initial_inclusion"] = _validate.number(
                "initial_inclusion",
                self.initial_inclusion,
                _INSIDE,
                "None is `delta`.",
            )
        checked["groups"] = _validate.choice("groups", self.groups, _GROUPINGS)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return call_text(type(self), vars(self))  # a function by its name

    def kernels_of(self, weights: Sequence[Any], has_chains: bool) -> list[int]:
        """Return the indices of the kernels of a network, which may be sparse."""
        axes = 2 + has_chains
        return [
            i
            for i, weight in enumerate(weights)
            # Attention and recurrent layers have biases with two axes.
            if len(weight.shape) >= axes and not weight.path.endswith("bias")
        ]

    def choose(self, weights: Sequence[Any], kernels: Sequence[int]) -> list[int]:
        """Return the indices of the kernels that `sparse` chooses, at least one.

        `kernels` are the indices of the weights that may be sparse.
        """
        found = [i for i in kernels if self._is_sparse(weights[i])]
        if not found:
            what = (
                "is true for no kernel"
                if callable(self.sparse)
                else "matches no kernel's path"
            )
            paths = ", ".join(weights[i].path for i in kernels) or "none"
            raise ValueError(
                "Argument `sparse` must choose a kernel, a variable with at least two "
                f"axes that is no bias, but it {what}. The kernels are: {paths}. "
                f"Received: sparse={self.sparse!r}"
            )
        return found

    def _is_sparse(self, variable: Any) -> bool:
        if callable(self.sparse):
            return self.sparse(variable)
        return re.search(self.sparse, variable.path) is not None

    def group_of_each(self, count: int) -> tuple[int, ...]:
        """Return the group of each of `count` sparse kernels, counted from 0."""
        return tuple(range(count)) if self.groups == "layer" else (0,) * count

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor, with `sparse` serialised."""
        sparse = keras.saving.serialize_keras_object(self.sparse)
        return super().get_config() | {"sparse": sparse}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the prior with these arguments."""
        sparse = config["sparse"]
        if isinstance(sparse, dict):
            sparse = keras.saving.deserialize_keras_object(sparse)
        return cls(**config | {"sparse": sparse})


def _is_pattern(value: Any) -> bool:
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return isinstance(value, str)


def checked_spike_slab(prior: Any) -> SpikeSlab:
    return _validate.instance(
        "prior",
        prior,
        SpikeSlab,
        "an `mh.priors.SpikeSlab`, such as "
        '`mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0)`. `SGLD` and `SGHMC` '
        "take other priors",
    )
