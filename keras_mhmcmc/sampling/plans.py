"""How long `mh.sample` and its like run and what they keep, checked."""

import functools
from collections.abc import Callable
from typing import ParamSpec
from typing import TypeVar

import keras

from keras_mhmcmc import _validate
from keras_mhmcmc.sampling import loop

P = ParamSpec("P")
R = TypeVar("R")


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` with float32 as the float of Keras, in which chains run."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        own = keras.config.floatx()
        keras.config.set_floatx("float32")
        try:
            return function(*args, **kwargs)
        finally:
            keras.config.set_floatx(own)

    return run


def check_warm_up(
    argument: tuple[str, int], start: int, plan: loop.Plan, steps: int | None = None
) -> None:
    """Refuse a burn-in that is shorter than the warm-up of the kernel.

    Args:
        argument: name and value of what sets the warm-up.
        start: steps that were made before.
        plan: of the run.
        steps: of the warm-up. None: the value of the argument.
    """
    name, count = argument
    least = (count if steps is None else steps) - start
    if plan.burn_in < least:
        raise ValueError(
            f"Argument `burn_in` must be at least {least}, since the first {count} "
            "steps of the kernel are its warm-up. Raise it, or make the kernel with a "
            f"smaller `{name}`. Received: burn_in={plan.burn_in}, {name}={count}"
        )


def checked_plan(num_steps: int, burn_in: int, every: int) -> loop.Plan:
    """Return how long to run and what to keep, or raise a `ValueError`."""
    num_steps = _validate.integer("num_steps", num_steps, 1)
    burn_in = _validate.integer("burn_in", burn_in, 0)
    every = _validate.integer("every", every, 1)
    plan = loop.Plan(num_steps, burn_in, every)
    if plan.num_draws < 1:
        raise ValueError(
            "Argument `num_steps` must be at least `burn_in` + `every`, so that a draw "
            f"is kept. Received: num_steps={num_steps}, burn_in={burn_in}, "
            f"every={every}"
        )
    return plan
