"""Signs that a Metropolis-Hastings chain does not sample, and what to do about them."""

import numpy as np

from keras_mhmcmc._warn import warn

# Proposals in a row, none of them accepted, from which on a chain stands still, and how
# unlikely they must be at the acceptance that it had before.
_MANY = 20
_UNLIKELY = 1e-5
# Spacing of float32 at the energy, in units of the temperature, above which decisions
# depend on rounding: the table in `docs/chains.md`.
_COARSE = 0.125


class Standstill:
    """Watches the counts of a sampler at the end of each epoch, and warns once."""

    def __init__(self, name):
        self._name = name
        self._in_a_row = 0
        self._accepted = self._proposed = 0
        self._told = set()
        self.has_looked = False

    def look(self, accepted, proposed, *, rate, temperature):
        """Warns if chains accepted nothing for long.

        Args:
            accepted: accepted proposals of an epoch, () or (chains,).
            proposed: all proposals of the epoch, in the same shape.
            rate: the learning rate now.
            temperature: the temperature now.
        """
        self.has_looked = True
        idle = np.where(accepted > 0, 0.0, self._in_a_row + proposed)
        self._in_a_row = idle
        self._accepted = self._accepted + accepted
        self._proposed = self._proposed + proposed
        before = self._accepted / np.maximum(self._proposed - idle, 1.0)
        chance = (1.0 - before) ** idle  # 1 if nothing was ever accepted
        is_still = idle >= _MANY
        is_still &= (chance < _UNLIKELY) | (self._accepted == 0)
        if is_still.any():
            self._tell(
                "still",
                f"{self._name} accepted none of the last {int(idle[is_still].min())} "
                f"proposals{_of_chains(is_still)}: the chain stands still, and its "
                "samples are copies of one state. Lower the learning rate, raise the "
                "temperature, or start from weights that an optimizer has found. Now: "
                f"learning_rate={rate:.3g}, temperature={temperature:.3g}",
            )

    def look_at_lost(self, is_lost, reason):
        """Warns of chains that have no finite state yet."""
        if is_lost.any():
            self._tell("lost", reason)

    def look_at_energy(self, energy, temperature):
        """Warns if float32 is too coarse for differences of such energies."""
        energy = np.nanmax(np.abs(energy), initial=0.0)
        spacing = float(np.spacing(np.float32(energy)))
        if np.isfinite(spacing) and spacing > _COARSE * temperature:
            self._tell(
                "coarse",
                f"{self._name} compares energies of {energy:.3g} nats, whose last "
                f"digit in float32 is {spacing:.2g}, at the temperature "
                f"{temperature:.3g}: rounding decides what is accepted. Take a higher "
                "temperature, or leave constants out of the loss.",
            )

    def _tell(self, what, message):
        if what not in self._told:
            self._told.add(what)
            warn(message)


def reason_of_loss(name, is_lost):
    """Why chains have no state: no point that was evaluated was finite."""
    return (
        f"{name} has no state to sample{_of_chains(is_lost)}: the loss, or the "
        "gradient, was not finite at any point that was evaluated. Look for values "
        "that are not finite in the weights and in the data."
    )


def _of_chains(chosen):
    if chosen.ndim == 0:
        return ""
    return f" of the chains {np.flatnonzero(chosen).tolist()} of {len(chosen)}"
