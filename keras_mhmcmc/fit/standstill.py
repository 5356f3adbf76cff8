"""Warn of Metropolis-Hastings chains that do not sample, and say the remedy."""

from typing import Any

import numpy as np

from keras_mhmcmc._types import Array
from keras_mhmcmc._warn import warn
from keras_mhmcmc.samplers.base import Traits

# A chain stands still after so many rejected proposals in a row, if their probability
# at the chain's earlier acceptance is less than `_UNLIKELY`.
_MANY = 20
_UNLIKELY = 1e-5
# A state with a lucky batch waits for a refresh that is accepted: for a few of them.
_REFRESHES = 5
# Largest spacing of float32 at the energy, in units of the temperature, at which
# rounding does not decide. The table is in `docs/chains.md`.
_COARSE = 0.125


class Standstill:
    """Watch the counts of a sampler at the end of each epoch, and warn once."""

    def __init__(
        self, name: str, refresh_probability: float = 0.0, many: int = _MANY
    ) -> None:
        self._name = name
        self._many: float = many
        if refresh_probability > 0.0:
            self._many = max(many, _REFRESHES / refresh_probability)
        self._in_a_row: Any = 0  # rejected proposals in a row, () or (chains,)
        self._accepted: Any = 0  # so far, () or (chains,)
        self._proposed: Any = 0
        self._told: set[str] = set()
        self.has_looked = False

    def look(
        self, accepted: Array, proposed: Array, *, rate: float, temperature: float
    ) -> None:
        """Warn of chains that have accepted nothing for long."""
        self.has_looked = True
        idle = np.where(accepted > 0, 0.0, self._in_a_row + proposed)
        self._in_a_row = idle
        self._accepted = self._accepted + accepted
        self._proposed = self._proposed + proposed
        before = self._accepted / np.maximum(self._proposed - idle, 1.0)
        chance = (1.0 - before) ** idle  # 1 if the chain never accepted a proposal
        is_still = idle >= self._many
        is_still &= (chance < _UNLIKELY) | (self._accepted == 0)
        if is_still.any():
            self._tell(
                "still",
                f"{self._name} accepted none of the last {int(idle[is_still].min())} "
                f"proposals{_of_chains(is_still)}: the chain stands still, and its "
                "samples are copies of one state. Lower the learning rate, raise the "
                "temperature, or start from weights that an optimizer has found. If "
                "the data have changed, compile with a new sampler. Now: "
                f"learning_rate={rate:.3g}, temperature={temperature:.3g}",
            )

    def look_at_undecided(self) -> None:
        """Warn of an epoch whose mini-batches have decided no test."""
        self._tell(
            "undecided",
            f"{self._name} decided no test in an epoch, and the chain did not move: "
            "the epoch has fewer examples than the test needs. An epoch must have all "
            "of the data, `train_size` examples. Leave out `steps_per_epoch`. A lower "
            "learning rate needs fewer examples.",
        )

    def look_at_warm_up(self, steps: int, traits: Traits) -> None:
        """Warn if a run of so many steps ends in the warm-up."""
        self._tell("warm-up", warm_up_message(self._name, steps, traits))

    def look_at_rate(
        self, is_lowest: Array, *, rate: float, temperature: float
    ) -> None:
        """Warn if the adaptation has lowered the learning rate as far as it can."""
        if is_lowest.any():
            self._tell(
                "rate",
                f"{self._name} lowered its learning rate to a thousandth"
                f"{_of_chains(is_lowest)}, and still rejects forward moves. Raise the "
                "temperature, lower the learning rate of the warm-up, or make the "
                f"batches larger. Now: learning_rate={rate:.3g}, "
                f"temperature={temperature:.3g}",
            )

    def look_at_lost(self, is_lost: Array, reason: str) -> None:
        """Warn of lost chains, () or (chains,), which have no finite state yet."""
        if is_lost.any():
            self._tell("lost", reason)

    def look_at_energy(self, energy: Array, temperature: float) -> None:
        """Warn if float32 is too coarse for differences of these energies, nats."""
        largest = np.nanmax(np.abs(energy), initial=0.0)
        spacing = float(np.spacing(np.float32(largest)))
        if np.isfinite(spacing) and spacing > _COARSE * temperature:
            self._tell(
                "coarse",
                f"{self._name} compares energies of {largest:.3g} nats at the "
                f"temperature {temperature:.3g}. Their float32 spacing is "
                f"{spacing:.2g} nats, and rounding decides what is accepted. Raise the "
                "temperature, or leave constants out of the loss.",
            )

    def _tell(self, what: str, message: str | None) -> None:
        """Warn, unless there was a warning of this kind."""
        if message is not None and what not in self._told:
            self._told.add(what)
            warn(message)


def warm_up_message(name: str, steps: int, traits: Traits) -> str | None:
    """Return a warning if a run of so many steps ends in its plain first steps."""
    if not 0 < steps <= traits.warm_up:
        return None
    argument, count = traits.warm_up_argument
    return (
        f"{name} made {min(steps, count)} of its {count} plain first steps, and no "
        "sample yet. Train for more epochs, or make the optimizer with a smaller "
        f"`{argument}`. Now: {argument}={count}"
    )


def reason_of_loss(name: str, is_lost: Array) -> str:
    """Return why chains have no state: no evaluated point was finite."""
    return (
        f"{name} has no state to sample{_of_chains(is_lost)}: the loss or the gradient "
        "was not finite at any point so far. Look for values that are not finite in "
        "the weights and in the data."
    )


def _of_chains(chosen: Array) -> str:
    if chosen.ndim == 0:
        return ""
    return f" of the chains {np.flatnonzero(chosen).tolist()} of {len(chosen)}"
