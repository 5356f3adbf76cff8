"""SGLD-SA and SGHMC-SA as Keras optimizers."""

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import hamiltonian
from keras_mhmcmc.algorithms import langevin
from keras_mhmcmc.optimizers.finite import FiniteGuard
from keras_mhmcmc.optimizers.sampler import checked_temperature
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabSampler

_SHARE = _validate.Interval(0.0, 1.0)


@serializable
class SGLDSA(SpikeSlabSampler):
    """SGLD with a spike-and-slab prior that learns which weights are small.

    Samples exp(-U/T) given the latent variables that it learns meanwhile, up to the
    bias of a finite step and of gradient noise. U is train_size * loss plus the energy
    of the priors: spike and slab for the kernels that `prior` chooses, N(0, 1) for the
    other kernels, flat for biases. The sampler keeps one copy of the sparse weights.

    The learned rho of a weight is a mean-field fixed point. It is not the posterior
    probability that the weight belongs to the slab. Several fixed points can exist, and
    then the start decides between them. For one of ten predictors with an exact
    probability of 0.945, rho was 0.08 from the default start and 0.996 from
    `initial_inclusion=0.99` (`examples/benchmarks/inclusion.py`).

    Args:
        learning_rate: as in `keras.optimizers.SGD`. A number that is at least 0, or a
            schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N. With "gaussian" and several outputs
            it is the number of targets, because the mean squared error is their mean.
        prior: `mh.priors.SpikeSlab`, which says which kernels are sparse.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy. Or "gaussian", where the loss is the mean squared
            error and sigma is the standard deviation of the noise.
        step_size: omega, the step of the latent variables: a schedule that falls, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 is the posterior.
        layer_temperatures: whether each variable has its own temperature: T times the
            square of its gradient's spread, relative to the largest one (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`. "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled distribution, or, at the first step,
            `prior` chooses no kernel or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGLDSA(
    ...     0.01,
    ...     train_size=1000,
    ...     prior=mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0),
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        prior,
        likelihood="categorical",
        step_size=None,
        temperature=1.0,
        layer_temperatures=False,
        seed=None,
        nan_policy="stop",
        name="sgldsa",
        **options,
    ):
        super().__init__(
            learning_rate,
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=step_size,
            layer_temperatures=layer_temperatures,
            temperature=checked_temperature(temperature, _validate.NOT_NEGATIVE),
            seed=seed,
            name=name,
            options=options,
            guard=FiniteGuard(nan_policy),
        )

    def _step(self, variables, position, gradient, learning_rate):
        position = langevin.sgld_step(
            self._guard.donated(variables),
            gradient,
            self._draw(variables, position, gradient),
            learning_rate=learning_rate,
            temperature=self._current_temperature(),
            train_size=self.train_size,
        )
        self._write(variables, position)


@serializable
class SGHMCSA(SpikeSlabSampler):
    """SGHMC with a spike-and-slab prior that learns which weights are small.

    Samples exp(-U/T) given the latent variables that it learns meanwhile, as
    `mh.SGLDSA` does. Momentum makes it faster on networks. As there, rho is a
    mean-field fixed point that depends on the start, and not a posterior probability.
    The sampler keeps a copy of the weights, and one more of the sparse ones.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum. A number that is at
            least 0, or a schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N. With "gaussian" and several outputs
            it is the number of targets, because the mean squared error is their mean.
        prior: `mh.priors.SpikeSlab`, which says which kernels are sparse.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy. Or "gaussian", where the loss is the mean squared
            error and sigma is the standard deviation of the noise.
        momentum: share of the velocity that each step keeps, in [0, 1).
        step_size: omega, the step of the latent variables: a schedule that falls, or a
            number in (0, 1]. None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 is the posterior.
        layer_temperatures: whether each variable has its own temperature: T times the
            square of its gradient's spread, relative to the largest one (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable. None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`. "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled distribution, or, at the first step,
            `prior` chooses no kernel or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGHMCSA(
    ...     0.01,
    ...     train_size=1000,
    ...     prior=mh.priors.SpikeSlab("dense/kernel", v0=1e-3, v1=1.0),
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.3.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        prior,
        likelihood="categorical",
        momentum=0.9,
        step_size=None,
        temperature=1.0,
        layer_temperatures=False,
        seed=None,
        nan_policy="stop",
        name="sghmcsa",
        **options,
    ):
        super().__init__(
            learning_rate,
            train_size=train_size,
            prior=prior,
            likelihood=likelihood,
            step_size=step_size,
            layer_temperatures=layer_temperatures,
            temperature=checked_temperature(temperature, _validate.NOT_NEGATIVE),
            seed=seed,
            name=name,
            options=options,
            guard=FiniteGuard(nan_policy),
        )
        self.momentum = _validate.number("momentum", momentum, _SHARE)

    def _build_slots(self, variables):
        super()._build_slots(variables)
        self._velocities = self.add_optimizer_variables(variables, "velocity")

    def _step(self, variables, position, gradient, learning_rate):
        slots = self._slots_of(self._velocities, variables)
        position, velocity = hamiltonian.sghmc_step(
            self._guard.donated(variables),
            self._guard.donated(slots),
            gradient,
            self._draw(variables, position, gradient),
            learning_rate=learning_rate,
            momentum=self.momentum,
            temperature=self._current_temperature(),
            train_size=self.train_size,
        )
        self._write(slots, velocity)
        self._write(variables, position)

    def get_config(self):
        """Return the arguments of the constructor."""
        return super().get_config() | {"momentum": self.momentum}
