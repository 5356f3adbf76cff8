"""Schedules as the papers describe them, value by value."""

import numpy as np


def power_decay(k, initial, offset, power):
    return initial / (offset + k) ** power


def cyclical_cosine(k, initial, cycle_steps):
    """Eq. (1) of cyclical SG-MCMC, with k counted from 0."""
    position = np.mod(k, cycle_steps) / cycle_steps
    return initial / 2 * (np.cos(np.pi * position) + 1)


def geometric_cycle(k, initial, cycle_steps, decay, decay_steps, growth):
    """One iteration after the other: a fall and a rise when each is due."""
    value = initial
    for iteration in range(1, k + 1):
        if iteration % decay_steps == 0:
            value *= decay
        if iteration % cycle_steps == 0:
            value *= growth
    return value
