"""How beta is chosen, followed step by step.

A step is a dict: `forward`, `proposed`, `accepted` (bools), `limit` (the end of the
strong-gradient regime) and `acceptance`, a function of beta.
"""

import numpy as np


def replay_trials():
    """1, and 191 values whose excess over 1 goes from 1e-4 to 1e5 by one factor."""
    return np.append(1.0, 1.0 + np.logspace(-4, 5, 191))


def replay_choose(steps, beta):
    """The smallest trial in the regime that reaches 90% of the best acceptance there.

    Its excess over 1 is made a fifth larger, as far as the regime goes. Returns the
    choice, and by how much the closest trial missed being judged the other way: as too
    little accepted, relative to the best acceptance, or as in or out of the regime,
    relative to the excess of the limit.
    """
    steps = [step for step in steps if step["forward"] and step["proposed"]]
    if not steps:
        return beta, np.inf
    limit = max(np.mean([step["limit"] for step in steps]), 1.0)
    means = {}
    for trial in replay_trials():
        if trial <= limit:
            means[trial] = np.mean([step["acceptance"](trial) for step in steps])
    best = max(means.values())
    if best <= 1e-3:
        return max(beta, limit), np.inf
    found = min(trial for trial, mean in means.items() if mean >= 0.9 * best)
    margin = min(abs(mean - 0.9 * best) for mean in means.values()) / best
    if limit > 1:
        gap = np.min(np.abs(replay_trials() - limit)) / (limit - 1)
        margin = min(margin, gap)
    return min(found + (found - 1) / 5, limit), margin


def paper_choose(steps, beta):
    """The rule of the paper's section 3.2 at the end of an epoch."""
    proposed = [step for step in steps if step["proposed"]]
    if not proposed:
        return max(beta, 1.0)
    epoch = np.mean([step["accepted"] for step in proposed])
    last = [step for step in proposed if step["forward"]][-100:]
    if epoch > 0.4:
        smallest = 0.5 * beta
        while (
            last
            and np.mean([step["acceptance"](beta) for step in last]) > 0.7
            and 0.95 * beta >= smallest
        ):
            beta = 0.95 * beta
    elif epoch < 0.2:
        beta = 1.05 * beta
    return max(beta, 1.0)
