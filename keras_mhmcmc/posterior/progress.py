"""Where a `fit` stands, as its callback reads it."""

import math

import keras
from keras import ops

from keras_mhmcmc._warn import warn
from keras_mhmcmc.fit.sampler import Sampler


def iteration_of(model: keras.Model) -> int:
    """Return the iteration of the optimizer."""
    return int(ops.convert_to_numpy(model.optimizer.iterations))


def rate_of(model: keras.Model) -> float:
    """Return the learning rate of the optimizer."""
    return float(ops.convert_to_numpy(model.optimizer.learning_rate))


def log_rate_of(model: keras.Model) -> float:
    """Return the log of the learning rate; -inf if it is 0."""
    rate = rate_of(model)
    return math.log(rate) if rate > 0.0 else -math.inf


def last_batch(executed: int, batch: int, steps: int | None) -> int:
    """Return the number of the last mini-batch that was run.

    With `steps_per_execution`, Keras 3.10 tells the number of the first.

    Args:
        executed: `steps_per_execution` of the model.
        batch: the number that Keras tells.
        steps: mini-batches in an epoch. None: unknown.
    """
    if executed > 1 and batch % executed == 0:
        batch += executed - 1
    return batch if steps is None else min(batch, steps - 1)


def end_path_if_due(
    callback: keras.callbacks.Callback, sampler: Sampler, iteration: int, executed: int
) -> None:
    """Test the path of a sampler in an epoch, and begin the next one, if it is due.

    Args:
        callback: gives the model, whose state JAX copies at each look.
        sampler: the optimizer.
        iteration: of the optimizer.
        executed: `steps_per_execution` of the model.
    """
    every = sampler.steps_per_test
    if every is not None and iteration // every > (iteration - executed) // every:
        optimizer = callback.model.optimizer
        optimizer.settle()
        optimizer.propose()


def worth_showing(diagnostics: dict[str, float]) -> dict[str, float]:
    """Return what an epoch's `logs` hold: all, but a count of 0 nonfinite points."""
    return {
        name: value
        for name, value in diagnostics.items()
        if name != "nonfinite" or value != 0
    }


def next_due(passed: int, burn_in: int, every: int | None) -> int:
    """Return the first iteration after `passed` that may be kept."""
    if every is None:  # if an epoch ends there
        return max(burn_in, passed) + 1
    multiple = max(passed - burn_in, 0) // every + 1
    return burn_in + multiple * every


def why_empty(reason: str | None, first: int, burn_in: int) -> str:
    """Return why a collection has no samples.

    Args:
        reason: why the chain was lost. None: it was not.
        first: the iteration of the first sample.
        burn_in: as in `mh.PosteriorSamples`.
    """
    if reason is not None:
        return (
            "There are no samples: none was kept before iteration "
            f"{first}, the first one that `burn_in` and `every` allow. {reason}"
        )
    return (
        "There are no samples yet. Pass this callback to "
        "`model.fit(..., callbacks=[posterior])` for more than "
        f"burn_in={burn_in} iterations. A tool that copies its callbacks, as "
        "KerasTuner does, leaves this one empty: create it where `fit` is called."
    )


def warn_of_early_end(model: keras.Model, first: int, burn_in: int) -> None:
    """Warn of a `fit` that has ended before the first sample."""
    warn(
        f"This `fit` has ended at iteration {iteration_of(model)}, and kept no sample: "
        f"the first would be kept at {first}. A callback such as `EarlyStopping` may "
        "have stopped it, or its data may have ended. Lower `burn_in`, now "
        f"{burn_in}, or train longer."
    )


def check_reachable(
    last: float,
    first: int,
    burn_in: int,
    every: int | None,
    warm_up: int,
    sampler: Sampler | None,
) -> None:
    """Refuse a `fit` that keeps no sample, and warn of one that is mostly warm-up.

    Args:
        last: the last iteration of the `fit`; infinite if it is unknown.
        first: the iteration of the first sample.
        burn_in: as in `mh.PosteriorSamples`.
        every: as in `mh.PosteriorSamples`.
        warm_up: first steps of the sampler that give no sample.
        sampler: the optimizer; None if it is not one of ours.

    Raises:
        ValueError: the first sample comes after the last iteration.
    """
    name = "" if sampler is None else sampler.warm_up_argument[0]
    warm_up = warm_up if warm_up > burn_in else 0
    if last < first:
        lower = f"`{name}` of the optimizer" if warm_up else "them"
        also = f", {name}={sampler.warm_up_argument[1]}" if warm_up and sampler else ""
        raise ValueError(
            "Arguments `burn_in` and `every` must leave an iteration to keep: this "
            f"`fit` ends at iteration {last}, and the first sample would be kept "
            f"at {first}. Lower {lower}, or train for more epochs. "
            f"Received: burn_in={burn_in}, every={every}{also}"
        )
    if last < 1.5 * warm_up:
        warn(
            f"This `fit` ends at iteration {last}, and its first {warm_up} iterations "
            f"give no samples, by `{name}` of the optimizer. Train for more epochs, or "
            f"lower `{name}`."
        )
