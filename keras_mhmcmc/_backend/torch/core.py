"""PyTorch: all that the package uses besides algebra, chains, loops and noise."""

import importlib.util

import torch
from keras import tree

from keras_mhmcmc._backend import plain
from keras_mhmcmc._backend.torch.host import Donated
from keras_mhmcmc._backend.torch.host import is_known

__all__ = [
    "LossObserver",
    "StepTrainer",
    "accelerated",
    "cond",
    "dense",
    "donated",
    "gradient_and_more",
    "map_members",
    "read",
    "refuse_export",
    "steps_if",
    "uncompiled",
    "write",
]


class LossObserver(plain.LossObserver):
    """The two run eagerly."""

    observe = torch.compiler.disable(plain.LossObserver.observe)


class StepTrainer(plain.StepTrainer):
    """The step makes no graph of gradients."""

    train_step = torch.no_grad()(plain.StepTrainer.train_step)


def refuse_export(format):
    """Raise a `ValueError` for a SavedModel of TensorFlow, unless Keras can make it."""
    if format == "tf_saved_model" and importlib.util.find_spec("torch_xla") is None:
        raise ValueError(
            'Argument `format` must be "torch", for a `.pt2` file: on PyTorch Keras '
            "makes no SavedModel of TensorFlow without the package `torch_xla`. Or "
            'save the ensemble with `ensemble.save("ensemble.keras")`, and in a '
            "process with KERAS_BACKEND=tensorflow load it and call `export`. "
            f"Received: format={format!r}"
        )


def read(variables):
    """Return the values of Keras variables."""
    return [variable.value.detach() for variable in variables]


def write(variables, values):
    """Assign values that were made in this step."""
    with torch.no_grad():
        for variable, x in zip(variables, values, strict=True):
            if not x.is_set_to(variable.value):
                variable.value.copy_(x)


# With the sampler's step compiled as well, `compile(..., jit_compile=True)` took 43 to
# 67 seconds on the perceptron 784-600-10, not 11 to 16. Steps of RSGLD then took 24%
# longer, since a compiled program computes both sides of each condition.
uncompiled = torch.compiler.disable


def donated(variables, values):
    """Return `values`, which a kernel may overwrite.

    They lie in the memory of `variables`. Without this the peak memory of SGLD on a CPU
    grows by the size of the weights.
    """
    write(variables, values)
    return Donated(read(variables))


def dense(gradients, variables):
    """Return gradients as ordinary tensors.

    Also remove the gradients from `variables`. Two weights may have one path, as in two
    nested models whose layers have the same names. Keras lists parameters by path: its
    `zero_grad` clears one of the two, and the next step would add to the other.
    """
    gradients = list(gradients)
    for variable in variables:
        variable.value.grad = None
    return gradients


def cond(condition, if_true, if_false):
    """Return `if_true()` if the scalar `condition` holds, else `if_false()`."""
    if is_known(condition):
        return if_true() if condition else if_false()
    return torch.where(condition, if_true(), if_false())


def steps_if(condition, step, variables):
    """Run `step()`, which assigns `variables`, if `condition` holds.

    On a GPU, do nothing and return False: a branch would have to wait for the
    condition.
    """
    if not is_known(condition):
        return False
    if condition:
        step()
    return True


def gradient_and_more(function):
    """Return a function that gives a gradient and further results."""

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value, more = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return gradient, tree.map_structure(lambda y: y.detach(), more)

    return evaluate


def map_members(function, stacked, chunk):
    """Return `function(member)` of each slice of `stacked`, stacked.

    One slice at a time, whatever `chunk` is: `torch.func.vmap` is slower on a CPU.
    """
    outputs = [
        function([tensor[i] for tensor in stacked]) for i in range(len(stacked[0]))
    ]
    return tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


accelerated = torch.cuda.is_available
