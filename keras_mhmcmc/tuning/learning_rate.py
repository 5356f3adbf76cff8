"""`suggest_learning_rate`: the largest rate at which a short run gets on."""

import math
from collections.abc import Sequence
from typing import Any
from typing import Literal

import keras
import numpy as np
from keras.optimizers import LossScaleOptimizer

from keras_mhmcmc import _data
from keras_mhmcmc import _table
from keras_mhmcmc import _validate
from keras_mhmcmc._stored_model import StackedModel
from keras_mhmcmc._types import Array
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.samplers.amagold import AMAGOLD
from keras_mhmcmc.samplers.parts.rate_adaptation import LOW
from keras_mhmcmc.tuning import table
from keras_mhmcmc.tuning.table import LearningRateTable
from keras_mhmcmc.tuning.trial import Outcome
from keras_mhmcmc.tuning.trial import Trials
from keras_mhmcmc.tuning.trial import at_rate
from keras_mhmcmc.tuning.trial import borrowed
from keras_mhmcmc.tuning.trial import inner_of

RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_BATCH_SIZE = 32  # the default of `fit`
# The energy must fall by this share of the largest fall. Without it, a network that a
# large step has turned off would pass: it predicts the frequencies of the classes, and
# has a lower loss than first weights.
_SHARE = 0.5
# It must also fall by so many standard errors of the energy at the start.
_ERRORS = 3.0


def suggest_learning_rate(
    model: keras.Model,
    x: Any,
    y: Any = None,
    optimizer: keras.optimizers.Optimizer | str | None = None,
    *,
    rates: Sequence[float] = RATES,
    steps: int = 200,
    batch_size: int | None = None,
    seed: int = 0,
    verbose: Literal[0, 1] = 0,
) -> LearningRateTable:
    """Run a model shortly at several learning rates, and suggest the largest good one.

    A rate passes if all losses are finite and the energy falls at least half as far as
    at the best rate. For a Metropolis-Hastings sampler, a quarter of the forward moves
    must also be accepted. The suggestion is the largest rate that passes. It is an
    upper edge: begin there or below. A short run shows whether a rate moves the
    weights. It does not show how well the samples predict. Print the result, or use its
    `rate`, which is None if no rate passes, and its `advice`.

    Each run begins with the weights of the model and sees the same mini-batches of
    arrays. The second half of its steps is judged. A Metropolis-Hastings sampler makes
    its `warm_up` before, at the same rate, and does not adapt the rate. A learning rate
    schedule is replaced by constant rates. Afterwards the model, its optimizer, its
    metrics and the random generators of its layers are as before, but a model that is
    not built yet is built, and on PyTorch a `Dropout` layer without a seed draws from
    the global generator.

    Args:
        model: compiled `keras.Model`, not trained yet. Its loss is used.
        x: arrays of N examples, shape (N, ...), or a list or dict of them; or a data
            set of batches (x, y) that can be read again.
        y: arrays of the N targets. Defaults to None, for a data set.
        optimizer: a sampler, a Keras optimizer or its name, which stays unchanged. Its
            own learning rate is not used. Defaults to None, the model's own optimizer.
        rates: learning rates to try, each greater than 0. Defaults to ten rates from
            0.001 to 1.
        steps: steps of a run after the warm-up, at least 4. Defaults to 200.
        batch_size: examples in a mini-batch of arrays. Defaults to None, the
            `batch_size` of the sampler if it has one, otherwise 32.
        seed: integer in [0, 2**31) that orders the examples, and makes the noise of a
            sampler without a seed. Defaults to 0.
        verbose: 1 shows a progress bar that counts rates. Defaults to 0.

    Raises:
        ValueError: the model is not compiled, an argument is outside its range, the
            compiled loss has no targets, or `x` is a generator.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> import keras_mhmcmc as mh
    >>> x = np.linspace(-1.0, 1.0, 32)[:, None]
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mean_squared_error")
    >>> rates = suggest_learning_rate(model, x, 3.0 * x, rates=[0.5, 10.0], steps=40)
    >>> rates.rate
    0.5
    >>> sampler = mh.SGHMC(rates.rate)

    Reference: Smith (2017), "Cyclical learning rates for training neural networks",
    section 3.3, for a short run over rates. The rule is this package's own.
    """
    own = _checked_model(model).optimizer
    optimizer = _checked_optimizer(own if optimizer is None else optimizer)
    tried = _checked_rates(rates)
    steps = _validate.integer("steps", steps, 4)
    batch_size = _batch_size(batch_size, optimizer)
    seed = _validate.seed(seed)
    _validate.choice("verbose", verbose, (0, 1))
    stream = _data.stream_of(x, y, batch_size, seed)
    first, targets, _ = next(stream())
    if targets is None and model.loss is not None:
        raise ValueError(
            "Argument `y` must be the targets of the compiled loss. Pass them apart "
            "from `x`, of which a tuple or list is several inputs. Received: "
            f"y={_validate.shown(y)}, loss={model.loss}"
        )

    if not model.built:
        model(first)
    trial = at_rate(optimizer, tried[0], seed)
    if isinstance(trial, Sampler):
        trial.find_train_size(model, x)
    if isinstance(own, LossScaleOptimizer) and not isinstance(
        trial, LossScaleOptimizer | Sampler
    ):
        trial = LossScaleOptimizer(trial)  # as `compile` does
    bar = keras.utils.Progbar(len(tried), verbose=verbose, unit_name="rate")
    outcomes = []
    with borrowed(model, trial):
        trials = Trials(model, trial, stream, steps)
        start = trials.start()
        for rate in tried:
            outcomes.append(trials.run(rate))
            bar.add(1)
    inner = inner_of(optimizer)
    measure = "energy per example" if isinstance(inner, Sampler) else "loss"
    return LearningRateTable(
        _rows(tried, start, outcomes), type(inner).__name__, measure
    )


def _rows(
    rates: Sequence[float], start: Array, outcomes: Sequence[Outcome]
) -> list[_table.Row]:
    """Return the rows of the table, from the energies of the first weights on."""
    before = float(np.mean(start))
    noise = float(np.std(start)) / math.sqrt(len(start))
    falls = [before - o.energy if o.is_finite else -math.inf for o in outcomes]
    best = int(np.argmax(falls))
    rows = []
    for place, (rate, outcome) in enumerate(zip(rates, outcomes, strict=True)):
        if not outcome.is_finite:
            verdict = table.NOT_FINITE
        elif not falls[best] > _ERRORS * noise or falls[place] <= 0.0:
            verdict = table.DOES_NOT_FALL
        elif falls[place] < _SHARE * falls[best]:
            verdict = table.TOO_SLOW if place < best else table.FALLS_TOO_LITTLE
        elif outcome.acceptance < LOW:
            verdict = table.REJECTS
        else:
            verdict = table.PASSES
        rows.append(
            {
                "learning_rate": rate,
                "start": before,
                "end": outcome.energy,
                "acceptance": outcome.acceptance,
                "verdict": verdict,
            }
        )
    return rows


def _checked_model(model: Any) -> keras.Model:
    _validate.instance("model", model, keras.Model, "a compiled `keras.Model`")
    if isinstance(model, StackedModel):
        raise ValueError(
            "Argument `model` must be a single network. Compile the network itself "
            "with the same loss: its rate suits each chain. "
            f"Received: model={_validate.shown(model)}"
        )
    if not model.compiled:
        raise ValueError(
            "Argument `model` must be compiled, since its loss is what has to fall. "
            "Call `model.compile(optimizer, loss)` first. "
            f"Received: model={_validate.shown(model)}"
        )
    return model


def _checked_optimizer(optimizer: Any) -> keras.optimizers.Optimizer:
    try:
        found = keras.optimizers.get(optimizer)
    except (KeyError, TypeError, ValueError):
        found = None
    if found is None:
        raise ValueError(
            "Argument `optimizer` must be a sampler such as `mh.SGHMC(...)`, a Keras "
            "optimizer, the name of one, or None for the optimizer that the model was "
            f"compiled with. Received: optimizer={_validate.shown(optimizer)}"
        )
    if isinstance(found, AMAGOLD):
        raise ValueError(
            "Argument `optimizer` must not be `mh.AMAGOLD`: a short run makes no test "
            "of a path. Ask for `mh.SGHMC(...)`, whose learning rate means the same, "
            "and lower it until `acceptance` in the logs of `fit` is above 0.3. "
            f"Received: optimizer={optimizer!r}"
        )
    return found


def _checked_rates(rates: Any) -> list[float]:
    """Return the distinct rates in rising order, or raise a `ValueError`."""
    listed = list(rates) if isinstance(rates, list | tuple | np.ndarray) else []
    if not listed:
        raise ValueError(
            "Argument `rates` must be a list of at least one learning rate, such as "
            f"[0.01, 0.03, 0.1, 0.3]. Received: rates={_validate.shown(rates)}"
        )
    return sorted({_validate.number("rates", r, _validate.POSITIVE) for r in listed})


def _batch_size(batch_size: int | None, optimizer: keras.optimizers.Optimizer) -> int:
    given = optimizer.batch_size if isinstance(optimizer, Sampler) else None
    if batch_size is None:
        return given or _BATCH_SIZE
    batch_size = _validate.integer("batch_size", batch_size, 1)
    if given is not None and given != batch_size:
        raise ValueError(
            "Argument `batch_size` must be None, or that of the sampler, whose "
            f"temperature follows from it: {given}. Received: batch_size={batch_size}"
        )
    return batch_size
