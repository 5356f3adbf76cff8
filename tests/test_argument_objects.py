"""Arguments of priors, losses, proposals and schedules, and serialisation."""

import math
import re

import keras
import numpy as np
import pytest
from argument_tools import ALL
from argument_tools import NOT_A_COUNT
from argument_tools import NOT_A_NUMBER
from argument_tools import NOT_FINITE
from argument_tools import NOT_POSITIVE
from argument_tools import SAMPLERS
from argument_tools import WITH_PRIOR
from argument_tools import assert_refused
from argument_tools import make

import keras_mhmcmc as mh

# The other objects.

PARTITION = dict(energy_min=10.0, energy_gap=1.0, partitions=20)
SPIKE_SLAB = dict(sparse="kernel", v0=1e-3, v1=1.0)
OTHERS = [
    ("energy_min", mh.EnergyPartition, PARTITION, [*NOT_A_NUMBER, *NOT_FINITE]),
    ("energy_gap", mh.EnergyPartition, PARTITION, [*NOT_POSITIVE, *NOT_A_NUMBER]),
    ("partitions", mh.EnergyPartition, PARTITION, [1, *NOT_A_COUNT]),
    *(
        (name, mh.priors.SpikeSlab, SPIKE_SLAB, [*NOT_POSITIVE, *NOT_A_NUMBER])
        for name in ("v0", "v1", "nu", "lam", "sigma")
    ),
    *(
        (name, mh.priors.SpikeSlab, SPIKE_SLAB, [0.99, *NOT_FINITE, *NOT_A_NUMBER])
        for name in ("a", "b")
    ),
    (
        "delta",
        mh.priors.SpikeSlab,
        SPIKE_SLAB,
        [0.0, 1.0, 1.5, *NOT_FINITE, *NOT_A_NUMBER],
    ),
    (
        "initial_inclusion",
        mh.priors.SpikeSlab,
        SPIKE_SLAB,
        [0.0, 1.0, 1.5, -0.1, 1.0 - 1e-12, *NOT_FINITE, "0.9", True, [0.9]],
    ),
    ("sparse", mh.priors.SpikeSlab, SPIKE_SLAB, ["(", None, 1, True]),
    ("groups", mh.priors.SpikeSlab, SPIKE_SLAB, ["each", None, 1]),
    ("scale", mh.priors.Gaussian, {}, [*NOT_POSITIVE, "1.0", None, True, [1.0]]),
    ("noise_std", mh.losses.GaussianNLL, {}, [*NOT_POSITIVE, *NOT_A_NUMBER]),
    (
        "noise_temperature",
        mh.proposals.Langevin,
        {},
        [*NOT_POSITIVE, "1.0", True, [1.0]],
    ),
    (
        "noise_temperature",
        mh.proposals.ReversibleLangevin,
        dict(beta=2.0),
        [*NOT_POSITIVE, "1.0", True],
    ),
    (
        "beta",
        mh.proposals.ReversibleLangevin,
        {},
        [0.99, -1.0, "auto", *NOT_A_NUMBER, *NOT_FINITE],
    ),
    (
        "normalized",
        mh.proposals.ReversibleLangevin,
        dict(beta=2.0),
        ["yes", None, 2],
    ),
]
POWER = dict(initial=0.1, offset=1.0, power=0.5)
COSINE = dict(initial=0.1, cycle_steps=10)
GEOMETRIC = dict(initial=0.1, cycle_steps=10, decay=0.9, decay_steps=5, growth=2.0)
for cls, good in (
    (mh.schedules.PowerDecay, POWER),
    (mh.schedules.CyclicalCosine, COSINE),
    (mh.schedules.GeometricCycle, GEOMETRIC),
):
    bad = {
        "initial": [-0.1, *NOT_A_NUMBER, *NOT_FINITE],
        "offset": [*NOT_POSITIVE, *NOT_A_NUMBER],
        "power": [-0.5, *NOT_A_NUMBER, *NOT_FINITE],
        "cycle_steps": NOT_A_COUNT,
        "decay_steps": NOT_A_COUNT,
        "decay": [0.0, -0.5, 1.01, *NOT_A_NUMBER, *NOT_FINITE],
        "growth": [0.99, -1.0, *NOT_A_NUMBER, *NOT_FINITE],
    }
    OTHERS += [(argument, cls, good, bad[argument]) for argument in good]


@pytest.mark.parametrize(
    ("argument", "cls", "good", "value"),
    [
        pytest.param(argument, cls, good, value, id=f"{cls.__name__}-{argument}-{k}")
        for argument, cls, good, values in OTHERS
        for k, value in enumerate(values)
    ],
)
def test_a_bad_argument_of_another_object_is_named_and_shown(
    argument, cls, good, value
):
    assert_refused(argument, value, lambda: cls(**(good | {argument: value})))


@pytest.mark.parametrize("v0", [1.0, 2.0])
def test_a_spike_as_wide_as_the_slab_is_refused(v0):
    def make():
        mh.priors.SpikeSlab("kernel", v0=v0, v1=1.0)

    assert_refused("v0", v0, make, "`v1`", "v1=1.0")


@pytest.mark.parametrize(
    ("argument", "value", "kept"),
    [
        ("v0", np.float32(0.5), 0.5),
        ("a", 1, 1.0),
        ("b", np.int64(1000), 1000.0),
        ("groups", "all", "all"),
        ("sparse", re.search, re.search),
    ],
)
def test_a_good_argument_of_a_spike_and_slab_prior_is_kept(argument, value, kept):
    prior = mh.priors.SpikeSlab(**(SPIKE_SLAB | {argument: value}))
    assert getattr(prior, argument) == kept
    assert type(getattr(prior, argument)) is type(kept)


@pytest.mark.parametrize("value", [0.0, -1.0, "1", None, math.nan])
def test_a_bad_scale_of_one_pattern_is_shown(value):
    assert_refused("scale", value, lambda: mh.priors.Gaussian({"a": 1.0, "b": value}))


def test_a_prior_of_no_pattern_is_refused():
    assert_refused("scale", {}, lambda: mh.priors.Gaussian({}), "leave out `prior`")


@pytest.mark.parametrize("pattern", [1, None, "("])
def test_a_pattern_that_is_no_regular_expression_is_refused(pattern):
    assert_refused("scale", pattern, lambda: mh.priors.Gaussian({pattern: 1.0}))


# Round trips.

ROUND_TRIPS = {
    "SGLD": dict(learning_rate=0.25, temperature=0.5),
    "PSGLD": dict(decay=0.9, epsilon=1e-3, temperature=0.0),
    "SGHMC": dict(momentum=0.5, prior=mh.priors.Gaussian(2.0)),
    "MHBT": dict(proposal=mh.proposals.ReversibleLangevin(2.0, 0.5, True)),
    "RSGLD": dict(
        beta=3.0, beta_adaptation="paper", noise_temperature=0.5, normalized=True
    ),
    "MINT": dict(alpha=0.5, proposal=mh.proposals.Langevin(noise_temperature=0.1)),
    "CSGLD": dict(
        partition=mh.EnergyPartition(1, 0.5, 3), masses=[3, 2, 1], adapt=False
    ),
    "SGLDSA": dict(
        prior=mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0, groups="all"),
        likelihood="gaussian",
        layer_temperatures=True,
    ),
    "SGHMCSA": dict(
        prior=mh.priors.SpikeSlab("a", v0=0.1, v1=1.0, initial_inclusion=0.9),
        momentum=0.5,
        step_size=mh.schedules.RobbinsMonro(),
    ),
    "ESM": dict(
        prior=mh.priors.SpikeSlab("a|b", v0=0.1, v1=1.0, a=3.0, b=10.0, delta=0.1),
        beta_1=0.5,
    ),
}
COMMON = dict(train_size=50, seed=11, name="mine")
PRIOR = dict(prior=mh.priors.Gaussian({"kernel": 0.5, "bias": 2.0}))
WITH_SCHEDULES = dict(
    learning_rate=mh.schedules.GeometricCycle(**GEOMETRIC),
    temperature=mh.schedules.PowerDecay(**POWER),
)


def round_trips():
    for name, arguments in ROUND_TRIPS.items():
        yield name, {}
        yield name, arguments
        common = COMMON | PRIOR if name in WITH_PRIOR else COMMON
        yield name, common | arguments
        if name not in ("MINT", "ESM"):  # no temperature of their own
            yield name, common | arguments | WITH_SCHEDULES
    yield "MHBT", dict(proposal=mh.proposals.RandomWalk())
    yield "MINT", dict(proposal=mh.proposals.RandomWalk())
    yield "RSGLD", dict(beta_adaptation=None)


@pytest.mark.parametrize(("sampler", "arguments"), round_trips())
def test_a_sampler_survives_serialisation(sampler, arguments):
    optimizer = make(sampler, **arguments)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(restored) is type(optimizer)
    assert restored.get_config() == optimizer.get_config()
    for argument, value in arguments.items():
        kept = optimizer.get_config()[argument]
        if hasattr(value, "get_config"):
            assert kept["config"] == value.get_config()
        else:
            assert kept == value


@pytest.mark.parametrize("sampler", ALL)
def test_the_config_has_every_argument_of_the_constructor(sampler):
    cls, _ = SAMPLERS[sampler]
    code = cls.__init__.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    assert set(make(sampler).get_config()) == set(code.co_varnames[1:count])


@pytest.mark.parametrize(
    ("proposal", "config"),
    [
        (mh.proposals.RandomWalk(), {}),
        (mh.proposals.Langevin(), {"noise_temperature": None}),
        (mh.proposals.Langevin(2), {"noise_temperature": 2.0}),
        (
            mh.proposals.ReversibleLangevin(1, normalized=True),
            {"beta": 1.0, "noise_temperature": None, "normalized": True},
        ),
    ],
)
def test_a_proposal_survives_serialisation(proposal, config):
    assert proposal.get_config() == config
    stored = keras.saving.serialize_keras_object(proposal)
    restored = keras.saving.deserialize_keras_object(stored)
    assert type(restored) is type(proposal)
    assert restored.get_config() == config


@pytest.mark.parametrize("sampler", ALL)
def test_the_docstring_names_every_argument(sampler):
    doc = SAMPLERS[sampler][0].__doc__
    listed = re.findall(r"^        (\w+): ", doc, re.MULTILINE)
    assert set(listed) - {"ValueError", "FloatingPointError"} == set(
        make(sampler).get_config()
    )
