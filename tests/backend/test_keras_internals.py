"""What the package takes from Keras' private interface: where, and that it is there."""

import ast
import functools
import importlib
import inspect
import pkgutil
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc import _backend
from keras_mhmcmc._backend import keras_internals
from tests.support.package_files import files
from tests.support.package_files import parse

pytestmark = pytest.mark.every_backend

PACKAGE = Path(mh.__file__).parent
HOME = "_backend/keras_internals.py"


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name != "_"


@functools.cache
def private_names_of_keras():
    """The underscored attributes and methods in the sources of Keras' classes."""
    found = set()
    folders = ("layers/layer.py", "models", "trainers", "optimizers", "backend/common")
    folders += ("callbacks", "losses", "metrics", "ops/function.py", "saving")
    folders += tuple(
        f"backend/{framework}/{part}.py"
        for framework in ("jax", "tensorflow", "torch")
        for part in ("core", "layer", "optimizer", "trainer")
    )
    source = Path(inspect.getfile(keras.layers.Layer)).parents[1]
    for folder in folders:
        path = source / folder
        for file in [path] if path.suffix else path.rglob("*.py"):
            if not file.exists() or file.name.endswith("_test.py"):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                is_stored = isinstance(node, ast.Attribute) and isinstance(
                    node.ctx, ast.Store
                )
                if is_stored and is_private(node.attr):
                    found.add(node.attr)
                if isinstance(node, ast.ClassDef):
                    names = [getattr(x, "name", "") for x in node.body]
                    found |= set(filter(is_private, names))
    return found


def is_own(node):
    """Whether an expression is `self` or `cls`."""
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def violations(tree):
    """Where a source touches what is private to Keras, other than through `self`."""
    found, private = [], private_names_of_keras()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [x.name for x in node.names if x.name.startswith("keras.src")]
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").startswith("keras.src"):
                found.append(node.module)
        elif isinstance(node, ast.Attribute):
            if node.attr in private and not is_own(node.value):
                found.append(ast.unparse(node))
            if ast.unparse(node).startswith("keras.src"):
                found.append("keras.src")
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("getattr", "hasattr", "setattr", "__setattr__"):
                names = [getattr(x, "value", "") for x in node.args]
                found += [x for x in names if isinstance(x, str) and x in private]
    return found


def test_the_names_of_keras_are_found():
    found = private_names_of_keras()
    assert {"_value", "_shape", "_flatten_layers", "_symbolic_build"} <= found
    assert {"_loss_tracker", "_compile_config", "_layout", "_var_key"} <= found


@pytest.mark.in_turn("torch")
@pytest.mark.parametrize("path", files())
def test_only_one_file_touches_what_is_private_to_keras(path):
    found = violations(parse(path))
    assert found == [] or path == HOME


def bases_in_keras(each):
    return [base for base in each.__mro__ if base.__module__.startswith("keras.")]


def classes_derived_from_keras():
    """The classes of this package that derive from one of Keras."""
    names = [x.name for x in pkgutil.walk_packages([str(PACKAGE)], "keras_mhmcmc.")]
    others = {"jax", "tensorflow", "torch"} - {keras.backend.backend()}
    names = [name for name in names if not others & set(name.split("."))]
    modules = [importlib.import_module(name) for name in names]
    found = {
        x
        for module in modules
        for x in vars(module).values()
        if isinstance(x, type) and x.__module__ == module.__name__
    }
    return {x for x in found if bases_in_keras(x)}


def own_private_names(each):
    """The underscored names that a class defines, or has on `self` or `cls`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_own(node.value)
    }
    return {name for name in own | set(vars(each)) if is_private(name)}


def test_no_class_has_a_name_that_is_private_to_keras():
    classes = classes_derived_from_keras()
    assert {mh.SGLD, mh.ParallelChains, mh.Ensemble, mh.PosteriorSamples} <= classes
    theirs = {
        base: own_private_names(base)
        for base in {base for each in classes for base in bases_in_keras(each)}
    }
    assert "_flatten_layers" in theirs[keras.layers.Layer]
    for each in classes:
        keras_names = set().union(*(theirs[base] for base in bases_in_keras(each)))
        assert own_private_names(each) & keras_names == set(), each


# Each private name does what the package takes it for.


class Nested(keras.Model):
    """A subclass with a model inside a layer, and no `training` in `call`."""

    def __init__(self):
        super().__init__()
        self.inner = keras.Sequential(
            [keras.layers.Dense(3), keras.layers.Dropout(0.5)]
        )

    def call(self, x):
        return self.inner(x)


def test_the_layers_inside_layers_are_found():
    model = Nested()
    model(np.ones((1, 2), "float32"))
    kinds = {type(x) for x in _backend.inner_layers(model)}
    assert {Nested, keras.Sequential, keras.layers.Dense, keras.layers.Dropout} <= kinds


@pytest.mark.parametrize(
    "make", [Nested, lambda: keras.Sequential([keras.layers.Dense(3)])]
)
def test_the_outputs_of_a_step_have_the_shape_of_a_call(make):
    x = np.ones((4, 2), "float32")
    model = make()
    model(x)
    for training in (True, False):
        outputs = _backend.step_outputs(model, x, training)
        assert tuple(outputs.shape) == (4, 3)


def test_the_arguments_of_compile_are_those_that_were_given():
    def loss(y, p):
        return ops.mean(ops.square(y - p))

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss=loss, jit_compile=False)
    arguments = _backend.compile_arguments(model)
    assert arguments["loss"] is loss and arguments["jit_compile"] is False


def test_the_signature_of_an_export_is_that_of_the_build():
    model = Nested()
    model(np.ones((1, 2), "float32"))
    (spec,) = keras.tree.flatten(_backend.input_signature(model))
    assert tuple(spec.shape)[1:] == (2,)
    sequential = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    (spec,) = keras.tree.flatten(_backend.input_signature(sequential))
    assert tuple(spec.shape) == (None, 5)


class Asking(keras.optimizers.SGD):
    """An optimizer that asks for its model when it sees the loss."""

    found = "not asked"

    def scale_loss(self, loss):
        self.found = _backend.training_model(self)
        return super().scale_loss(loss)


def test_the_model_that_trains_is_found_from_the_optimizer():
    model = keras.Sequential([keras.layers.Dense(1)])
    optimizer = Asking(0.1)
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    assert optimizer.found is model
    other = Asking(0.1)
    other.scale_loss(ops.convert_to_tensor(1.0))
    assert other.found is None


def test_the_frame_of_fit_is_found_while_it_runs():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    found = []

    class Looks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(_backend.fitting_frame(model) is not None)
            found.append(_backend.fitting_frame(keras.Sequential()) is not None)

    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0, callbacks=[Looks()])
    assert found == [True, False]
    assert _backend.fitting_frame(model) is None


def test_a_recorded_loss_enters_the_mean_that_is_logged():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    model.evaluate(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    model.reset_metrics()
    _backend.record_loss(model, ops.convert_to_tensor(1.0), 1)
    _backend.record_loss(model, ops.convert_to_tensor(4.0), 2)
    assert float(model.metrics[0].result()) == 3.0
    assert model.metrics[0].name == "loss"


def test_each_compile_has_a_key_of_its_own():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    first = _backend.compile_key(model)
    model.fit(np.zeros((4, 2)), np.zeros((4, 1)), verbose=0)
    assert _backend.compile_key(model) is first
    model.compile("sgd", "mse", loss_weights=[2.0])
    assert _backend.compile_key(model) is not first


def test_the_compiled_losses_are_objects_with_weights():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", loss_weights=[0.5])
    assert _backend.compiled_losses(model) == []  # before Keras makes the objects
    model.evaluate(np.ones((2, 2)), np.ones((2, 1)), verbose=0)
    [(loss, weight)] = _backend.compiled_losses(model)
    values = loss.call(np.zeros((3, 1), "float32"), ops.ones((3, 1)))
    assert tuple(values.shape) == (3,) and weight == 0.5


def test_the_stored_value_is_not_that_of_a_scope():
    variable = keras.Variable(np.ones(2, "float32"))
    with keras.StatelessScope([(variable, ops.zeros(2))]):
        assert float(ops.sum(variable.value)) == 0
        stored = keras_internals.stored_value(variable)
    assert ops.convert_to_numpy(stored).sum() == 2


def test_stacked_variables_take_the_values_of_some_chains_in_a_scope_alone():
    variable = keras.Variable(np.ones((3, 2), "float32"))
    row = ops.zeros((1, 2))
    with _backend.any_number_of_rows([variable]), keras.StatelessScope() as scope:
        variable.assign(row)
        assert tuple(scope.get_current_value(variable).shape) == (1, 2)
    assert tuple(variable.shape) == (3, 2)
    with pytest.raises(ValueError, match="shape"):
        variable.assign(row)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_an_optimizer_of_keras_writes_to_a_scope(name):
    optimizer = getattr(keras.optimizers, name)(0.1)
    variable = keras.Variable(np.ones(2, "float32"))
    optimizer.build([variable])
    with (
        _backend.writable_optimizer(optimizer),
        keras.StatelessScope() as scope,
    ):
        scope.add_update((variable, ops.ones(2)))
        for slot in optimizer.variables:
            scope.add_update((slot, ops.convert_to_tensor(slot.value)))
        optimizer.apply([ops.ones(2)], [variable])
    assert np.all(
        np.asarray(ops.convert_to_numpy(scope.get_current_value(variable))) < 1
    )
    assert np.all(ops.convert_to_numpy(variable.value) == 1)
    optimizer.apply([ops.ones(2)], [variable])
    assert np.all(ops.convert_to_numpy(variable.value) < 1)


def test_a_variable_of_one_device_has_no_layout():
    assert _backend.layout_of(keras.Variable(np.ones(2))) is None


def test_the_trainer_builds_the_chains_before_their_first_step():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    chains = mh.ParallelChains(model, num_chains=2, seed=0)
    chains.compile(optimizer=mh.SGLD(1e-3, train_size=4), loss="mse", metrics=["mae"])
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    results = chains.evaluate(x, y, verbose=0)
    assert len(results) == 2
    by_name = chains.evaluate(x, y, verbose=0, return_dict=True)
    np.testing.assert_allclose(results, [by_name[n] for n in chains.log_names()])
