"""The one check of the suite: does a sampler have its law on a target?"""

from typing import NamedTuple

import numpy as np

from tests.statistics import engine
from tests.statistics import literal
from tests.statistics import modes
from tests.statistics import references
from tests.statistics.table import SAMPLERS
from tests.statistics.targets import TARGETS

# Standard errors. The full table has about 700 deviations, so that a correct sampler
# exceeds this with one seed in 200.
LIMIT = 4.5
# Independent draws that a chain must give of each coordinate. Chains that stand still
# give 1, give or take sqrt(2 / chains).
MIXING = 1.5
SEED = 1


class Result(NamedTuple):
    """The outcome of one cell."""

    deviation: float  # the largest one, in standard errors
    function: str  # the function of the position that deviates so
    mixing: float  # independent draws of each chain, of the slowest coordinate


def measure(sampler, target, plan, seed=SEED):
    """Runs a sampler on a target, and compares its law."""
    row, target = SAMPLERS[sampler], TARGETS[target]
    if row.law.is_whole:
        target = target.whole()
    plan = row.plan(plan)
    optimizer = row.make(target, seed)
    rng = np.random.default_rng(seed)
    start, batch = literal.start(optimizer, target, rng, plan.chains)
    batches = rng.integers(target.batches, size=(plan.steps, plan.chains))
    if row.sampler.is_metropolis:
        # Its law is one of position and batch: it starts with its own.
        batches[0] = batch
    draws = engine.run(optimizer, target, start, batches, plan.every)
    if row.is_of_mode:
        return _of_mode(optimizer, target, draws)
    reference = row.reference_of(target)(optimizer, target, plan)
    return compare(target, draws.position, draws.log_weight, reference)


def check(sampler, target, plan, seed=SEED):
    """Raises `AssertionError` where a sampler has not its law on a target."""
    result = measure(sampler, target, plan, seed)
    assert_law(result, sampler)
    return result


def assert_law(result, sampler):
    """The check of what `measure` has found."""
    assert result.deviation < LIMIT, f"{sampler} misses its law: {result}"
    assert result.mixing > MIXING, f"{sampler} stands still: {result}"


def compare(target, position, log_weight, reference):
    """The result for draws (S, K, d) with log weights (S, K)."""
    with np.errstate(all="ignore"):
        values = target.functions(position)
        means, errors = references.estimate(values, log_weight)
        # Chains that have run away have errors without bound, and those that stand in
        # one point none; K independent draws of the target would have about 1/sqrt(K).
        chains = position.shape[1]
        bounded = np.clip(errors, 1e-3 / chains**0.5, 3.0 / chains**0.5)
        scores = np.abs(means - reference.values) / np.hypot(bounded, reference.errors)
        coordinates = errors[: target.dimension]
        mixing = np.min(1.0 / np.maximum(coordinates, 1e-9) ** 2) / chains
    scores = np.where(np.isnan(scores), np.inf, scores)
    scores = np.where(np.isnan(reference.values), 0.0, scores)
    worst = int(np.argmax(scores))
    mixing = float(mixing) if np.isfinite(mixing) else 0.0
    return Result(float(scores[worst]), target.names()[worst], mixing)


def _of_mode(optimizer, target, draws):
    end = draws.position[-1]
    if not np.isfinite(end).all():
        return Result(np.inf, "mode", np.inf)
    distance = modes.distances(optimizer, target, end).max()
    return Result(float(distance / modes.RESOLUTION), "mode", np.inf)
