"""PyTorch: all that the package uses besides algebra, chains, loops and noise."""

import importlib.util

import torch
from keras import tree

from keras_mhmcmc._backend import loss_observer
from keras_mhmcmc._backend.keras_internals import BuiltBeforeSteps
from keras_mhmcmc._backend.running_fit import noted_weights
from keras_mhmcmc._backend.torch.host import Donated
from keras_mhmcmc._backend.torch.host import is_known

__all__ = [
    "DataTrainer",
    "LossObserver",
    "StepTrainer",
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
    "noted_weights",
    "read",
    "refuse_export",
    "repeats_shuffles",
    "steps_if",
    "uncompiled",
    "value_and_gradient",
    "with_examples",
    "write",
    "write_copies",
]


class LossObserver(loss_observer.LossObserver):
    """A carrier of the training loss from `scale_loss` to `apply`.

    The two run eagerly, so the loss is kept as it is.
    """

    @torch.compiler.disable
    def observe(self, loss):
        self._loss = loss.detach()
        return loss


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


def hold_values(variables):
    """Return whether the variables can be read.

    On PyTorch they always can.
    """
    return True


def read(variables):
    """Return the values of Keras variables."""
    return [variable.value.detach() for variable in variables]


def write(variables, values):
    """Assign values that were made in this step."""
    pairs = []
    with torch.no_grad():
        for variable, x in zip(variables, values, strict=True):
            old = variable.value
            if not x.is_set_to(old):
                pairs.append((old, x))
        if pairs:
            torch._foreach_copy_(*zip(*pairs, strict=True))


def with_examples(step, has_chains):
    """Run `step()`: each mini-batch has examples."""
    step()


def uncompiled(function):
    """Return `function` such that `torch.compile` leaves it out.

    With the sampler's step left out, `compile(..., jit_compile=True)` took 11 to 16
    seconds on the perceptron 784-600-10. With the step compiled as well it took 43 to
    67 seconds. Steps of SGLD then took 4% longer and steps of RSGLD 24%, since a
    compiled program computes both sides of each condition.
    """
    return torch.compiler.disable(function)


def donated(variables, values):
    """Return `values`, which a kernel may overwrite.

    They lie in the memory of `variables`. On a CPU, fresh memory for a result costs
    more than the arithmetic.
    """
    write(variables, values)
    return Donated(read(variables))


def write_copies(variables, sources):
    """Assign copies of the values of `sources`."""
    write(variables, read(sources))


def dense(gradients, variables):
    """Return gradients as ordinary tensors.

    Also remove the gradients from `variables`. Keras lists the parameters of a model by
    path. Two weights may have one path, as in two nested models whose layers have the
    same names. The list then has only one of the two. `zero_grad` does not clear the
    gradient of the other, and the next step would add to this gradient.
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


def compiled_update(update, variables):
    """Return `update(gradient, loss, rate)` as it is: nothing is compiled."""
    return update


def repeats_shuffles():
    """Return whether `fit` shuffles arrays into the same order in each epoch.

    On PyTorch it never does.
    """
    return False


def compile_function(function):
    """Return `function`, a function of tensors, as it is: nothing is compiled."""
    return function


def value_and_gradient(function):
    """Return a function that gives the value and the gradient of a scalar function.

    The gradient is with respect to the first argument.
    """

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return value.detach(), gradient

    return evaluate


def gradient_and_more(function):
    """Return a function that gives a gradient and further results.

    `function` returns (scalar, more). The new function returns (gradient, more). The
    gradient of the scalar is with respect to the first argument.
    """

    def evaluate(x, *arguments):
        x = x.detach().requires_grad_(True)
        value, more = function(x, *arguments)
        (gradient,) = torch.autograd.grad(value, x)
        return gradient, tree.map_structure(lambda y: y.detach(), more)

    return evaluate


def map_members(function, stacked, chunk):
    """Return `function(member)` of each slice of `stacked`, stacked.

    A loop evaluates one slice at a time, whatever `chunk` is. `torch.func.vmap` is
    slower on a CPU.
    """
    outputs = [
        function([tensor[i] for tensor in stacked]) for i in range(len(stacked[0]))
    ]
    return tree.map_structure(lambda *ys: torch.stack(ys), *outputs)


def accelerated():
    """Return whether the computation runs on something faster than a CPU."""
    return torch.cuda.is_available()


def default_chunk(count):
    """Return how many members to evaluate side by side.

    The loop of `map_members` evaluates them one by one.
    """
    return 1


class DataTrainer(BuiltBeforeSteps):
    """The step function that Keras' trainer calls, on what `change_data` returns."""

    def train_step(self, data):
        """Train by one step on changed data."""
        return super().train_step(self.change_data(data))


class StepTrainer(BuiltBeforeSteps):
    """The step function that Keras' trainer calls, of a step without a gradient."""

    def train_step(self, data):
        """Run `own_step(data)`, which assigns variables and returns the logs."""
        with torch.no_grad():
            return self.own_step(data)
