"""`sample`: chains on any density, as one vectorised and compiled program."""

import functools
from collections.abc import Callable
from typing import Any
from typing import TypeVar

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers.base import Kernel
from keras_mhmcmc.sampling import loop
from keras_mhmcmc.sampling import reuse
from keras_mhmcmc.sampling import starts
from keras_mhmcmc.sampling.control_variates import ControlVariates
from keras_mhmcmc.sampling.draws import Draws
from keras_mhmcmc.sampling.log_density import LogDensity

Bound = TypeVar("Bound", bound=Kernel)
_WAYS: tuple[bool | str, ...] = ("auto", True, False)


@loop.in_float32()
def sample(
    kernel: Kernel,
    init: Any,
    *,
    log_likelihood: Callable[..., Tensor] | None = None,
    data: Any = None,
    batch_size: int | None = None,
    log_prior: Callable[..., Tensor] | None = None,
    log_density: Callable[..., Tensor] | None = None,
    num_steps: int,
    num_chains: int = 1,
    burn_in: int = 0,
    every: int = 1,
    seed: int = 0,
    replacement: bool = False,
    control_variates: Any = None,
    progress: bool = True,
    jit_compile: bool | str = "auto",
) -> Draws:
    """Run many chains of a kernel on any density.

    The chains sample exp(-U/T), as the kernel's documentation says. The energy U in
    nats is -log density, or -(sum of log-likelihoods + log prior) over all of the data.
    All chains run as one vectorised program, and each draws its own mini-batches. With
    `data`, JAX and XLA on TensorFlow spread the chains over the cores of a processor. A
    draw is a position that a step has evaluated, with its energy, the first at `init`.

    Args:
        kernel: from a function of `mh.kernels`, such as `mh.kernels.sgld(0.1)`.
        init: a tensor, or a dict or tuple of tensors: one position for all chains, or
            tensors with a first axis of length `num_chains`. Or the `state` of earlier
            draws: the chains go on bit for bit, with its number of chains and seed.
        log_likelihood: function of (position, batch) of one chain, written with
            `keras.ops`. It returns the log-likelihood of each example in nats, shape
            (batch_size,). `batch` has the structure of `data`.
        data: array, or tuple or dict of arrays, with one row for each example.
        batch_size: examples in a mini-batch, m. Defaults to all of the data.
        log_prior: function of a position that returns the log prior, shape (). None is
            a flat prior.
        log_density: function of a position, instead of `log_likelihood` and `data`. It
            returns the log density up to a constant, shape ().
        num_steps: steps of each chain, at least `burn_in` + `every`.
        num_chains: number of chains, K. Defaults to 1.
        burn_in: number of first steps that are not kept. Defaults to 0.
        every: keep each `every`-th step after the burn-in (thinning). Defaults to 1.
        seed: integer in [0, 2**31) that makes the run repeatable. Defaults to 0.
        replacement: whether a mini-batch may hold an example twice. Defaults to False.
        control_variates: a position of one chain near the mode. The gradients of all of
            the data there reduce the noise of mini-batches, whose gradients stay
            unbiased. Only for `sgld`, `psgld`, `sghmc` and `sgnht` with mini-batches.
            None uses plain gradients.
        progress: whether to show a bar.
        jit_compile: on PyTorch True compiles the step, which takes seconds; not for
            kernels that draw noise within a step, such as `tuna` and `hmc`. On
            TensorFlow True and False switch XLA on and off, and "auto" uses it where it
            is faster. JAX refuses False. Defaults to "auto".

    Returns:
        `Draws`, with `position`, `weights`, `info`, `state` and `to_arviz()`. After
        Ctrl-C it has the draws so far, and a warning says so.

    Raises:
        ValueError: an argument is outside its range; a function returns a wrong shape;
            the density at `init` is not finite, or so large that float32 loses the
            differences that the kernel decides on. Raised before the first step.
        RuntimeError: `jit_compile` is True, and PyTorch cannot compile, for instance
            without a C++ compiler.

    Example:

    >>> import keras_mhmcmc as mh
    >>> from keras import ops
    >>> draws = mh.sample(
    ...     mh.kernels.mhbt(2.0),
    ...     [0.0, 0.0],
    ...     log_density=lambda x: -0.5 * ops.sum(ops.square(x)),
    ...     num_steps=600,
    ...     num_chains=20,
    ...     burn_in=100,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (20, 500, 2)

    Reference: Wu, Wang and Wong (2020), section 3.1; Li and Wong (2017), algorithm 1.
    Control variates: Baker, Fearnhead, Fox and Nemeth (2019), "Control variates for
    stochastic gradient MCMC".
    """
    _validate.instance(
        "kernel",
        kernel,
        Kernel,
        "built by `mh.kernels`, such as mh.kernels.sgld(0.1)",
    )
    plan = loop.checked_plan(num_steps, burn_in, every)
    _validate.choice("progress", progress, (True, False))
    jit_compile = _validate.choice("jit_compile", jit_compile, _WAYS)
    functions = log_density, log_likelihood, log_prior
    target = LogDensity(*functions, data, batch_size, replacement)
    given, kernel = kernel, bound_to_data(kernel, target, batch_size)
    start = starts.begin(init, num_chains, seed, target.check)
    reference = None
    if control_variates is not None:
        reference = ControlVariates(control_variates, kernel, target, start)
    plan.check_warm_up(kernel.traits, start.number)
    program = loop.Program(kernel, target, start, reference)
    # What a compiled loop depends on, besides the functions of the user.
    shapes = repr(program.structure), *start.shapes, *target.signature
    run = program.run(
        plan,
        starts.kernel_of(program.kernel),
        progress,
        jit_compile=jit_compile,
        compile_chains=functools.partial(
            reuse.compile_chains, functions, (given, *shapes, reference is None)
        ),
    )
    return run.draws()


def bound_to_data(kernel: Bound, target: LogDensity, batch_size: int | None) -> Bound:
    traits = kernel.traits
    if traits.needs_examples and not target.has_data:
        raise ValueError(
            "Argument `log_likelihood` must be given, with `data`: the kernel compares "
            "single examples. Received: `log_density`"
        )
    if traits.draws_data and target.replacement:
        raise ValueError(
            "Argument `replacement` must be False: the kernel says itself how it draws "
            "its mini-batches. Received: replacement=True"
        )
    if traits.needs_batches and not target.draws_batches:
        raise ValueError(
            "Argument `batch_size` must be smaller than the number of examples: the "
            "kernel takes its noise from mini-batches. With all data use "
            f"`mh.kernels.mclmc`. Received: batch_size={batch_size}"
        )
    if traits.learns_noise and (target.has_prior or not target.has_data):
        received = "`log_prior`" if target.has_prior else "`log_density`"
        raise ValueError(
            'A kernel with likelihood="gaussian" must have `log_likelihood` and '
            "`data` alone, from which it learns the noise. Leave out `log_prior`, "
            'or take likelihood="categorical" with the noise as a part of the '
            f"position. Received: {received}"
        )
    if not target.has_data:
        return kernel.bind_data_size(None, batch_size if traits.draws_data else None)
    size = batch_size if traits.draws_data else target.batch_size
    return kernel.bind_data_size(target.train_size, size)
