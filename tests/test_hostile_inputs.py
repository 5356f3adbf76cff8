"""Hostile input: every public callable refuses it, and names the argument."""

import fnmatch
import inspect

import keras
import pytest
from argument_tools import SAMPLERS
from hostile_chains import CHAINS
from hostile_data import DATA
from hostile_models import MODELS
from hostile_parts import PARTS
from hostile_plots import PLOTS
from hostile_scores import SCORED
from hostile_tools import faults_of

import keras_mhmcmc as mh

pytestmark = pytest.mark.in_turn("torch")

# "name" or "name of something" -> row
TABLE = PARTS | DATA | MODELS | SCORED | CHAINS | PLOTS

# What has no row, and why.
AS_KERAS = "its arguments are those of Keras, which checks them"
INNER = "called by the package with what the constructor checked"
EXEMPT = {
    **dict.fromkeys(SAMPLERS, "in the table of test_arguments.py"),
    "ChainState": "a record; what `sample` takes as `init` is checked there",
    "Draws": "a result; only `sample` and its like make it",
    "Draws.by_name": "takes nothing",
    "Draws.to_arviz": "takes nothing",
    "metrics.Reliability": "a result",
    "proposals.checked": "the check itself, which the rows of kernels call",
    "p*.Pr*": "abstract",
    "priors.SpikeSlab.are_kernels": INNER,
    "priors.SpikeSlab.group_of_each": INNER,
    "priors.BoundGaussian*": "what `Gaussian.bind` makes",
    "proposals.RandomWalk": "takes nothing",
    "proposals.*.*": INNER,
    "Classifier.*": INNER,
    "*.get_config": "takes nothing",
    "*.from_config": "takes the arguments of the constructor, by way of Keras",
    "*.call*": AS_KERAS,
    "*.predict*": AS_KERAS,
    "ParallelChains.*": AS_KERAS,
    "PosteriorSamples.on_*": "called by Keras",
    "*.save": AS_KERAS,
    "*.export": AS_KERAS,
    "*.compile_from_config": AS_KERAS,
    "targets.*.log_*": "the laws, which are called with tensors",
    "*.to_pandas": "takes nothing",
}


def public_names():
    """Public callables by the names that users write, and methods of the classes."""
    for name in [*mh.__all__, *(f"kernels.{name}" for name in mh.kernels.__all__)]:
        value = mh
        for part in name.split("."):
            value = getattr(value, part)
        if not inspect.ismodule(value):
            yield from with_methods(name, value)
            continue
        for inner, part in vars(value).items():
            is_ours = getattr(part, "__module__", "").startswith(value.__name__)
            is_ours |= inner in getattr(value, "__all__", ())
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


def is_exempt(name):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in EXEMPT)


ROWS_OF = {name.split(" ")[0] for name in TABLE}


@pytest.mark.parametrize("name", sorted(set(public_names())))
def test_a_public_callable_has_a_row_or_a_reason(name):
    assert name in ROWS_OF or is_exempt(name), "give it a row of hostile input"


def test_a_reason_is_that_of_something_public_without_a_row():
    for pattern in EXEMPT:
        found = fnmatch.filter(set(public_names()) - ROWS_OF, pattern)
        assert found, pattern


@pytest.mark.parametrize("name", TABLE)
def test_a_row_varies_every_argument(name):
    """An argument of a constructor or function is in a row, or Keras' own."""
    first = name.split(" ")[0]
    rows = [row for other, row in TABLE.items() if other.split(" ")[0] == first]
    varied = {argument for row in rows for argument in row.bad}
    parameters = inspect.signature(rows[0].call).parameters.values()
    known = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    assert known <= varied | NOT_VARIED.get(first, set())


NOT_VARIED = {
    "Classifier": {"subject"},  # how the package names the model
    "prune": {"x", "y", "batch_size"},  # as for `keras.Model.evaluate`
    "PosteriorSamples": {"directory"},  # in the tests of folders
}


BAD = [
    pytest.param(name, argument, id=f"{name}-{argument}")
    for name, row in TABLE.items()
    for argument in row.bad
]


@pytest.mark.parametrize(("name", "argument"), BAD)
def test_bad_inputs_are_refused_by_name(name, argument):
    row = TABLE[name]
    for package in row.needs:
        pytest.importorskip(package)
    good = row.good()
    names = {argument} | row.also.get(argument, set())
    faults = []
    for place, value in enumerate(row.bad[argument]):
        try:
            row.call(**good | {argument: value})
        except (ValueError, TypeError) as error:
            faults += [f"{place}: {fault}" for fault in faults_of(error, names)]
        else:
            faults.append(f"{place}: it was accepted")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].is_quick])
def test_what_bad_inputs_take_the_place_of_is_good(name):
    row = TABLE[name]
    for package in row.needs:
        pytest.importorskip(package)
    row.usable(row.call(**row.good()))


def test_there_are_thousands_of_bad_inputs():
    count = sum(len(values) for row in TABLE.values() for values in row.bad.values())
    print(f"{count} bad inputs of {len(BAD)} arguments of {len(ROWS_OF)} callables")
    assert count > 5000
    assert len(ROWS_OF) > 60
