"""Kernels for `mh.sample` that always move: SGLD, pSGLD, SGHMC."""

import dataclasses
from typing import Any
from typing import NamedTuple

from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc.algorithms import hamiltonian
from keras_mhmcmc.algorithms import langevin
from keras_mhmcmc.transitions.kernel import Current
from keras_mhmcmc.transitions.kernel import Kernel
from keras_mhmcmc.transitions.kernel import at_step
from keras_mhmcmc.transitions.kernel import checked_learning_rate
from keras_mhmcmc.transitions.kernel import checked_temperature

_SHARE = _validate.Interval(0.0, 1.0)


class PointState(NamedTuple):
    """The state of a kernel without rejection."""

    point: list
    memory: list  # SGHMC's velocity, pSGLD's second moment


@dataclasses.dataclass(frozen=True)
class StochasticGradientKernel(Kernel):
    """Kernels that always move: SGLD, pSGLD, SGHMC; `rule` is their kernel function."""

    rule: Any
    learning_rate: Any
    temperature: Any
    has_memory: bool
    num_uniforms = 0

    def init(self, position):
        memory = [ops.zeros_like(x) for x in position] if self.has_memory else []
        return PointState(position, memory)

    def point(self, state):
        return state.point

    def decide(self, state, step):
        nonfinite = ops.cast(~ops.isfinite(step.energy), "float32")
        current = Current(state.point, step.gradient, step.energy, state.memory)
        return current, {"nonfinite": nonfinite}

    def move(self, current, step, **settings):
        """The next state; `settings` are further ones of the kernel function."""
        point, memory = self.rule(
            current.position,
            current.memory,
            current.gradient,
            step.normals,
            learning_rate=at_step(self.learning_rate, step.number),
            temperature=at_step(self.temperature, step.number),
            train_size=step.train_size,
            **settings,
        )
        return PointState(point, memory)

    def tempered(self, temperature, learning_rate=None):
        rate = self.learning_rate if learning_rate is None else learning_rate
        return dataclasses.replace(self, temperature=temperature, learning_rate=rate)


def sgld(learning_rate, *, temperature=1.0):
    """Stochastic gradient Langevin dynamics, a kernel for `mh.sample`.

    Samples exp(-U/T) up to the bias of a finite step and of gradient noise, with U the
    energy in nats: minus the log density. `mh.SGLD` has the size of both biases.

    Args:
        learning_rate: step, as in `mh.SGLD`: it multiplies the gradient of U/N. With
            `log_density` N is 1, so that it multiplies the gradient of U. A number
            that is at least 0, or a schedule.
        temperature: T, at least 0, or a schedule.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgld(0.1)

    Reference: Welling and Teh (2011), "Bayesian learning via stochastic gradient
    Langevin dynamics", eq. (4).
    """

    def move(position, memory, gradient, normals, **settings):
        return langevin.sgld_step(position, gradient, normals, **settings), memory

    return StochasticGradientKernel(
        move,
        checked_learning_rate(learning_rate),
        checked_temperature(temperature, _validate.NOT_NEGATIVE),
        has_memory=False,
    )


def psgld(learning_rate, *, decay=0.99, epsilon=1e-5, temperature=1.0):
    """Preconditioned SGLD, a kernel for `mh.sample`.

    Samples exp(-U/T) up to the bias of a finite step, of gradient noise and of the
    changing preconditioner. The last one widened the draws of a logistic regression by
    24 to 33% in standard deviation with all of the data, and by 9 to 10% with
    mini-batches (`examples/benchmarks/laws.py --only psgld`).

    Args:
        learning_rate: step, as in `mh.PSGLD`, at least 0, or a schedule.
        decay: share of the running mean of squared gradients that is kept, in [0, 1).
        epsilon: added to the root of that mean, greater than 0.
        temperature: T, at least 0, or a schedule.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.psgld(0.01)

    Reference: Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic gradient
    Langevin dynamics for deep neural networks", algorithm 1.
    """
    decay = _validate.number("decay", decay, _SHARE)
    epsilon = _validate.number("epsilon", epsilon, _validate.POSITIVE)

    def move(position, memory, gradient, normals, **settings):
        return langevin.psgld_step(
            position,
            memory,
            gradient,
            normals,
            decay=decay,
            epsilon=epsilon,
            **settings,
        )

    return StochasticGradientKernel(
        move,
        checked_learning_rate(learning_rate),
        checked_temperature(temperature, _validate.NOT_NEGATIVE),
        has_memory=True,
    )


def sghmc(learning_rate, *, momentum=0.9, temperature=1.0):
    """Stochastic gradient Hamiltonian Monte Carlo, a kernel for `mh.sample`.

    Samples exp(-U/T) up to the bias of a finite step and of gradient noise; momentum
    makes the second one 1 / (1 - momentum) times as large. `mh.SGHMC` has their size.

    Args:
        learning_rate: step, as in `mh.SGHMC`, at least 0, or a schedule.
        momentum: share of the velocity that is kept at each step, in [0, 1).
        temperature: T, at least 0, or a schedule.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sghmc(0.01, momentum=0.9)

    Reference: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte
    Carlo", eq. (15).
    """
    momentum = _validate.number("momentum", momentum, _SHARE)

    def move(position, memory, gradient, normals, **settings):
        return hamiltonian.sghmc_step(
            position, memory, gradient, normals, momentum=momentum, **settings
        )

    return StochasticGradientKernel(
        move,
        checked_learning_rate(learning_rate),
        checked_temperature(temperature, _validate.NOT_NEGATIVE),
        has_memory=True,
    )
