"""The Barker test on mini-batches, whose noise takes the place of the test's own.

Paper: Seita, Pan, Chen and Canny (2017), "An efficient minibatch acceptance test for
Metropolis-Hastings", arXiv 1610.06848, algorithm 1.

Target: approximately exp(-U(theta)/T), with U = -sum_i log p(x_i|theta) - log p(theta).
The error of a decision is that of a normal distribution for Delta*, 7e-7 of the table,
and that of (2), which ends batches whose variance is small by chance: if the l_i are
skewed, such batches have a small mean, too, or a large one.

Barker's test accepts with probability 1 / (1 + exp(-Delta)), where
Delta = log r = (sum_i l_i + log p(theta') - log p(theta)) / T: if Delta + X_log > 0,
with X_log from the standard logistic distribution. The paper splits X_log into a normal
part, of which the noise of an estimate may be a share, and a rest:

    theta' = theta + epsilon Z
    (1)  Delta* = (N lbar + log p(theta') - log p(theta)) / T
    (2)  s_Delta^2 = N^2 v / T^2, with lbar and v of `growing.py`
         the batch grows until s_Delta^2 < sigma^2
    (3)  X_nc ~ N(0, sigma^2 - s_Delta^2), and X_corr from the table
    (4)  accept theta' if Delta* + X_nc + X_corr > 0

where sigma = 1, and N(0, sigma^2) + X_corr has nearly the logistic distribution.

X_corr takes the values 0, +-0.75, +-1.5, ... Their probabilities minimise the squared
differences between the distribution function of N(0, 1) + X_corr and the logistic one
at 1,401 points from 0 to 35, in float64, under the constraint that none is negative
(Lawson and Hanson 1974, chapter 23). The two functions differ by at most 6.5e-7.

In networks (`mh.Barker`) a step gets one mini-batch of an epoch, and adds it to the
batch of the test. Then, with theta' = theta + d, and d = 0 before the first step,

    decided     s_Delta^2 < sigma^2 and n >= min(n_0, N), or not finite:
                theta <- theta' by (4), or theta stays; n <- 0; d <- epsilon Z
    undecided   theta, theta' and the sums stay; the next mini-batch goes on

If an epoch ends before a test is decided, the next epoch tests the same theta' anew:
s_Delta^2 is the same for the move theta' -> theta, so both directions are interrupted
with the same probability.

| paper     | name            | shape           | unit    |
|-----------|-----------------|-----------------|---------|
| d = theta' - theta | `step` | list of tensors | weights |
| Delta*    | `log_ratio`     | (K,), ()        | nats    |
| s_Delta^2 | `noise`         | (K,), ()        | nats^2  |
| X_nc      | `normal`        | (K,), ()        | nats    |
| X_corr    | `correction`    | (K,), ()        | nats    |
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NamedTuple

import keras
import numpy as np

from keras_mhmcmc import _backend
from keras_mhmcmc._serialize import serializable
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.fit.sampler import Sampler
from keras_mhmcmc.fit.watch import Standstill
from keras_mhmcmc.priors import Prior
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers import growing
from keras_mhmcmc.samplers.growing import Batch
from keras_mhmcmc.samplers.growing import GrowingWalk
from keras_mhmcmc.samplers.growing import Move
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.bounded import Examples
from keras_mhmcmc.samplers.parts.tensors import ops

SIGMA = 1.0
SPACING = 0.75
# Probability that |X_corr| is 0, 0.75, 1.5, ...
# fmt: off
PROBABILITIES = (
    0.336440979758, 0.282439467479, 0.217857581926, 0.070858324004, 0.057118287643,
    0.013008474274, 0.015256552937, 0.001521697118, 0.004182769795, 0.0,
    0.001022257266, 3.4396235e-05, 0.000157029688, 6.8860732e-05, 0.0, 2.7004131e-05,
    1.354666e-06, 1.397093e-06, 3.090338e-06, 0.0, 0.0, 4.4097e-07, 0.0, 0.0, 8.299e-09,
    2.5646e-08,
)
# fmt: on


@dataclasses.dataclass(frozen=True)
class barker(GrowingWalk):
    """Make the Barker test on mini-batches, a kernel for `mh.sample`.

    The kernel samples exp(-U/T) approximately, with a fixed step. The energy U in nats
    is minus the log density. It needs no bounds. A step accepts with Barker's
    probability 1 / (1 + exp(-Delta)), with Delta = (U at the position - U at the
    proposal) / T. The noise of a mini-batch takes the place of a part of the test's own
    noise, so the batch grows until the variance of its estimate of Delta is below 1
    nat^2. `draws.info` has the mean `batch_size` of each chain.

    The bias comes from small batches, and from skewed differences of the
    log-likelihoods: in a logistic regression with 40 rows, batches from 10 rows on
    moved the means by 0.2 standard deviations. Batches of all of the data have no bias,
    up to 7e-7 of an acceptance probability. Likelihoods must be positive everywhere: an
    example of likelihood 0 outside the batch is not seen.

    Args:
        learning_rate: standard deviation of the random walk, greater than 0.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples of the first batch, and by how many it grows, at least 2.
            Defaults to 512.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> from keras import ops
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, size=2000).astype("float32")
    >>> draws = mh.sample(
    ...     mh.kernels.barker(0.02, block_size=200),
    ...     1.0,
    ...     log_likelihood=lambda theta, y: -0.5 * ops.square(y - theta),
    ...     data=y,
    ...     num_steps=100,
    ...     progress=False,
    ... )
    >>> draws.position.shape
    (1, 100)

    Reference: Seita, Pan, Chen and Canny (2017), algorithm 1.
    """

    num_uniforms = 3

    @property
    def arrays(self) -> list[Array]:
        return [correction_table().astype("float32")]

    def is_decided(
        self, batch: Batch, move: Move, block: Tensor, density: base.Density
    ) -> Tensor:
        return noise_of(batch, density.train_size, self.temperature) < SIGMA**2

    def accepts(self, batch: Batch, move: Move, density: base.Density) -> Tensor:
        given = density.arrays[0], density.train_size, self.temperature
        return accepts(batch, move.prior, move.uniforms, *given)


def noise_of(batch: Batch, train_size: int, temperature: float) -> Tensor:
    """Return s_Delta^2 of (2), nats^2, (K,)."""
    scale = (train_size / temperature) ** 2
    return scale * growing.variance(batch, train_size)


def accepts(
    batch: Batch,
    prior: Tensor,
    uniforms: Sequence[Tensor],
    table: Tensor,
    train_size: int,
    temperature: float,
) -> Tensor:
    """Return the decision (4) on a batch with s_Delta^2 < sigma^2, bool, (K,).

    `prior` is log p(theta') - log p(theta), nats. Two uniforms are for X_nc, and one
    for X_corr, whose `table` is that of `correction_table`.
    """
    log_ratio = train_size * growing.mean(batch) + prior
    log_ratio = log_ratio / temperature
    noise = noise_of(batch, train_size, temperature)
    left = ops.maximum(SIGMA**2 - noise, 0.0)
    radius, angle, place = uniforms
    normal = ops.sqrt(left) * standard_normal(radius, angle)
    return log_ratio + normal + correction(table, place) > 0.0


def standard_normal(radius: Tensor, angle: Tensor) -> Tensor:
    """Return standard normals of two uniforms, by Box and Muller (1958)."""
    return ops.sqrt(-2.0 * ops.log1p(-radius)) * ops.cos(2.0 * math.pi * angle)


def correction(table: Tensor, uniform: Tensor) -> Tensor:
    above = ops.expand_dims(uniform, -1) >= table
    rank = ops.sum(ops.cast(above, "float32"), axis=-1)
    return SPACING * (rank - (len(PROBABILITIES) - 1.0))


def correction_table() -> Array:
    """Return P(X_corr <= x) for all values x but the last, in order, float64."""
    half = np.asarray(PROBABILITIES[1:]) / 2.0
    probabilities = np.concatenate([half[::-1], PROBABILITIES[:1], half])
    return np.cumsum(probabilities / probabilities.sum())[:-1]


_TABLE = tuple(float(x) for x in correction_table())


class StepsState(NamedTuple):
    point: base.Position
    step: base.Position
    count: Tensor
    centre: Tensor
    total: Tensor
    squares: Tensor


@dataclasses.dataclass(frozen=True)
class BarkerSteps(base.Diffusion):
    """The Barker test whose batch grows from step to step."""

    learning_rate: base.Rate
    temperature: float
    min_examples: int

    _counts = ("accepted", "proposed", "examples", "nonfinite")
    traits = base.Traits(uses_gradient=False, num_uniforms=3, counts=_counts)

    def __post_init__(self) -> None:
        base.check(self, temperature=base.POSITIVE, min_examples=2)

    def init(self, position: base.Position) -> StepsState:
        sums = map(base.Slot, StepsState._fields[2:])
        return StepsState(position, base.slots_like(position, "step"), *sums)

    def proposal(self, state: StepsState) -> base.Position:
        return tensors.add_scaled(state.point, 1.0, state.step)

    def test(
        self,
        state: StepsState,
        here: Tensor,
        there: Tensor,
        prior: Tensor,
        evaluation: base.Evaluation,
    ) -> tuple[StepsState, base.Info]:
        """Add a mini-batch to the test, and decide if the batch is large enough.

        `here` and `there` are the log-likelihoods of the examples at theta and theta',
        nats, (B,), and `prior` is log p(theta') - log p(theta), nats, ().
        """
        size = evaluation.train_size
        zero = ops.zeros_like(state.count)

        def begun(total: Tensor) -> Tensor:  # not that of a dropped test
            return ops.where(state.count > 0.0, total, zero)

        centre, total, squares = map(begun, state[3:])
        batch = Batch(state.count, centre, total, squares, ())
        arrived = ops.zeros_like(here) == 0.0  # all of them
        examples = Examples(here, there, [], None, arrived)
        batch = growing.with_block(batch, examples)
        table = tensors.constant(_TABLE, "float32", like=here)
        given = evaluation.uniforms, table, size, self.temperature
        decision = accepts(batch, prior, *given)
        wins, is_odd = growing.verdict(batch, prior, decision)
        is_small = noise_of(batch, size, self.temperature) < SIGMA**2
        is_large = batch.count >= float(min(self.min_examples, size))
        is_finite = ops.isfinite(batch.total) & ops.isfinite(prior)
        decided = (is_small & is_large) | ~is_finite
        wins = wins & decided
        rate = evaluation.learning_rate
        fresh = [ops.cast(rate, z.dtype) * z for z in evaluation.normals]
        state = StepsState(
            tensors.select(wins, self.proposal(state), state.point),
            tensors.select(decided, fresh, state.step),
            ops.where(decided, zero, batch.count),
            *batch[1:4],
        )
        counts = base.counted(
            accepted=wins,
            proposed=decided,
            examples=ops.where(decided, batch.count, zero),
            nonfinite=is_odd & decided,
        )
        return state, base.Info(counts)

    def move(self, current: base.Current, evaluation: base.Evaluation) -> StepsState:
        return current.auxiliary

    def summary(self, state: Any, counts: dict[str, Array]) -> dict[str, Array]:
        means = dict(acceptance="accepted", examples_per_test="examples")
        return base.of_proposals(counts, **means)


@serializable
class Barker(Sampler):
    """Metropolis-Hastings with the mini-batch Barker test, for `mh.BarkerChain`.

    It samples exp(-U/T) approximately. The energy U in nats is train_size * loss -
    log prior. A test on all of the data has no bias. Otherwise the accept-reject test
    has the bias of `mh.kernels.barker`, and the tests of an epoch share no examples,
    which correlates their errors slightly.

    A proposal is a random walk, which needs no gradient. The batch of a test grows from
    step to step, until the test of `mh.kernels.barker` can decide. If an epoch ends
    during a test, the next epoch begins it anew, with the same proposal. The model
    always holds the state. A proposal whose losses are not finite is rejected and
    counted.

    A random walk in d dimensions needs about d accepted moves, or more, for an
    independent sample. So this sampler is for small networks, and for a few weights of
    a trained network, with the other layers frozen (`trainable=False`). Start near the
    mode. For a whole network take `mh.SGHMC`. The sampler keeps one copy of the weights
    that move.

    `acceptance` in the logs is the share of accepted proposals, and `examples_per_test`
    the mean number of examples, of the tests that ended in the epoch.

    Other arguments are those of `mh.SGLD`.

    Args:
        learning_rate: standard deviation of a proposal, in units of the weights. A
            number greater than 0, or a schedule. Longer moves need more examples for
            each test.
        min_examples: smallest number of examples that decides a test, at least 2, or
            all of the data if N is smaller. A larger one lowers the bias. Defaults to
            100.
        temperature: T, greater than 0. Defaults to 1, the posterior.

    Raises:
        ValueError: an argument is outside its range, or an option of the Keras base
            class would change the sampled distribution; or, in `fit`, the model is no
            `mh.BarkerChain`.

    Example:

    >>> import keras_mhmcmc as mh
    >>> optimizer = mh.Barker(0.02, train_size=1000)

    Reference: Seita, Pan, Chen and Canny (2017), algorithm 1.
    """

    algorithm: BarkerSteps
    _watch: Standstill

    def __init__(
        self,
        learning_rate: base.Rate,
        *,
        train_size: int | Literal["auto"] = "auto",
        min_examples: int = 100,
        temperature: float = 1.0,
        prior: Prior | None = None,
        seed: int | None = None,
        name: str = "barker",
        **options: Any,
    ) -> None:
        rate = base.OrSchedule(base.POSITIVE)
        learning_rate = base.checked("learning_rate", learning_rate, rate)
        algorithm = BarkerSteps(base.OF_OPTIMIZER, temperature, min_examples)
        shared = train_size, prior, seed, name, options
        super().__init__(learning_rate, algorithm, *shared)

    def _build_chain(self) -> None:
        super()._build_chain()
        self._watch = Standstill(type(self).__name__)

    def _settle(self) -> None:
        """Drop the sums of a test that has not ended: the next step begins it anew."""
        count = self.slots.count
        if _backend.hold_values([count]):  # not after a failed step on JAX
            count.assign(np.zeros((), "float32"))

    def _look_at_epoch(self, counts: dict[str, Array]) -> None:
        if not counts["proposed"].any():
            self._watch.tell("undecided")
        self._watch.look(counts["accepted"], counts["proposed"], **self._settings())

    def _look_at_end(self) -> None:
        is_known = _backend.hold_values(self._state.all)
        self._settle()
        is_new = is_known and not self._watch.has_looked
        if is_new and not _backend.error_leaves_fit():
            self._look_at_epoch(self._read_counts())

    def use_chains(self, num_chains: int) -> None:
        raise ValueError(
            "Argument `optimizer` of an `mh.ParallelChains` must be another sampler "
            "than `mh.Barker`, which tests a single chain. Fit an `mh.BarkerChain` for "
            "each chain, and load their directories with "
            f"`mh.PosteriorSamples.load([...])`. Received: {num_chains} chains"
        )

    def apply(
        self,
        grads: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        raise ValueError(
            "Argument `optimizer` must be another sampler than `mh.Barker` for this "
            "model: the test needs the losses of single examples. Fit "
            "`mh.BarkerChain(model)`, compiled with this optimizer and the same loss. "
            f"Received: gradients of {len(list(grads))} variables"
        )

    def proposal(self) -> base.Position:
        """Return the proposed weights, a tensor for each sampled variable."""
        self._check_loss()
        return self.algorithm.proposal(self._state.read())

    @_backend.uncompiled
    def test(self, here: Tensor, there: Tensor) -> None:
        """Add a mini-batch to the test of the proposal, and decide if it is enough.

        `here` and `there` are the negative log-likelihoods of each example at the state
        and at the `proposal`, nats, (B,).
        """
        state = self._state.read()
        here, there = (ops.cast(nats, "float32") for nats in (here, there))
        energy = self.train_size * ops.mean(here)
        prior = ops.zeros_like(energy)
        if self._bound_prior is not None:
            before = self._bound_prior.energy(state.point, like=energy)
            after = self._bound_prior.energy(self.proposal(), like=energy)
            energy, prior = energy + before, before - after
        evaluation = self._evaluation(state.point, [], energy, self._rate())
        state, info = self.algorithm.test(state, -here, -there, prior, evaluation)
        counts = [info.counts[name] for name in self.algorithm.traits.counts]
        counts = ops.convert_to_tensor(self._counts) + ops.stack(counts)
        recorded = self._energies.recorded(energy, None)
        _backend.write([self._energies.variable, self._counts], [recorded, counts])
        self._store(state)
        self.iterations.assign_add(1)
