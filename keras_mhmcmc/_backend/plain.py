"""What a backend does where its folder has no function of the same name.

There the framework does the rest: it compiles whole steps, decides what is overwritten,
and sums over devices.
"""

import contextlib

from keras import ops

from keras_mhmcmc._backend.keras_internals import BuiltBeforeSteps
from keras_mhmcmc._backend.keras_internals import in_stateless_scope

SEED_DTYPE = "int64"
# The number of weights above which "auto" loops over chains on a CPU. This is a guess:
# one pass over all chains was still faster at 79,000 weights.
LOOP_ABOVE = 100_000


def count_loop_cores(fuse):
    """Return over how many cores `mh.sample` spreads its chains.

    XLA runs a loop on one core. PyTorch spreads its operations itself. `fuse` is the
    result of `compiles`.
    """
    return 1


# Variables and steps.


def is_eager():
    """Return whether new variables would have values of their own, as in no trace."""
    return not in_stateless_scope()


class LossObserver:
    """The loss of a step, from `scale_loss`, where it is known, to `apply`."""

    def __init__(self):
        self._loss = None

    def observe(self, loss):
        """Return `loss` unchanged, and keep its value for `take`."""
        self._loss = ops.stop_gradient(loss)
        return loss

    def keep(self, loss):
        """Keep a value of the loss that is not part of a differentiated function."""
        self._loss = loss

    def take(self, gradients):
        """Return the loss of the step with these gradients, or None, and forget it."""
        loss, self._loss = self._loss, None
        return loss


class DataTrainer(BuiltBeforeSteps):
    """The step function that Keras' trainer calls, on what `change_data` returns."""

    def train_step(self, data):
        return super().train_step(self.change_data(data))


class StepTrainer(BuiltBeforeSteps):
    """The step function that Keras' trainer calls, of a step without a gradient."""

    def train_step(self, data):
        return self.own_step(data)


def hold_values(variables):
    """Return whether the variables can be read: not after a failed step on JAX."""
    return True


def write(variables, values):
    """Assign values that were made in this step."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def write_copies(variables, sources):
    """Assign copies, since on JAX the next step would donate a shared buffer twice."""
    write(variables, [ops.copy(source.value) for source in sources])


def donated(variables, values):
    """Return `values`, which a kernel may overwrite. `variables` get them later."""
    return list(values)


def dense(gradients, variables):
    """Return gradients as ordinary tensors."""
    return list(gradients)


def with_examples(step, has_chains):
    """Run `step()`, which assigns variables, unless the mini-batch is empty."""
    step()


def steps_if(condition, step):
    """Run `step()` if `condition` holds, and return True; or leave that to the caller.

    In a compiled step it costs nothing to select between old and new values.
    """
    return False


def uncompiled(function):
    """Return `function` such that a compiled step of Keras may leave it out."""
    return function


def compiled_update(update, variables):
    """Return `update(gradient, loss, rate)`, compiled if Keras does not and it pays."""
    return update


def compile_function(function):
    """Return `function`, a function of tensors, compiled if the backend compiles."""
    return function


def with_arrays(function):
    """Return a user's `function` such that its constants may be numpy arrays."""
    return function


def can_compile():
    """Return whether `jit_compile=True` of `mh.sample` can make a long loop faster."""
    return False


def refuse_export(format):
    """Raise a `ValueError` for a format to which Keras cannot export."""


# Arithmetic. XLA fuses it.


def add_terms(xs, *terms):
    """Return x + a y + b z + ... for lists of tensors and terms (a, ys), (b, zs)."""
    for a, ys in terms:
        xs = [x + ops.cast(a, x.dtype) * y for x, y in zip(xs, ys, strict=True)]
    return xs


def affine(x, slope, constant):
    return slope * x + constant


def add_product(x, y, z):
    return x + y * z


def between(x, y, share):
    return x + share * (y - x)


def wrapped_product(x, factor, constant=0):
    """Return factor x + constant of int32 tensors, modulo 2^32."""
    return x * factor + constant


def constant(values, dtype, like):
    """Return numbers as a tensor on the device of `like`, to which nobody writes."""
    return ops.convert_to_tensor(list(values), dtype)


def select(condition, xs, ys):
    """Return xs if the scalar `condition` holds, else ys."""
    return [ops.where(condition, x, y) for x, y in zip(xs, ys, strict=True)]


def all_finite(xs):
    return ops.all(ops.stack([ops.all(ops.isfinite(x)) for x in xs]))


# Many chains.


def place_chains(variables, num_chains):
    """Spread the leading axis of variables over the devices, if there are several."""


def writable_optimizer(optimizer):
    """Return a scope in which `optimizer` obeys `keras.StatelessScope`."""
    return contextlib.nullcontext()


# One chain on several devices, in one process or in several.


def refuse_strategy(variables):
    """Raise a `ValueError` for devices or processes that do not make one chain."""


def independent_processes():
    """Let samplers that are made inside have a chain of their own in each process."""
    return contextlib.nullcontext()


def shares_chains():
    """Return whether a sampler that is made now has one chain in all processes."""
    return True


def count_processes():
    """Return the number of processes whose mini-batches are parts of one batch."""
    return 1


def check_processes(gradients, variables, seeds):
    """Raise a `ValueError` if gradients or variables of the processes differ.

    `seeds`, a variable or None, gets the value of the first process.
    """


def over_replicas(gradients, loss, changes):
    """Return the gradients and the loss of the whole batch, from those of a part.

    `changes` tells how often the chain was settled, or the like, since the last step. A
    `ValueError` tells if another process has another number.
    """
    return gradients, loss


def on_each_replica(update, weights):
    """Return `update(gradient, loss, rate)`, which updates the copies of `weights`."""
    return update


def is_spread(variable):
    """Return whether a variable lies on devices of several processes."""
    return False


def is_first_process():
    """Return whether this is the process that writes files."""
    return True


def host_value(value):
    """Return a tensor or variable as a numpy array, from the parts of all processes."""
    # TensorFlow 2.21 with NumPy 2.4 has no array of one bfloat16 number alone.
    return ops.convert_to_numpy(ops.expand_dims(value, 0))[0, ...]


def of_processes(number):
    """Return an integer from 0 to 2**32 - 1 of each process. Wait for all of them."""
    return [number]


def from_first_process(text):
    """Return the text of the first process. Wait for all processes."""
    return text
