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
    bias of a finite step and of gradient noise. U is train_size * loss, plus the
    energies of the priors: spike and slab for the kernels that `sparse` chooses,
    N(0, 1) for the other kernels, flat for biases. Keeps one copy of the sparse
    weights.

    The learned rho of a weight is a mean-field fixed point, not the posterior
    probability that the weight belongs to the slab. There can be several fixed points,
    and the start decides between them. For one of ten predictors with an exact
    probability of 0.945, rho was 0.08 from the default start and 0.996 from
    `initial_inclusion=0.99` (`examples/benchmarks/inclusion.py`).

    Args:
        learning_rate: as in `keras.optimizers.SGD`; a number that is at least
            0, or a schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N; with "gaussian" and several outputs
            the number of targets, over which the mean squared error is a mean.
        sparse: which kernels have the prior: a regular expression that is found in
            their paths, or a function of a Keras variable. Kernels are variables with
            two axes or more.
        v0: variance of the spike over sigma^2, greater than 0.
        v1: variance of the slab over sigma^2, greater than `v0`.
        a: delta has the prior Beta(a, b); at least 1.
        b: at least 1; the number of sparse weights asks for few of them in the slab.
        nu: sigma^2 has the prior IG(nu/2, nu lam/2); greater than 0.
        lam: scale of that prior, greater than 0.
        sigma: first sigma, greater than 0.
        delta: first delta, the share of weights in the slab, in (0, 1).
        initial_inclusion: first rho of all sparse weights, in (0, 1). None is `delta`.
            It can decide where rho ends. Near 1 all weights start free, and the prior
            closes over those that the data do not hold.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy; or "gaussian", where it is the mean squared error
            and sigma the standard deviation of the noise.
        groups: "layer" gives each sparse kernel a sigma and a delta of its own (a
            "gaussian" likelihood has one sigma), "all" one to all of them.
        step_size: omega of the latent variables, a schedule that falls, or a number in
            (0, 1]; None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 is the posterior.
        layer_temperatures: whether each variable has its own, T times the square of
            its gradient's spread over the largest one (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable; None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`; "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, at the first step, `sparse`
            chooses no kernel or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGLDSA(
    ...     0.01, train_size=1000, sparse="dense/kernel", v0=1e-3, v1=1.0
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        sparse,
        v0,
        v1,
        a=1.0,
        b=1.0,
        nu=1.0,
        lam=1.0,
        sigma=1.0,
        delta=0.5,
        initial_inclusion=None,
        likelihood="categorical",
        groups="layer",
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
            sparse_prior=dict(
                sparse=sparse,
                v0=v0,
                v1=v1,
                a=a,
                b=b,
                nu=nu,
                lam=lam,
                sigma=sigma,
                delta=delta,
                initial_inclusion=initial_inclusion,
                likelihood=likelihood,
                groups=groups,
                step_size=step_size,
            ),
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

    Samples exp(-U/T) given the latent variables that it learns meanwhile, as `SGLDSA`
    does, with momentum: for networks. As there, rho is a mean-field fixed point that
    depends on the start, not a posterior probability. Keeps a copy of the weights, and
    one more of the sparse ones.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum; a number that is at
            least 0, or a schedule, such as `mh.schedules.PowerDecay`.
        train_size: number of training examples, N; with "gaussian" and several outputs
            the number of targets, over which the mean squared error is a mean.
        sparse: which kernels have the prior: a regular expression that is found in
            their paths, or a function of a Keras variable. Kernels are variables with
            two axes or more.
        v0: variance of the spike over sigma^2, greater than 0.
        v1: variance of the slab over sigma^2, greater than `v0`.
        a: delta has the prior Beta(a, b); at least 1.
        b: at least 1; the number of sparse weights asks for few of them in the slab.
        nu: sigma^2 has the prior IG(nu/2, nu lam/2); greater than 0.
        lam: scale of that prior, greater than 0.
        sigma: first sigma, greater than 0.
        delta: first delta, the share of weights in the slab, in (0, 1).
        initial_inclusion: first rho of all sparse weights, in (0, 1). None is `delta`.
            It can decide where rho ends. Near 1 all weights start free, and the prior
            closes over those that the data do not hold.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy; or "gaussian", where it is the mean squared error
            and sigma the standard deviation of the noise.
        groups: "layer" gives each sparse kernel a sigma and a delta of its own (a
            "gaussian" likelihood has one sigma), "all" one to all of them.
        momentum: share of the velocity that is kept at each step, in [0, 1).
        step_size: omega of the latent variables, a schedule that falls, or a number in
            (0, 1]; None is 0.1 (k + 1000)^(-3/4) at iteration k.
        temperature: T, at least 0, or a schedule. 1 is the posterior.
        layer_temperatures: whether each variable has its own, T times the square of
            its gradient's spread over the largest one (appendix D.2).
        seed: integer in [0, 2**31) that makes the noise repeatable; None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`; "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, an option of the Keras base class
            is given that would change the sampled law, or, at the first step, `sparse`
            chooses no kernel or the compiled loss does not fit `likelihood`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.SGHMCSA(
    ...     0.01, train_size=1000, sparse="dense/kernel", v0=1e-3, v1=1.0
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.3.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        sparse,
        v0,
        v1,
        a=1.0,
        b=1.0,
        nu=1.0,
        lam=1.0,
        sigma=1.0,
        delta=0.5,
        initial_inclusion=None,
        likelihood="categorical",
        groups="layer",
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
            sparse_prior=dict(
                sparse=sparse,
                v0=v0,
                v1=v1,
                a=a,
                b=b,
                nu=nu,
                lam=lam,
                sigma=sigma,
                delta=delta,
                initial_inclusion=initial_inclusion,
                likelihood=likelihood,
                groups=groups,
                step_size=step_size,
            ),
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
        """The arguments of the constructor."""
        return super().get_config() | {"momentum": self.momentum}
