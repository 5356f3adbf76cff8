"""Arguments of the samplers: what is refused and how, and what is accepted."""

from fractions import Fraction

import keras
import numpy as np
import pytest
from argument_tools import ALL
from argument_tools import CONTOUR
from argument_tools import LANGEVIN
from argument_tools import METROPOLIS
from argument_tools import NOT_A_COUNT
from argument_tools import NOT_A_NUMBER
from argument_tools import NOT_A_SHARE
from argument_tools import NOT_AN_INTEGER
from argument_tools import NOT_FINITE
from argument_tools import NOT_POSITIVE
from argument_tools import SPARSIFYING
from argument_tools import WITH_PRIOR
from argument_tools import WITHOUT_BATCH
from argument_tools import assert_refused
from argument_tools import make

import keras_mhmcmc as mh

pytestmark = pytest.mark.in_turn("torch")

# One table: argument, the samplers that have it, values that are refused.

REFUSED = [
    ("train_size", ALL, NOT_A_COUNT),
    ("train_size", ("MINT",), [1]),  # log N must not be 0
    ("batch_size", METROPOLIS, NOT_A_COUNT),
    ("learning_rate", ALL, [-0.1, *NOT_A_NUMBER, *NOT_FINITE]),
    ("learning_rate", ("SGLD",), [pytest.param(10**400, id="10**400")]),
    ("learning_rate", ("SGLD",), [pytest.param(keras.Model, id="a class")]),
    ("temperature", LANGEVIN, [-1.0, *NOT_A_NUMBER, *NOT_FINITE]),
    # None is the default of these two, the temperature N/m.
    ("temperature", ("MHBT", "RSGLD"), [*NOT_POSITIVE, "1.0", True, [1.0]]),
    ("momentum", ("SGHMC", "SGHMCSA"), NOT_A_SHARE),
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
    ("prior", WITH_PRIOR, [1.0, 0, False, "", "gaussian", {"kernel": 1.0}]),
    ("prior", WITH_PRIOR, [mh.priors.Gaussian, mh.proposals.RandomWalk()]),
    ("prior", WITH_PRIOR, [mh.priors.SpikeSlab("kernel", v0=0.1, v1=1.0)]),
    ("prior", SPARSIFYING, [None, 1.0, "kernel", mh.priors.Gaussian(1.0)]),
    ("prior", SPARSIFYING, [mh.priors.SpikeSlab, {"sparse": "kernel"}]),
    ("partition", CONTOUR, [None, "auto", 10, (10.0, 1.0, 20), mh.EnergyPartition]),
    ("partition", CONTOUR, [dict(energy_min=10.0, energy_gap=1.0, partitions=20)]),
    ("likelihood", SPARSIFYING, ["normal", None, 1]),
    ("step_size", ("SGLDSA", "SGHMCSA"), [0.0, 1.01, "0.1", True, *NOT_FINITE]),
    ("layer_temperatures", ("SGLDSA", "SGHMCSA"), ["yes", None, 2]),
    ("beta_1", ("ESM",), NOT_A_SHARE),
    ("beta_2", ("ESM",), NOT_A_SHARE),
    ("epsilon", ("ESM",), [*NOT_POSITIVE, *NOT_A_NUMBER]),
    ("name", ALL, [":", "_a", "a b", "a/b", "\u00fc"]),
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
        option, value, lambda: make(sampler, **{option: value}), remedy, "distribution"
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


@pytest.mark.parametrize("sampler", WITHOUT_BATCH)
def test_a_sampler_without_a_batch_size_says_so(sampler):
    assert_refused("batch_size", 10, lambda: make(sampler, batch_size=10))


@pytest.mark.parametrize("sampler", ["MINT", "ESM"])
def test_a_sampler_without_a_temperature_of_its_own_says_so(sampler):
    assert_refused("temperature", 2.0, lambda: make(sampler, temperature=2.0))


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
