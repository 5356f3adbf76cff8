"""Contour SGLD and contour SGHMC as Keras optimizers."""

from keras_mhmcmc import _validate
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc.algorithms import hamiltonian
from keras_mhmcmc.algorithms import langevin
from keras_mhmcmc.optimizers.contour import ContourSampler
from keras_mhmcmc.optimizers.finite import FiniteGuard
from keras_mhmcmc.optimizers.sampler import checked_temperature

_SHARE = _validate.Interval(0.0, 1.0)


@serializable
class CSGLD(ContourSampler):
    """Contour stochastic gradient Langevin dynamics: SGLD on a flattened energy.

    Samples exp(-U/T) / Psi(U)^zeta, with U the energy in nats, train_size * loss - log
    prior, and Psi the mass of the energy's subregions, which it learns: so it crosses
    barriers that hold SGLD. The importance weight Psi(U)^zeta of each sample corrects
    for it: weighted, the samples have the density exp(-U/T), up to the bias of a finite
    step and of gradient noise, and where `max_multiplier` limits nothing.
    `mh.PosteriorSamples` keeps the weights and the ensemble uses them. Keeps no copy of
    the weights of the model.

    A sample's weight needs its energy, which the next step evaluates: the last sample
    of a `fit` has the weight of the point before it until another `fit` goes on.

    Args:
        learning_rate: as in `keras.optimizers.SGD`: it multiplies the gradient of the
            mean loss. A number that is at least 0, or a schedule.
        train_size: number of training examples, N.
        energy_min: u_1, upper end of the first subregion, in nats of U. Take it a
            little above the lowest energies of a pilot run: `mh.suggest_partition`.
        energy_gap: width of the other subregions, in nats, greater than 0.
        partitions: number of subregions, m, at least 2; 10 to 1000 as a rule.
        zeta: how far the energy is flattened, greater than 0: 1 makes its histogram
            flat.
        temperature: T, at least 0, or a schedule (simulated annealing).
        step_size: omega, step of the learned density: a schedule that falls, or a
            number in (0, 1); None is `mh.schedules.RobbinsMonro()`.
        random_field: "zeta" updates the density with theta(J)^zeta, "one" with
            theta(J), as zeta much above 1 needs it.
        difference: "backward" or "forward", the slope of log theta that is used.
        max_multiplier: largest absolute value of the gradient's factor, at least 1;
            None is no limit. Where it is in force, the weights are not exact: on a
            normal distribution in 20 dimensions they put the mean energy 0.5% too high
            at zeta = 5, 3.4% at 10, and nowhere at 2
            (`examples/benchmarks/contour_weights.py`).
        weight_power: samples have the weights Psi(U)^weight_power. None is zeta, which
            is exact where `max_multiplier` limits nothing; less evens the weights out
            where zeta leaves few samples that count, and then the weighted samples do
            not have the density exp(-U/T).
        rho: bias of the density's update towards low energies, eq. (57), at least 0.
        pdf: first theta, shape (partitions,), positive; None falls linearly.
        adapt: whether theta is learned; False samples with `pdf` as it is (KSGLD).
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable; None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`; "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, or an option of the Keras base
            class is given that would change the sampled law.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.CSGLD(
    ...     0.01,
    ...     train_size=1000,
    ...     energy_min=200.0,
    ...     energy_gap=20.0,
    ...     partitions=100,
    ...     zeta=1.0,
    ... )

    Reference: Deng, Lin and Liang (2020), "A contour stochastic gradient Langevin
    dynamics algorithm for simulations of multi-modal distributions", algorithm 1.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        energy_min,
        energy_gap,
        partitions,
        zeta,
        temperature=1.0,
        step_size=None,
        random_field="zeta",
        difference="backward",
        max_multiplier=5.0,
        weight_power=None,
        rho=0.0,
        pdf=None,
        adapt=True,
        prior=None,
        seed=None,
        nan_policy="stop",
        name="csgld",
        **options,
    ):
        super().__init__(
            learning_rate,
            partition={
                "energy_min": energy_min,
                "energy_gap": energy_gap,
                "partitions": partitions,
                "zeta": zeta,
                "step_size": step_size,
                "random_field": random_field,
                "difference": difference,
                "max_multiplier": max_multiplier,
                "weight_power": weight_power,
                "rho": rho,
                "pdf": pdf,
                "adapt": adapt,
            },
            train_size=train_size,
            temperature=checked_temperature(temperature, _validate.NOT_NEGATIVE),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
            guard=FiniteGuard(nan_policy),
        )

    def _move(self, variables, position, gradient, energy, learning_rate):
        normals, _ = self._noise.draw(position, 1)
        position = langevin.sgld_step(
            self._guard.donated(variables),
            gradient,
            normals,
            learning_rate=learning_rate,
            temperature=self._current_temperature(),
            train_size=self.train_size,
            multiplier=self._multiplier(energy),
        )
        self._write(variables, position)
        return energy


@serializable
class CSGHMC(ContourSampler):
    """Contour stochastic gradient Hamiltonian Monte Carlo: SGHMC on a flattened energy.

    Samples exp(-U/T) / Psi(U)^zeta, and with the weights of the samples exp(-U/T), as
    `mh.CSGLD` does; momentum makes it faster on networks. With schedules for the
    learning rate and the temperature it is the paper's saCSGHMC. Keeps one copy of the
    model's weights.

    Args:
        learning_rate: as in `keras.optimizers.SGD` with momentum; a number that is at
            least 0, or a schedule.
        train_size: number of training examples, N.
        energy_min: upper end of the first subregion, in nats of U; as in `mh.CSGLD`,
            and so for all that is not said otherwise.
        energy_gap: width of the other subregions, in nats.
        partitions: number of subregions.
        zeta: how far the energy is flattened.
        momentum: share of the velocity that is kept at each step, in [0, 1).
        temperature: T, at least 0, or a schedule.
        step_size: step of the learned density.
        random_field: "zeta" or "one".
        difference: "backward" or "forward".
        max_multiplier: largest absolute value of the gradient's factor.
        weight_power: of the importance weights.
        rho: bias of the density's update.
        pdf: first theta.
        adapt: whether theta is learned.
        prior: such as `mh.priors.Gaussian(scale)`; None is a flat prior.
        seed: integer in [0, 2**31) that makes the noise repeatable; None draws one.
        nan_policy: "stop" holds the chain at its last finite state from the step that
            meets NaN or infinity, with a warning at the end of the epoch, where
            `mh.PosteriorSamples` also ends `fit`; "raise" raises an error then.
        name: name of the optimizer.

    Raises:
        FloatingPointError: at the end of an epoch, as `nan_policy` asks.
        ValueError: an argument is outside its range, or an option of the Keras base
            class is given that would change the sampled law.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.CSGHMC(
    ...     mh.schedules.CyclicalCosine(0.01, cycle_steps=1000),
    ...     train_size=1000,
    ...     energy_min=200.0,
    ...     energy_gap=20.0,
    ...     partitions=100,
    ...     zeta=1.0,
    ... )

    Reference: Deng, Lin and Liang (2020), sections 4.2 and 4.3.
    """

    def __init__(
        self,
        learning_rate,
        *,
        train_size,
        energy_min,
        energy_gap,
        partitions,
        zeta,
        momentum=0.9,
        temperature=1.0,
        step_size=None,
        random_field="zeta",
        difference="backward",
        max_multiplier=5.0,
        weight_power=None,
        rho=0.0,
        pdf=None,
        adapt=True,
        prior=None,
        seed=None,
        nan_policy="stop",
        name="csghmc",
        **options,
    ):
        super().__init__(
            learning_rate,
            partition={
                "energy_min": energy_min,
                "energy_gap": energy_gap,
                "partitions": partitions,
                "zeta": zeta,
                "step_size": step_size,
                "random_field": random_field,
                "difference": difference,
                "max_multiplier": max_multiplier,
                "weight_power": weight_power,
                "rho": rho,
                "pdf": pdf,
                "adapt": adapt,
            },
            train_size=train_size,
            temperature=checked_temperature(temperature, _validate.NOT_NEGATIVE),
            prior=prior,
            seed=seed,
            name=name,
            options=options,
            guard=FiniteGuard(nan_policy),
        )
        self.momentum = _validate.number("momentum", momentum, _SHARE)

    def _build_slots(self, variables):
        super()._build_slots(variables)
        self._velocities = self.add_optimizer_variables(variables, "velocity")

    def _move(self, variables, position, gradient, energy, learning_rate):
        slots = self._slots_of(self._velocities, variables)
        normals, _ = self._noise.draw(position, 1)
        position, velocity = hamiltonian.sghmc_step(
            self._guard.donated(variables),
            self._guard.donated(slots),
            gradient,
            normals,
            learning_rate=learning_rate,
            momentum=self.momentum,
            temperature=self._current_temperature(),
            train_size=self.train_size,
            multiplier=self._multiplier(energy),
        )
        self._write(slots, velocity)
        self._write(variables, position)
        return energy

    def get_config(self):
        """The arguments of the constructor."""
        return super().get_config() | {"momentum": self.momentum}
