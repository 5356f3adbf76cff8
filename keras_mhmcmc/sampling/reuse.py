"""Densities that keep the compiled loops of `sample` from one call to the next."""

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from typing import Any

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor

_LARGEST = 8  # loops that a density keeps; the one that was used last stays longest


class ReusableDensity:
    """A user's function, and the loops of `sample` that were compiled with it."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self._function = function
        self._loops: collections.OrderedDict[Hashable, Callable[..., Any]]
        self._loops = collections.OrderedDict()

    def __call__(self, *arguments: Any) -> Tensor:
        return self._function(*arguments)

    def loop(
        self, key: Hashable, build: Callable[[], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Return the loop with this key, built now if there is none."""
        if key not in self._loops:
            self._loops[key] = build()
            if len(self._loops) > _LARGEST:
                self._loops.popitem(last=False)
        self._loops.move_to_end(key)
        return self._loops[key]


def log_density(function: Callable[..., Tensor]) -> ReusableDensity:
    """Return a density with which `mh.sample` compiles its loop only once.

    `mh.sample` compiles its loop at each call, because a function may read variables
    that have changed. With this wrapper you promise that the function reads none. Later
    calls with the same wrapped functions begin at once, if these are the same as well:
    the kernel, the shapes of the data and of the position, `batch_size`, `replacement`,
    and the number of chains. PyTorch compiles only with `jit_compile=True`. The wrapper
    keeps the last eight loops, and for each loop the data of the call that compiled it.
    Delete the wrapper to free them.

    Args:
        function: a log density, log-likelihood or log prior, as in `mh.sample`. Its
            value must depend on its arguments alone: a compiled loop sees no later
            change of anything else, nor of a schedule of the kernel.

    Returns:
        A function with the same values, for `mh.sample`. The loop is kept only if all
        functions of a call are wrapped.

    Raises:
        ValueError: the argument is not a function.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> normal = mh.log_density(lambda x: -0.5 * ops.sum(ops.square(x)))
    >>> for seed in range(3):
    ...     draws = mh.sample(
    ...         mh.kernels.sgld(0.1),
    ...         [0.0, 0.0],
    ...         log_density=normal,
    ...         num_steps=100,
    ...         seed=seed,
    ...         progress=False,
    ...     )
    """
    if not callable(function):
        raise ValueError(
            "Argument `function` must be a function. "
            f"Received: function={_validate.shown(function)}"
        )
    return ReusableDensity(function)


def compile_chains(
    functions: Sequence[Callable[..., Tensor] | None],
    key: tuple[Hashable, ...],
    step: Any,
    noise: Any,
    records: Any,
    capacity: int,
    fuse: bool,
) -> Callable[..., Any]:
    """Return the compiled loop of a call of `sample`, perhaps of an earlier one."""

    def build() -> Callable[..., Any]:
        return _backend.compile_chains(step, noise, records, capacity, fuse)

    given = [function for function in functions if function is not None]
    key = (*key, *given, capacity, fuse)
    reusable = [f for f in given if isinstance(f, ReusableDensity)]
    try:
        hash(key)
    except TypeError:  # a schedule such as a plain dataclass, whose values may change
        return build()
    return reusable[0].loop(key, build) if len(reusable) == len(given) else build()
