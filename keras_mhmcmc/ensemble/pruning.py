"""Pruning: a copy of a network without the weights that its prior made small."""

from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import rebuilt
from keras_mhmcmc.ensemble import activations
from keras_mhmcmc.ensemble import compile as ensemble_compile
from keras_mhmcmc.samplers.spike_slab import SpikeSlabOptimizer

_PROBABILITY = _validate.Interval(0.0, 1.0, high_open=False)


def prune(
    model: keras.Model,
    optimizer: SpikeSlabOptimizer,
    threshold: float = 0.5,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
) -> keras.Model:
    """Return a copy of `model` whose weights of low inclusion probability are zero.

    Print the number of weights that are left and, if `x` is given, the loss and metrics
    before and after pruning. The model itself does not change.

    Args:
        model: the model that `optimizer` trained, with the weights to prune.
        optimizer: the `mh.SGLDSA`, `mh.SGHMCSA` or `mh.ESM` that trained `model`.
        threshold: inclusion probability, in [0, 1], below which a weight becomes zero.
            Defaults to 0.5.
        x: inputs to evaluate both models on, as for `keras.Model.evaluate`. Defaults to
            None, which skips the comparison.
        y: as for `keras.Model.evaluate`. Defaults to None.
        batch_size: as for `keras.Model.evaluate`. Defaults to None, which is 32.

    Returns:
        A `keras.Model` of the same architecture, compiled with the same loss and
        metrics and without an optimizer.

    Raises:
        ValueError: an argument is of another kind, or `optimizer` trained another
            model.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> prior = mh.priors.SpikeSlab("kernel", v0=1e-3, v1=1.0)
    >>> optimizer = mh.SGLDSA(0.1, train_size=64, prior=prior, seed=0)
    >>> model.compile(
    ...     optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ... )
    >>> history = model.fit(np.ones((64, 4)), np.zeros(64), epochs=1, verbose=0)
    >>> pruned = mh.prune(model, optimizer, threshold=0.0)
    12 of 12 sparse weights are left (100.0%).

    Reference: Deng, Zhang, Liang and Lin (2019), "Bayesian deep learning via stochastic
    gradient MCMC with a stochastic approximation adaptation", section 3.1.
    """
    _validate.instance("model", model, keras.Model, "the `keras.Model` to prune")
    hint = "an `mh.SGLDSA`, `mh.SGHMCSA` or `mh.ESM`"
    _validate.instance("optimizer", optimizer, SpikeSlabOptimizer, hint)
    threshold = _validate.number("threshold", threshold, _PROBABILITY)
    kept = _kept_weights(model, optimizer, threshold)
    pruned = rebuilt(model)
    for mine, theirs in zip(model.weights, pruned.weights, strict=True):
        values = keras.ops.convert_to_numpy(mine)
        theirs.assign(values * kept[id(mine)] if id(mine) in kept else values)
    if model.compiled:
        linear = activations.checked(None)
        pruned.compile(**ensemble_compile.arguments(model, linear))
    left = sum(int(mask.sum()) for mask in kept.values())
    count = sum(mask.size for mask in kept.values())
    print(f"{left} of {count} sparse weights are left ({left / count:.1%}).")
    if x is not None:
        lines = []
        for name, one in (("before", model), ("after", pruned)):
            scores = one.evaluate(x, y, batch_size, 0, return_dict=True)
            lines.append([name, *(f"{float(np.mean(v)):.4f}" for v in scores.values())])
        print(_table.aligned([["", *scores], *lines]))
    return pruned


def _kept_weights(
    model: keras.Model, optimizer: SpikeSlabOptimizer, threshold: float
) -> dict[int, npt.NDArray[np.bool_]]:
    """Return whether to keep each weight, by the `id` of the sparse variable."""
    masks = {
        id(variable): inclusion >= threshold
        for variable, inclusion in optimizer.inclusion_by_variable()
    }
    own = {id(variable) for variable in model.trainable_variables}
    if not masks or not own.issuperset(masks):
        state = "belongs to another model" if masks else "has not made a step"
        raise ValueError(
            "Argument `optimizer` must be the optimizer that trained `model`: after "
            "`fit`, call `mh.prune(model, model.optimizer)`. "
            f"Received: optimizer={optimizer.name!r}, which {state}."
        )
    return masks
