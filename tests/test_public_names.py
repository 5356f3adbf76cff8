"""What tab completion offers: documented names only, with the defaults they have."""

import ast
import inspect
import re

import keras
import pytest

import keras_mhmcmc as mh

VALUES = {name: getattr(mh, name) for name in mh.__all__}
MODULES = {"mh": mh} | {n: part for n, part in VALUES.items() if inspect.ismodule(part)}


def public_names(module):
    return [name for name in dir(module) if not name.startswith("_")]


@pytest.mark.parametrize("name", MODULES)
def test_completion_offers_the_listed_names(name):
    module = MODULES[name]
    assert module.__all__ == sorted(module.__all__)
    assert public_names(module) == module.__all__


@pytest.mark.parametrize("name", MODULES)
def test_a_listed_name_has_a_docstring(name):
    for listed in MODULES[name].__all__:
        assert getattr(MODULES[name], listed).__doc__, listed


@pytest.mark.parametrize("name", MODULES)
def test_what_a_public_module_registers_with_keras_is_listed(name):
    """A new prior, schedule or loss is not forgotten."""
    module = MODULES[name]
    for part in vars(module).values():
        if inspect.isclass(part) and part.__module__ == module.__name__:
            is_registered = ">" in keras.saving.get_registered_name(part)
            assert part.__name__ in module.__all__ or not is_registered


def documented_defaults(value):
    """(argument, default in its docstring) of the arguments whose default is named."""
    text = inspect.getdoc(value).partition("\nArgs:\n")[2]
    text = re.split(r"\n\w+:\n", text)[0]
    for entry in re.split(r"\n(?=    \w)", "\n" + text):
        literal = r"None|True|False|\d[\d.e-]*\d|\d|\"[^\"]*\"|\([^)]*\)"
        pattern = rf"    (\w+):.*Defaults\s+to\s+({literal})[.:;,]"
        found = re.match(pattern, entry, re.DOTALL)
        if found:
            yield found[1], ast.literal_eval(found[2])


CALLABLES = {
    f"{home}.{name}": getattr(module, name)
    for home, module in MODULES.items()
    for name in module.__all__
    if callable(getattr(module, name))
}


@pytest.mark.parametrize("name", CALLABLES)
def test_a_docstring_names_the_defaults_of_the_signature(name):
    parameters = inspect.signature(CALLABLES[name]).parameters
    for argument, default in documented_defaults(CALLABLES[name]):
        assert parameters[argument].default == default, argument


def test_the_defaults_in_a_docstring_are_found():
    def function(x, size=1, clip=(0.0, 1.0), kind="a"):
        """Do something.

        Args:
            x: number. It has no default.
            size: number of things, at least 1. Defaults
                to 2: it is wrong.
            clip: limits. Defaults to (0, 1); None sets none.
            kind: letter. Defaults to "a".

        Returns:
            Nothing. Defaults to 3.
        """

    found = dict(documented_defaults(function))
    assert found == {"size": 2, "clip": (0, 1), "kind": "a"}
