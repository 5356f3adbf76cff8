"""Rules of MINTEE from their definition, in float64, for one chain at a time."""

import numpy as np


def log_law(energy, level, temperature):
    """log pi_k, up to a constant."""
    return -max(energy, level) / temperature


def local_log_ratio(energy, new_energy, level, temperature, log_q_ratio):
    ratio = log_law(new_energy, level, temperature) - log_law(
        energy, level, temperature
    )
    return ratio + log_q_ratio


def jump_log_ratio(energies, new_energies, levels, temperatures):
    """log of pi_k(new) pi_{k+1}(old) / (pi_k(old) pi_{k+1}(new))."""
    old = [
        log_law(*parts) for parts in zip(energies, levels, temperatures, strict=True)
    ]
    new = [
        log_law(*parts)
        for parts in zip(new_energies, levels, temperatures, strict=True)
    ]
    return new[0] + old[1] - old[0] - new[1]


def ring_index(energy, levels):
    """The last j with H_j <= energy; 0 below all of them."""
    below = [j for j, level in enumerate(levels) if level <= energy]
    return max(below, default=0)


def tempered_gradient(gradient, energy, level, temperature):
    """The gradient of max(h, H)/T, by the case."""
    if energy > level:
        return np.asarray(gradient) / temperature
    return np.zeros_like(gradient)
