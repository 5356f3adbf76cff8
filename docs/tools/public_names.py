"""The names that the API pages must have."""

import inspect

import keras_mhmcmc as mh


def public_names():
    """`keras_mhmcmc.SGLD`, ...: names of the package and of its public modules.

    Of a module these are what it lists in `__all__` or, where it lists nothing, the
    public classes and functions that it defines.
    """
    for name in mh.__all__:
        value = getattr(mh, name)
        yield f"keras_mhmcmc.{name}"
        if inspect.ismodule(value):
            for inner in _members(value):
                yield f"keras_mhmcmc.{name}.{inner}"


def _members(module):
    if hasattr(module, "__all__"):
        return module.__all__
    return [
        name
        for name, part in vars(module).items()
        if not name.startswith("_")
        and getattr(part, "__module__", None) == module.__name__
    ]
