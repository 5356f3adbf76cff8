"""Arguments: what is refused and how it is said, what is accepted, what is kept."""

import math
import re

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh

PARTITION = dict(energy_min=10.0, energy_gap=1.0, partitions=20, zeta=1.0)
SAMPLERS = {
    "SGLD": (mh.SGLD, {}),
    "PSGLD": (mh.PSGLD, {}),
    "SGHMC": (mh.SGHMC, {}),
    "MHBT": (mh.MHBT, dict(batch_size=10)),
    "RSGLD": (mh.RSGLD, dict(batch_size=10)),
    "MINT": (mh.MINT, dict(batch_size=10)),
    "CSGLD": (mh.CSGLD, PARTITION),
    "CSGHMC": (mh.CSGHMC, PARTITION),
}
ALL = tuple(SAMPLERS)
LANGEVIN = ("SGLD", "PSGLD", "SGHMC", "CSGLD", "CSGHMC")
METROPOLIS = ("MHBT", "RSGLD", "MINT")


def make(sampler, /, **arguments):
    """The sampler with good arguments, but for these."""
    cls, good = SAMPLERS[sampler]
    return cls(**({"learning_rate": 0.1, "train_size": 100} | good | arguments))


def assert_refused(name, value, call, *parts):
    """`call` raises a ValueError with the argument's name, `value`, and `parts`."""
    with pytest.raises(ValueError) as error:
        call()
    message = str(error.value)
    for part in (f"`{name}`", f"{value!r}", *parts):
        assert part in message, message
    assert "Received:" in message


# One table: argument, the samplers that have it, values that are refused.

NOT_A_NUMBER = ["0.1", None, True, [0.1], 1j, np.array([0.1])]
NOT_FINITE = [math.nan, math.inf, -math.inf, np.float32("nan")]
NOT_AN_INTEGER = [10.0, "10", True, 1.5, math.nan, np.float32(10)]
NOT_A_COUNT = [0, -1, *NOT_AN_INTEGER, None]
NOT_A_SHARE = [-0.1, 1.0, 1.5, *NOT_A_NUMBER, *NOT_FINITE]
NOT_POSITIVE = [0, 0.0, -1.0, *NOT_FINITE]

REFUSED = [
    ("train_size", ALL, NOT_A_COUNT),
    ("train_size", ("MINT",), [1]),  # log N must not be 0
    ("batch_size", METROPOLIS, NOT_A_COUNT),
    ("learning_rate", ALL, [-0.1, *NOT_A_NUMBER, *NOT_FINITE]),
    ("learning_rate", ("SGLD",), [pytest.param(10**400, id="10**400")]),
    ("temperature", LANGEVIN, [-1.0, *NOT_A_NUMBER, *NOT_FINITE]),
    # None is the default of these two, the temperature N/m.
    ("temperature", ("MHBT", "RSGLD"), [*NOT_POSITIVE, "1.0", True, [1.0]]),
    ("momentum", ("SGHMC",), NOT_A_SHARE),
    ("decay", ("PSGLD",), NOT_A_SHARE),
    ("epsilon", ("PSGLD",), [*NOT_POSITIVE, *NOT_A_NUMBER]),
    ("beta", ("RSGLD",), [0.99, 0.0, -2.0, *NOT_FINITE, None, True, "automatic"]),
    ("beta", ("RSGLD",), [[2.0], np.array([2.0]), np.array([2.0, 3.0])]),
    ("beta_adaptation", ("RSGLD",), ["Replay", "none", False, 0, 1.0]),
    ("noise_temperature", ("RSGLD",), [*NOT_POSITIVE, "1.0", True]),
    ("normalized", ("RSGLD",), ["yes", None, 2]),
    ("alpha", ("MINT",), [0.0, -0.5, 1.01, *NOT_FINITE, *NOT_A_NUMBER]),
    ("proposal", ("MHBT", "MINT"), ["RandomWalk", 1.0, mh.proposals.RandomWalk]),
    ("proposal", ("MHBT", "MINT"), [lambda x: x, mh.priors.Gaussian(1.0)]),
    ("proposal", ("MHBT", "MINT"), ["", 0, False, {}]),
    ("prior", ALL, [1.0, 0, False, "", "gaussian", {"kernel": 1.0}]),
    ("prior", ALL, [mh.priors.Gaussian, mh.proposals.RandomWalk()]),
    ("seed", ALL, [-1, 2**31, 2**40, *NOT_AN_INTEGER]),
]


def rows():
    for argument, samplers, values in REFUSED:
        for sampler in samplers:
            for value in values:
                marks = {}
                if not isinstance(value, str | int | float | bool | type(None)):
                    if hasattr(value, "id"):
                        marks["id"] = f"{sampler}-{argument}-{value.id}"
                        (value,) = value.values
                    else:
                        marks["id"] = f"{sampler}-{argument}-{type(value).__name__}"
                yield pytest.param(sampler, argument, value, **marks)


@pytest.mark.parametrize(("sampler", "argument", "value"), rows())
def test_a_bad_argument_is_named_and_shown(sampler, argument, value):
    assert_refused(argument, value, lambda: make(sampler, **{argument: value}))


@pytest.mark.parametrize("sampler", METROPOLIS)
def test_a_batch_larger_than_the_data_is_shown_with_both_sizes(sampler):
    assert_refused(
        "batch_size",
        101,
        lambda: make(sampler, batch_size=101),
        "batch_size=101",
        "`train_size`",
        "train_size=100",
    )


def test_a_seed_that_is_too_large_is_told_the_limit():
    assert_refused("seed", 2**31, lambda: make("SGLD", seed=2**31), "2**31")


# Options of the Keras base class, with a word of the remedy.

BASE_OPTIONS = [
    ("weight_decay", 1e-4, "prior=mh.priors.Gaussian(scale)"),
    ("clipnorm", 1.0, "learning rate"),
    ("clipvalue", 0.5, "learning rate"),
    ("global_clipnorm", 1.0, "learning rate"),
    ("use_ema", True, "mh.PosteriorSamples"),
    ("ema_momentum", 0.9, "mh.PosteriorSamples"),
    ("ema_overwrite_frequency", 10, "mh.PosteriorSamples"),
    ("gradient_accumulation_steps", 4, "larger batch"),
    ("loss_scale_factor", 128.0, "mixed_bfloat16"),
]


@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize(("option", "value", "remedy"), BASE_OPTIONS)
def test_an_option_that_would_change_the_law_is_refused_with_its_remedy(
    sampler, option, value, remedy
):
    assert_refused(
        option, value, lambda: make(sampler, **{option: value}), remedy, "law"
    )


@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize("option", [option for option, *_ in BASE_OPTIONS])
def test_an_option_that_is_switched_off_is_accepted(sampler, option):
    off = False if option == "use_ema" else None
    optimizer = make(sampler, **{option: off})
    assert option not in optimizer.get_config()


@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize(("option", "value"), [("nesterov", True), ("lr", 0.1)])
def test_an_unknown_keyword_is_named(sampler, option, value):
    assert_refused(option, value, lambda: make(sampler, **{option: value}))


@pytest.mark.parametrize("sampler", LANGEVIN)
def test_a_sampler_without_a_batch_size_says_so(sampler):
    assert_refused("batch_size", 10, lambda: make(sampler, batch_size=10))


def test_mint_has_no_temperature_of_its_own():
    assert_refused("temperature", 2.0, lambda: make("MINT", temperature=2.0))


# Values at the edge that are good, and the value that the config then has.

ACCEPTED = [
    ("learning_rate", ALL, 1, 1.0),
    ("learning_rate", ALL, 0, 0.0),
    ("learning_rate", ALL, 0.0, 0.0),
    ("learning_rate", ALL, np.float32(0.5), 0.5),
    ("learning_rate", ALL, np.float64(0.5), 0.5),
    ("learning_rate", ALL, np.int64(2), 2.0),
    ("train_size", ALL, np.int32(50), 50),
    ("train_size", LANGEVIN, 1, 1),
    ("batch_size", METROPOLIS, 100, 100),
    ("batch_size", METROPOLIS, 1, 1),
    ("batch_size", METROPOLIS, np.int64(20), 20),
    ("temperature", LANGEVIN, 0, 0.0),
    ("temperature", LANGEVIN, np.float32(0.25), 0.25),
    ("temperature", ("MHBT", "RSGLD"), 1e-6, 1e-6),
    ("temperature", ("MHBT", "RSGLD"), None, 10.0),  # N/m
    ("momentum", ("SGHMC",), 0, 0.0),
    ("momentum", ("SGHMC",), 0.999, 0.999),
    ("decay", ("PSGLD",), 0, 0.0),
    ("epsilon", ("PSGLD",), 1, 1.0),
    ("beta", ("RSGLD",), 1, 1.0),
    ("beta", ("RSGLD",), np.float32(1.5), 1.5),
    ("beta", ("RSGLD",), "auto", "auto"),
    ("beta_adaptation", ("RSGLD",), "replay", "replay"),
    ("beta_adaptation", ("RSGLD",), "paper", "paper"),
    ("beta_adaptation", ("RSGLD",), None, None),
    ("noise_temperature", ("RSGLD",), 1e-9, 1e-9),
    ("noise_temperature", ("RSGLD",), None, None),
    ("normalized", ("RSGLD",), True, True),
    ("alpha", ("MINT",), 1, 1.0),
    ("alpha", ("MINT",), 1e-3, 1e-3),
    ("prior", ALL, None, None),
    ("seed", ALL, 0, 0),
    ("seed", ALL, 2**31 - 1, 2**31 - 1),
    ("seed", ALL, np.int64(7), 7),
    ("seed", ALL, None, None),
    ("name", ALL, "mine", "mine"),
]


@pytest.mark.parametrize(
    ("sampler", "argument", "value", "kept"),
    [
        pytest.param(sampler, argument, value, kept, id=f"{sampler}-{argument}-{value}")
        for argument, samplers, value, kept in ACCEPTED
        for sampler in samplers
    ],
)
def test_a_good_argument_is_accepted_and_kept(sampler, argument, value, kept):
    config = make(sampler, **{argument: value}).get_config()
    assert config[argument] == kept
    assert type(config[argument]) is type(kept)


@pytest.mark.parametrize("sampler", ALL)
def test_a_schedule_is_accepted_as_learning_rate(sampler):
    schedule = mh.schedules.PowerDecay(0.1, 1.0, 0.5)
    optimizer = make(sampler, learning_rate=schedule)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)


@pytest.mark.parametrize("sampler", [*LANGEVIN, "MHBT", "RSGLD"])
def test_a_schedule_is_accepted_as_temperature(sampler):
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
    assert make(sampler, temperature=schedule).temperature is schedule


def test_the_temperatures_of_the_papers_are_the_defaults():
    for sampler in LANGEVIN:
        assert make(sampler).temperature == 1.0
    for sampler in ("MHBT", "RSGLD"):  # c_n = N / T is the batch size
        assert 100 / make(sampler).temperature == pytest.approx(10)
    # MINT's c_n = N^lambda with lambda = alpha log m / log N, which is m^alpha.
    assert 100 / make("MINT").temperature == pytest.approx(10**0.99)
    assert 100 / make("MINT", alpha=0.5).temperature == pytest.approx(10**0.5)


# The other objects.

OTHERS = [
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


@pytest.mark.parametrize("value", [0.0, -1.0, "1", None, math.nan])
def test_a_bad_scale_of_one_pattern_is_shown(value):
    assert_refused("scale", value, lambda: mh.priors.Gaussian({"a": 1.0, "b": value}))


def test_a_prior_of_no_pattern_is_refused():
    assert_refused("scale", {}, lambda: mh.priors.Gaussian({}), "leave `prior` away")


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
}
COMMON = dict(
    train_size=50,
    prior=mh.priors.Gaussian({"kernel": 0.5, "bias": 2.0}),
    seed=11,
    name="mine",
)
WITH_SCHEDULES = dict(
    learning_rate=mh.schedules.GeometricCycle(**GEOMETRIC),
    temperature=mh.schedules.PowerDecay(**POWER),
)


def round_trips():
    for name, arguments in ROUND_TRIPS.items():
        yield name, {}
        yield name, arguments
        yield name, COMMON | arguments
        if name != "MINT":  # its temperature follows from alpha
            yield name, COMMON | arguments | WITH_SCHEDULES
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
    assert set(listed) - {"ValueError"} == set(make(sampler).get_config())
