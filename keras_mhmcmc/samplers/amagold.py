"""AMAGOLD: SGHMC with a test on all of the data at the end of each path.

Paper: Zhang, Cooper and De Sa (2020), "AMAGOLD: amortized Metropolis adjustment for
efficient stochastic gradient MCMC", algorithm 1. The paper's step size is
sqrt(epsilon/N), its momentum is v / sqrt(epsilon/N), and its beta is b over this step.

Target: exp(-U(theta)/T) exactly, at a fixed step, for any gradient noise that does not
depend on the order of the batches: batches drawn independently, or the shuffled batches
of whole epochs.

Equations of a path of n steps, with mu the momentum decay of `sghmc.py`:

    b = (1 - mu) / (1 + mu)
    start   q = theta + v/2,  rho = 0
    (1)     v' = ((1 - b) v - epsilon g + sqrt(4 epsilon b T / N) Z) / (1 + b),
            g = grad(U/N)(q) on a mini-batch
    (2)     rho <- rho + N/2 g . (v + v')
    (3)     q <- q + v'                       (1) to (3) n times, the last (3) with v'/2
    end     log r = (U(theta) - U(q) + rho) / T
            accept (q, v') if log u < log r, else go on from (theta, -v)

Why it is exact: the density of v' given v and the density of -v given -v' have the
ratio exp(-N (|v'|^2 - |v|^2) / (2 epsilon T) - N g . (v + v') / (2 T)). The first part
cancels with the stationary density of v, a normal of variance epsilon T / N, and rho
adds up the second.

A step of the optimizer evaluates one gradient at q. Between two paths it begins one,
whatever the gradient. On a path it makes (1) to (3), the last (3) with v' as well, so
that the path ends at q - v/2. The end of the first path becomes the first state,
without a test. So do those of all paths that begin in the first `warm_up` steps.
"""

import dataclasses
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple
from typing import Self

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._data import Batch as Data
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit import compiled_loss
from keras_mhmcmc.fit.arguments import WARM_UP
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.fit.state import SampleInfo
from keras_mhmcmc.fit.watch import Standstill
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops


def turned(velocity: base.Position) -> base.Position:
    return [-v for v in velocity]


class Scalars(NamedTuple):
    """The numbers of (1): v' = keep v - force g + noise Z."""

    keep: Tensor
    force: Tensor
    noise: Tensor


def scalars_of(
    learning_rate: Tensor, momentum: float, temperature: Tensor, train_size: int
) -> Scalars:
    b = (1.0 - momentum) / (1.0 + momentum)
    share = 1.0 / (1.0 + b)
    noise = base.noise_scale(2.0 * b * learning_rate, temperature, train_size)
    return Scalars((1.0 - b) * share, share * learning_rate, share * noise)


def kicked(
    velocity: base.Position,
    gradient: base.Position,
    normals: Sequence[Tensor],
    work: Tensor,
    scalars: Scalars,
    train_size: int,
) -> tuple[base.Position, Tensor]:
    """Return velocity and work after a step, (1) and (2)."""
    # v + (keep - 1) v, since the sum of terms begins with a factor of 1.
    moved = tensors.add_terms(
        velocity,
        (scalars.keep - 1.0, velocity),
        (-scalars.force, gradient),
        (scalars.noise, normals),
    )
    both = tensors.add_scaled(velocity, 1.0, moved)
    return moved, work + 0.5 * train_size * tensors.dot(gradient, both, like=work)


class State(NamedTuple):
    """Where the chains are between two paths."""

    point: base.Position
    velocity: base.Position
    energy: Tensor  # at the point, (K,)
    has_energy: Tensor  # bool, (): the first path has begun


@dataclasses.dataclass(frozen=True)
class amagold(base.Kernel):
    """Make AMAGOLD, SGHMC with a test on all of the data, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) exactly at a fixed step. The energy U in nats is minus
    the log density. A step of the chain is a path of `steps_per_test` gradients on
    mini-batches, and one evaluation of all of the data. `learning_rate` and `momentum`
    mean what they mean in `mh.kernels.sghmc`, up to terms of the size of the step.

    Args:
        learning_rate: step, as in `mh.SGHMC`, greater than 0.
        momentum: share of the velocity that each gradient step keeps, in [0, 1).
            Defaults to 0.9.
        steps_per_test: gradient steps of a path. Longer paths cost fewer passes over
            the data, and are accepted less often. At least 1. Defaults to 10.
        temperature: T, greater than 0. Defaults to 1.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> kernel = mh.kernels.amagold(0.01, steps_per_test=20)

    Reference: Zhang, Cooper and De Sa (2020), algorithm 1.
    """

    learning_rate: float
    _: dataclasses.KW_ONLY
    momentum: float = 0.9
    steps_per_test: int = 10
    temperature: float = 1.0
    batch_size: int | None = dataclasses.field(default=None, init=False)

    traits = base.Traits(counts=("accepted", "proposed", "nonfinite"), draws_data=True)

    def __post_init__(self) -> None:
        base.check(self, learning_rate=base.POSITIVE, momentum=base.SHARE)
        base.check(self, steps_per_test=1, temperature=base.POSITIVE)

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        size = train_size if batch_size is None else batch_size
        return base.bound(self, batch_size=size)

    def init(self, position: base.Position) -> State:
        return State(
            position,
            base.slots_like(position, "velocity"),
            base.Slot("energy"),
            base.Slot("has_energy", dtype="bool", value=False, is_shared=True),
        )

    def step(
        self, state: State, density: base.Density
    ) -> tuple[State, base.Position, dict[str, Tensor]]:
        size = density.train_size
        scalars = scalars_of(self.learning_rate, self.momentum, self.temperature, size)
        # Of the stationary variance, epsilon T / N.
        deviation = math.sqrt(self.learning_rate * self.temperature / size)
        fresh = [deviation * z for z in density.normals(0)]
        fresh = tensors.select(state.has_energy, state.velocity, fresh)
        energy = tensors.cond(
            state.has_energy,
            lambda: state.energy,
            lambda: density.energies(state.point),
        )

        def one(part: Tensor, point: Any, velocity: Any, work: Tensor) -> Any:
            gradient = density.gradient(point, self.batch_size or size, part)
            normals = density.normals(part)
            velocity, work = kicked(velocity, gradient, normals, work, scalars, size)
            return part + 1, tensors.add_scaled(point, 1.0, velocity), velocity, work

        begin = tensors.add_scaled(state.point, 0.5, fresh)
        path = (1, begin, fresh, ops.zeros_like(energy))
        steps = self.steps_per_test
        path = tensors.loop_while(lambda part, *_: part <= steps, one, path)
        _, end, velocity, work = path
        end = tensors.add_scaled(end, -0.5, velocity)
        new_energy = density.energies(end)
        log_ratio = (energy - new_energy + work) / self.temperature
        finite = ops.isfinite(log_ratio)
        uniform = density.uniforms(1, 1, 0)[0, :, 0]
        wins = finite & (ops.log(uniform) < log_ratio)
        state = State(
            tensors.select(wins, end, state.point),
            tensors.select(wins, velocity, turned(fresh)),
            ops.where(wins, new_energy, energy),
            state.has_energy | True,
        )
        proposed = ops.ones_like(energy)
        counts = base.counted(accepted=wins, proposed=proposed, nonfinite=~finite)
        return state, list(state.point), counts

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        return base.of_proposals(counts, acceptance="accepted")


# Where a chain is.
NOTHING = 0  # there is no state, and no path
SETTLED = 1  # between two paths: the point is the state
FREE = 2  # on a path whose end is not tested
PATH = 3  # on a path from the state


class PathState(NamedTuple):
    """The point of the path, and the state that the path began from."""

    point: base.Position  # q
    velocity: base.Position  # v, weights per step
    position: base.Position  # theta
    start_velocity: base.Position  # v at the start of the path
    energy: Tensor  # U(theta), nats, ()
    work: Tensor  # rho, nats, ()
    rate: Tensor  # epsilon, weights^2 examples / nat, ()
    stage: Tensor  # int32, ()


@dataclasses.dataclass(frozen=True)
class AmagoldPath(base.Diffusion):
    """The steps of AMAGOLD's path; `judge` is its test."""

    learning_rate: base.Rate
    temperature: float
    momentum: float
    warm_up: int = 0

    def __post_init__(self) -> None:
        base.check(self, temperature=base.POSITIVE, momentum=base.SHARE, warm_up=0)

    @property
    def traits(self) -> base.Traits:
        counts = ("accepted", "proposed", "nonfinite", "probability")
        return base.Traits(
            num_uniforms=1,
            counts=counts,
            warm_up=self.warm_up,
            warm_up_argument=("warm_up", self.warm_up),
        )

    def init(self, position: base.Position) -> PathState:
        lists = [base.slots_like(position, name) for name in PathState._fields[1:4]]
        numbers = map(base.Slot, PathState._fields[4:7])
        stage = base.Slot("stage", dtype="int32", value=NOTHING)
        slots: list[Any] = [*lists, *numbers, stage]
        return PathState(position, *slots)

    def decide(
        self, state: PathState, evaluation: base.Evaluation
    ) -> tuple[base.Current, base.Info]:
        if evaluation.restart is not None:
            stage = ops.where(evaluation.restart, NOTHING, state.stage)
            state = state._replace(stage=stage)
        info = base.Info(dict.fromkeys(self.traits.counts, ops.zeros_like(state.work)))
        return base.Current(state.point, evaluation.gradient, None, state), info

    def move(self, current: base.Current, evaluation: base.Evaluation) -> PathState:
        state: PathState = current.auxiliary
        size = evaluation.train_size
        is_new = state.stage == NOTHING
        on_path = state.stage >= FREE
        rate = ops.where(is_new, evaluation.learning_rate, state.rate)
        step = scalars_of(rate, self.momentum, evaluation.temperature, size)
        # The numbers that begin a path: with v as it is, or a fresh one.
        fresh = base.noise_scale(0.5 * rate, evaluation.temperature, size)
        scalars = Scalars(
            ops.where(on_path, step.keep, ops.where(is_new, 0.0, 1.0)),
            ops.where(on_path, step.force, 0.0),
            ops.where(on_path, step.noise, ops.where(is_new, fresh, 0.0)),
        )
        moved = state.velocity, current.gradient, evaluation.normals, state.work
        velocity, work = kicked(*moved, scalars, size)
        drift = ops.where(on_path, 1.0, 0.5)
        is_free = is_new | (evaluation.number < self.warm_up)
        return state._replace(
            point=tensors.add_scaled(current.position, drift, velocity),
            velocity=velocity,
            work=ops.where(on_path, work, ops.zeros_like(work)),
            rate=rate,
            stage=ops.where(on_path, state.stage, ops.where(is_free, FREE, PATH)),
        )

    def judge(
        self, state: PathState, end: base.Position, energy: Tensor, uniform: Tensor
    ) -> tuple[PathState, dict[str, Tensor]]:
        """Accept or reject the end of a path, where U on all of the data is `energy`.

        Return the state between two paths, and the counts.
        """
        is_free = state.stage == FREE
        log_ratio = (state.energy - energy + state.work) / self.temperature
        log_ratio = ops.where(is_free, ops.zeros_like(log_ratio), log_ratio)
        finite = ops.isfinite(energy) & ops.isfinite(log_ratio)
        wins = finite & (ops.log(uniform) < log_ratio)
        moves = wins | is_free
        back = turned(state.start_velocity)
        velocity = tensors.select(moves, state.velocity, back)
        position = tensors.select(moves, end, state.position)
        # A free path that has ended where U is not finite leaves no state.
        stage = ops.where(is_free & ~finite, NOTHING, SETTLED)
        state = PathState(
            point=position,
            velocity=velocity,
            position=position,
            start_velocity=velocity,
            energy=ops.where(moves, energy, state.energy),
            work=ops.zeros_like(state.work),
            rate=state.rate,
            stage=ops.cast(stage, "int32"),
        )
        safe = ops.where(finite, log_ratio, ops.zeros_like(log_ratio))
        probability = ops.exp(ops.minimum(safe, ops.zeros_like(safe)))
        counts = base.counted(
            accepted=wins & ~is_free,
            proposed=~is_free,
            nonfinite=~finite,
            probability=ops.where(finite & ~is_free, probability, 0.0),
        )
        return state, counts

    def begin(self, state: PathState, rate: Tensor, number: int) -> PathState:
        """Return the state on a path that begins at the position, before step `number`.

        Another rate than the last path's changes the velocity by the ratio of their
        stationary standard deviations.
        """
        stage = FREE if number < self.warm_up else PATH
        factor = ops.sqrt(rate / state.rate)
        velocity = [ops.cast(factor, v.dtype) * v for v in state.velocity]
        return state._replace(
            point=tensors.add_scaled(state.position, 0.5, velocity),
            velocity=velocity,
            start_velocity=velocity,
            work=ops.zeros_like(state.work),
            rate=rate,
            stage=ops.zeros_like(state.stage) + stage,
        )

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        means = dict(acceptance="accepted", acceptance_probability="probability")
        return base.of_proposals(counts, **means)


# Tests that are rejected in a row before a warning: each ends a path of many steps.
_MANY = 8


@serializable
class AMAGOLD(Sampler):
    """AMAGOLD: SGHMC whose paths are tested on all of the data.

    It samples exp(-U/T) exactly at a fixed step, where `mh.SGHMC` has the bias of the
    step and of gradient noise. The energy U in nats is train_size * loss - log prior,
    with the loss of the model in inference mode: samples are those of a model without
    dropout. The sampler keeps three copies of the weights.

    A path is one epoch, or `steps_per_test` steps. At its end the loss of all training
    examples decides whether the chain goes on from there, or from where the path began,
    with the velocity turned. `mh.PosteriorSamples` makes the test on the data of `fit`,
    and keeps tested states only. In `fit` without it there is one test, at the end. The
    logs have the share of accepted paths, `acceptance`, and `acceptance_probability`,
    their mean probability. If it is low, lower the rate, or set `steps_per_test`.

    The samples are exact if the order of the mini-batches has the same probability
    backwards: shuffle the data, as `fit` does, and take mini-batches of equal size. Use
    other layers than batch normalisation.

    Other arguments are those of `mh.kernels.amagold` and `mh.SGLD`.

    Args:
        learning_rate: as in `mh.SGHMC`, a number greater than 0. A change takes effect
            when `mh.PosteriorSamples` begins the next path. Put a callback that changes
            the rate before it.
        steps_per_test: steps of a path, at least 1. Defaults to None: a path is an
            epoch.
        warm_up: first steps whose paths are SGHMC, without tests and samples, at least
            0: far from the mode hardly any path would be accepted. Defaults to None:
            500, and at most a quarter of the steps of the first `fit`.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution; or, in `fit`, the data can be
            read only once, or have another number of examples than `train_size`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.AMAGOLD(1e-3, train_size=1000, steps_per_test=50)
    >>> posterior = mh.PosteriorSamples()  # for `callbacks` of `fit`

    Reference: that of `mh.kernels.amagold`.
    """

    algorithm: AmagoldPath
    _watch: Standstill
    _is_of_this_fit = False  # the energy of the state, with its loss and data

    def __init__(
        self,
        learning_rate: float,
        *,
        train_size: int | Literal["auto"] = "auto",
        momentum: float = 0.9,
        steps_per_test: int | None = None,
        warm_up: int | None = None,
        temperature: float = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "amagold",
        **options: Any,
    ) -> None:
        learning_rate = _validate.number(
            "learning_rate",
            learning_rate,
            _validate.POSITIVE,
            hint="The test is exact at a fixed step, so a schedule will not do.",
        )
        if steps_per_test is not None:
            steps_per_test = _validate.integer("steps_per_test", steps_per_test, 1)
        first = WARM_UP if warm_up is None else warm_up
        algorithm = AmagoldPath(base.OF_OPTIMIZER, temperature, momentum, first)
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared, check_model=_check_model)
        self.steps_per_test = steps_per_test
        self._data: Data | None = None
        self._full_loss = compiled_loss.FullLoss()

    def use_data(self, x: Any, y: Any = None, sample_weight: Any = None) -> None:
        """Test paths on these data, all training examples, in place of those of `fit`.

        `fit` needs this if its data can be read only once, or are augmented at random.
        A saved model does not hold the data: after loading, call this again. `x`, `y`
        and `sample_weight` are as in `fit`.
        """
        object.__setattr__(self, "_data", Data(x, y, sample_weight))

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.processes > 1:
            raise ValueError(
                "AMAGOLD must run in a single process: its test needs all of the data "
                "in each. Run chains of their own in `mh.independent_processes()`, or "
                f"use `mh.SGHMC`. Received: {self.processes} processes"
            )
        super().build(variables)

    def use_chains(self, num_chains: int) -> None:
        raise ValueError(
            "Argument `optimizer` of an `mh.ParallelChains` must be another sampler "
            "than `mh.AMAGOLD`, which tests a single chain. Fit a model for each "
            "chain, and load their directories with `mh.PosteriorSamples.load([...])`."
            f" Received: {num_chains} chains"
        )

    # The chain.

    def _build_chain(self) -> None:
        self._watch = Standstill(type(self).__name__, many=_MANY)

    def _read_state(self, can_overwrite: bool) -> Any:
        slots = self._state.read()
        # The step moves the point, and reads the velocity again when it has moved.
        return slots._replace(point=_backend.donated(self._state.weights, slots.point))

    def _restart(self, slots: PathState) -> Tensor:
        """Return whether somebody else set the weights since they were settled."""

        def compare() -> Tensor:
            delta = tensors.subtract(slots.point, slots.position)
            return tensors.sum_squares(delta, like=slots.work) > 0.0

        is_settled = slots.stage == SETTLED
        changed = _backend.cond(is_settled, compare, lambda: is_settled)
        return is_settled & changed

    def _store(self, slots: PathState, runs: Tensor = None) -> None:
        # A step changes neither of these.
        variables = self.slots._replace(position=[], start_velocity=[])
        slots = slots._replace(position=[], start_velocity=[])
        _backend.write(base.leaves(variables), base.leaves(slots))

    def _stage(self) -> int:
        if not _backend.hold_values(self._state.all):  # after a failed step on JAX
            return NOTHING
        return int(ops.convert_to_numpy(self.slots.stage))

    def _values(self) -> list[Tensor]:
        on_path = self._stage() == PATH
        return _backend.read(self.slots.position if on_path else self._state.weights)

    def _settle(self) -> None:
        """Test the end of the path, and put the state of the chain into the model."""
        if self._stage() < FREE:
            return
        weights = self._state.weights
        state = self._state.read()
        end = tensors.add_scaled(state.point, -0.5, state.velocity)
        points = [ops.copy(x) for x in state.point]
        try:
            # Another `fit`, with another loss, has left the energy of the state.
            if not self._is_of_this_fit and self._stage() == PATH:
                _backend.write_copies(weights, self.slots.position)
                self.slots.energy.assign(self._full_energy())
            self._is_of_this_fit = True
            _backend.write(weights, end)
            energy = ops.convert_to_tensor(self._full_energy(), dtype="float32")
        except BaseException:
            _backend.write(weights, points)  # the path goes on
            raise
        self._changes += 1
        # Read again: on PyTorch `state` may be the memory of the variables.
        state = self._state.read()
        # Of a single weight: the test needs a uniform alone.
        one = [ops.zeros((2,), "float32")]
        uniform = self._evaluation(one, [], None, self._rate()).uniforms[0]
        state, counts = self.algorithm.judge(state, state.point, energy, uniform)
        self._write_state(state)
        known, new = ops.convert_to_tensor(self._counts), list(counts.values())
        self._counts.assign(known + ops.stack(new, axis=-1))
        if not bool(ops.convert_to_numpy(counts["nonfinite"])):
            energies = self._energies
            energies.variable.assign(energies.recorded(self.slots.energy.value, None))

    def _write_state(self, slots: PathState) -> None:
        """Write a state whose lists may share their memory."""
        copies = [ops.copy(x) for x in base.leaves(slots)]
        _backend.write(base.leaves(self.slots), copies)

    def propose(self) -> None:
        if not self.built:
            return
        _backend.return_values(self)
        if self._stage() != SETTLED:
            return
        state = self._state.read()
        pairs = zip(state.point, state.position, strict=True)
        if any(bool(ops.convert_to_numpy(ops.any(x != y))) for x, y in pairs):
            return  # the next step begins a new chain from weights that were set
        rate = self._rate()
        if not float(ops.convert_to_numpy(rate)) > 0.0:
            raise ValueError(
                "Argument `learning_rate` of AMAGOLD must stay greater than 0: at 0 "
                "the chain would lose its velocity. Look at the callback that changes "
                f"the rate. Received: learning_rate={float(rate):g}"
            )
        self._changes += 1
        self._write_state(self.algorithm.begin(state, rate, self._steps()))

    def mark_sample(self, listener: Callable[[], None] | None = None) -> None:
        """Do nothing: the energy of the state is known."""

    def sample_info(self) -> SampleInfo:
        _backend.return_values(self)
        energy = ops.convert_to_numpy(self.slots.energy)
        return SampleInfo(energy, np.zeros_like(energy), True)

    def _lost_chains(self) -> Array:
        has_state = self._stage() in (SETTLED, PATH)
        return np.array(self._steps() > 0 and not has_state)

    def has_stopped(self) -> bool:
        """Return whether the first path ended where the energy was not finite."""
        is_lost = super().has_stopped()
        return is_lost and self._stage() == NOTHING

    def reason_of_loss(self) -> str:
        if self._stage() == FREE:
            return (
                "AMAGOLD has no state to sample: no path has ended. Train for a whole "
                "epoch, or for `steps_per_test` steps, with `mh.PosteriorSamples`."
            )
        return (
            "AMAGOLD has no state to sample: the energy at the end of a first path "
            "was not finite. Look for such values in the data, or compile the model "
            "again, with finite weights and a lower learning rate."
        )

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        watch, now = self._watch, self._settings()
        if self._stage() == NOTHING:
            watch.look_at_lost(self._lost_chains(), self.reason_of_loss())
            return
        energy = ops.convert_to_numpy(self.slots.energy)
        watch.look_at_energy(energy, now["temperature"])
        watch.look(counts["accepted"], counts["proposed"], **now)

    def _look_at_end(self) -> None:
        if _backend.error_leaves_fit():
            if self._stage() == PATH:  # back to where it began
                _backend.write_copies(self._state.weights, self.slots.position)
                _backend.write_copies(self.slots.velocity, self.slots.start_velocity)
                self.slots.stage.assign(SETTLED)
            self._is_of_this_fit = False
            return
        self._settle()
        self._is_of_this_fit = False
        if not self._watch.has_looked:
            self._look_at_epoch(self._read_counts())
        self._watch.look_at_warm_up(self._steps(), self.algorithm.traits)

    def _full_energy(self) -> float:
        model, data = self._model_and_data()
        energy = self.train_size * self._full_loss(model, data, self.train_size)
        if self._bound_prior is not None:
            weights = _backend.read(self.sampled_variables)
            like = self.slots.energy.value
            prior = self._bound_prior.energy(weights, like=like)
            energy += float(_backend.ops.convert_to_numpy(prior))
        return energy

    def _model_and_data(self) -> tuple[keras.Model, Data]:
        model = _backend.training_model(self)
        given = None if model is None else _backend.fitted_data(model)
        if model is None or given is None:
            raise ValueError(
                "The test of a path needs `fit`, where AMAGOLD finds the model and all "
                "of the data. Call `model.fit(x, y, ..., "
                "callbacks=[mh.PosteriorSamples()])`. Received: `settle()` outside "
                "`fit`"
            )
        if self._data is not None:
            return model, self._data
        class_weight = given["class_weight"]
        if class_weight is not None:
            raise ValueError(
                "Argument `class_weight` of `fit` must be None with `mh.AMAGOLD`: its "
                "test needs the weight of each example. Pass `sample_weight`. "
                f"Received: class_weight={class_weight!r}"
            )
        return model, Data(given["x"], given["y"], given["sample_weight"])


def _check_model(model: keras.Model) -> None:
    """Warn of a loss that is no likelihood, and of layers that have no energy."""
    compiled_loss.warn_of_no_likelihood(model)
    layers = _backend.inner_layers(model)
    kind = keras.layers.BatchNormalization
    moving = [x.name for x in layers if isinstance(x, kind) and x.trainable]
    if moving:
        warn(
            "AMAGOLD is not exact with batch normalisation: the statistics move along "
            "a path, and a rejected path does not put them back. Use "
            "`keras.layers.GroupNormalization` or `LayerNormalization`, or freeze the "
            f"layers with `trainable = False`. Received: {', '.join(moving)}"
        )
