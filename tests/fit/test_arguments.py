"""Arguments of the samplers: what is accepted and kept, what has a remedy, configs."""

import re
from fractions import Fraction

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.samplers import OF_CLASSES

ALL = tuple(OF_CLASSES)
METROPOLIS = tuple(name for name, row in OF_CLASSES.items() if row.is_metropolis)
WITH_PRIOR = tuple(name for name, row in OF_CLASSES.items() if row.has_prior)
SPARSIFYING = tuple(name for name in ALL if name not in WITH_PRIOR)
CONTOUR = tuple(name for name, row in OF_CLASSES.items() if row.takes("partition"))
WITHOUT_BATCH = tuple(name for name in ALL if name not in METROPOLIS)
WITH_TEMPERATURE = [
    name for name, row in OF_CLASSES.items() if row.takes("temperature")
]
LANGEVIN = tuple(name for name in WITHOUT_BATCH if name in WITH_TEMPERATURE)
COLD = tuple(name for name in LANGEVIN if OF_CLASSES[name].rests and name != "SGMCLMC")


def make(sampler, /, **arguments):
    """The sampler with the contract's arguments, but for these and round sizes."""
    row = OF_CLASSES[sampler]
    sizes = dict(train_size=100, batch_size=10) if row.is_metropolis else {}
    return row.make(**dict(train_size=100) | sizes | arguments)


def assert_refused(name, value, call, *parts):
    """`call` raises a ValueError with the argument's name, `value`, and `parts`."""
    with pytest.raises(ValueError) as error:
        call()
    for part in (f"`{name}`", f"{value!r}", "Received:", *parts):
        assert part in str(error.value), error.value


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
        option, value, lambda: make(sampler, **{option: value}), remedy, "distribution"
    )


@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize("option", [option for option, *_ in BASE_OPTIONS])
def test_an_option_that_is_switched_off_is_accepted(sampler, option):
    off = {"use_ema": False, "weight_decay": 0.0}.get(option)
    optimizer = make(sampler, **{option: off})
    assert option not in optimizer.get_config()


@pytest.mark.parametrize("sampler", ALL)
@pytest.mark.parametrize(("option", "value"), [("nesterov", True), ("lr", 0.1)])
def test_an_unknown_keyword_is_named(sampler, option, value):
    takes = f"{sampler} takes `learning_rate`, `train_size`"
    assert_refused(option, value, lambda: make(sampler, **{option: value}), takes)


@pytest.mark.parametrize("v0", [1.0, 2.0])
def test_a_spike_as_wide_as_the_slab_is_refused(v0):
    def spike_slab():
        return mh.priors.SpikeSlab("kernel", v0=v0, v1=1.0)

    assert_refused("v0", v0, spike_slab, "`v1`", "v1=1.0")


@pytest.mark.parametrize("sampler", SPARSIFYING)
def test_another_prior_than_spike_and_slab_is_told_the_remedy(sampler):
    prior = mh.priors.Gaussian(1.0)
    remedy = 'mh.priors.SpikeSlab("dense/kernel"'
    assert_refused("prior", prior, lambda: make(sampler, prior=prior), remedy)


@pytest.mark.parametrize("sampler", WITH_PRIOR)
def test_a_spike_and_slab_prior_is_told_its_samplers(sampler):
    prior = mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0)
    remedies = ("`mh.SGLDSA`", "`mh.SGHMCSA`", "`mh.ESM`")
    assert_refused("prior", prior, lambda: make(sampler, prior=prior), *remedies)


@pytest.mark.parametrize("sampler", CONTOUR)
def test_another_partition_is_told_the_remedy(sampler):
    remedy = "mh.suggest_partition"
    assert_refused("partition", {}, lambda: make(sampler, partition={}), remedy)


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
    ("temperature", COLD, 0, 0.0),
    ("temperature", LANGEVIN, np.float32(0.25), 0.25),
    ("temperature", ("MHBT", "RSGLD"), 1e-6, 1e-6),
    ("temperature", ("MHBT",), None, 10.0),  # N/m
    ("temperature", ("RSGLD",), None, 50 / 10**0.5),  # N / (2 sqrt(m))
    ("momentum", ("SGHMC",), 0, 0.0),
    ("momentum", ("SGHMC",), 0.999, 0.999),
    ("momentum", ("SGNHT",), 0, 0.0),
    ("thermostat_rate", ("SGNHT",), 0, 0.0),
    ("thermostat_rate", ("SGNHT",), 1, 1.0),
    ("thermostat_rate", ("SGNHT",), None, None),
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
    ("forward_probability", ("RSGLD",), 1, 1.0),
    ("forward_probability", ("RSGLD",), np.float32(0.5), 0.5),
    ("refresh_probability", ("RSGLD",), 0, 0.0),
    ("refresh_probability", ("MHBT", "MINT"), 0, 0.0),
    ("alpha", ("MINT",), 1, 1.0),
    ("alpha", ("MINT",), 1e-3, 1e-3),
    ("prior", WITH_PRIOR, None, None),
    ("likelihood", SPARSIFYING, "gaussian", "gaussian"),
    ("step_size", ("SGLDSA",), 1, 1.0),
    ("step_size", ("CSGLD", "CSGHMC"), Fraction(1, 2), 0.5),
    ("zeta", ("CSGLD",), np.float32(0.75), 0.75),
    ("layer_temperatures", ("SGHMCSA",), True, True),
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


@pytest.mark.parametrize("sampler", WITH_TEMPERATURE)
def test_a_schedule_is_accepted_as_temperature(sampler):
    schedule = keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5)
    assert make(sampler, temperature=schedule).temperature is schedule


def test_the_temperatures_of_the_papers_are_the_defaults():
    for sampler in LANGEVIN:
        assert make(sampler).temperature == 1.0
    assert 100 / make("MHBT").temperature == pytest.approx(10)  # c_n = N / T = m
    # MINT's c_n = N^lambda with lambda = alpha log m / log N, which is m^alpha.
    assert 100 / make("MINT").temperature == pytest.approx(10**0.99)
    assert 100 / make("MINT", alpha=0.5).temperature == pytest.approx(10**0.5)


# Round trips.

COMMON = dict(train_size=50, seed=11, name="mine")
PRIOR = dict(prior=mh.priors.Gaussian({"kernel": 0.5, "bias": 2.0}))
POWER = dict(initial=0.1, offset=1.0, power=0.5)
GEOMETRIC = dict(initial=0.1, cycle_steps=10, decay=0.9, decay_steps=5, growth=2.0)
WITH_SCHEDULES = dict(
    learning_rate=mh.schedules.GeometricCycle(**GEOMETRIC),
    temperature=mh.schedules.PowerDecay(**POWER),
)


def round_trips():
    for name, arguments in ((name, row.other) for name, row in OF_CLASSES.items()):
        yield name, {}
        yield name, arguments
        common = COMMON | PRIOR if name in WITH_PRIOR else COMMON
        yield name, common | arguments
        if name in WITH_TEMPERATURE:
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
    code = OF_CLASSES[sampler].optimizer.__init__.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    assert set(make(sampler).get_config()) == set(code.co_varnames[1:count])


@pytest.mark.parametrize("make_one", [mh.MHBT, mh.MINT])
@pytest.mark.parametrize(
    "proposal", [mh.proposals.RandomWalk(), mh.proposals.Langevin()]
)
@pytest.mark.parametrize(
    "option",
    [dict(refresh_probability=0.1), dict(warm_up=3), dict(rate_adaptation=True)],
    ids=str,
)
def test_only_a_reversible_chain_refreshes_and_warms_up(make_one, proposal, option):
    received = rf"ReversibleLangevin\(beta\).*Received: .*{re.escape(repr(proposal))}"
    sizes = dict(train_size=100, batch_size=10)
    with pytest.raises(ValueError, match=received):
        make_one(0.1, proposal=proposal, **sizes, **option)
    assert make_one(0.1, proposal=proposal, **sizes).warm_up == 0
    if "refresh_probability" in option:  # the others are of `fit`
        with pytest.raises(ValueError, match=received):
            mh.kernels.mhbt(0.1, proposal=proposal, **option)
