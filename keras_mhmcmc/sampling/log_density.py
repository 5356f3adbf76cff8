"""The law that `mh.sample` draws from: checked functions, and their energy in nats."""

import keras
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc import _validate
from keras_mhmcmc.algorithms import batches
from keras_mhmcmc.algorithms import replica_exchange

tree = keras.tree


class LogDensity:
    """U(theta) of many chains at once, from what the user gave.

    The energy of one chain on a mini-batch I is -(N/m sum_I log p(x_i|theta) + log
    prior), or minus the log density. Positions are lists of tensors here, the leaves of
    the user's structure.
    """

    def __init__(
        self,
        *,
        log_density=None,
        log_likelihood=None,
        log_prior=None,
        data=None,
        batch_size=None,
        replacement=False,
    ):
        _check_functions(log_density, log_likelihood, log_prior, data, batch_size)
        functions = {
            "log_density": log_density,
            "log_likelihood": log_likelihood,
            "log_prior": log_prior,
        }
        self._functions = {
            name: _backend.with_arrays(function)
            for name, function in functions.items()
            if function is not None
        }
        self.called = None  # the name of the function that is being evaluated
        self.constants = []  # the data's arrays, as tensors
        self.train_size = None  # None: no data
        self.batch_size = None
        self.replacement = _validate.choice("replacement", replacement, (True, False))
        if data is not None:
            self._data = data
            arrays = _checked_arrays(data)
            self.train_size = len(arrays[0])
            size = self.train_size if batch_size is None else batch_size
            size = _validate.integer("batch_size", size, 1)
            if size > self.train_size:
                raise ValueError(
                    "Argument `batch_size` must be at most the number of examples in "
                    f"`data`. Received: batch_size={size}, and data with "
                    f"{self.train_size} examples"
                )
            self.batch_size = size
            self.constants = [ops.convert_to_tensor(array) for array in arrays]

    @property
    def function_name(self):
        """The argument that gives the energy."""
        return next(iter(self._functions))

    @property
    def draws_batches(self):
        """Whether a step draws mini-batches: not when a batch is all of the data."""
        return self.batch_size is not None and self.batch_size < self.train_size

    @property
    def num_uniforms(self):
        """Uniform draws of one chain that a step's mini-batch is made of."""
        return batches.num_rounds(self.train_size) if self.draws_batches else 0

    def batch_indices(self, uniforms, batch_size=None):
        """Mini-batches of all chains from uniforms (num_uniforms, K): a list, (K, m).

        The list is empty where a batch is all of the data.
        """
        if not self.draws_batches:
            return []
        size = self.batch_size if batch_size is None else batch_size
        return [batches.draw_batches(uniforms, self.train_size, size, self.replacement)]

    def energies(self, structure, constants, differentiate, variance=False):
        """A function of (positions with a chain axis, batch indices).

        It gives U, shape (K,), in nats, and the gradients of U/N, or an empty list; and
        with `variance` that of U's estimate, in nats^2, shape (K,).
        """
        scale = 1.0 / (self.train_size or 1)

        def mean_energy(position, indices, constants):
            position = tree.pack_sequence_as(structure, position)
            if not variance:
                return scale * self._energy(position, indices, constants)
            each = self.log_likelihoods(position, indices, constants)
            energy = self._energy(position, indices, constants, each)
            spread = replica_exchange.energy_variance(
                each, self.train_size, self.replacement
            )
            return scale * energy, [spread]

        evaluate = _backend.map_chains(mean_energy, constants, differentiate, variance)

        def energies(position, indices):
            values, gradient, *others = evaluate(position, indices)
            return values / scale, gradient, *sum(others, [])

        return energies

    def log_likelihoods(self, position, indices, constants):
        """One chain's log-likelihood of each example of a batch, float32."""
        arrays = constants
        if indices:
            arrays = _backend.gather(constants, indices[0])
        batch = tree.pack_sequence_as(self._data, arrays)
        return ops.cast(self._call("log_likelihood", position, batch), "float32")

    def log_prior(self, position):
        """One chain's log prior, float32."""
        if "log_prior" not in self._functions:
            return 0.0
        return ops.cast(self._call("log_prior", position), "float32")

    def _energy(self, position, indices, constants, each=None):
        if "log_density" in self._functions:
            return -ops.cast(self._call("log_density", position), "float32")
        if each is None:
            each = self.log_likelihoods(position, indices, constants)
        return -self.train_size * ops.mean(each) - self.log_prior(position)

    def _call(self, name, *arguments):
        self.called = name
        value = self._functions[name](*arguments)
        self.called = None
        return value

    def _checked_call(self, name, *arguments):
        try:
            return self._call(name, *arguments)
        except Exception as error:
            error.add_note(
                f"Argument `{name}` raised this at the position of one chain. "
                "Positions are float32 tensors; write the function with `keras.ops`, "
                "where constants may be numbers, and arrays or tensors of dtype "
                "float32."
            )
            raise

    def check(self, position):
        """Raises unless the functions give the right shapes at one chain's position."""
        if "log_density" in self._functions:
            value = self._checked_call("log_density", position)
            _check_shape(
                "log_density", value, (), position, "one number, the log density"
            )
            return
        arrays = [array[: self.batch_size] for array in self.constants]
        batch = tree.pack_sequence_as(self._data, arrays)
        value = self._checked_call("log_likelihood", position, batch)
        _check_shape(
            "log_likelihood",
            value,
            (self.batch_size,),
            position,
            "one log-likelihood for each example of the batch, neither summed nor "
            "averaged",
        )
        if "log_prior" in self._functions:
            value = self._checked_call("log_prior", position)
            _check_shape(
                "log_prior", value, (), position, "one number, the log density"
            )


def _check_functions(log_density, log_likelihood, log_prior, data, batch_size):
    functions = {
        "log_density": log_density,
        "log_likelihood": log_likelihood,
        "log_prior": log_prior,
    }
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ValueError(
                f"Argument `{name}` must be a function. "
                f"Received: {name}={_validate.shown(function)}"
            )
    if (log_density is None) == (log_likelihood is None):
        raise ValueError(
            "Arguments `log_density` and `log_likelihood`: exactly one of them must be "
            "given, a log density of the position alone, or a log-likelihood of the "
            "position and a batch of `data`. Received: "
            + ("both" if log_density is not None else "neither")
        )
    if log_density is not None:
        others = {"log_prior": log_prior, "data": data, "batch_size": batch_size}
        for name, value in others.items():
            if value is not None:
                raise ValueError(
                    f"Argument `{name}` goes with `log_likelihood`; a `log_density` "
                    f"holds everything itself. Received: {name} and `log_density`"
                )
    elif data is None:
        raise ValueError(
            "Argument `data` must be given with `log_likelihood`: an array, or a tuple "
            "or dict of arrays with one row for each example. Received: data=None"
        )


def _checked_arrays(data):
    arrays = [
        _validate.array("Argument `data`", a, dtype=None) for a in tree.flatten(data)
    ]
    shapes = [array.shape for array in arrays]
    if not arrays or any(len(shape) == 0 or shape[0] == 0 for shape in shapes):
        raise ValueError(
            "Argument `data` must hold arrays with at least one row, one row for each "
            f"example. Received: arrays of the shapes {shapes}"
        )
    if len({shape[0] for shape in shapes}) > 1:
        raise ValueError(
            "Argument `data` must hold arrays of equal length, one row for each "
            f"example. Received: arrays of the shapes {shapes}"
        )
    if shapes[0][0] > batches.LARGEST_TRAIN_SIZE:
        raise ValueError(
            f"Argument `data` must have at most {batches.LARGEST_TRAIN_SIZE} examples. "
            f"Received: {shapes[0][0]}"
        )
    return [a.astype("float32") if a.dtype == "float64" else a for a in arrays]


def _check_shape(name, value, shape, position, meaning):
    if not ops.is_tensor(value):
        raise ValueError(
            f"Argument `{name}` must give a tensor, {meaning}: compute it with "
            f"`keras.ops`. Received: a function that gives {_validate.shown(value)}"
        )
    actual = tuple(ops.shape(value))
    if actual != shape:
        shapes = tree.map_structure(lambda x: tuple(ops.shape(x)), position)
        raise ValueError(
            f"Argument `{name}` must give {meaning}, shape {shape}, for the position "
            f"of one chain. Received: a function that gives shape {actual} at a "
            f"position of shape {shapes}"
        )
