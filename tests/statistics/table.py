"""The table of the statistical suite: every sampler of `samplers`, on every target."""

from typing import NamedTuple

import keras_mhmcmc as mh
from tests.statistics import modes
from tests.statistics import references
from tests.statistics.targets import TARGETS
from tests.support import samplers

REFERENCES = {
    "exact": references.exact,
    "simulated": references.simulated,
    # Samplers without rejection: with the bias of their step, exact where it is known.
    "biased": None,
    "mode": modes,
}


class Row(NamedTuple):
    """A sampler, and a law of its own."""

    sampler: samplers.Sampler
    law: samplers.Law

    @property
    def is_of_mode(self):
        return self.law.reference == "mode"

    def make(self, target, seed):
        """The optimizer for a target."""
        scale = target.prior_scale
        common = dict(
            train_size=target.train_size,
            batch_size=target.batch_size or target.train_size,
            temperature=target.temperature,
            prior=None if scale is None else mh.priors.Gaussian(scale),
            seed=seed,
        )
        taken = {k: v for k, v in common.items() if self.sampler.takes(k)}
        return self.sampler.optimizer(**taken | self.law.arguments(target))

    def plan(self, plan):
        """How long it runs, where others run for `plan`."""
        if self.law.plan is not None:
            return references.Plan(*self.law.plan)
        return plan._replace(every=self.law.every)

    def reference_of(self, target):
        """What its law on a target is compared with."""
        if self.law.reference == "biased":
            return references.moments if target.is_linear else references.simulated
        return REFERENCES[self.law.reference]


SHORT = references.Plan(chains=100, steps=150, every=0)
LONG = references.Plan(chains=200, steps=300, every=0)
# For what changes a law but little.
SUBTLE = references.Plan(chains=300, steps=400, every=0)

SAMPLERS = {
    name: Row(sampler, law)
    for own, sampler in samplers.SAMPLERS.items()
    for name, law in {own: sampler.law, **sampler.other_laws}.items()
}


def cells(short):
    """The pairs of a sampler and a target, of the short form or of the whole table."""
    return [
        (sampler, target)
        for sampler, row in SAMPLERS.items()
        for target in (row.law.short if short else TARGETS)
        if target not in row.law.without
    ]
