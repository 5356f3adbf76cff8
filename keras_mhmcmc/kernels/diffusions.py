"""Build the kernels for `mh.sample` that always move, such as SGLD."""

from keras_mhmcmc.algorithms.base import checked_learning_rate
from keras_mhmcmc.algorithms.psgld import PSGLD
from keras_mhmcmc.algorithms.sghmc import SGHMC
from keras_mhmcmc.algorithms.sgld import SGLD
from keras_mhmcmc.algorithms.sgnht import SGNHT
from keras_mhmcmc.schedules import Schedule


def sgld(
    learning_rate: float | Schedule, *, temperature: float | Schedule = 1.0
) -> SGLD:
    """Return stochastic gradient Langevin dynamics, a kernel for `mh.sample`.

    The kernel samples exp(-U/T), up to the bias of a finite step and of gradient noise.
    The energy U in nats is minus the log density. `mh.SGLD` gives the size of both
    biases.

    Args:
        learning_rate: factor of the gradient of U/N, as in `mh.SGLD`. With
            `log_density` N is 1. A number of at least 0, or a schedule.
        temperature: T, at least 0, or a schedule. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgld(0.1)

    Reference: Welling and Teh (2011), "Bayesian learning via stochastic gradient
    Langevin dynamics", eq. (4).
    """
    return SGLD(checked_learning_rate(learning_rate), temperature)


def psgld(
    learning_rate: float | Schedule,
    *,
    decay: float = 0.99,
    epsilon: float = 1e-5,
    temperature: float | Schedule = 1.0,
) -> PSGLD:
    """Return preconditioned SGLD, a kernel for `mh.sample`.

    The kernel samples exp(-U/T), up to the bias of a finite step, of gradient noise and
    of the changing preconditioner. The energy U in nats is minus the log density. On a
    logistic regression the preconditioner made the standard deviation 24 to 33% too
    large with all of the data, and 9 to 10% with mini-batches
    (`examples/benchmarks/laws.py --only psgld`).

    Args:
        learning_rate: step, as in `mh.PSGLD`. A number of at least 0, or a schedule.
        decay: share of the mean squared gradient that each step keeps, in [0, 1).
            Defaults to 0.99.
        epsilon: number added to the root of the mean squared gradient, greater than 0.
            Defaults to 1e-5.
        temperature: T, at least 0, or a schedule. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.psgld(0.01)

    Reference: Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic gradient
    Langevin dynamics for deep neural networks", algorithm 1.
    """
    return PSGLD(checked_learning_rate(learning_rate), temperature, decay, epsilon)


def sghmc(
    learning_rate: float | Schedule,
    *,
    momentum: float = 0.9,
    temperature: float | Schedule = 1.0,
    integrator: str = "euler",
) -> SGHMC:
    """Return stochastic gradient Hamiltonian Monte Carlo, a kernel for `mh.sample`.

    The kernel samples exp(-U/T), up to the bias of a finite step and of gradient noise.
    The energy U in nats is minus the log density. Momentum makes the bias of gradient
    noise 1 / (1 - momentum) times as large. `mh.SGHMC` gives the size of both biases.

    Args:
        learning_rate: step, as in `mh.SGHMC`. A number of at least 0, or a schedule.
        momentum: share of the velocity that each step keeps, in [0, 1). Defaults to
            0.9.
        temperature: T, at least 0, or a schedule. Defaults to 1.
        integrator: "euler", or "baoab", whose finite step has no bias on a Gaussian.
            `mh.SGHMC` says what `learning_rate` and `momentum` mean with each. Defaults
            to "euler".

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sghmc(0.01, momentum=0.9)

    Reference: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte
    Carlo", eq. (15); for "baoab", Leimkuhler and Matthews (2013), "Rational
    construction of stochastic numerical methods for molecular sampling".
    """
    rate = checked_learning_rate(learning_rate)
    return SGHMC(rate, temperature, momentum, integrator)


def sgnht(
    learning_rate: float | Schedule,
    *,
    momentum: float = 0.9,
    temperature: float | Schedule = 1.0,
    thermostat_rate: float | None = None,
) -> SGNHT:
    """Return the stochastic gradient Nose-Hoover thermostat, a kernel for `mh.sample`.

    The kernel samples exp(-U/T), up to the bias of a finite step. The energy U in nats
    is minus the log density. Its friction, the thermostat, absorbs gradient noise that
    is the same in all directions. `mh.SGNHT` gives its mean, and the bias of few
    weights.

    Args:
        learning_rate: step, as in `mh.SGNHT`. A number of at least 0, or a schedule.
        momentum: share of the velocity that a step keeps without gradient noise, in
            [0, 1). Defaults to 0.9.
        temperature: T, at least 0, or a schedule. Defaults to 1.
        thermostat_rate: what the thermostat changes by in a step whose velocities are
            twice as hot as T, in [0, 1]. Defaults to None, (1 - momentum)^2 / 2.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.sgnht(0.01, momentum=0.9)

    Reference: Ding, Fang, Babbush, Chen, Skeel and Neven (2014), "Bayesian sampling
    using stochastic gradient thermostats", algorithm 2.
    """
    rate = checked_learning_rate(learning_rate)
    return SGNHT(rate, temperature, momentum, thermostat_rate)
