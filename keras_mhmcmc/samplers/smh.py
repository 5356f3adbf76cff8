"""Scalable Metropolis-Hastings (SMH): a test of factors, few of which need examples.

Paper: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019), "Scalable
Metropolis-Hastings for exact Bayesian inference with large datasets".

Target: exp(-U(theta)/T) exactly, with U = -sum_i log p(x_i|theta) - log p(theta), if
the bounds hold: |R_i(theta') - R_i(theta)| <= psi_i phi(theta, theta') for all
examples. R_i is what a Taylor polynomial P_i leaves of log p(x_i|theta): see
`taylor.py`, which has z, psi_i and phi.

Equations, with P = sum_i P_i and Psi = sum_i psi_i:

    (1)  z' = sqrt(1 - beta^2) z + beta Z     (Crank-Nicolson), or
         z' = z + beta Z                      (random walk)
    (2)  log r_0 = (P(z') - P(z) + log p(theta') - log p(theta)) / T
                   + (|z'|^2 - |z|^2) / 2     (the last term for Crank-Nicolson alone)
    (3)  lambda_i = max(0, R_i(z) - R_i(z')) / T
    accept theta' if log u < log r_0, and if no arrival stays. Arrivals form a Poisson
    process of the rate Psi phi / T; one of example i stays with the probability
    lambda_i T / (psi_i phi).

The whole probability is min(1, r_0) prod_i min(1, r_i), with
r_i = exp((R_i(z') - R_i(z))/T). Each factor has detailed balance with its own part of
the target. Far from the reference the rate of (3) is larger than the data. There the
test is the usual one on all of the data:

    (4)  if Psi phi / T > R:  log r = (U(theta) - U(theta')) / T, with the last term of
         (2); accept theta' if log u < log r

The rate is the same for a move and its reverse, so both have the same test.

| paper        | name            | shape           | unit     |
|--------------|-----------------|-----------------|----------|
| z, z'        | `here`, `there` | (K, d)          | 1        |
| phi          | `reach`         | (K,)            | 1        |
| psi_i        | `limits[0]`     | (N,), (K, B)    | nats     |
| Psi          | `total`         | float           | nats     |
| R            | `max_examples`  | float           | examples |
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from keras_mhmcmc import _validate
from keras_mhmcmc._types import Array
from keras_mhmcmc._types import Tensor
from keras_mhmcmc.samplers import base
from keras_mhmcmc.samplers.parts import bounded
from keras_mhmcmc.samplers.parts import taylor
from keras_mhmcmc.samplers.parts import tensors
from keras_mhmcmc.samplers.parts.tensors import ops

PROPOSALS = ("crank_nicolson", "random_walk")


class Measures(NamedTuple):
    here: Tensor
    there: Tensor
    reach: Tensor


@dataclasses.dataclass(frozen=True, eq=False)
class smh(bounded.BoundedTest):
    """Make SMH, scalable Metropolis-Hastings on few examples, for `mh.sample`.

    The kernel samples exp(-U/T) exactly, with a fixed step and without a pass over the
    data. It needs a Taylor expansion of each example's log-likelihood about a point
    near the mode, and a bound of its remainder. A bound that does not hold ends the run
    with an error.

    A proposal is made from the Gaussian of the expansion, about its `reference`. The
    test evaluates only examples whose polynomial may be too rough. With order 2 their
    number falls as 1/sqrt(N) for large N, and with order 1 it stays the same. Begin the
    chains at `expansion.reference`: far from it a step uses all of the data.
    `draws.info` has the mean `batch_size` of each chain.

    Args:
        expansion: of the log-likelihoods of the same data, such as
            `mh.expansions.logistic_regression(x, y)`, which makes a pass over the data
            for each step of Newton's method.
        step_size: beta, in standard deviations of the Gaussian, in (0, 1] for
            Crank-Nicolson proposals, greater than 0 for a random walk. With 1 a
            Crank-Nicolson proposal is an independent draw from the Gaussian. Smaller
            steps accept more and need fewer examples. Defaults to 0.5.
        proposal: "crank_nicolson", which leaves the Gaussian unchanged, or
            "random_walk". Defaults to "crank_nicolson".
        max_examples: largest expected batch, greater than 0. A step that expects a
            larger one evaluates all of the data instead. None gives N.
        temperature: T, greater than 0. Defaults to 1.
        block_size: examples that a chain evaluates at once, at least 1. It does not
            change the distribution. Defaults to 16.

    Raises:
        ValueError: an argument is outside its range.

    Example:

    >>> import keras_mhmcmc as mh
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> y = (x[:, 0] > 0).astype("float32")
    >>> expansion = mh.expansions.logistic_regression(x, y)
    >>> kernel, start = mh.kernels.smh(expansion), expansion.reference

    Reference: Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet (2019).
    """

    expansion: taylor.Expansion
    _: dataclasses.KW_ONLY
    step_size: float = 0.5
    proposal: str = "crank_nicolson"
    max_examples: float | None = None
    temperature: float = 1.0
    block_size: int = 16

    names = ("expansion",)

    def __post_init__(self) -> None:
        base.check(self, **bounded.TEST, proposal=PROPOSALS)
        base.check(self, max_examples=base.OrNone(base.POSITIVE))
        _validate.instance(
            "expansion",
            self.expansion,
            taylor.Expansion,
            "built by `mh.expansions`, such as mh.expansions.logistic_regression(x, y)",
        )
        is_walk = self.proposal == "random_walk"
        interval = _validate.Interval(
            0.0, math.inf if is_walk else 1.0, low_open=True, high_open=is_walk
        )
        base.check(self, step_size=interval)

    @functools.cached_property
    def whitened(self) -> taylor.Whitened:
        return taylor.whitened(self.expansion, self.temperature)

    @property
    def limits(self) -> list[Array]:
        own = self.whitened
        return [own.limits, own.rows, self.expansion.slopes, own.curvatures]

    @property
    def shared(self) -> list[Array]:
        own = self.whitened
        reference = self.expansion.reference
        return [reference, own.factor, own.inverse, own.gradient, own.hessian]

    @property
    def total(self) -> float:
        """Psi."""
        return float(np.sum(self.weights))

    def init(self, position: base.Position) -> bounded.State:
        size = sum(math.prod(x.shape[1:]) for x in position)
        if size != len(self.expansion.reference):
            raise ValueError(
                "Argument `init` must have as many weights as `expansion.reference`, "
                f"{len(self.expansion.reference)}. Received: {size} weights"
            )
        return super().init(position)

    def propose(self, point: base.Position, density: base.Density) -> bounded.Move:
        reference, factor, inverse, gradient, hessian = density.arrays[-5:]
        here = taylor.times(inverse, tensors.flat(point) - reference)
        there = self.step_size * tensors.flat(density.normals(0))
        if self.proposal == "random_walk":
            there = there + here
        else:
            there = there + math.sqrt(1.0 - self.step_size**2) * here
        shapes = [tuple(x.shape) for x in point]
        proposal = tensors.unflat(reference + taylor.times(factor, there), shapes)
        # The z' of the rounded position, whose log-likelihoods are evaluated.
        there = taylor.times(inverse, tensors.flat(proposal) - reference)
        reach = taylor.reach(here, there, self.expansion.order)

        gaussian = 0.0
        if self.proposal == "crank_nicolson":
            gaussian = 0.5 * taylor.dot(there - here, there + here)
        prior = density.log_prior(proposal) - density.log_prior(point)
        polynomials = taylor.change_of_all(here, there, gradient, hessian)
        log_ratio = (polynomials + prior) / self.temperature + gaussian

        rate = self.total / self.temperature * reach
        most = density.train_size if self.max_examples is None else self.max_examples
        whole = rate > most
        change = tensors.cond(
            ops.any(whole),
            lambda: density.energies(point) - density.energies(proposal),
            lambda: ops.zeros_like(rate),
        )
        log_ratio = ops.where(whole, change / self.temperature + gaussian, log_ratio)
        # What r_0 rejects needs no batch: the test has the uniform of part 0, too.
        uniform = density.uniforms(1, 1, 0)[0, :, 0]
        goes_on = ~whole & (ops.log(uniform) < log_ratio)
        examples = ops.where(whole, float(density.train_size), 0.0)
        rate, measures = ops.where(goes_on, rate, 0.0), Measures(here, there, reach)
        return bounded.Move(proposal, log_ratio, rate, examples, measures)

    def judge(
        self,
        examples: bounded.Examples,
        measures: Measures,
        violation: bounded.Violation,
    ) -> bounded.Judged:
        limits, *polynomials = examples.limits
        change = taylor.change_of_each(measures.here, measures.there, *polynomials)
        # here - there is then R_i(z) - R_i(z').
        remainders = examples._replace(there=examples.there - change)
        bound = limits * ops.expand_dims(measures.reach, 1)
        share, violation = bounded.bounded_share(remainders, bound, violation)
        # T divides both lambda_i and its bound.
        probability = ops.maximum(share, 0.0)
        rejects = ops.full_like(probability, -math.inf)
        return bounded.Judged(probability, rejects, violation)
