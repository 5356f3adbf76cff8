"""PyTorch: everything the package needs that differs between frameworks."""

import importlib.util

import torch
from keras import tree

from keras_mhmcmc._backend.torch.host import Donated
from keras_mhmcmc._backend.torch.host import is_known

__all__ = [
    "LossObserver",
    "accelerated",
    "compile_function",
    "compiled_update",
    "cond",
    "default_chunk",
    "dense",
    "donated",
    "gradient_and_more",
    "hold_values",
    "map_members",
    "read",
    "refuse_export",
    "refuse_replicas",
    "steps_if",
    "uncompiled",
    "value_and_gradient",
    "write",
    "write_copies",
]


class LossObserver:
    """Hands the training loss from `scale_loss` to `apply`: eager, so as it is."""

    def __init__(self):
        self._loss = None

    @torch.compiler.disable
    def observe(self, loss):
        """Returns `loss` unchanged, and keeps its value for `take`."""
        self._loss = loss.detach()
        return loss

    def keep(self, loss):
        """Keeps a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self):
        """The loss of this step, or None; a loss is handed out once."""
        loss, self._loss = self._loss, None
        return loss


def refuse_replicas():
    """Raises in a process group, whose gradient may be that of all processes.

    Of `DistributedDataParallel`, which averages the gradient and not the loss, nothing
    shows when an optimizer is built, so that independent chains are refused as well.
    """
    group = torch.distributed
    if not group.is_available() or not group.is_initialized():
        return
    count = group.get_world_size()
    if count > 1:
        raise ValueError(
            "A sampler moves the chain of one process. Where processes share their "
            "gradients, as in `DistributedDataParallel`, each would add noise of its "
            "own and decide by its own loss. For independent chains start the "
            "processes without `torch.distributed.init_process_group`, each with a "
            "seed and a `directory` of its own for `mh.PosteriorSamples`. "
            f"Received: a process group of {count} processes."
        )


def refuse_export(format):
    """Raises for a SavedModel of TensorFlow, unless Keras can make it."""
    if format == "tf_saved_model" and importlib.util.find_spec("torch_xla") is None:
        raise ValueError(
            'Argument `format` must be "torch", for a `.pt2` file: on PyTorch Keras '
            "makes no SavedModel of TensorFlow without the package `torch_xla`. Or "
            'save the ensemble with `ensemble.save("ensemble.keras")`, and in a '
            "process with KERAS_BACKEND=tensorflow load it and call `export`. "
            f"Received: format={format!r}"
        )


def hold_values(variables):
    """Whether the variables can be read: torch's always can."""
    return True


def read(variables):
    """The values of Keras variables."""
    return [variable.value.detach() for variable in variables]


def write(variables, values):
    """Assigns values made in this step."""
    pairs = []
    with torch.no_grad():
        for variable, x in zip(variables, values, strict=True):
            old = variable.value
            if not x.is_set_to(old):
                pairs.append((old, x))
        if pairs:
            torch._foreach_copy_(*zip(*pairs, strict=True))


def uncompiled(function):
    """Return `function` left out of what `torch.compile` compiles.

    With it, `compile(..., jit_compile=True)` on the perceptron 784-600-10 took 11 to 16
    seconds, and 43 to 67 without it; and then steps of SGLD took 4% longer and those of
    RSGLD 24%, since a compiled program computes both sides of each condition.
    """
    return torch.compiler.disable(function)


def donated(variables, values):
    """`values`, for a kernel to overwrite in the memory of `variables`.

    Fresh memory for a result costs more than the arithmetic, on a CPU.
    """
    write(variables, values)
    return Donated(read(variables))


def write_copies(variables, sources):
    """Assigns copies."""
    write(variables, read(sources))


def dense(gradients, variables):
    """Gradients as ordinary tensors, which the variables hold no more.

    Keras lists the parameters of a model by path. Two weights with one path, as in two
    nested models whose layers have the same names, are one entry there: `zero_grad`
    leaves the gradient of the other, and the next step would add to it.
    """
    gradients = list(gradients)
    for variable in variables:
        variable.value.grad = None
    return gradients


def cond(condition, if_true, if_false):
    """`if_true()` where the scalar `condition` holds, else `if_false()`."""
    if is_known(condition):
        return if_true() if condition else if_false()
    return torch.where(condition, if_true(), if_false())


def steps_if(condition, step, variables):
    """Runs `step()`, which assigns `variables`, where `condition` holds.

    Returns False where it cannot branch, and has done nothing: on a GPU it would have
    to wait for the condition.
    """
    if not is_known(condition):
        return False
    if condition:
        step()
    return True


def compiled_update(update, variables):
    """`update(gradient, loss, rate)` as it is: nothing is compiled."""
    return update


def compile_function(function):
    """`function` of tensors; PyTorch runs it as it stands."""
    return function


def value_and_gradient(function):
    """(value, gradient) of a scalar function with respect to its first argument."""

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return value.detach(), gradient

    return evaluate


def gradient_and_more(function):
    """(gradient, more) of a function of (scalar, more), in its first argument."""

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value, more = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return gradient, tree.map_structure(lambda y: y.detach(), more)

    return evaluate


def map_members(function, stacked, chunk):
    """`function(member)` for each slice of `stacked`, stacked.

    A loop: `torch.func.vmap` fails on Keras' convolutions, and on a CPU it is slower.
    """
    outputs = [
        function([tensor[i] for tensor in stacked]) for i in range(len(stacked[0]))
    ]
    return tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


def accelerated():
    """Whether the computation runs on something faster than a CPU."""
    return torch.cuda.is_available()


def default_chunk(count):
    """How many members to evaluate side by side; the loop takes them one by one."""
    return 1
