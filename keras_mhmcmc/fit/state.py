"""The variables of a sampler: its state, energies and seeds, and their processes."""

import contextlib
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from numpy.typing import ArrayLike

from keras_mhmcmc import _backend
from keras_mhmcmc._backend import ops
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.watch import tell
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.base import Slot
from keras_mhmcmc.samplers.base import leaves
from keras_mhmcmc.samplers.base import map_leaves
from keras_mhmcmc.samplers.parts import tensors

_GENERATOR, _WEIGHT, _SAMPLED = "generator_", "weight_", "sampled"

_LARGEST = float(np.finfo("float32").max)
# Columns: how many points, their mean energy, the extreme energies, energy and log
# weight of the last point, whether the marked sample waits for its own, and energy and
# log weight of the marked sample.
_FIRST = [0.0, 0.0, _LARGEST, -_LARGEST, 0.0, 0.0, 0.0, 0.0, 0.0]
_MEAN, _LOWEST, _HIGHEST, _LAST, _IS_PENDING, _SAMPLE = 1, 2, 3, 4, 6, 7


def constant(values: ArrayLike) -> Callable[[tuple[int, ...], str], Tensor]:
    """Return an initializer with these values, repeated for each chain if needed."""

    def initialize(shape: tuple[int, ...], dtype: str) -> Tensor:
        repeats = max(math.prod(shape) // np.size(values), 1)
        tiled = np.tile(np.ravel(values), repeats).reshape(shape)
        return ops.convert_to_tensor(tiled, dtype=dtype)

    return initialize


def first_noise(seed: int, num_chains: int) -> Callable[..., Tensor]:
    """Return an initializer: `seed` for the first chain, random ones for the others."""
    others = np.random.default_rng(seed).integers(0, 2**31, num_chains - 1)
    return constant([[one, 0] for one in [seed, *map(int, others)]])


def common_seed(seed: int, is_given: bool) -> int:
    """Return the seed of the first process, for all that run a chain together."""
    seeds = _backend.of_processes(seed)
    if is_given and len(set(seeds)) > 1:
        raise ValueError(
            "Argument `seed` must be the same in all processes, which make one chain "
            "together. For independent chains start the processes without "
            f"`keras.distribution.initialize`. Received: seed={seeds}"
        )
    return seeds[0]


@contextlib.contextmanager
def independent_processes() -> Iterator[None]:
    """Let each process of a group run chains of its own, on PyTorch.

    In a process group of `torch.distributed`, a sampler moves one chain in all
    processes together: they share the loss, the gradient and the noise. A sampler that
    is made inside `with mh.independent_processes():` does not know of the group. This
    includes samplers that are loaded with a model. Give each process its own seed, and
    its own `directory` for `mh.PosteriorSamples`.

    On JAX and TensorFlow there is nothing to switch: processes that are started without
    a cluster share nothing.

    Example:

    >>> import keras_mhmcmc as mh
    >>> rank = 0  # torch.distributed.get_rank()
    >>> with mh.independent_processes():
    ...     optimizer = mh.SGLD(0.1, train_size=1000, seed=100 + rank)
    """
    with _backend.independent_processes():
        yield


class StateVariables:
    """The leaves of a state, in the order of the file format.

    The point is the model's variables. Every other leaf is a slot of the optimizer.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        weights: Sequence[keras.Variable],
        add: Callable[..., keras.Variable],
    ) -> None:
        self.weights = list(weights)

        def variable(leaf: Any) -> keras.Variable:
            if not isinstance(leaf, Slot):
                return leaf
            first, dtype = constant(leaf.value), leaf.dtype
            if leaf.weight is None:
                return add(leaf.shape, first, dtype, leaf.name)
            weight = self.weights[leaf.weight]
            name = f"{weight.path.replace('/', '_')}_{leaf.name}"
            layout = _backend.layout_of(weight)
            dtype = dtype or weight.dtype
            # The weight itself has the chain axis.
            return add(leaf.shape, first, dtype, name, layout, is_shared=True)

        self.structure = map_leaves(variable, algorithm.init(self.weights))
        self.all = leaves(self.structure)

    def read(self, take: Callable[[Any], Any] = _backend.read) -> Any:
        """Return the state as tensors; `take` reads a list of variables."""
        return _read(self.structure, take)

    def arrays(self) -> Any:
        """Return the state with numpy arrays, but for lists, which stay variables."""
        return _read(self.structure, list, ops.convert_to_numpy)


def _read(
    part: Any,
    take: Callable[[Any], Any],
    one: Callable[[Any], Any] = ops.convert_to_tensor,
) -> Any:
    if isinstance(part, list):
        return take(part)
    if not isinstance(part, tuple):
        return one(part)
    if part == ():
        return ()
    return type(part)(*(_read(field, take, one) for field in part))


def donated(variables: Sequence[keras.Variable]) -> list[Tensor]:
    """Return values that the algorithm may overwrite."""
    return _backend.donated(variables, _backend.read(variables))


def write(
    variables: Sequence[keras.Variable], values: Sequence[Tensor], runs: Tensor
) -> None:
    """Assign values in a step, of the chains that go on; None: all do."""
    if runs is not None:
        values = tensors.select(runs, list(values), _backend.read(variables))
    _backend.write(variables, values)


def go_on(
    stopped_at: keras.Variable,
    gradient: Position,
    energy: Tensor,
    iterations: keras.Variable,
) -> Tensor:
    """Return whether each chain goes on, and store the step, from 1, that stops it."""
    before = ops.convert_to_tensor(stopped_at)
    is_finite = tensors.all_finite(gradient, like=before)
    if energy is not None:
        is_finite = is_finite & ops.isfinite(energy)
    is_running = before < 0
    now = ops.cast(iterations, "int32") + 1
    new = ops.where(is_running & ~is_finite, now, before)
    _backend.write([stopped_at], [new])
    return is_finite & is_running


class SampleInfo(NamedTuple):
    """What a sampler knows of a sample."""

    energy: Array  # U, nats, () or (chains,)
    log_weight: Array
    is_final: bool  # or both are those of the point before
    # Whether each chain was lost in the step that would have evaluated the sample.
    is_useless: Array | bool = False


class Energies:
    """What a sampler knows of its energies, in nats, in two of its variables.

    The step after a sample evaluates it. So the sample is marked, the step stores the
    energy, and whoever marked it is told, at the latest before the next mark.
    """

    def __init__(
        self, add: Callable[..., keras.Variable], lost_chains: Callable[[], Array]
    ) -> None:
        # What a step writes.
        self.variable = add((len(_FIRST),), constant(_FIRST), "float32", "energies")
        self._marked_at = add((), constant(-1), "int32", "marked_at", is_shared=True)
        self._lost = lost_chains
        self._listeners: list[Callable[[], None]] = []

    def recorded(self, energy: Tensor, log_weight: Tensor) -> Tensor:
        """Return the value of `variable` after one more point."""
        now = ops.convert_to_tensor(self.variable)
        columns = ops.unstack(now, len(_FIRST), axis=-1)
        count, mean, lowest, highest, _, _, is_pending, sample, sample_weight = columns
        # A running mean: a float32 sum of many energies loses their digits.
        mean = mean + (energy - mean) / (count + 1.0)
        weight = ops.zeros_like(energy) if log_weight is None else log_weight
        is_sample = is_pending > 0.0
        columns = [
            count + 1.0,
            mean,
            ops.minimum(lowest, energy),
            ops.maximum(highest, energy),
            energy,
            weight,
            ops.zeros_like(is_pending),
            ops.where(is_sample, energy, sample),
            ops.where(is_sample, weight, sample_weight),
        ]
        return ops.stack(columns, axis=-1)

    def means(self) -> Array:
        """Return the mean energy of each chain, () or (chains,); NaN without one."""
        state = self._read()
        return np.where(state[..., 0] > 0, state[..., _MEAN], math.nan)

    def extremes(self) -> tuple[float, float]:
        """Return the lowest and the highest energy of the run."""
        state = self._read()
        return float(state[..., _LOWEST].min()), float(state[..., _HIGHEST].max())

    def reset(self) -> None:
        """Start the mean anew."""
        state = self._read()
        state[..., : _MEAN + 1] = 0.0
        self.variable.assign(state)

    def mark(self, iteration: int, listener: Callable[[], None] | None = None) -> None:
        self.notify()
        if not (self.is_pending() and self.marked_at() == iteration):
            state = self._read()
            state[..., _IS_PENDING] = 1.0
            self.variable.assign(state)
            self._marked_at.assign(iteration)
        self.listen(listener)

    def listen(self, listener: Callable[[], None] | None) -> None:
        if listener is not None and listener not in self._listeners:
            self._listeners.append(listener)

    def forget(self) -> None:
        """Await the energy of the marked sample no more."""
        state = self._read()
        state[..., _IS_PENDING] = 0.0
        self.variable.assign(state)
        self._listeners = []

    def notify(self) -> None:
        """Call those who wait for an energy, if the energy is known."""
        if self._listeners and not self.is_pending():
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()

    def is_pending(self) -> bool:
        return bool(((self._read()[..., _IS_PENDING] > 0.0) & ~self._lost()).any())

    def marked_at(self) -> int:
        """Return the iteration of the sample that was marked last, or -1."""
        return int(ops.convert_to_numpy(self._marked_at))

    def of_sample(self) -> SampleInfo:
        """Return what is known of the marked sample, or of the point before it."""
        state, is_pending = self._read(), self.is_pending()
        first = _LAST if is_pending else _SAMPLE
        energy = state[..., first]
        if is_pending:  # before the first point there is no energy
            energy = np.where(state[..., 0] > 0, energy, math.nan)
        is_useless = (state[..., _IS_PENDING] > 0.0) & self._lost()
        return SampleInfo(energy, state[..., first + 1], not is_pending, is_useless)

    def _read(self) -> Array:
        return np.array(ops.convert_to_numpy(self.variable))


def over_chains(values: Array, name: str) -> float:
    """Return one number for all chains: "nonfinite" is summed, others averaged."""
    known = values[~np.isnan(values)]
    if name == "nonfinite":
        return float(known.sum())
    return float(known.mean()) if known.size else math.nan


def gradients_of_each(
    weights: Sequence[keras.Variable],
    variables: Sequence[keras.Variable],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    """Return the gradient of each weight, 0 for a weight without a gradient."""
    if len(gradients) != len(variables):
        raise ValueError(
            "Argument `grads` must have one gradient, or None, for each of "
            "`trainable_variables`, by default those that the sampler was built with. "
            f"Received: {len(gradients)} gradients for {len(variables)} variables"
        )
    places = {id(weight): place for place, weight in enumerate(weights)}
    found: list[Tensor] = [None] * len(weights)
    for variable, gradient in zip(variables, gradients, strict=True):
        if id(variable) not in places:
            raise ValueError(
                "Argument `trainable_variables` must be variables that the sampler was "
                "built with. For other variables make a new sampler with the same "
                f"arguments. Received: the variable {variable.path}, which is none of "
                f"the {len(weights)}"
            )
        found[places[id(variable)]] = gradient
    missing = [w.path for w, g in zip(weights, found, strict=True) if g is None]
    if len(missing) == len(weights):
        raise ValueError(
            "Argument `grads` must have a gradient of at least one variable. "
            f"Received: None for each of {len(weights)} variables"
        )
    if missing:
        counts = {"count": len(missing), "all": len(weights)}
        tell("no gradient", path=missing[0], **counts)
    pairs = zip(weights, found, strict=True)
    return [ops.zeros_like(w.value) if g is None else g for w, g in pairs]


class ModelStates:
    """Save and load with an optimizer what a file of its model lacks.

    These are the states of random generators, weights of LoRA layers, which merge their
    factors, and which variables train.
    """

    def __init__(self) -> None:
        self._generators: list[keras.Variable] = []
        # Loaded values by name, until the variables are known.
        self._loaded: dict[str, Array] = {}

    def follow(self, model: keras.Model) -> None:
        """Save the generators of `model` from now on, and assign any loaded states."""
        kept = {id(variable) for variable in model.weights}
        self._generators = [v for v in model.variables if id(v) not in kept]
        self._restore()

    def save(
        self,
        store: MutableMapping[str, Any],
        model: keras.Model | None,
        sampled: Sequence[keras.Variable],
    ) -> None:
        if model is not None:
            self.follow(model)
            changed = {id(v) for v in _backend.changed_by_saving(model)}
            for i, weight in enumerate(model.weights):
                if id(weight) in changed:
                    store[f"{_WEIGHT}{i}"] = ops.convert_to_numpy(weight)
            if sampled:
                store[_SAMPLED] = _indices(model, sampled)
        for name, state in (self._loaded or self._states()).items():
            store[name] = ops.convert_to_numpy(state)

    def load(
        self,
        store: Mapping[str, Any],
        model: keras.Model | None,
        sampled: Sequence[keras.Variable],
    ) -> dict[str, Any]:
        entries = {name: store[name] for name in store.keys()}  # noqa: SIM118
        self._loaded = _taken(entries, _GENERATOR)
        weights = _taken(entries, _WEIGHT)
        saved = entries.pop(_SAMPLED, None)
        if model is None:
            self._restore()
            return entries
        same = saved is None or np.array_equal(saved[()], _indices(model, sampled))
        if sampled and not same:
            raise ValueError(
                "The trainable weights of the model must be those of the saved chain. "
                "Make the model as before the run, compile it with the same sampler, "
                "call `model.optimizer.build(model.trainable_variables)`, and then "
                "`model.load_weights` with this file. Received: a chain of "
                f"{len(saved[()])} weights, and a model with {len(sampled)} trainable "
                "weights"
            )
        self.follow(model)
        if weights:
            numbered = {int(n.removeprefix(_WEIGHT)): x for n, x in weights.items()}
            _backend.assign_after_loading(model, numbered)
        return entries

    def _states(self) -> dict[str, keras.Variable]:
        return {f"{_GENERATOR}{i}": v for i, v in enumerate(self._generators)}

    def _restore(self) -> None:
        """Assign the loaded states if their number fits the variables."""
        states = self._states()
        if states.keys() == self._loaded.keys():
            for name, variable in states.items():
                variable.assign(self._loaded[name])
            self._loaded = {}


def _taken(entries: dict[str, Any], prefix: str) -> dict[str, Array]:
    names = [name for name in entries if name.startswith(prefix)]
    return {name: entries.pop(name)[()] for name in names}


def _indices(model: keras.Model, sampled: Sequence[keras.Variable]) -> Array:
    """Return the positions of the sampled weights in `model`; -1: it has not got it."""
    places = {id(variable): i for i, variable in enumerate(model.weights)}
    return np.array([places.get(id(variable), -1) for variable in sampled])
