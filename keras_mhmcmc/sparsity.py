"""What a spike-and-slab sampler is told: its prior, and which kernels have it."""

import dataclasses
import re
from typing import Any

from keras_mhmcmc import _validate
from keras_mhmcmc.schedules import PowerDecay
from keras_mhmcmc.schedules import Schedule

LIKELIHOODS = ("categorical", "gaussian")
GROUPINGS = ("layer", "all")

_INSIDE = _validate.Interval(0.0, 1.0, low_open=True)
_STEP = _validate.Interval(0.0, 1.0, low_open=True, high_open=False)
_AT_LEAST_ONE = _validate.Interval(1.0)
_HYPERPARAMETERS = {
    "v0": _validate.POSITIVE,
    "v1": _validate.POSITIVE,
    "a": _AT_LEAST_ONE,
    "b": _AT_LEAST_ONE,
    "nu": _validate.POSITIVE,
    "lam": _validate.POSITIVE,
    "sigma": _validate.POSITIVE,
    "delta": _INSIDE,
}


@dataclasses.dataclass(frozen=True)
class Sparsity:
    """The checked arguments of a spike-and-slab prior."""

    sparse: Any
    groups: str
    likelihood: str
    step_size: Any
    v0: float
    v1: float
    a: float
    b: float
    nu: float
    lam: float
    sigma: float
    delta: float
    initial_inclusion: float | None  # None: delta


def checked_sparsity(
    *, sparse, groups, likelihood, step_size, initial_inclusion, **hyperparameters
):
    """The `Sparsity` of these arguments, or a `ValueError`."""
    if not callable(sparse):
        _check_pattern(sparse)
    _validate.choice("groups", groups, GROUPINGS)
    _validate.choice("likelihood", likelihood, LIKELIHOODS)
    if step_size is None:
        step_size = PowerDecay(0.1, 1000.0, 0.75)
    elif not isinstance(step_size, Schedule):
        hint = "A `LearningRateSchedule` that falls from at most 1 will do as well."
        step_size = _validate.number("step_size", step_size, _STEP, hint)
    checked = {
        name: _validate.number(name, hyperparameters[name], interval)
        for name, interval in _HYPERPARAMETERS.items()
    }
    if checked["v0"] >= checked["v1"]:
        raise ValueError(
            "Argument `v0`, the spike's variance, must be less than `v1`, the slab's. "
            f"Received: v0={checked['v0']!r}, v1={checked['v1']!r}"
        )
    if initial_inclusion is not None:
        initial_inclusion = _validate.number(
            "initial_inclusion", initial_inclusion, _INSIDE, "Or None, for `delta`."
        )
    return Sparsity(
        sparse,
        groups,
        likelihood,
        step_size,
        **checked,
        initial_inclusion=initial_inclusion,
    )


def are_kernels(variables, has_chains):
    """Which variables are kernels: those with two axes or more in one chain."""
    least = 3 if has_chains else 2
    return [len(variable.shape) >= least for variable in variables]


def chosen(sparse, variables, has_chains):
    """Indices of the kernels that `sparse` chooses; at least one."""
    flags = are_kernels(variables, has_chains)
    kernels = [i for i, flag in enumerate(flags) if flag]
    is_function = callable(sparse)
    found = [
        i
        for i in kernels
        if (
            sparse(variables[i])
            if is_function
            else re.search(sparse, variables[i].path) is not None
        )
    ]
    if not found:
        what = (
            "is true for no kernel" if is_function else "is found in no kernel's path"
        )
        paths = ", ".join(variables[i].path for i in kernels) or "none"
        raise ValueError(
            f"Argument `sparse` must choose a kernel, a variable with at least two "
            f"axes, and {what}. The kernels are: {paths}. Received: sparse={sparse!r}"
        )
    return found


def group_of_each(grouping, count):
    """The group of each of `count` kernels, counted from 0."""
    return tuple(range(count)) if grouping == "layer" else (0,) * count


def _check_pattern(sparse):
    try:
        re.compile(sparse)
        is_pattern = isinstance(sparse, str)
    except (re.error, TypeError):
        is_pattern = False
    if not is_pattern:
        raise ValueError(
            "Argument `sparse` must be a regular expression that is found in the paths "
            'of the sparse kernels, such as "dense/kernel", or a function of a '
            f"variable. Received: sparse={sparse!r}"
        )
