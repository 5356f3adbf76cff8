"""What a row of the table of arguments is, and the kinds that their names say."""

import re
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

import keras_mhmcmc as mh
from tests.support import kinds
from tests.support.kinds import Kind
from tests.support.kinds import choice
from tests.support.kinds import instance


class Row(NamedTuple):
    """A public callable: arguments that it takes, and kinds of those that it checks."""

    good: Callable  # makes a dict of the arguments that are varied or required
    kinds: dict  # of arguments that `BY_NAME` does not have, or has otherwise
    # Other names by which an error may call an argument, such as one that must fit it.
    also: dict
    call: Callable | None  # where it is not what the row's name says


def row(good, /, *, also=None, call=None, **kinds):
    """A `Row`; `good` is a dict or makes one, `kinds` are kinds of its arguments."""
    return Row(good if callable(good) else lambda: good, kinds, also or {}, call)


class Unbuilt(keras.Model):
    """A model without an input shape."""

    def call(self, inputs):
        return inputs


NO_MODELS = [keras.Model, keras.layers.Dense(2), np.zeros((3, 2)), "model", Unbuilt()]
NO_MODELS += [keras.Sequential([keras.layers.Dense(2)])]
MODEL = Kind(tuple(NO_MODELS))
SCHEDULE = keras.optimizers.schedules.LearningRateSchedule
RATE = (kinds.NOT_NEGATIVE | [mh.schedules.PowerDecay, "auto"]).but(SCHEDULE)
OPEN_RATE = (kinds.POSITIVE | [mh.schedules.PowerDecay]).but(SCHEDULE).or_none
NAME = Kind(("a/b", ":", "_a", "a b", "\u00fc", ["a"])).but(
    lambda x: isinstance(x, str) and re.fullmatch(r"(?!_|-)[\w.-]*", x, re.ASCII)
)
NO_PROPOSALS = [mh.proposals.RandomWalk, mh.proposals.Proposal, mh.priors.Gaussian(1.0)]
NO_PROPOSALS += ["RandomWalk", [mh.proposals.RandomWalk()]]
NO_PRIORS = [mh.priors.Gaussian, mh.proposals.RandomWalk(), {"kernel": 1.0}, "gaussian"]
AX = Kind(("ax", 1, {}, [], object, np.ones(2)), kinds.odd)

KINDS_OF_NAMES = {
    "batch_size bins cycle_steps decay_steps dimension every max_chains max_draws "
    "num_chains num_members num_steps restarts ring_capacity ring_steps "
    "samples steps train_size": kinds.COUNT,
    "burn_in seed split warm_up": kinds.INTEGER,
    "chunk max_samples num_draws": kinds.COUNT.or_none,
    "energy_gap lam noise_std nu offset sigma v0 v1 zeta": kinds.POSITIVE,
    "noise_temperature maximum": kinds.POSITIVE.or_none,
    "initial rho": kinds.NOT_NEGATIVE,
    "a b beta": kinds.AT_LEAST_ONE,
    "max_multiplier": kinds.AT_LEAST_ONE.or_none,
    "weight_power": kinds.NOT_NEGATIVE.or_none,
    "beta_1 beta_2 decay jump_probability momentum refresh_probability": kinds.SHARE,
    "delta level probability": kinds.OPEN_SHARE,
    "initial_inclusion": kinds.OPEN_SHARE.or_none,
    "alpha forward_probability": kinds.UP_TO_ONE,
    "thermostat_rate": kinds.number("[0, 1]").or_none,
    "energy_min": kinds.NUMBER,
    "adapt keep_all layer_temperatures normalized progress rate_adaptation replacement "
    "shared_density": kinds.FLAG,
    "from_logits keep_strongest random_start true_label": kinds.STRICT_FLAG,
    "learning_rate temperature": RATE,
    "model": MODEL,
    "name": NAME.or_none,
    "prior": instance(mh.priors.Prior, *NO_PRIORS).or_none,
    "proposal": instance(mh.proposals.Proposal, *NO_PROPOSALS).or_none,
    "random_field": choice("zeta", "one"),
    "integrator": choice("euler", "baoab"),
    "difference": choice("backward", "forward"),
    "likelihood": choice("categorical", "gaussian"),
    "groups": choice("layer", "all"),
    "norm": choice("linf", "l2"),
    "nan_policy": choice("stop", "raise"),
    "beta_adaptation": choice("replay", "paper", None),
    "ax": AX.or_none,
    "axes": kinds.unshown("ax", 1, {}, [], object, [None], [None] * 3, ["a", "b"]),
}
BY_NAME = {
    name: kind for names, kind in KINDS_OF_NAMES.items() for name in names.split()
}
