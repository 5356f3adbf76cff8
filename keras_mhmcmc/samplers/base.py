"""What a kernel is: a Markov chain, for one chain or for K chains side by side.

`mh.sample` and replica exchange take a `Kernel` step by step. An `Algorithm` is a
kernel in two halves around one evaluation of the energy, and mostly of its gradient, at
the point that the last step has proposed. `decide` says where the chain is after the
evaluation. `move` goes on from there to the next point. So an optimizer can run it,
too.

| symbol    | name            | shape                 | unit                        |
|-----------|-----------------|-----------------------|-----------------------------|
| theta     | `position`      | list of tensors       | weights                     |
| U         | `energy`        | () or (K,)            | nats                        |
| grad(U/N) | `gradient`      | like the position     | nats per example and weight |
| epsilon   | `learning_rate` | scalar, () or (K,)    | weights^2 examples / nat    |
| T         | `temperature`   | scalar, () or (K,)    | 1                           |
| N         | `train_size`    | int                   | examples                    |
| Z         | `normals`       | like the position     | 1                           |
| u         | `uniforms`      | n of shape () or (K,) | 1, in [0, 1)                |

The files of samplers use the same symbols, and a table lists what each of them adds.
Other kernels draw their data as they go: a test evaluates examples one by one at two
points, batches until it can decide, or a path of gradients. A step gets a `Density`,
which evaluates K chains at once and makes the noise.

The learning rate of pSGLD, of Adam and of a random walk is in weights. The rank of the
energy says how many chains there are: () is one chain, and (K,) are K chains, whose
tensors have a leading axis of length K.
"""

import abc
import copy
import dataclasses
import inspect
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import Protocol
from typing import Self
from typing import TypeVar

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.parts.tensors import ops
from keras_mhmcmc.schedules import Schedule

Position = list[Tensor]
Frozen = TypeVar("Frozen")
SHARE = _validate.Interval(0.0, 1.0)  # [0, 1), of what is kept at a step
OPEN_SHARE = _validate.Interval(0.0, 1.0, low_open=True)
UP_TO_ONE = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
POSITIVE = _validate.POSITIVE
# A number, or a value that changes with the number of the step.
Rate = float | Schedule
# The learning rate of an optimizer's algorithm: each evaluation brings another.
OF_OPTIMIZER: Rate = float("nan")


class Traits(NamedTuple):
    """What a kernel needs, and what it gives."""

    uses_gradient: bool = True
    uses_normals: bool = True
    # Whether a step is impossible without the energy. An optimizer may run without it.
    uses_energy: bool = False
    # Whether a step compares the energies of two mini-batches, and may reject.
    compares_batches: bool = False
    # Whether a step needs the variance of the energy's estimate on its mini-batch.
    uses_energy_variance: bool = False
    num_uniforms: int = 0  # of each chain and step
    # Temperatures of a chain, each with noise of its own: `noise` has one more axis.
    levels: int = 1
    # Whether a prior is added to energy and gradient before a step.
    takes_prior: bool = True
    # Whether the noise of mini-batches takes the place of the noise that others add.
    needs_batches: bool = False
    has_weights: bool = False  # whether draws have importance weights
    warm_up: int = 0  # first steps, which are burn-in
    # Name and value of the argument that sets them, for messages.
    warm_up_argument: tuple[str, int] = ("warm_up", 0)
    counts: tuple[str, ...] = ()  # names of what the steps add up
    # What an optimizer has no use for. Whether a step draws its data and its noise.
    draws_data: bool = False
    # Whether its noise is `Density.normals(0)` alone, drawn before a step.
    draws_once: bool = False
    needs_examples: bool = False  # log-likelihoods of single examples
    # Whether a step may take all tensors of a position as one, (K, d): it treats all
    # weights alike. One tensor needs a fraction of the time of many small ones.
    is_flat: bool = False
    learns_noise: bool = False  # of a regression, from squared errors alone
    draws_afresh: bool = False  # whether positions differ at a rate of 0 as well
    couples_chains: bool = False  # whether chains learn from each other
    adapts_target: bool = False  # whether a step learns what changes the target
    warns_of_rejections: bool = False  # whether the summary does
    # Examples of a step up to which XLA makes it faster on TensorFlow: a step of 400
    # took 47 us with XLA and 128 us without, of 3,200 251 and 298 us, and of 10,000
    # 1,136 and 706 us.
    fused_examples: int = 4096


class Evaluation(NamedTuple):
    """The evaluated point, the noise of the step, and its settings."""

    energy: Tensor  # U at the point, nats, () or (K,); None: not known
    gradient: Position  # of U/N at the point; empty if the algorithm uses none
    normals: Sequence[Tensor]  # standard normal noise, like the position
    uniforms: Sequence[Tensor]  # `num_uniforms` of shape () or (K,)
    number: Tensor  # of the step, from 0
    learning_rate: Tensor
    temperature: Tensor
    train_size: int
    energy_variance: Tensor = None  # of U's estimate, nats^2, (K,)
    multiplier: Tensor = 1.0  # of the gradient alone, () or (K,)
    restart: Tensor = None  # bool: the point starts a new chain; None: it never does


class Current(NamedTuple):
    """Where chains are between the two halves of a step."""

    position: Position
    gradient: Position
    energy: Tensor  # () or (K,)
    auxiliary: Any  # whatever else the algorithm hands from `decide` to `move`


class Info(NamedTuple):
    counts: dict[str, Tensor]  # name -> () or (K,), float32, added up over the steps
    log_weight: Tensor = None  # of the evaluated point, if the algorithm has weights
    accepted: Tensor = None  # bool: the point is the new state; None: it always is


@dataclasses.dataclass(frozen=True)
class Slot:
    """One tensor of a state, as it is before the first step."""

    name: str
    shape: tuple[int, ...] = ()  # of one chain; of all chains if `weight` is given
    dtype: str | None = "float32"  # None: that of the weight
    value: float | Array = 0.0  # or an array of the shape of one chain's tensor
    weight: int | None = None  # index of the weight that the tensor belongs to
    is_shared: bool = False  # whether all chains have one tensor together


def slots_like(
    position: Position, name: str, value: float = 0.0, dtype: str | None = None
) -> list[Slot]:
    return [
        Slot(name, tuple(x.shape), dtype, value, weight)
        for weight, x in enumerate(position)
    ]


def map_leaves(function: Callable[..., Any], state: Any, *others: Any) -> Any:
    """Return `state` with `function` of each of its leaves.

    A state is a named tuple of leaves, lists of leaves, and states; () is an empty one.
    `others` have the same structure, and their leaves are further arguments.
    """
    if isinstance(state, list):
        return [map_leaves(function, *x) for x in zip(state, *others, strict=True)]
    if not isinstance(state, tuple):
        return function(state, *others)
    if state == ():
        return ()
    fields = [map_leaves(function, *x) for x in zip(state, *others, strict=True)]
    return type(state)(*fields)


def map_positions(function: Callable[[Position], Position], state: Any) -> Any:
    """Return `state` with `function` of each of its lists of tensors."""
    if isinstance(state, list):
        return function(state)
    if not isinstance(state, tuple) or state == ():
        return state
    return type(state)(*(map_positions(function, x) for x in state))


def leaves(state: Any) -> list[Any]:
    """Return the leaves of a state in order, which is the order of a saved file."""
    found: list[Any] = []
    map_leaves(found.append, state)
    return found


class Kernel(abc.ABC):
    """Abstract: a Markov chain, or K chains side by side.

    A final class is a frozen dataclass of the kernel's settings. A setting is a number,
    or a schedule of the number of the step. The state is a named tuple with the field
    `point`, the position of the chains.
    """

    temperature: Rate | None
    can_swap = False  # whether replicas at several temperatures may swap positions

    @property
    def traits(self) -> Traits:
        """What the kernel needs and gives."""
        return Traits()

    @property
    def arrays(self) -> list[Array]:
        """Return what each step reads, which `Density.arrays` gives as tensors."""
        return []

    def bind_data_size(self, train_size: int | None, batch_size: int | None) -> Self:
        """Return the kernel with the settings that follow from the data.

        None: there is no data. A kernel that draws its data gets the batch size that
        the user asked for, or None.
        """
        return self

    def bind_weights(self, weights: Sequence[Any], has_chains: bool) -> Self:
        """Return the kernel for weights with a `path` and a `shape`.

        `has_chains` says whether the shapes have a leading chain axis.
        """
        return self

    @abc.abstractmethod
    def init(self, position: Position) -> Any:
        """Return the state before the first step.

        Its first leaves are `point`, the position itself. All others are `Slot`s.
        """

    def point(self, state: Any) -> Position:
        """Return the position to evaluate next."""
        return state.point

    @abc.abstractmethod
    def step(
        self, state: Any, density: "Density"
    ) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
        """Return the next state, what to record, and counts by name, float32, (K,).

        A record has the position. The energy and the log weight follow, if the kernel
        evaluates a point at each step.
        """

    def check(self, state: Any) -> None:
        """Raise an error if the state, of numpy arrays, shows wrong settings."""
        return None

    def energy_unit(self, number: int, dimension: int) -> float | None:
        """Return the nats of energy that decide; None: no energy decides.

        Energies must be known to a fraction of it. A kernel that draws its data and
        returns a number has a state with the field `energy`, in nats, (K,).
        """
        return None

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        """Return diagnostics by name, arrays () or (K,).

        The leaves of the last state are numpy arrays; lists have what
        `keras.ops.convert_to_numpy` takes. `counts` are sums over the steps.
        """
        return {}

    def report(self, state: Any, energy: Array, names: Sequence[str]) -> dict[str, Any]:
        """Return what `Draws.info` has besides, and warn if the draws show a fault.

        `energy` is that of the draws, nats, (chain, draw), and `names` are those of the
        position's tensors.
        """
        return {}


class Algorithm(Kernel):
    """Abstract: a kernel in two halves around one evaluation, for optimizers too."""

    learning_rate: Rate

    def with_warm_up(self, steps: int) -> Self:
        """Return the algorithm with a warm-up of so many steps, if it has one."""
        if "warm_up" not in vars(self):
            return self
        return dataclasses.replace(self, warm_up=steps)  # type: ignore[type-var]

    @abc.abstractmethod
    def decide(self, state: Any, evaluation: Evaluation) -> tuple[Current, Info]:
        """Return where the chains are after the evaluation, and what it showed."""

    @abc.abstractmethod
    def move(self, current: Current, evaluation: Evaluation) -> Any:
        """Return the next state, from where the chains are."""

    def step(
        self, state: Any, density: "Density"
    ) -> tuple[Any, list[Tensor], dict[str, Tensor]]:
        evaluation = density.evaluation(self, self.point(state))
        current, info = self.decide(state, evaluation)
        counts = {"nonfinite": ops.cast(~ops.isfinite(evaluation.energy), "float32")}
        record = [*current.position, current.energy]
        if self.traits.has_weights:
            record.append(info.log_weight)
        return self.move(current, evaluation), record, counts | info.counts

    def at_temperature(
        self, temperature: Rate, learning_rate: Rate | None = None
    ) -> Self:
        """Return the algorithm at another temperature, and learning rate if given."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        return dataclasses.replace(self, temperature=temperature, learning_rate=rate)  # type: ignore[type-var]

    def auxiliary_at(
        self, current: Current, before: Current, evaluation: Evaluation
    ) -> Any:
        """Return the auxiliary state for a position that came from another chain.

        `before` has the position that it replaces, and the auxiliary state, which
        stays as it was by default.
        """
        return before.auxiliary


class Diffusion(Algorithm):
    """Abstract: an algorithm that always moves, such as SGLD."""

    temperature: Rate
    can_swap = True

    lowest = _validate.NOT_NEGATIVE  # temperature

    def __post_init__(self) -> None:
        check(self, learning_rate=RATE, temperature=OrSchedule(self.lowest))

    def decide(self, state: Any, evaluation: Evaluation) -> tuple[Current, Info]:
        """Return the evaluated point: nothing is rejected."""
        current = Current(state.point, evaluation.gradient, evaluation.energy, state)
        return current, Info({})


class OnDiffusion(Algorithm):
    """Abstract: an algorithm around the move of a diffusion, `base` in its state too.

    A setting that the diffusion has as well goes to it.
    """

    kind: ClassVar[type[Diffusion]]
    base: Diffusion

    def diffusion(self) -> Diffusion:
        """Return the diffusion with its settings, which are checked."""
        taken = inspect.signature(self.kind).parameters
        given = {name: x for name, x in vars(self).items() if name in taken}
        return self.kind(**given)

    def point(self, state: Any) -> Position:
        """Return the position to evaluate next."""
        return self.base.point(state.base)


class Density(Protocol):
    """The target of K chains at one step, and the noise of the step.

    A `part` numbers what is drawn within a step, from 0. Equal parts give equal noise.
    """

    train_size: int  # N; 1 without data
    arrays: list[Tensor]  # of the kernel: `Kernel.arrays`, as tensors
    number: Tensor  # of the step, from 0
    # Normals, and uniforms (`Traits.num_uniforms` and more for a mini-batch, K).
    noise: tuple[Any, Any]

    def evaluation(self, algorithm: Algorithm, point: Position) -> Evaluation:
        """Return U and its gradient on the mini-batch of the step, with its noise."""

    def log_likelihoods(self, positions: list[Position], index: Tensor) -> list[Tensor]:
        """Return log p(x_i|theta) at each of the positions, float32, (K, B).

        `index` has the examples of each chain, int32, (K, B).
        """

    def log_prior(self, position: Position) -> Tensor:
        """Return the log prior, float32, (K,)."""

    def energies(self, position: Position) -> Tensor:
        """Return U on all of the data, float32, (K,)."""

    def energies_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        """Return U on all of the data, float32, (K,), and the gradient of U/N."""

    def energies_above(
        self, position: Position, order: Tensor, sizes: Sequence[int]
    ) -> tuple[Tensor, Position, Tensor]:
        """Return U on a batch with its gradient, not over N, and U on a smaller batch.

        Both are nats above minus the log-likelihood of a reference, whose examples have
        the log-likelihoods `arrays[0]`. `order` are uniforms that order the data, and
        the batches of one or two `sizes` come first in it; another one has one example.
        """

    def gradient(self, position: Position, batch_size: int, part: Tensor) -> Position:
        """Return the gradient of U/N on a random mini-batch of each chain."""

    def weighted_gradient(
        self, position: Position, index: Tensor, weights: Tensor
    ) -> Position:
        """Return the gradient of sum_b w_b log p(x_b|theta), with w (K, B)."""

    def prior_gradient(self, position: Position) -> Position:
        """Return the gradient of the log prior."""

    def uniforms(self, count: int, size: int, part: Tensor) -> Tensor:
        """Return uniforms, float32, (count, K, size)."""

    def normals(self, part: Tensor) -> Position:
        """Return standard normals like the position."""


class ExampleTest(Kernel):
    """Abstract: a kernel whose test draws examples of its own, and counts them."""

    @property
    def traits(self) -> Traits:
        counts = ("accepted", "proposed", "examples", "nonfinite")
        return Traits(counts=counts, draws_data=True, needs_examples=True)

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        """Return the share of accepted proposals, and the mean size of a batch."""
        return of_proposals(counts, acceptance="accepted", batch_size="examples")


def at_step(value: Any, number: Tensor) -> Tensor:
    """Return the value of a schedule at a step, and anything else as it is."""
    return value(number) if isinstance(value, Schedule) else value


def noise_scale(learning_rate: Tensor, temperature: Tensor, train_size: int) -> Tensor:
    """Return the standard deviation of Langevin noise, sqrt(2 epsilon T / N)."""
    return ops.sqrt(2.0 * learning_rate * temperature / train_size)


def bound(algorithm: Frozen, **values: Any) -> Frozen:
    """Return the algorithm with settings that are no arguments."""
    algorithm = copy.copy(algorithm)
    set_checked(algorithm, **values)
    return algorithm


def set_checked(algorithm: object, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(algorithm, name, value)


def of_optimizer(kernel: Callable[..., Frozen], arguments: dict[str, Any]) -> Frozen:
    """Return the kernel whose settings are among the arguments of an optimizer."""
    taken = inspect.signature(kernel).parameters
    given = {name: arguments[name] for name in taken if name in arguments}
    return kernel(**given | {"learning_rate": OF_OPTIMIZER})


class OrNone(NamedTuple):
    kind: _validate.Interval | int
    hint: str = ""


class OrSchedule(NamedTuple):
    kind: _validate.Interval
    hint: str = "A `LearningRateSchedule` will do as well."


Kind = _validate.Interval | int | Sequence[Any] | OrNone | OrSchedule
RATE = OrSchedule(_validate.NOT_NEGATIVE)


def checked(name: str, value: Any, kind: Kind) -> Any:
    """Return a setting: in an interval, at least an integer, or one of a tuple."""
    hint = ""
    if isinstance(kind, OrNone | OrSchedule):
        is_schedule = isinstance(value, Schedule) or value is OF_OPTIMIZER
        if is_schedule if isinstance(kind, OrSchedule) else value is None:
            return value
        kind, hint = kind
    if isinstance(kind, _validate.Interval):
        return _validate.number(name, value, kind, hint)
    if isinstance(kind, int):
        return _validate.integer(name, value, kind)
    return _validate.choice(name, value, kind)


def check(algorithm: object, **kinds: Kind) -> None:
    for name, kind in kinds.items():
        set_checked(algorithm, **{name: checked(name, getattr(algorithm, name), kind)})


def counted(**events: Tensor) -> dict[str, Tensor]:
    """Return counts of a step by name, float32."""
    return {name: ops.cast(event, "float32") for name, event in events.items()}


def share(part: Array, whole: Array) -> Array:
    """Return part / whole; NaN where the count `whole` is 0."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def of_proposals(counts: dict[str, Array], **means: str) -> dict[str, Array]:
    """Return means of counts over the proposals, by new names, and `nonfinite`."""
    whole = counts["proposed"]
    found = {name: share(counts[part], whole) for name, part in means.items()}
    return found | {"nonfinite": counts["nonfinite"]}
