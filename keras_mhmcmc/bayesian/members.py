"""The first phase: networks side by side, each stopped where held-out data say."""

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc.bayesian.progress import Progress
from keras_mhmcmc.bayesian.saved import Saved
from keras_mhmcmc.bayesian.scores import HeldOut
from keras_mhmcmc.bayesian.scores import mean_of
from keras_mhmcmc.parallel.chains import ParallelChains
from keras_mhmcmc.posterior.store import host_copy

tree = keras.tree

RATES = (1e-2, 3e-3, 1e-3)  # the first that are tried
DECAYS = (0.004, 0.03, 0.1, 0.3, 1.0)  # of AdamW, tried for classes
_STEPS = 200  # of a round at least: an epoch of Keras costs up to .2 seconds by itself
_PATIENCE = 5  # rounds without a better network before the rate falls
_FALL = 0.3  # factor of the rate
_FALLS = 2
_SAVE_EVERY = 60.0  # seconds


@dataclass
class Members:
    """Trained networks: the best of each by its held-out nats.

    The lowest of many rounds is lower than what new data would have. So each half of
    the held-out examples is scored by the networks that were best on the other half.
    """

    stacked: list[Array]  # (members, ...) for each of `model.weights`
    nats: Array  # held out, mean over the examples, (members,)
    halves: Array  # the same of each half, the lowest so far, (2, members)
    crossed: Array  # of each example, scored as above, (members, N, ...)
    rate: float | None = None  # that was chosen; None: the optimizer's own
    steps: int = 0
    is_interrupted: bool = False


@dataclass(frozen=True)
class Training:
    """What the held-out examples choose before a member is trained."""

    decay: float | None = None  # of the weights by AdamW; None: the optimizer's own
    length: float = 1.0  # times the usual number of steps
    is_refit: bool = False  # whether the held-out examples are learned from, too


@dataclass
class Plan:
    """How long to train, in steps of mini-batches."""

    size: int  # training examples
    batch_size: int
    epochs: int | None

    @property
    def epoch(self) -> int:
        """Steps of an epoch."""
        return max(1, self.size // self.batch_size)

    @property
    def round(self) -> int:
        """Steps between two looks at the held-out examples."""
        passes = max(1, -(-_STEPS // self.epoch))
        return self.epoch * min(passes, self.epochs or passes)

    def rounds(self, most: int) -> int:
        """Return how many rounds there are at most."""
        steps = most if self.epochs is None else self.epochs * self.epoch
        return max(1, -(-steps // self.round))


@dataclass
class _State:
    """How far the training has come."""

    best: Members
    waits: Array  # rounds without a better network, (members,)
    falls: int = 0  # of the rate
    rounds: int = 0


class Trainer:
    """Trains the networks of an `mh.ParallelChains` round by round.

    Args:
        chains: compiled.
        data: `(x, y, sample_weight)`, arrays.
        held_out: scores the networks.
        plan: steps.
        seed: of the order of the examples.
        progress: is told of each round.
        saved: keeps the state, to go on after a kill.
        part: name of this training.
    """

    def __init__(
        self,
        chains: ParallelChains,
        data: tuple[Any, Any, Any],
        held_out: HeldOut,
        plan: Plan,
        seed: int,
        progress: Progress,
        saved: Saved,
        part: str,
    ) -> None:
        self._chains, self._data, self._held_out = chains, data, held_out
        self._plan, self._progress = plan, progress
        self._saved, self._part = saved, f"{part}, unfinished"
        self._order = np.random.default_rng(seed)

    def train(
        self, rates: Sequence[float], most: int, is_cosine: bool = False
    ) -> Members:
        """Return the networks. Several rates are tried for a round each.

        Args:
            rates: of the optimizer. Empty: it keeps its own.
            most: steps without an argument `epochs`.
            is_cosine: whether the rate falls to 0 as a cosine, and the last networks
                count. Else each network is the best of all rounds, and the rate falls
                where none gets better.
        """
        chains, most_rounds = self._chains, self._plan.rounds(most)
        chains.build_optimizer()
        state = self._restored() or self._first(rates)
        best, saved_at = state.best, time.monotonic()
        for number in range(state.rounds, most_rounds):
            try:
                if is_cosine and best.rate is not None:
                    angle = np.pi * number / most_rounds
                    rate = 0.5 * best.rate * (1.0 + np.cos(angle))
                    chains.optimizer.learning_rate = rate
                loss = self._round()
                is_kept = self._keep(best, is_cosine)
                state.waits = np.where(is_kept, 0, state.waits + 1)
                best.steps += self._plan.round
                nll = float(np.mean(best.nats))
                self._progress.tell(
                    "members", number + 1, most_rounds, loss=loss, val_loss=nll
                )
            except KeyboardInterrupt:
                if not np.isfinite(best.nats).all():
                    raise
                best.is_interrupted = True
                return best
            if (state.waits >= _PATIENCE).all():
                if best.rate is None or state.falls == _FALLS:
                    break
                state.falls += 1
                state.waits = np.zeros_like(state.waits)
                chains.optimizer.learning_rate = best.rate * _FALL**state.falls
                give_weights(chains, best.stacked)
            state.rounds = number + 1
            if time.monotonic() - saved_at >= _SAVE_EVERY:
                self._save(state)
                saved_at = time.monotonic()
        self._saved.remove(self._part)
        return best

    def _first(self, rates: Sequence[float]) -> _State:
        """Return the state before the first round, after the trial of the rates."""
        chains = self._chains
        first = _values(chains)
        count = chains.num_chains
        halves, size = np.full((2, count), np.inf), self._held_out.size
        crossed = np.full((count, size), np.inf)
        best = Members(self._stacked(), halves[0], halves, crossed)
        if rates:
            best.rate = rates[0] if len(rates) == 1 else self._tried(rates, first)
            chains.optimizer.learning_rate = best.rate
        return _State(best, np.zeros(count, int))

    def _save(self, state: _State) -> None:
        values = dataclasses.asdict(state)
        values["variables"] = _values(self._chains)
        values["order"] = self._order.bit_generator.state
        self._saved.put(self._part, values)

    def _restored(self) -> _State | None:
        values = self._saved.get(self._part)
        if values is None:
            return None
        pairs = zip(_variables(self._chains), values.pop("variables"), strict=True)
        for variable, value in pairs:
            variable.assign(value)
        self._order.bit_generator.state = values.pop("order")
        return _State(**values | {"best": Members(**values["best"])})

    def _tried(self, rates: Sequence[float], first: list[Array]) -> float:
        """Return the rate with the best networks after a round from the start."""
        chains, found = self._chains, {}
        for number, rate in enumerate(rates):
            chains.optimizer.learning_rate = rate
            loss = self._round()
            self._progress.tell("rates", number + 1, len(rates), loss=loss)
            nats = mean_of(self._held_out.nats(self._stacked()))
            found[rate] = np.inf if not np.isfinite(nats).all() else np.median(nats)
            for variable, value in zip(_variables(chains), first, strict=True):
                variable.assign(value)
        return min(found, key=found.__getitem__)

    def _round(self) -> float:
        """Train for a round, and return the mean loss."""
        plan, chains = self._plan, self._chains
        kept = min(plan.epoch * plan.batch_size, plan.size)
        order = np.concatenate(
            [
                self._order.permutation(plan.size)[:kept]
                for _ in range(plan.round // plan.epoch)
            ]
        )
        x, y, weights = rows(self._data, order)
        history = chains.fit(
            x,
            y,
            sample_weight=weights,
            batch_size=plan.batch_size,
            epochs=1,
            shuffle=False,
            verbose=0,
        )
        return float(np.mean(history.history["loss"][-1]))

    def _keep(self, best: Members, is_last: bool) -> Array:
        """Keep the networks that are better than before, and return which are."""
        stacked = self._stacked()
        nats = self._held_out.nats(stacked)
        if best.crossed.shape != nats.shape:  # an example has several terms
            best.crossed = np.full(nats.shape, np.inf)
        mean = mean_of(nats)
        is_better = np.isfinite(mean) if is_last else mean < best.nats
        best.nats = np.where(is_better, mean, best.nats)
        for half in (0, 1):
            score = mean_of(nats[:, half::2])
            is_lower = is_better if is_last else score < best.halves[half]
            best.halves[half, is_lower] = score[is_lower]
            best.crossed[is_lower, 1 - half :: 2] = nats[is_lower, 1 - half :: 2]
        for old, new in zip(best.stacked, stacked, strict=True):
            old[is_better] = new[is_better]
        return is_better

    def _stacked(self) -> list[Array]:
        values = [host_copy(variable) for variable in self._chains.weights]
        return [np.array(v) for v in self._chains.member_weights(values)]


def _variables(chains: ParallelChains) -> list[keras.Variable]:
    variables = [*chains.variables, *chains.optimizer.variables]
    return list({id(v): v for v in variables}.values())


def _values(chains: ParallelChains) -> list[Array]:
    return [np.array(ops.convert_to_numpy(v)) for v in _variables(chains)]


def give_weights(chains: ParallelChains, stacked: Sequence[Array]) -> None:
    """Give the networks these weights; the optimizer keeps its moments."""
    for variable, value in zip(_own(chains), stacked, strict=True):
        variable.assign(value)


def _own(chains: ParallelChains) -> list[keras.Variable]:
    """Return the stacked variables in the order of `template.weights`."""
    places = chains.member_weights([np.array(k) for k in range(len(chains.weights))])
    return [chains.weights[int(place)] for place in places]
