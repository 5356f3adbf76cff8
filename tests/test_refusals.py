"""One table of public arguments: each refuses what is not of its kind, by name."""

import fnmatch
import functools
import inspect
import os

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _validate
from keras_mhmcmc.samplers.base import Algorithm
from keras_mhmcmc.tuning import LearningRateTable
from tests.support import arguments_of_attacks
from tests.support import arguments_of_chains
from tests.support import arguments_of_models
from tests.support import arguments_of_plots
from tests.support import arguments_of_samplers
from tests.support import arguments_of_scores
from tests.support import arguments_of_shift
from tests.support import wild
from tests.support.argument_rows import BY_NAME

# "name" or "name of something" -> row
TABLE = (
    arguments_of_samplers.TABLE
    | arguments_of_chains.TABLE
    | arguments_of_models.TABLE
    | arguments_of_attacks.TABLE
    | arguments_of_plots.TABLE
    | arguments_of_shift.TABLE
    | arguments_of_scores.TABLE
)

# What has no row, and why.
AS_KERAS = "its arguments are those of Keras, which checks them"
INNER = "called by the package with what the constructor checked"
EXEMPT = {
    "losses.LearnedDeviation.build": "Keras calls it, with a shape of its own",
    "losses.LearnedDeviation.call": "Keras makes tensors of its arguments",
    "ChainState": "a record; what `sample` takes as `init` is checked there",
    "Draws": "a result; only `sample` and its like make it",
    "Draws.by_name": "takes nothing",
    "Draws.to_arviz": "takes nothing",
    "diagnostics.Agreement": "a result",
    "metrics.Reliability": "a result",
    "metrics.IntervalCalibration": "a result",
    "p*.Pr*": "abstract",
    "losses.Likelihood": "abstract",
    "losses.Likelihood.constant": INNER,
    "losses.Likelihood.mixture": INNER,
    "losses.Likelihood.warn_of_grid": INNER,
    "metrics.PredictiveMixture.*mean": "takes nothing",
    "metrics.PredictiveMixture.*std": "takes nothing",
    "independent_processes": "takes nothing",
    "proposals.RandomWalk": "takes nothing",
    "proposals.*.*": INNER,
    "kernels.*.*": INNER,
    "priors.SpikeSlab.group_of_each": INNER,
    "priors.SpikeSlab.choose": INNER,
    "priors.SpikeSlab.kernels_of": INNER,
    "Classifier.*": INNER,
    "*.get_config": "takes nothing",
    "*.from_config": "takes the arguments of the constructor, by way of Keras",
    "*.call*": AS_KERAS,
    "*.predict*": AS_KERAS,
    "ParallelChains.*": AS_KERAS,
    "BarkerChain.own_step": "called by Keras",
    "*Ensemble.evaluate": AS_KERAS,
    "Ensemble.compute_metrics": "called by Keras",
    "BayesianEnsemble.fit": "`tests/bayesian` has what it refuses",
    "*.get_compile_config": AS_KERAS,
    "Ensemble.stacked_values": "takes nothing",
    "BarkerChain.fit": AS_KERAS,
    "PosteriorSamples.ensemble": "its arguments are those of `Ensemble`",
    "PosteriorSamples.on_*": "called by Keras",
    "PosteriorSamples.chains": "takes the model that was sampled",
    "PosteriorSamples.to_arviz": "takes the model that the samples are compared with",
    "*.export": AS_KERAS,
    "*.summary": AS_KERAS,
    "*.compile_from_config": AS_KERAS,
    "targets.*.log_*": "the laws, which are called with tensors",
    "*.to_pandas": "takes nothing",
}
UNCHECKED = {
    "BarkerChain.compile": {"loss", "metrics"},  # as for `keras.Model.compile`
    "BayesianEnsemble": {"averaged", "name"},  # what a file holds; as for Keras
    "BayesianEnsemble.compile": {"loss", "metrics"},  # as for `keras.Model.compile`
    "Classifier": {"subject"},  # how the package names the model
    "ParallelChains.compile": {"loss", "metrics"},  # as for `keras.Model.compile`
    "datasets.standardized": {"axis"},  # as for `numpy.mean`
    "metrics.PredictiveMixture": {"law"},  # what a likelihood makes
    "plots.contours": {"color"},  # as for matplotlib
    "priors.Gaussian.bind": {"variables"},  # called by the optimizers
    "prune": {"x", "y", "batch_size"},  # as for `keras.Model.evaluate`
    "suggest_learning_rate": {"x", "y"},  # as for `keras.Model.fit`
}
NEEDS = {
    "adversarial.art_classifier*": ["art"],
    "plots.*": ["matplotlib"],
    "di*": ["arviz", "pandas"],
    "Draws.summary": ["arviz", "pandas"],
}


def called(name):
    """What a row calls."""
    path = name.split(" ")[0]
    return TABLE[name].call or functools.reduce(getattr, path.split("."), mh)


def kinds_of(name):
    """The kinds of a row; one that is "of something" has but its own."""
    parameters = inspect.signature(called(name)).parameters
    by_name = {} if " " in name else {k: BY_NAME[k] for k in parameters if k in BY_NAME}
    unchecked = UNCHECKED.get(name, set())
    kinds = by_name | TABLE[name].kinds
    return {
        argument: kinds[argument] for argument in kinds if argument not in unchecked
    }


ARGUMENTS = [
    pytest.param(name, argument, kind, id=f"{name}-{argument}")
    for name in TABLE
    for argument, kind in kinds_of(name).items()
]


def limited(examples):
    return settings(
        max_examples=examples, derandomize=True, deadline=None, database=None
    )


def shows(message, value):
    """Whether an error has something of `value`: a scalar as it is, or its shape ()."""
    received = message.partition("eceived: ")[2]
    if not isinstance(value, str | int | float | complex | type(None)):
        return received != ""
    alike = [value, np.asarray(value)]
    alike += [float(value)] if isinstance(value, int) and abs(value) < 1e300 else []
    return any(part in received for part in ["()", *map(_validate.shown, alike)])


def faults_of(error, names, value, is_shown):
    """What is wrong with a refusal."""
    message = str(error)
    if not isinstance(error, ValueError):
        yield f"no ValueError: {error!r}"
    if not any(f"`{name}`" in message or f"`{name}[" in message for name in names):
        yield f"no name: {message[:300]}"
    if is_shown and not shows(message, value):
        yield f"{_validate.shown(value)} is not shown: {message[:300]}"
    if len(message) > 3000:
        yield f"too long: {message[:300]}"


def state_of(value):
    """What a refusal must leave as it is: arrays, weights of models, files."""
    if isinstance(value, dict):
        return {key: state_of(entry) for key, entry in value.items()}
    if isinstance(value, keras.Model):
        return [keras.ops.convert_to_numpy(w).tobytes() for w in value.weights]
    return value.tobytes() if isinstance(value, np.ndarray) else None


def refusal(name, argument, value):
    """The error of a call with another value, which changes nothing; or the result."""
    good = TABLE[name].good()
    before = state_of(good), sorted(os.listdir())
    try:
        return None, called(name)(**good | {argument: value})
    except (ValueError, TypeError) as error:
        assert (state_of(good), sorted(os.listdir())) == before
        return error, None


@pytest.fixture
def needed(request, tmp_path, monkeypatch):
    """What a row needs: packages, and a folder of its own."""
    monkeypatch.chdir(tmp_path)
    name = request.node.callspec.params["name"]
    for pattern, packages in NEEDS.items():
        for package in packages if fnmatch.fnmatchcase(name, pattern) else ():
            pytest.importorskip(package)


@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize(("name", "argument", "kind"), ARGUMENTS)
def test_a_value_of_another_kind_is_refused_by_name(name, argument, kind):
    names = {argument} | TABLE[name].also.get(argument, set())
    faults = []

    def check(value):
        error, _ = refusal(name, argument, value)
        if error is None:
            faults.append(f"accepted: {_validate.shown(value)}")
        else:
            faults.extend(faults_of(error, names, value, kind.is_shown))

    for value in kind.refused():
        check(value)
    limited(4)(given(kind.strategy())(check))()
    assert not faults, "\n".join(dict.fromkeys(faults))


# What is accepted is of use.


def finite(values):
    assert np.isfinite(np.asarray(values, "float64")).all(), values


def check_use(result):
    """Raises where a result is of no use: it is finite, or can be made again."""
    if isinstance(result, Algorithm):  # it has a first state on data of 100 examples
        weights = [keras.Variable([[1.0], [1.0]], name="kernel")]
        bound = result.bind_data_size(100, 10).bind_weights(weights, False)
        bound.init([ops.zeros((2, 1))])
    elif isinstance(result, keras.Model):
        if isinstance(result, mh.BayesianEnsemble):
            return  # it predicts after `fit`
        finite(result.predict(arguments_of_models.X4, verbose=0))
    elif isinstance(result, mh.Draws):
        finite(result.info["energy"])
    elif isinstance(result, mh.metrics.Reliability):
        finite(result.accuracy[result.count > 0])
    elif isinstance(result, mh.metrics.PredictiveMixture):
        finite(result.interval(0.9))
    elif isinstance(result, LearningRateTable):
        finite(result.column("start"))
    elif hasattr(result, "rows"):
        finite([row["nll"] for row in result.rows])
    elif hasattr(result, "get_config"):
        config = result.get_config()
        assert type(result).from_config(config).get_config() == config
        if isinstance(result, mh.priors.Prior) and not isinstance(
            config["scale"], dict
        ):
            variable = keras.Variable([0.5, -1.0], name="kernel")
            finite(float(result.bind([variable]).energy([variable.value], like=0.0)))
        elif isinstance(result, keras.Loss):
            outputs = np.full((1, result.outputs(1)), 0.5)
            finite(ops.convert_to_numpy(result([[0.5]], outputs)))
        elif isinstance(result, mh.schedules.Schedule):
            finite([float(result(step)) for step in (0, 1)])
    elif isinstance(result, tuple):
        for part in result:
            check_use(part)
    elif isinstance(result, dict | np.ndarray | float):
        finite(keras.tree.flatten(result) if isinstance(result, dict) else result)


def is_quick(name):
    return name.split(" ")[0] not in SLOW


# A call that works takes more than a second.
SLOW = (
    "sample",
    "sample_last_layer",
    "replica_exchange",
    "equi_energy",
    "ParallelChains",
    "prune",
    "suggest_learning_rate",
)
# Rows of which nothing is drawn, and why.
NOT_DRAWN = {
    "Ensemble.recalibrate without normalisation": "what varies is the model",
    "PosteriorSamples.load": "what varies is the folder",
    "losses.GaussianNLL.call": "Keras makes tensors of its arguments",
    "priors.Gaussian.bind": "what varies is the prior",
    "sample of nowhere": "what varies is a function",
}
DRAWN = sorted(TABLE.keys() - NOT_DRAWN.keys())


@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("name", filter(is_quick, DRAWN))
def test_what_others_take_the_place_of_is_good(name):
    check_use(called(name)(**TABLE[name].good()))


def drawn(name, examples):
    """A test of any values of a row's arguments, some of them near the good ones."""

    @limited(examples)
    @given(wild.cases(TABLE[name].good(), sorted(kinds_of(name))))
    def run(case):
        argument, value = case
        error, result = refusal(name, argument, value)
        if error is None:
            check_use(result)
        else:
            names = {argument} | TABLE[name].also.get(argument, set())
            faults = list(faults_of(error, names, value, is_shown=False))
            assert not faults, faults

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("name", filter(is_quick, DRAWN))
def test_any_value_is_of_use_or_refused_by_name(name):
    drawn(name, examples=12)()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("needed")
@pytest.mark.parametrize("name", DRAWN)
def test_any_of_many_values_is_of_use_or_refused_by_name(name):
    drawn(name, examples=300 if is_quick(name) else 60)()


# Nothing public is left out.


def public_names():
    """Public callables by the names that users write, and methods of the classes."""
    for name in mh.__all__:
        value = getattr(mh, name)
        if not inspect.ismodule(value):
            yield from with_methods(name, value)
            continue
        for inner, part in vars(value).items():
            is_ours = inner in value.__all__
            if not inner.startswith("_") and is_ours and callable(part):
                yield from with_methods(f"{name}.{inner}", part)


def with_methods(name, value):
    yield name
    is_sampler = inspect.isclass(value) and issubclass(value, keras.Optimizer)
    if inspect.isclass(value) and not is_sampler:
        for method, part in vars(value).items():
            is_method = callable(part) or isinstance(part, classmethod)
            if not method.startswith("_") and is_method:
                yield f"{name}.{method}"


PUBLIC = sorted(set(public_names()))
ROWS_OF = {name.split(" ")[0] for name in TABLE}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_callable_has_a_row_or_a_reason(name):
    has_reason = any(fnmatch.fnmatchcase(name, pattern) for pattern in EXEMPT)
    assert name in ROWS_OF or has_reason, "give it a row of arguments"


def test_a_reason_is_that_of_something_public_without_a_row():
    for pattern in EXEMPT:
        assert fnmatch.filter(set(PUBLIC) - ROWS_OF, pattern), pattern


@pytest.mark.parametrize("name", sorted(ROWS_OF))
def test_every_argument_has_a_kind(name):
    rows = [other for other in TABLE if other.split(" ")[0] == name]
    parameters = inspect.signature(called(rows[0])).parameters.values()
    known = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD} - {"self"}
    with_kinds = {argument for row in rows for argument in kinds_of(row)}
    assert known <= with_kinds | UNCHECKED.get(name, set())
