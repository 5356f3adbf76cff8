"""Rows of arguments: samplers, their parts, kernels, targets and data sets."""

import atexit
import functools
import pathlib
import shutil
import tempfile

import keras
import numpy as np

import keras_mhmcmc as mh
from tests.support import kinds
from tests.support.argument_rows import OPEN_RATE
from tests.support.argument_rows import RATE
from tests.support.argument_rows import SCHEDULE
from tests.support.argument_rows import row
from tests.support.kinds import Kind
from tests.support.kinds import array
from tests.support.kinds import choice
from tests.support.kinds import instance
from tests.support.kinds import listed
from tests.support.kinds import number
from tests.support.kinds import unshown
from tests.support.samplers import OF_CLASSES

# Samplers.

PARTITION = dict(energy_min=10.0, energy_gap=1.0, partitions=20)
OF_CONTOUR = dict(partition=mh.EnergyPartition(**PARTITION), zeta=1.0)
STEP_SIZES = [
    keras.optimizers.schedules.ExponentialDecay(0.1, 1, 1.0),  # does not fall
    keras.optimizers.schedules.ExponentialDecay(2.0, 10, 0.5),  # starts above 1
    mh.schedules.RobbinsMonro,
]
NO_MASSES = [1.0, "abc", {"a": 1}, True]
CONTOUR = dict(
    partition=instance(mh.EnergyPartition, mh.EnergyPartition, PARTITION, 20),
    pilot_steps=kinds.integer(20),
    step_size=(number("(0, 1)") | STEP_SIZES).but(SCHEDULE).or_none,
    rho=kinds.NOT_NEGATIVE | [1e30],  # the density would become negative
    masses=array(np.ones(20), "(0, inf)", *NO_MASSES, shapes=[19, 21, (1, 20)]).or_none,
)
NAMED = dict(
    name=kinds.TEXT.or_none,
    reduction=unshown("average", 1, [], {}, True, np.ones(2)),
)
OF_LOSSES = NAMED | dict(min_std=kinds.POSITIVE)
SPIKE_SLAB = dict(sparse="kernel", v0=1e-3, v1=1.0)
NO_SPIKE_SLABS = [mh.priors.SpikeSlab, mh.priors.Gaussian(1.0), SPIKE_SLAB, "kernel"]
SPARSE = dict(
    prior=instance(mh.priors.SpikeSlab, *NO_SPIKE_SLABS),
    step_size=number("(0, 1]").but(SCHEDULE).or_none,
)
OF_SPARSE = dict(prior=mh.priors.SpikeSlab(**SPIKE_SLAB))
BETA = (kinds.AT_LEAST_ONE | ["automatic"]).but("auto")
OF_A_START = dict(
    refresh_probability=kinds.SHARE.or_none,
    warm_up=kinds.INTEGER.or_none,
    rate_adaptation=kinds.FLAG.or_none,
)
OF_A_PILOT = dict(pilot_steps=kinds.integer(20).or_none)
OF_IVON = dict(
    hessian_init=kinds.POSITIVE,
    clip_radius=kinds.POSITIVE.or_none,
    temperature=OPEN_RATE,
)
OF_SGMCLMC = dict(
    temperature=OPEN_RATE, warm_up=kinds.integer(1), added_noise=kinds.NOT_NEGATIVE
)
OF_SAMPLERS = {
    "SGMCLMC": OF_SGMCLMC,
    "PSGLD": dict(epsilon=kinds.POSITIVE),
    "IVON": OF_IVON,
    "MHBT": dict(temperature=OPEN_RATE, **OF_A_START),
    "RSGLD": dict(temperature=OPEN_RATE, beta=BETA, warm_up=kinds.INTEGER.or_none),
    "MINT": dict(train_size=kinds.integer(2), **OF_A_START),  # log N must not be 0
    "CSGLD": CONTOUR | OF_A_PILOT,
    "CSGHMC": CONTOUR | OF_A_PILOT,
    "SGLDSA": SPARSE,
    "SGHMCSA": SPARSE,
    "ESM": SPARSE | dict(epsilon=kinds.POSITIVE),
}


def of_samplers():
    """Rows of the optimizers, from the table of samplers."""
    for name, sampler in OF_CLASSES.items():
        own = dict(seed=kinds.INTEGER.or_none)
        # A function is a learning rate that is asked at each step.
        own["learning_rate"] = RATE.but(lambda x: callable(x) and type(x) is not type)
        # Few subregions, for masses of so many numbers.
        few = {k: v for k, v in OF_CONTOUR.items() if sampler.takes(k)}
        good = dict(train_size=100, **sampler.arguments | few)
        if sampler.is_metropolis:
            good["batch_size"] = 10
            own["batch_size"] = kinds.integer(1, 100)  # no larger than the data
        kinds_of = own | OF_SAMPLERS.get(name, {})
        also = {"adapt": {"masses"}}
        yield name, row(good, also=also, call=sampler.optimizer, **kinds_of)


# Parts of samplers, and kernels.

SCALES = [{}, {"kernel": 0.0}, {"kernel": "1"}, {"kernel": None}, {"kernel": np.nan}]
SCALES += [{"kernel": {"kernel": 1.0}}, {"(": 1.0}, {1: 1.0}, {None: 1.0}, {b"a": 1.0}]
SCALES += [1e-30]  # whose precision is infinite in float32
CYCLE = dict(initial=0.1, cycle_steps=10)
GEOMETRIC = CYCLE | dict(decay=0.9, decay_steps=5, growth=2.0)
POWER = dict(initial=0.1, offset=1.0, power=0.5)
FOUR = dict(y_true=np.ones((4, 2)), y_pred=np.ones((4, 2)))
NO_FOUR = listed(np.zeros((4, 3)), np.zeros((3, 2)))
RATES = dict(learning_rate=0.1)
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.5, -1.0]])
BOUNDS_OF_EXAMPLES = kinds.array(np.ones(4), "[0, inf)", np.zeros(4), shapes=[(2, 2)])
OF_GROWING = dict(
    learning_rate=kinds.POSITIVE,
    temperature=kinds.POSITIVE,
    block_size=kinds.integer(2),
)
FEATURES = kinds.array(np.ones((4, 2)), shapes=[4, (2, 2, 2)], empty=True)
PARTS = {
    "AMAGOLD": row(
        dict(learning_rate=0.1, train_size=100),
        call=mh.AMAGOLD,
        warm_up=kinds.INTEGER.or_none,
        learning_rate=kinds.POSITIVE,
        temperature=kinds.POSITIVE,
        steps_per_test=kinds.COUNT.or_none,
        seed=kinds.INTEGER.or_none,
    ),
    "Barker": row(
        dict(learning_rate=0.1, train_size=100),
        call=mh.Barker,
        learning_rate=kinds.POSITIVE,
        temperature=kinds.POSITIVE,
        min_examples=kinds.integer(2),
        seed=kinds.INTEGER.or_none,
    ),
    "schedules.PowerDecay": row(POWER, power=kinds.NOT_NEGATIVE),
    "schedules.RobbinsMonro": row({}, scale=kinds.POSITIVE, power=number("(0.5, 1]")),
    "schedules.CyclicalCosine": row(CYCLE),
    "schedules.GeometricCycle": row(
        GEOMETRIC, decay=kinds.UP_TO_ONE, growth=kinds.AT_LEAST_ONE
    ),
    "priors.Gaussian": row(
        dict(scale=1.0),
        scale=(kinds.POSITIVE | SCALES).but(lambda x: isinstance(x, dict) and "a" in x),
    ),
    "priors.Gaussian.bind": row(
        lambda: dict(self=mh.priors.Gaussian(1.0), variables=[keras.Variable([1.0])]),
        self=listed(mh.priors.Gaussian({"no such weight": 1.0})),
        also={"self": {"scale"}},
    ),
    "priors.SpikeSlab": row(
        SPIKE_SLAB,
        sparse=Kind(("(", None, 1, True), kinds.odd).but(callable).but(str) | ["("],
        v0=kinds.POSITIVE | [1.0, 2.0],  # as wide as the slab
        also={"v1": {"v0"}},
    ),
    "EnergyPartition": row(PARTITION, partitions=kinds.integer(2)),
    "proposals.Langevin": row({}),
    "proposals.ReversibleLangevin": row(dict(beta=2.0)),
    "losses.GaussianNLL": row(
        dict(noise_std=0.5), noise_std=kinds.POSITIVE.or_none, **OF_LOSSES
    ),
    "losses.LearnedDeviation": row({}, initial=kinds.POSITIVE),
    "losses.StudentTNLL": row({}, df=number("(2, inf)").or_none, **OF_LOSSES),
    "losses.MixtureNLL": row(dict(components=2), components=kinds.COUNT, **OF_LOSSES),
    "losses.PoissonNLL": row({}, **NAMED),
    "losses.NegativeBinomialNLL": row({}, **NAMED),
    "losses.Likelihood.outputs": row(
        lambda: dict(self=mh.losses.GaussianNLL(), targets=2), targets=kinds.COUNT
    ),
    "losses.GaussianNLL.call": row(
        lambda: FOUR | dict(self=mh.losses.GaussianNLL(0.5)),
        y_true=NO_FOUR | [np.zeros(4)],
        y_pred=NO_FOUR | [np.zeros(())],
    ),
    "kernels.sgld": row(RATES),
    "kernels.psgld": row(RATES, epsilon=kinds.POSITIVE),
    "kernels.sghmc": row(RATES),
    "kernels.sgnht": row(RATES),
    "kernels.sgmclmc": row({}, **OF_SGMCLMC),
    "kernels.ivon": row(RATES, **OF_IVON),
    "kernels.csgld": row(RATES | OF_CONTOUR, also={"adapt": {"masses"}}, **CONTOUR),
    "kernels.csghmc": row(RATES | OF_CONTOUR, also={"adapt": {"masses"}}, **CONTOUR),
    "kernels.mhbt": row(RATES, temperature=OPEN_RATE),
    "kernels.mint": row(RATES),
    "kernels.rsgld": row(RATES, temperature=OPEN_RATE, beta=BETA),
    "kernels.tuna": row(
        RATES | dict(bounds=np.ones(4)),
        learning_rate=kinds.POSITIVE,
        temperature=kinds.POSITIVE,
        bounds=BOUNDS_OF_EXAMPLES,
        chi=kinds.POSITIVE.or_none,
        block_size=kinds.COUNT,
    ),
    "kernels.poisson": row(
        RATES | dict(lower=-np.ones(4), upper=np.ones(4)),
        learning_rate=kinds.POSITIVE,
        temperature=kinds.POSITIVE,
        lower=kinds.array(-np.ones(4), "(-inf, inf)", 2 * np.ones(4), shapes=[3]),
        upper=kinds.array(np.ones(4), "(-inf, inf)", -2 * np.ones(4), shapes=[3]),
        poisson_rate=kinds.POSITIVE.or_none,
        proposal=choice("random_walk", "barker"),
        block_size=kinds.COUNT,
        also={"lower": {"upper"}, "upper": {"lower"}},
    ),
    "kernels.smh": row(
        lambda: dict(expansion=mh.expansions.logistic_regression(ROWS, [0, 1, 1, 0])),
        expansion=instance(mh.expansions.Expansion, mh.expansions.Expansion, ROWS, {}),
        step_size=number("(0, 1]"),
        proposal=choice("crank_nicolson", "random_walk"),
        max_examples=kinds.POSITIVE.or_none,
        temperature=kinds.POSITIVE,
        block_size=kinds.COUNT,
    ),
    "expansions.logistic_regression": row(
        dict(x=ROWS, y=[0, 1, 1, 0]),
        x=kinds.array(ROWS, "(-inf, inf)", 0.0 * ROWS, shapes=[4, (2, 2, 2)]),
        y=kinds.array([0.0, 1.0, 1.0, 0.0], "[0, 1]", shapes=[3], planted=[0.5]),
        prior_scale=kinds.POSITIVE.or_none,
        order=choice(1, 2),
        also={"x": {"y"}},
    ),
    "expansions.Expansion": row(
        dict(
            features=ROWS,
            reference=np.zeros(2),
            covariance=np.eye(2),
            slopes=np.ones(4),
            curvatures=-np.ones(4),
            bounds=np.ones(4),
        ),
        features=kinds.array(ROWS, shapes=[4, (2, 2, 2)]),
        reference=kinds.array(np.zeros(2), shapes=[3, (1, 2)]),
        covariance=kinds.array(
            np.eye(2), "(-inf, inf)", -np.eye(2), [[1.0, 1.0], [0.0, 1.0]], shapes=[4]
        ),
        slopes=kinds.array(np.ones(4), shapes=[3, (4, 1)]),
        curvatures=kinds.array(np.ones(4), shapes=[3, (4, 1)]).or_none,
        bounds=kinds.array(np.ones(4), "[0, inf)", np.zeros(4), shapes=[3]),
        also={"features": {"slopes", "reference"}},
    ),
    "kernels.barker": row(RATES, **OF_GROWING),
    "kernels.austerity": row(RATES, epsilon=number("[0, 0.5)"), **OF_GROWING),
    "kernels.confidence": row(
        RATES | dict(bounds=np.ones(4)), bounds=BOUNDS_OF_EXAMPLES, **OF_GROWING
    ),
    "kernels.amagold": row(
        RATES,
        learning_rate=kinds.POSITIVE,
        temperature=kinds.POSITIVE,
        steps_per_test=kinds.COUNT,
    ),
    "kernels.hmc": row(
        {},
        leapfrog_steps=kinds.COUNT,
        step_size=kinds.POSITIVE,
        warm_up=kinds.INTEGER,
        target_acceptance=number("(0, 1)"),
        temperature=kinds.POSITIVE,
    ),
    "kernels.mclmc": row(
        {},
        step_size=kinds.POSITIVE.or_none,
        decoherence_length=kinds.POSITIVE.or_none,
        warm_up=kinds.INTEGER,
        energy_error=kinds.POSITIVE,
        scale_power=number("[0, 1]"),
        temperature=kinds.POSITIVE,
    ),
    "bounds.logistic_regression": row(dict(x=np.ones((4, 2))), x=FEATURES),
    "bounds.softmax_regression": row(dict(x=np.ones((4, 2))), x=FEATURES),
    "bounds.robust_regression": row(
        dict(x=np.ones((4, 2)), degrees_of_freedom=3.0),
        x=FEATURES,
        degrees_of_freedom=kinds.POSITIVE,
        scale=kinds.POSITIVE,
    ),
    "kernels.sgldsa": row(RATES | OF_SPARSE, **SPARSE),
    "kernels.sghmcsa": row(RATES | OF_SPARSE, **SPARSE),
    "suggest_partition": row(
        dict(energies=np.arange(20.0), partitions=10),
        energies=Kind(
            (np.arange(9.0), np.ones(20), np.full(20, np.nan), 1e300 * np.arange(20)),
            kinds.no_array,
        ),
        partitions=kinds.integer(3),
    ),
}

# Targets and data sets.


@functools.cache
def folder():
    """A folder with a data set."""
    path = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    np.savez(path / "yacht.npz", X=np.ones((20, 2)), y=np.ones(20))
    return path


def yacht():
    return dict(name="yacht", data_dir=folder())


PAIR = array([0.0, 1.0], "[-1000, 1000]", (0.0, 0.0), 1.0, shapes=[1, 3, (1, 2)])
AXIS = array([0.0, 1.0], "[-1e6, 1e6]", 1.0, shapes=[(1, 2)], empty=True)
NO_THETAS = Kind(([], 1.0, [1.0], np.ones(3), [[1.0]]), kinds.no_array)
SET = dict(
    name=choice("yacht", "mnist") | ["imagenet", object, np.array(["a"])],
    data_dir=Kind((None, 1, "", ".", b"x", "no such folder", [], "\0", "x" * 5000)),
)
TABLE = np.arange(6.0).reshape(3, 2)
SETS = {
    "targets.GaussianMean": row(
        dict(train_size=10, dimension=2), true_mean=number("[-1000, 1000)")
    ),
    "targets.GaussianMean.moments": row(
        dict(self=mh.targets.GaussianMean(10, 2)), temperature=kinds.POSITIVE
    ),
    "targets.TiedMeans": row(dict(train_size=10), theta=PAIR),
    "targets.TiedMeans.moments": row(
        dict(self=mh.targets.TiedMeans(100, (0.0, 2.0))), temperature=kinds.POSITIVE
    ),
    "targets.TiedMeans.log_density_grid": row(
        dict(self=mh.targets.TiedMeans(100), theta_1=[0.0, 1.0], theta_2=[0.5]),
        theta_1=AXIS,
        theta_2=AXIS,
    ),
    "targets.mirrored": row(dict(theta=[0.0, 1.0]), theta=NO_THETAS),
    "datasets.load": row(yacht, also={"name": {"data_dir"}}, **SET),
    "datasets.load_test": row(yacht, **SET),
    "datasets.rows": row(yacht, **SET),
    "datasets.standardized": row(
        dict(train=TABLE, test=np.ones((2, 2)), axis=0),
        train=array(TABLE, "(-inf, inf)", [], shapes=[(3, 3)]),
        test=array(np.ones((2, 2)), "(-inf, inf)", [], shapes=[(2, 3), 2], empty=True),
        also={"train": {"test"}},
    ),
}
TABLE = dict(of_samplers()) | PARTS | SETS
