"""What turns a model's outputs into the quantities to average: one, or one for each."""

import keras

from keras_mhmcmc import _validate


def checked(value):
    """A function, or a tuple with one for each output, or a `ValueError`."""
    if isinstance(value, list | tuple) and value:
        return tuple(_validate.activation(each) for each in value)
    return _validate.activation(value)


def applied(activation, outputs):
    """The outputs, a structure of tensors, after the activation of each."""
    if not isinstance(activation, tuple):
        return keras.tree.map_structure(activation, outputs)
    flat = keras.tree.flatten(outputs)
    functions = of_each(activation, len(flat))
    flat = [function(y) for function, y in zip(functions, flat, strict=True)]
    return keras.tree.pack_sequence_as(outputs, flat)


def of_each(activation, count):
    """A function for each of `count` outputs."""
    if not isinstance(activation, tuple):
        return (activation,) * count
    if len(activation) != count:
        raise ValueError(
            f"Argument `activation` must have one for each of the {count} outputs. "
            f"Received: activation={serialized(activation)}"
        )
    return activation


def serialized(activation):
    """What `checked` takes, as a name or a configuration, or a list of them."""
    if isinstance(activation, tuple):
        return [keras.activations.serialize(function) for function in activation]
    return keras.activations.serialize(activation)


def is_linear(activation):
    """Whether all outputs stay as they are."""
    functions = activation if isinstance(activation, tuple) else (activation,)
    return all(function is keras.activations.linear for function in functions)
