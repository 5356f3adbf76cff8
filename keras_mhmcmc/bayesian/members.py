"""The first phase: networks side by side, each stopped where held-out data say."""

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc._data import rows
from keras_mhmcmc._types import Array
from keras_mhmcmc.bayesian.scores import HeldOut
from keras_mhmcmc.parallel.chains import ParallelChains
from keras_mhmcmc.posterior.store import host_copy

tree = keras.tree

RATES = (1e-2, 3e-3, 1e-3)  # the first that are tried
_STEPS = 200  # of a round at least: an epoch of Keras costs up to .2 seconds by itself
_PATIENCE = 5  # rounds without a better network before the rate falls
_FALL = 0.3  # factor of the rate
_FALLS = 2

Told = Callable[[str, dict[str, float]], None]  # of each round: phase and logs


@dataclass
class Members:
    """Trained networks: the best of each by its held-out nats."""

    stacked: list[Array]  # (members, ...) for each of `model.weights`
    nats: Array  # held out, mean over the examples, (members,)
    rate: float | None  # that was chosen, None if the user gave an optimizer
    steps: int = 0


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


class Trainer:
    """Trains the networks of an `mh.ParallelChains` round by round.

    Args:
        chains: compiled.
        data: `(x, y, sample_weight)`, arrays.
        held_out: scores the networks.
        plan: steps.
        seed: of the order of the examples.
        told: is called after each round.
    """

    def __init__(
        self,
        chains: ParallelChains,
        data: tuple[Any, Any, Any],
        held_out: HeldOut,
        plan: Plan,
        seed: int,
        told: Told,
    ) -> None:
        self._chains, self._data, self._held_out = chains, data, held_out
        self._plan, self._told = plan, told
        self._order = np.random.default_rng(seed)

    def train(self, rates: Sequence[float], most: int) -> Members:
        """Return the networks. Several rates are tried for a round each.

        Args:
            rates: of the optimizer. Empty: it keeps its own.
            most: steps without an argument `epochs`.
        """
        chains, optimizer = self._chains, self._chains.optimizer
        chains.build_optimizer()
        first = _values(chains)
        best = Members(self._stacked(), np.full(chains.num_chains, np.inf), None)
        rate = None
        if rates:
            rate = self._tried(rates, first)
            optimizer.learning_rate = rate
        best.rate = rate
        waits = np.zeros(chains.num_chains, int)
        falls = 0
        for number in range(self._plan.rounds(most)):
            self._round("members", number)
            best.steps += self._plan.round
            is_better = self._keep(best)
            waits = np.where(is_better, 0, waits + 1)
            if (waits < _PATIENCE).any():
                continue
            if rate is None or falls == _FALLS:
                break
            falls, rate = falls + 1, rate * _FALL
            waits[:] = 0
            optimizer.learning_rate = rate
            give_weights(chains, best.stacked)
        return best

    def _tried(self, rates: Sequence[float], first: list[Array]) -> float:
        """Return the rate with the best networks after a round from the start."""
        chains, found = self._chains, {}
        for number, rate in enumerate(rates):
            chains.optimizer.learning_rate = rate
            self._round("rates", number)
            nats = np.mean(self._held_out.nats(self._stacked()), axis=1)
            found[rate] = np.inf if not np.isfinite(nats).all() else np.median(nats)
            for variable, value in zip(_variables(chains), first, strict=True):
                variable.assign(value)
        return min(found, key=found.__getitem__)

    def _round(self, phase: str, number: int) -> None:
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
        self._told(phase, {"loss": history.history["loss"][-1], "round": number})

    def _keep(self, best: Members) -> Array:
        """Keep the networks that are better than before, and return which are."""
        stacked = self._stacked()
        nats = np.mean(self._held_out.nats(stacked), axis=1)
        is_better = nats < best.nats  # never true of NaN
        best.nats = np.where(is_better, nats, best.nats)
        for old, new in zip(best.stacked, stacked, strict=True):
            old[is_better] = new[is_better]
        return is_better

    def _stacked(self) -> list[Array]:
        values = [host_copy(variable) for variable in self._chains.weights]
        return [np.array(v) for v in self._chains.member_weights(values)]


def _variables(chains: ParallelChains) -> list[keras.Variable]:
    variables = [*chains.weights, *chains.optimizer.variables]
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
