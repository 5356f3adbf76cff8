"""MINTEE: a ladder of truncated, tempered mini-batch chains with equi-energy jumps.

Papers: Li and Wong (2017), "Mini-batch tempered MCMC", section 5.2, appendix D and
algorithm 2; Kou, Zhou and Wong (2006), "Equi-energy sampler with applications in
statistical inference and statistical mechanics".

Target: chain k = 0..K-1 has the temperature T_k, 1 = T_0 < ... < T_{K-1}, the batch
size m_k, n = m_0 > ... > m_{K-1}, and the energy level H_k. Position and order together
have the density

    pi_k(theta, I) = exp(-V_k(h_k(theta, I)) / T_k) nu(I),   V_k(h) = max(h, H_k)

with nu uniform, and h_k the energy estimated from the first m_k examples of I, a random
order of all of the data. Chain 0 takes all of the data, and samples exp(-h) exactly. It
is not truncated, as in the paper, where H_0 <= inf h.

Ladder, with alpha = 0.995 and c = 10 in the paper:

    m_k = gamma m_{k+1},   T_k = n / m_k^alpha for k > 0,   H_{k+1} = H_k + c T_k

Local move: a Langevin proposal with z standard normal and g = grad log pi_k, which is 0
where the energy is truncated. (The paper prints eps^2 z, a misprint.)

    theta' = theta + eps_k^2 / 2 g + eps_k z
    log r = (V_k(h) - V_k(h')) / T_k + log q(theta' -> theta) - log q(theta -> theta')

If m_k < n, a local move keeps the order I. A share `REFRESH` of the steps without a
jump proposes a new order at the same theta instead, and log r has no q. If m_k = n, a
local move draws a new order, which h_k does not depend on. The paper draws a new batch
at each local move.

Jump: (theta', I') is a uniform member of ring j of chain k + 1, where j is the ring of
h_{k+1}(theta, I), the energy of the chain's own state at the batch size of chain k + 1,
H_j <= h_{k+1}(theta, I) < H_{j+1}. The paper finds the ring by h_k.

    log r = (V_k(h_k) - V_k(h_k')) / T_k
            - (V_{k+1}(h_{k+1}) - V_{k+1}(h_{k+1}')) / T_{k+1}

The paper uses one energy for both temperatures, with m_k - m_{k+1} more examples. Here
a ring keeps the order I' itself. The further examples are the next ones in this order,
each energy has the batch of its own chain, and the jump is exact on (theta, I). For
k = 0 the batch with the further examples is all of the data, in any order.

Energies are differences from a reference, whose energy on all of the data is h_ref:

    h_k(theta, I) = h_ref + n / m_k sum (l_i(ref) - l_i(theta))
                    + log prior(ref) - log prior(theta)

with l_i the log-likelihood of example i, and the sum over the first m_k examples of I.
The mean over I is h(theta), as without a reference. The noise comes from
l_i(theta) - l_i(ref) instead of l_i(theta). Without a reference, log r of a move to a
new batch would have a standard deviation of 33 nats in the paper's mixture at m = 1000,
and nothing would be accepted.

Steps: after each window of proposals in the burn-in, eps_k is divided by 1.25 if the
acceptance was below the target range, and multiplied by 1.25 if it was above. After the
burn-in eps_k is fixed: the target of a chain that goes on adapting is not known.

The paper writes I(theta) for the ring index j, and has no symbol for the order I.

| paper              | name                | shape           | unit            |
|--------------------|---------------------|-----------------|-----------------|
| theta              | `position`          | list of tensors | weights         |
| I, ours            | `order`             | (rounds, C)     | 1               |
| z                  | `normals`           | list of tensors | 1               |
| pi_k               | -                   | (C,)            | 1               |
| h                  | `energy`            | (C,)            | nats            |
| h v H_k, here V_k  | `truncated`         | (C,)            | nats            |
| H_k                | `level`             | scalar          | nats            |
| T_k                | `temperature`       | scalar          | 1               |
| m_k                | `batch_sizes`       | (K,)            | examples        |
| n                  | `train_size`        | int             | examples        |
| gamma              | `growth`            | float           | 1               |
| alpha              | `alpha`             | float           | 1               |
| c                  | `spacing`           | float           | nats            |
| K                  | `size`              | int             | count           |
| C, ours            | `num_chains`        | int             | count           |
| p_ee               | `jump_probability`  | float           | 1               |
| D_j, I(theta) = j  | `ring_index`        | (C,)            | index           |
| -g                 | `tempered_gradient` | list of tensors | nats per weight |
| eps_k              | `step_size`         | (C,)            | weights         |
| log q' - log q     | `log_q_ratio`       | (C,)            | nats            |
"""

import math
from collections.abc import Sequence

from keras import ops

from keras_mhmcmc._types import Tensor
from keras_mhmcmc.algorithms import proposals
from keras_mhmcmc.algorithms import tempering
from keras_mhmcmc.samplers.base import Position
from keras_mhmcmc.samplers.parts import tensors

WINDOW = 50  # proposals between two changes of a step size
FACTOR = 1.25
REFRESH = 0.3  # share of the steps without a jump that propose a new batch


def ladder(train_size: int, batch_sizes: Sequence[int], alpha: float) -> list[float]:
    """Return the temperatures T_k of the chains, the coldest first."""
    return [
        1.0
        if size == train_size
        else tempering.mint_temperature(alpha, train_size, size)
        for size in batch_sizes
    ]


def default_levels(
    lowest: float, temperatures: Sequence[float], spacing: float = 10.0
) -> list[float]:
    """Return the energy levels H_0..H_{K-1} in nats; `lowest` is H_0."""
    levels = [lowest]
    for temperature in temperatures[:-1]:
        levels.append(levels[-1] + spacing * temperature)
    return levels


def truncated(energy: Tensor, level: float) -> Tensor:
    """Return V_k of an energy."""
    return ops.maximum(energy, level)


def tempered_gradient(
    gradient: Position, energy: Tensor, level: float, temperature: float
) -> Position:
    """Return the gradient of V_k(h)/T_k, from the gradient of h."""
    scale = ops.where(energy > level, 1.0 / temperature, 0.0)
    return tensors.add_scaled([ops.zeros_like(g) for g in gradient], scale, gradient)


def proposal_scales(step_size: Tensor) -> proposals.Scales:
    """Return the step of the Langevin move on the tempered gradient, and its noise."""
    return proposals.Scales(0.5 * ops.square(step_size), step_size, 1.0)


def local_log_ratio(
    energy: Tensor,
    new_energy: Tensor,
    level: float,
    temperature: float,
    log_q_ratio: Tensor,
) -> Tensor:
    """Return log r of a local move, (C,)."""
    change = truncated(energy, level) - truncated(new_energy, level)
    return change / temperature + log_q_ratio


def jump_log_ratio(
    energy: Tensor,
    new_energy: Tensor,
    hotter: Tensor,
    new_hotter: Tensor,
    levels: Sequence[float],
    temperatures: Sequence[float],
) -> Tensor:
    """Return log r of a jump, (C,).

    Args:
        energy: h_k of the present state, nats, (C,).
        new_energy: h_k of the proposed state.
        hotter: h_{k+1} of the present state.
        new_hotter: h_{k+1} of the proposed state.
        levels: H_k and H_{k+1}, nats.
        temperatures: T_k and T_{k+1}.
    """
    here = truncated(energy, levels[0]) - truncated(new_energy, levels[0])
    there = truncated(hotter, levels[1]) - truncated(new_hotter, levels[1])
    return here / temperatures[0] - there / temperatures[1]


def ring_index(energy: Tensor, levels: Sequence[float]) -> Tensor:
    """Return j of the ring [H_j, H_{j+1}) of each energy, int32; 0 below H_1."""
    inner = ops.convert_to_tensor(levels[1:], "float32")
    above = ops.expand_dims(energy, -1) >= inner
    return ops.sum(ops.cast(above, "int32"), axis=-1)


def member_slot(count: Tensor, capacity: int, uniform: Tensor) -> Tensor:
    """Return the slot of a uniform member of a ring that received `count` states."""
    held = ops.cast(ops.minimum(count, capacity), "float32")
    slot = ops.cast(uniform * held, "int32")
    # A uniform number next to 1 may round up.
    return ops.minimum(slot, ops.maximum(ops.minimum(count, capacity) - 1, 0))


def reservoir_slot(count: Tensor, capacity: int, uniform: Tensor) -> Tensor:
    """Return the slot for one more state of a ring that received `count` states.

    The slot `capacity` stands for none. A full ring holds a uniform sample of all
    states that it received (Vitter (1985), "Random sampling with a reservoir",
    algorithm R).
    """
    total = ops.cast(count + 1, "float32")
    chosen = ops.minimum(ops.cast(uniform * total, "int32"), capacity)
    return ops.where(count < capacity, count, chosen)


def adapted_step_size(
    step_size: Tensor, accepted: Tensor, proposed: Tensor, target: tuple[float, float]
) -> tuple[Tensor, Tensor]:
    """Return the next step size (C,), and whether a window ended, bool (C,).

    Args:
        step_size: eps_k, (C,).
        accepted: accepted local moves in the window, (C,).
        proposed: local moves in the window, (C,).
        target: the lowest and the highest acceptance that keep the step size.
    """
    ended = proposed >= WINDOW
    share = accepted / ops.maximum(proposed, 1.0)
    change = ops.where(share < target[0], -1.0, ops.where(share > target[1], 1.0, 0.0))
    factor = ops.exp(math.log(FACTOR) * ops.where(ended, change, 0.0))
    return step_size * factor, ended
