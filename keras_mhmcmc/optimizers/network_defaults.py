"""Settings with which reversible proposals move a network."""

from typing import Any

from keras_mhmcmc import _validate
from keras_mhmcmc.samplers.parts.proposals import Proposal
from keras_mhmcmc.samplers.parts.rate_adaptation import RateAdaptation
from keras_mhmcmc.schedules import Schedule

WARM_UP = 500  # steps, if the run has four times as many
_LONGEST = 10  # epochs of warm-up
REFRESH_PROBABILITY = 0.1


def network_settings(
    proposal: Proposal,
    learning_rate: Any,
    refresh_probability: float | None,
    warm_up: int | None,
    rate_adaptation: bool | None,
) -> dict[str, Any]:
    """Return the settings of `Metropolis`. None is the default of the proposal.

    A schedule of the learning rate is not adapted by default: it has its own rates.
    """
    is_reversible = proposal.has_backward
    if refresh_probability is None:
        refresh_probability = REFRESH_PROBABILITY if is_reversible else 0.0
    if warm_up is None:
        warm_up = WARM_UP if is_reversible else 0
    if rate_adaptation is None:
        rate_adaptation = is_reversible and not isinstance(learning_rate, Schedule)
    return {
        "refresh_probability": refresh_probability,
        "warm_up": warm_up,
        "rate_adaptation": adaptation_or_none(rate_adaptation),
    }


def longest_warm_up(burn_in: int, train_size: int, batch_size: int) -> int:
    """Return the longest warm-up of a run that keeps no sample in `burn_in` steps.

    The other half of the burn-in is for the adaptation of the rate.
    """
    return min(burn_in // 2, _LONGEST * (train_size // batch_size))


def adaptation_or_none(rate_adaptation: Any) -> RateAdaptation | None:
    """Return how the rate is adapted; None: it is not."""
    _validate.choice("rate_adaptation", rate_adaptation, (True, False))
    return RateAdaptation() if rate_adaptation else None
