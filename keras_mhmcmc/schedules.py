"""The papers' schedules for learning rates, step sizes and temperatures.

A schedule is a function of the iteration k = 0, 1, ..., the number of earlier steps.
"""

import math
from typing import Any
from typing import TypeAlias

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc._backend import ops
from keras_mhmcmc._serialize import PrintedAsCall
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Tensor

__all__ = ["CyclicalCosine", "GeometricCycle", "PowerDecay", "RobbinsMonro"]

Schedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule

_PROBES = (0, 1, 10, 100, 1000, 100_000)  # iterations


def __dir__() -> list[str]:
    return __all__


def check_shares(name: str, rate: Any) -> None:
    if not isinstance(rate, Schedule):
        return
    values = [float(rate(iteration)) for iteration in _PROBES]
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError(
            f"Argument `{name}` must be a schedule with values in [0, 1]: each is the "
            f"share of the new in an average. Received: a schedule with the values "
            f"{values} at the iterations {list(_PROBES)}"
        )


@serializable
class PowerDecay(PrintedAsCall, Schedule):
    """Polynomial decay.

    The value at iteration k is initial * (offset + k)^(-power).

    Args:
        initial: value at offset + k = 1, at least 0.
        offset: number added to the iteration, greater than 0.
        power: exponent of the decay, at least 0. For SGLD with vanishing steps choose
            one in (0.5, 1].

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> rate = PowerDecay(initial=0.1, offset=1.0, power=0.5)
    >>> round(float(rate(3)), 6)
    0.05

    Reference: Welling and Teh (2011), section 4.
    """

    def __init__(self, initial: float, offset: float, power: float) -> None:
        super().__init__()
        self.initial = _validate.number("initial", initial, _validate.NOT_NEGATIVE)
        self.offset = _validate.number("offset", offset, _validate.POSITIVE)
        self.power = _validate.number("power", power, _validate.NOT_NEGATIVE)

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32")
        return self.initial * ops.power(self.offset + step, -self.power)


@serializable
class RobbinsMonro(PrintedAsCall, Schedule):
    """Step sizes of a stochastic approximation.

    The value at iteration k is min(maximum, scale / (offset + k^power)). The contour
    samplers use the defaults.

    Args:
        scale: numerator, greater than 0. Defaults to 10.
        power: exponent of the decay, in (0.5, 1]; other exponents do not converge.
            Defaults to 0.8.
        offset: number added to k^power, greater than 0. The value is nearly constant
            until k^power exceeds it. Defaults to 100.
        maximum: largest value, greater than 0, or None for no limit. Defaults to
            0.003.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> size = RobbinsMonro(scale=1.0, power=0.6, offset=100.0, maximum=None)
    >>> round(float(size(0)), 6)
    0.01

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm", appendix D.3; Robbins and Monro (1951), "A stochastic
    approximation method".
    """

    def __init__(
        self,
        scale: float = 10.0,
        power: float = 0.8,
        offset: float = 100.0,
        maximum: float | None = 3e-3,
    ) -> None:
        super().__init__()
        exponents = _validate.Interval(0.5, 1.0, low_open=True, high_open=False)
        self.scale = _validate.number("scale", scale, _validate.POSITIVE)
        self.power = _validate.number("power", power, exponents)
        self.offset = _validate.number("offset", offset, _validate.POSITIVE)
        if maximum is not None:
            maximum = _validate.number("maximum", maximum, _validate.POSITIVE)
        self.maximum = maximum

    def __call__(self, step: Tensor) -> Tensor:
        grown = ops.power(ops.cast(step, "float32"), self.power)
        value = self.scale / (self.offset + grown)
        return value if self.maximum is None else ops.minimum(value, self.maximum)


@serializable
class CyclicalCosine(PrintedAsCall, Schedule):
    """Cosine decay from `initial` to 0 that restarts in each cycle.

    The value at iteration k is initial / 2 * (cos(pi * r) + 1). Here
    r = (k % cycle_steps) / cycle_steps is the elapsed share of the cycle.

    Args:
        initial: value at the start of each cycle, at least 0.
        cycle_steps: iterations in a cycle, at least 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> rate = CyclicalCosine(initial=0.1, cycle_steps=100)
    >>> round(float(rate(0)), 6), round(float(rate(150)), 6)
    (0.1, 0.05)

    Reference: Zhang, Li, Zhang, Chen and Wilson (2020), "Cyclical stochastic gradient
    MCMC for Bayesian deep learning", eq. (1).
    """

    def __init__(self, initial: float, cycle_steps: int) -> None:
        super().__init__()
        self.initial = _validate.number("initial", initial, _validate.NOT_NEGATIVE)
        self.cycle_steps = _validate.integer("cycle_steps", cycle_steps, 1)

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.convert_to_tensor(step)
        share = ops.cast(step % self.cycle_steps, "float32") / self.cycle_steps
        return 0.5 * self.initial * (ops.cos(math.pi * share) + 1.0)


@serializable
class GeometricCycle(PrintedAsCall, Schedule):
    """Geometric decay every few iterations, with a rise at the end of each cycle.

    The value at iteration k is initial * decay^(k // decay_steps) *
    growth^(k // cycle_steps). CMINT decays by 0.9 every 5 epochs and grows by 2 every
    50 epochs. Keep a sample before each rise.

    Args:
        initial: value at iteration 0, at least 0.
        cycle_steps: iterations between two rises, at least 1.
        decay: factor of each fall, in (0, 1].
        decay_steps: iterations between two falls, at least 1.
        growth: factor of each rise, at least 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> rate = GeometricCycle(0.2, cycle_steps=50, decay=0.9, decay_steps=5, growth=2)
    >>> round(float(rate(7)), 6)
    0.18

    Reference: Li and Wong (2017), "Mini-batch tempered MCMC", section 4.3.
    """

    def __init__(
        self,
        initial: float,
        cycle_steps: int,
        decay: float,
        decay_steps: int,
        growth: float,
    ) -> None:
        super().__init__()
        share = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
        self.initial = _validate.number("initial", initial, _validate.NOT_NEGATIVE)
        self.cycle_steps = _validate.integer("cycle_steps", cycle_steps, 1)
        self.decay = _validate.number("decay", decay, share)
        self.decay_steps = _validate.integer("decay_steps", decay_steps, 1)
        self.growth = _validate.number("growth", growth, _validate.Interval(1.0))

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.convert_to_tensor(step)
        falls = ops.cast(step // self.decay_steps, "float32")
        rises = ops.cast(step // self.cycle_steps, "float32")
        # Add the logarithms: each factor alone overflows in a long run.
        logarithm = falls * math.log(self.decay) + rises * math.log(self.growth)
        return self.initial * ops.exp(logarithm)
