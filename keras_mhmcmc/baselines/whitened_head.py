"""The head of a classifier in coordinates in which its posterior is nearly N(0, I).

With the features phi of an example, the head's weights W, shape (F, C), and the prior
N(0, 1/tau_f) of a row of W, the energy of the head is

    U(W) = -sum_n log p(y_n | W^T phi_n) + sum_fc tau_f W_fc^2 / 2

Equations, with p_n the probabilities at the mode W*:

    (1)  W <- W - B^-1 grad U(W),  B = b sum_n phi_n phi_n^T + diag(tau)
    (2)  S = sum_n w_n phi_n phi_n^T + diag(tau) = R R^T,  w_n = mean_c p_nc (1 - p_nc)
    (3)  W = W* + R^-T V,  psi_n = R^-1 phi_n,  W^T phi_n = W*^T phi_n + V^T psi_n

(1) finds W*. b = 1/2 for a softmax and 1/4 for a sigmoid bound the curvature of log p,
so that no step raises U (Boehning 1992); momentum makes it faster. S is the Hessian of
U at W*, averaged over the classes, so the posterior of V has about the width 1.

| symbol | name | shape | unit |
|---|---|---|---|
| phi | `head.features` | (N, F) | features |
| W* | `mode` | (F, C) | weights |
| R | `factor` | (F, F) | features |
| V | position | (F, C) | 1 |
| psi | `features` | (N, F) | 1 |
| W*^T phi | `logits` | (N, C) | nats |
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from keras_mhmcmc._warn import warn
from keras_mhmcmc.baselines import head as heads
from keras_mhmcmc.baselines.head import Floats
from keras_mhmcmc.baselines.head import Head

_MOST_STEPS = 2000  # of (1)


@dataclass(frozen=True)
class WhitenedHead:
    """The coordinates of (3)."""

    mode: Floats
    factor: Floats
    tau: Floats  # (F, C)
    features: Floats
    logits: Floats
    curvature: Floats  # w_n, (N,)

    def weights(self, positions: Floats) -> Floats:
        """Return W for positions V of shape (..., F, C)."""
        return self.mode + np.linalg.solve(self.factor.T, positions)


def whitened(head: Head, tau: Floats, labels: npt.NDArray[np.int_]) -> WhitenedHead:
    """Return the coordinates of (3) of a posterior.

    Args:
        head: the head.
        tau: precision of the prior of each weight, (F, C), the same in a row, positive.
        labels: classes, (N,).
    """
    phi = head.features
    mode = posterior_mode(head, tau, labels)
    p = probabilities(phi @ mode)
    w = (p * (1.0 - p)).mean(axis=1)
    factor = np.linalg.cholesky((phi * w[:, None]).T @ phi + np.diag(tau[:, 0]))
    psi = np.linalg.solve(factor, phi.T).T.astype("float64")
    return WhitenedHead(mode, factor, tau, psi, phi @ mode, w)


def posterior_mode(
    head: Head, tau: Floats, labels: npt.NDArray[np.int_], tolerance: float = 1e-3
) -> Floats:
    """Return W*, from the trained weights by (1).

    The end is a gradient of length `tolerance` in the metric of B: a distance of at
    most `tolerance` posterior standard deviations where the posterior is as narrow as
    b allows, and of some more elsewhere.
    """
    phi, classes = head.features, head.values.shape[1]
    rows = labels[:, None] if classes == 1 else np.eye(classes)[labels]
    targets: Floats = rows.astype("float64")
    bound = 0.25 if classes == 1 else 0.5
    inverse = np.linalg.inv(bound * phi.T @ phi + np.diag(tau[:, 0]))
    # Weights that were not trained on these features may be worse than none.
    starts = [head.values, np.zeros_like(head.values)]
    current = point = min(starts, key=lambda w: _energy(phi @ w, targets, tau, w))
    momentum = 1.0
    for _ in range(_MOST_STEPS):
        gradient = phi.T @ (probabilities(phi @ point) - targets) + tau * point
        step = inverse @ gradient
        if math.sqrt(max(float((step * gradient).sum()), 0.0)) < tolerance:
            break
        new = point - step
        if float((gradient * (new - current)).sum()) > 0.0:
            momentum = 1.0  # U would rise: begin again
        following = (1.0 + math.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        point = new + (momentum - 1.0) / following * (new - current)
        current, momentum = new, following
    else:
        length = math.sqrt(max(float((step * gradient).sum()), 0.0))
        warn(
            f"The mode of the last layer's posterior was not found in {_MOST_STEPS} "
            f"steps: the gradient has the length {length:.3g} instead of "
            f"{tolerance:.3g}, and the chains begin elsewhere. The features before the "
            f"layer are as large as {np.abs(phi).max():.3g}. Scale them to about 1, "
            "for example by `keras.layers.LayerNormalization`, or pass a narrower "
            "`prior`."
        )
    return point


def _energy(logits: Floats, targets: Floats, tau: Floats, w: Floats) -> float:
    """Return U(W) without the constant of the prior, nats."""
    if logits.shape[-1] == 1:
        losses = np.logaddexp(0.0, logits) - targets * logits
    else:
        losses = np.logaddexp.reduce(logits, axis=-1) - (targets * logits).sum(axis=-1)
    return float(losses.sum() + 0.5 * (tau * np.square(w)).sum())


def probabilities(logits: Floats) -> Floats:
    """Return the probabilities of logits (..., C); of class 1 if C is 1."""
    return heads.sigmoid(logits) if logits.shape[-1] == 1 else heads.softmax(logits)
