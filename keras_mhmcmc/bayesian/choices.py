"""What a `BayesianEnsemble` tries, and for how long."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_mhmcmc.bayesian import scores
from keras_mhmcmc.bayesian.chains import AllData
from keras_mhmcmc.bayesian.chains import MiniBatches
from keras_mhmcmc.bayesian.chains import Setting
from keras_mhmcmc.fit.compiled_loss import name_of
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.samplers.named import NAMED

Phase = AllData | MiniBatches

# Samplers whose rate, temperature and prior the held-out examples choose. Those with
# weights, a pilot or tests are given as an object.
BY_NAME: dict[str, type[Sampler]] = {
    name: NAMED[name] for name in ("sgld", "psgld", "sghmc", "sgnht", "sgmclmc")
}
# Steps of chains on all data where a gradient is cheap; elsewhere the fewest and the
# most. On kin8nm 7,463 were .0035 +- .0007 nats better than 4,390 (six runs).
_LONG, _STEPS = 5000, (4500, 7500)
# Examples times weights, or numbers in the outputs of all layers, as of convolutions,
# if they are more: up to here a gradient takes all data, and 16 chains are cheap.
_CHEAP, _CHEAPEST = 2e7, 1e6
# Samples: a mean of few densities has lighter tails than the posterior predictive. On
# kin8nm 1,000 were .009 nats better than 200.
_KEPT = (200, 1000)  # the fewest and the most
_NUMBERS_KEPT = (4_000_000, 40_000_000)  # of all samples: above the fewest, and at most
# What is tried for classes, around the first setting.
_TEMPERATURES = (0.01, 0.03, 0.1, 1.0)
_PRIORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Choice:
    """The arguments of a `BayesianEnsemble` that "auto" leaves to held-out data."""

    sampler: Any
    temperature: float | str
    prior: float | str
    max_samples: int | None

    def kept(self, model: keras.Model, chains: int) -> int:
        """Return how many samples of a chain are kept."""
        most = self.max_samples
        if most is None:
            moving = sum(math.prod(v.shape) for v in model.trainable_variables)
            usual, largest = (n // max(1, moving) for n in _NUMBERS_KEPT)
            most = min(int(np.clip(usual, *_KEPT)), largest)
        return max(1, most // chains)

    def start(self, model: keras.Model, phase: Phase) -> Setting:
        """Return the first setting: what the user gave, or what is usual."""
        rates = phase.rates if isinstance(phase, MiniBatches) else []
        # MNIST (10,000) with PSGLD, T = .03: held-out nats of the priors .5, 1, 2 and 4
        # were .1205, .1112, .1090 and .1192.
        usual = Setting(0.03, 2.0)
        if not has_classes(model) or not rates and isinstance(phase, MiniBatches):
            usual = Setting()
        pairs = (("temperature", self.temperature), ("prior", self.prior))
        given = {name: float(value) for name, value in pairs if value != "auto"}
        return dataclasses.replace(usual, rate=rates[1] if rates else None, **given)

    def axes(self, model: keras.Model, phase: Phase) -> dict[str, Sequence[float]]:
        """Return the values that are tried of each part of a setting."""
        axes: dict[str, Sequence[float]] = {}
        if isinstance(phase, MiniBatches):
            if not phase.rates:
                return {}
            axes["rate"] = phase.rates
        if has_classes(model):
            if self.temperature == "auto":
                axes["temperature"] = _TEMPERATURES
            if self.prior == "auto":
                axes["prior"] = _PRIORS
        return axes


def sampler_of(choice: Choice, model: keras.Model, size: int, is_fixed: bool) -> Any:
    """Return the sampler or kernel, None for the default of chains on all data.

    Args:
        choice: of the user.
        model: one network.
        size: examples.
        is_fixed: whether training changes no weight without a gradient.
    """
    sampler = choice.sampler
    if not isinstance(sampler, str):
        return sampler
    if sampler == "auto":
        is_cheap = size * _cost(model) <= _CHEAP
        # For classes these chains did not pay: digits, T .01 to .1, priors 1 to 4.
        if is_cheap and is_fixed and not has_classes(model):
            return None
        sampler = "psgld"
    return BY_NAME[sampler]


def is_cheapest(model: keras.Model, size: int) -> bool:
    """Return whether a gradient of all data is cheap enough for 16 long chains."""
    return size * _cost(model) <= _CHEAPEST


def steps_of(
    phase: Phase, model: keras.Model, size: int, trained: int, sampling: float | str
) -> int:
    """Return the steps of the chains.

    Args:
        phase: the chains.
        model: one network.
        size: examples.
        trained: steps of a member.
        sampling: as a multiple of these, or "auto".
    """
    if not isinstance(sampling, str):
        return max(1, int(sampling * trained))
    if isinstance(phase, MiniBatches):
        return trained
    if is_cheapest(model, size):
        return _LONG
    cost = size * _cost(model) / 1e6  # millions of examples times weights
    return int(np.clip(12_000 / np.sqrt(cost), *_STEPS))


def _cost(model: keras.Model) -> int:
    """Return the weights of a network, or the numbers that its layers give."""
    numbers = 0
    if isinstance(model, keras.Sequential | keras.Function):
        outputs = keras.tree.flatten([layer.output for layer in model.layers])
        numbers = sum(math.prod(n or 1 for n in x.shape[1:]) for x in outputs)
    return max(model.count_params(), numbers)


def has_fixed_rest(model: keras.Model, x: Any) -> bool:
    """Return whether training changes no weight without a gradient.

    Batch normalisation changes its statistics. Layers that are frozen or adapted, such
    as `Normalization`, change nothing.
    """
    with keras.StatelessScope() as scope:
        model(x, training=True)
    weights = model.non_trainable_weights
    return all(scope.get_current_value(weight) is None for weight in weights)


def is_random(model: keras.Model, x: Any) -> bool:
    """Return whether training gives other outputs each time, as with dropout."""
    with keras.StatelessScope():
        outputs = [keras.tree.flatten(model(x, training=True)) for _ in range(2)]
    pairs = zip(*outputs, strict=True)
    arrays = ([ops.convert_to_numpy(output) for output in pair] for pair in pairs)
    return not all(np.allclose(*pair, rtol=1e-3, atol=1e-5) for pair in arrays)


def has_classes(model: keras.Model) -> bool:
    """Return whether a loss of the model is a cross-entropy."""
    losses = scores.Nats(model).losses
    return any("entropy" in name_of(loss) for loss in losses if loss is not None)
