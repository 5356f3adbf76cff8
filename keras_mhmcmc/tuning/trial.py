"""Short runs of a model that leave no trace in it."""

import contextlib
import itertools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_mhmcmc import _validate
from keras_mhmcmc._data import Batch
from keras_mhmcmc._types import Array
from keras_mhmcmc.fit.sampler import Sampler

Kept = list[tuple[keras.Variable, Array]]

# Of `keras.Model`: what belongs to an optimizer.
_BORROWED = ("optimizer", "train_function", "steps_per_execution")
# Mini-batches that give the energy at the start.
_STARTS = 8


class Outcome(NamedTuple):
    """What a run showed in the second half of its judged steps."""

    energy: float  # mean, per example: the loss, with the prior for a sampler
    acceptance: float  # share of (forward) moves that were accepted, or NaN
    is_finite: bool


def inner_of(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return the optimizer whose loss is scaled, or the optimizer itself."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer.inner_optimizer
    return optimizer


def at_rate(
    optimizer: keras.optimizers.Optimizer, rate: float, seed: int
) -> keras.optimizers.Optimizer:
    """Return a new optimizer with the same arguments, but for the learning rate.

    A sampler without a seed gets `seed`, and its rate does not adapt.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return keras.optimizers.LossScaleOptimizer(
            at_rate(optimizer.inner_optimizer, rate, seed),
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
        )
    config = optimizer.get_config() | {"learning_rate": rate}
    if isinstance(optimizer, Sampler):
        if config.get("seed") is None:
            config["seed"] = seed
        if "rate_adaptation" in config:
            config["rate_adaptation"] = False
    try:
        return type(optimizer).from_config(config)
    except TypeError as error:
        raise ValueError(
            "Argument `optimizer` must be an optimizer that "
            "`type(optimizer).from_config(optimizer.get_config())` can make again. "
            "Give its class a `get_config` with the arguments of its constructor. "
            f"Received: optimizer={_validate.shown(optimizer)}, and the error: {error}"
        ) from error


@contextlib.contextmanager
def borrowed(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> Iterator[None]:
    """Let `optimizer` train the model in a scope. Then put back what was there."""
    own = {name: getattr(model, name) for name in _BORROWED}
    before = _kept([*model.variables, *model.metrics_variables])
    for name, value in zip(_BORROWED, (optimizer, None, 1), strict=True):
        # Not by assignment: TensorFlow would track the optimizer in checkpoints.
        object.__setattr__(model, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            object.__setattr__(model, name, value)
        model.reset_metrics()  # those that the first step built
        _assign(before)


class Trials:
    """Runs of a `borrowed` model with a new optimizer at several rates, from one start.

    The runs share an optimizer, since the model is compiled again for each new one.
    All variables are reset before a run, whose mini-batches the `stream` starts. A run
    has so many `steps`, at least 2, after the warm-up.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        stream: Callable[[], Iterator[Batch]],
        steps: int,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._stream, self._steps = stream, steps
        self._sampler = optimizer if isinstance(optimizer, Sampler) else None
        counts = optimizer.algorithm.traits.counts if self._sampler else ()
        self._rejects = "proposed" in counts
        optimizer.build(model.trainable_variables)
        self._first = _kept([*model.variables, *optimizer.variables])

    def start(self) -> Array:
        """Return the energies of the first weights on some mini-batches."""
        energies = []
        for batch in itertools.islice(self._stream(), _STARTS):
            _assign(self._first)
            energies.append(self._outcome([self._step(batch)]).energy)
        return np.array(energies)

    def run(self, rate: float) -> Outcome:
        """Return what a run at this rate shows."""
        _assign(self._first)
        inner_of(self._optimizer).learning_rate = rate
        judged = self._steps // 2
        unjudged = self._steps - judged
        if self._sampler is not None:
            unjudged += self._sampler.warm_up
        losses: list[float] = []
        for count, batch in enumerate(self._stream()):
            if count == unjudged:
                losses = []
                if self._sampler is not None:
                    self._sampler.reset_diagnostics()
            losses.append(self._step(batch))
            if self._has_failed(losses) or count + 1 == unjudged + judged:
                break
        return self._outcome(losses if count >= unjudged else losses[-1:])

    def _step(self, batch: Batch) -> float:
        """Make a step, and return the loss before it."""
        x, y, sample_weight = batch
        self._model.reset_metrics()  # Keras 3.10 would return a mean
        logs = self._model.train_on_batch(x, y, sample_weight, return_dict=True)
        if "loss" not in logs:
            raise ValueError(
                "Argument `model` must have a training step that returns the entry "
                f"'loss', as that of Keras does. Received: the entries {list(logs)}"
            )
        return float(logs["loss"])

    def _has_failed(self, losses: list[float]) -> bool:
        """Return whether the newest loss is not finite, and no move is rejected."""
        return not self._rejects and not math.isfinite(losses[-1])

    def _outcome(self, losses: list[float]) -> Outcome:
        sampler, energy, acceptance = self._sampler, float(np.mean(losses)), math.nan
        is_finite = not self._has_failed(losses)
        if sampler is not None:
            seen = sampler.diagnostics()
            if "energy" in seen:
                energy = seen["energy"] / sampler.train_size
            acceptance = seen.get(
                "forward_acceptance", seen.get("acceptance", math.nan)
            )
            is_finite = is_finite and not sampler.lost_chains().any()
        return Outcome(energy, acceptance, is_finite and math.isfinite(energy))


def _kept(variables: Sequence[keras.Variable]) -> Kept:
    """Return copies of the values: the next step may overwrite their memory."""
    return [(v, np.array(ops.convert_to_numpy(v))) for v in variables]


def _assign(kept: Kept) -> None:
    for variable, value in kept:
        variable.assign(value)
