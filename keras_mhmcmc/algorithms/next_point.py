"""What the next point of a Metropolis-Hastings chain is, and how far it lies away.

Not in the papers, which have proposals only. A *refresh* is the state's own position,
for a new batch. A *warm-up* step is a plain gradient step, which is accepted if it is
finite. If it was not finite, the state is evaluated again, on the next batch.

| here          | name       | shape     | unit |
|---------------|------------|-----------|------|
| kind of point | `kind`     | () or (K,) | one of the integers of `acceptance.py` |
| s, epsilon    | `scales`   | () or (K,) | see `proposals.py` |
"""

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import acceptance
from keras_mhmcmc.algorithms.proposals import Scales
from keras_mhmcmc.samplers.parts.tensors import ops


def next_kind(has_state: Tensor, refreshes: Tensor, warms_up: Tensor) -> Tensor:
    """Return what the next point is to the state, int32, () or (K,).

    Args:
        has_state: bool; without a state the next point is the first one.
        refreshes: bool, or None if no step is a refresh.
        warms_up: bool, or None if there is no warm-up.
    """
    is_pending = ops.cast(has_state, "int32")
    kind = acceptance.PROPOSAL * is_pending
    if refreshes is not None:
        kind = ops.where(refreshes, acceptance.REFRESH * is_pending, kind)
    if warms_up is not None:
        kind = ops.where(warms_up, acceptance.WARM_UP * is_pending, kind)
    return kind


def has_beta(kind: Tensor) -> Tensor:
    """Return whether a beta belongs to a point of this kind; a refresh keeps it."""
    return (kind == acceptance.PROPOSAL) | (kind == acceptance.REFRESH)


def scales_of(kind: Tensor, scales: Scales, finite: Tensor) -> Scales:
    """Return the scales of a point of this kind.

    A refresh stays where it is, and so does a chain without a state.

    Args:
        kind: of the next point.
        scales: those of a proposal.
        finite: bool, whether the last point was finite; None if there is no warm-up.
    """
    proposes = kind == acceptance.PROPOSAL
    moves = proposes
    if finite is not None:
        moves = proposes | ((kind == acceptance.WARM_UP) & finite)
    return Scales(
        step=ops.where(moves, scales.step, 0.0),
        noise=ops.where(proposes, scales.noise, 0.0),
        beta=ops.where(has_beta(kind), ops.cast(scales.beta, "float32"), 1.0),
    )
