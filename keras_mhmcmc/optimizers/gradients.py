"""The gradients of a chain, matched to its weights."""

from collections.abc import Sequence

import keras

from keras_mhmcmc._types import Tensor
from keras_mhmcmc._warn import warn


def gradients_of_each(
    weights: Sequence[keras.Variable],
    variables: Sequence[keras.Variable],
    gradients: Sequence[Tensor],
) -> list[Tensor]:
    """Return the gradient of each weight, or None for a weight without a gradient.

    Args:
        weights: variables that the sampler was built with.
        variables: variables that the gradients belong to.
        gradients: the gradient of each variable, or None.

    Raises:
        ValueError: a variable is not one of the weights, no gradient is given, or the
            numbers of variables and gradients differ.
    """
    if len(gradients) != len(variables):
        raise ValueError(
            "Argument `grads` must have one gradient, or None, for each of "
            "`trainable_variables`. If these are left out, the sampler must be built, "
            "and they are the variables it was built with. "
            f"Received: {len(gradients)} gradients for {len(variables)} variables"
        )
    places = {id(weight): place for place, weight in enumerate(weights)}
    found: list[Tensor] = [None] * len(weights)
    for variable, gradient in zip(variables, gradients, strict=True):
        if id(variable) not in places:
            raise ValueError(
                "Argument `trainable_variables` must be variables that the sampler was "
                "built with. For other variables make a new sampler with the same "
                f"arguments. Received: the variable {variable.path}, which is none of "
                f"the {len(weights)}"
            )
        found[places[id(variable)]] = gradient
    missing = [w.path for w, g in zip(weights, found, strict=True) if g is None]
    if len(missing) == len(weights):
        raise ValueError(
            "Argument `grads` must have a gradient of at least one variable. "
            f"Received: None for each of {len(weights)} variables"
        )
    if missing:
        warn(
            f"There are no gradients for {len(missing)} of {len(weights)} variables, "
            f"such as {missing[0]}: the loss does not depend on them. The sampler "
            "leaves them as they are. Set `trainable = False` for their layers, or "
            "let the loss depend on them."
        )
    return found
