"""Expectation stochastic-maximization as a Keras optimizer."""

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import adam
from keras_mhmcmc.optimizers.finite import FiniteGuard
from keras_mhmcmc.optimizers.spike_slab import SpikeSlabSampler

_SHARE = _validate.Interval(0.0, 1.0)


@serializable
class ESM(SpikeSlabSampler):
    """Adam with a spike-and-slab prior: the mode that `SGLDSA` samples around.

    Samples nothing: in place of exp(-U/T) it seeks the least U, and its latent
    variables are those of the last step alone (omega = 1). The paper compares its
    samplers with it. From weights that are all small it closes the spike over them
    (sigma falls with them) and does not leave zero again: begin with a wide
    initializer. Its rho depends on that start and is not a posterior probability. Keeps
    two copies of the weights, and one more of the sparse ones.

    Args:
        learning_rate: as in `keras.optimizers.Adam`; a number that is at least 0, or a
            schedule.
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
        initial_inclusion: first rho of all sparse weights, in (0, 1), as `SGLDSA` has
            it. ESM replaces rho in its first step, so that its first weights decide.
        likelihood: "categorical", where the loss is a mean negative log-likelihood,
            such as a cross-entropy; or "gaussian", where it is the mean squared error
            and sigma the standard deviation of the noise.
        groups: "layer" gives each sparse kernel a sigma and a delta of its own (a
            "gaussian" likelihood has one sigma), "all" one to all of them.
        beta_1: share of the mean gradient that is kept at each step, in [0, 1).
        beta_2: share of the mean squared gradient that is kept, in [0, 1).
        epsilon: number added to the root of that, greater than 0.
        seed: as every sampler has it; ESM draws nothing.
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
    >>> optimizer = mh.ESM(
    ...     0.001, train_size=1000, sparse="dense/kernel", v0=1e-3, v1=1.0
    ... )

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.2.
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
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-7,
        seed=None,
        nan_policy="stop",
        name="esm",
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
                step_size=1.0,
            ),
            layer_temperatures=False,
            temperature=0.0,
            seed=seed,
            name=name,
            options=options,
            guard=FiniteGuard(nan_policy),
        )
        self.beta_1 = _validate.number("beta_1", beta_1, _SHARE)
        self.beta_2 = _validate.number("beta_2", beta_2, _SHARE)
        self.epsilon = _validate.number("epsilon", epsilon, _validate.POSITIVE)

    def _build_slots(self, variables):
        super()._build_slots(variables)
        self._means = self.add_optimizer_variables(variables, "mean")
        self._squares = self.add_optimizer_variables(variables, "square")

    def _step(self, variables, position, gradient, learning_rate):
        means = self._slots_of(self._means, variables)
        squares = self._slots_of(self._squares, variables)
        position, mean, square = adam.adam_step(
            self._guard.donated(variables),
            self._guard.donated(means),
            self._guard.donated(squares),
            gradient,
            self._iterations,
            learning_rate=learning_rate,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
        )
        self._write(means, mean)
        self._write(squares, square)
        self._write(variables, position)

    def get_config(self):
        """The arguments of the constructor."""
        config = super().get_config()
        for name in ("temperature", "step_size", "layer_temperatures"):
            del config[name]
        own = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return config | own
