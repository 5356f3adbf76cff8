"""MINTEE: a ladder of truncated, tempered mini-batch chains with equi-energy jumps.

Papers: Li and Wong (2017), "Mini-batch tempered MCMC", section 5.2, appendix D and
algorithm 2; Kou, Zhou and Wong (2006), "Equi-energy sampler with applications in
statistical inference and statistical mechanics".

Law: chain k = 0..K-1 has the temperature T_k, 1 = T_0 < ... < T_{K-1}, the batch size
m_k, n = m_0 > ... > m_{K-1}, and the energy level H_k. On position and batch together,

    pi_k(theta, I) = exp(-V_k(h_k(theta, I)) / T_k) nu(I),   V_k(h) = max(h, H_k)

with h_k the energy estimated from the first m_k examples of I, a random order of all of
the data. Chain 0 takes all of the data, so its law is exp(-h) exactly: we do not
truncate it, which is what the paper's H_0 <= inf h amounts to.

Ladder, with alpha = 0.995 and c = 10 in the paper:

    m_k = gamma m_{k+1},   T_k = n / m_k^alpha for k > 0,   H_{k+1} = H_k + c T_k

Local move, a Langevin proposal with z standard normal and g = grad log pi_k, which is 0
where the energy is truncated (the paper prints eps^2 z, a misprint). The order I stays;
`REFRESH` of the steps propose a new I for the same position, with both q left out:

    theta' = theta + eps_k^2 / 2 g + eps_k z
    log r = (V_k(h) - V_k(h')) / T_k + log q(theta' -> theta) - log q(theta -> theta')

Jump: (theta', I') is a uniform member of ring j of chain k + 1, where j is the ring of
the chain's own state as chain k + 1 sees it, H_j <= h_{k+1}(theta, I) < H_{j+1}:

    log r = (V_k(h_k) - V_k(h_k')) / T_k
            - (V_{k+1}(h_{k+1}) - V_{k+1}(h_{k+1}')) / T_{k+1}

The paper uses one energy for both temperatures, topped up by m_k - m_{k+1} further
examples. Here a ring keeps the order I' itself, so that the further examples are the
ones that follow in it, each energy has the batch of its own chain, and the jump is
exact on (theta, I): for k = 0 the topped-up batch is the data, whatever came before.

Energies are differences from a reference, whose energy on all of the data is h_ref:

    h_k(theta, I) = h_ref + n / m_k sum_I (l_i(ref) - l_i(theta)) + log prior terms

with l_i the log-likelihood of example i. The mean over I is h(theta), as without the
reference. The noise is that of l_i(theta) - l_i(ref) instead of l_i(theta): in the
paper's mixture log r of a move to a new batch would have a standard deviation of 33
nats at m = 1000, and nothing would be accepted.

Steps: after each window of proposals in the burn-in, eps_k is divided by 1.25 where the
acceptance was below the target's range, multiplied by it above. It is fixed afterwards:
a chain that goes on adapting has no law that is known.

| paper         | name             | shape            | unit             |
|---------------|------------------|------------------|------------------|
| h             | `energy`         | (C,)             | nats             |
| H_k           | `level`          | scalar           | nats             |
| T_k           | `temperature`    | scalar           | 1                |
| D_j, I(theta) | `ring_index`     | (C,)             | index            |
| -g            | `tempered_gradient` | list of tensors| nats per weight |
| eps_k         | `step_size`      | (C,)             | weights          |
"""

import math

from keras import ops

from keras_mhmcmc.algorithms import metropolis
from keras_mhmcmc.algorithms import proposals
from keras_mhmcmc.algorithms import tensors

WINDOW = 50  # proposals between two changes of a step size
FACTOR = 1.25
REFRESH = 0.3  # share of the steps that are no jumps


def ladder(train_size, batch_sizes, alpha):
    """Temperatures of the chains, the coldest first."""
    return [
        1.0
        if size == train_size
        else metropolis.mint_temperature(alpha, train_size, size)
        for size in batch_sizes
    ]


def default_levels(lowest, temperatures, spacing=10.0):
    """Energy levels H_0..H_{K-1} from H_0."""
    levels = [lowest]
    for temperature in temperatures[:-1]:
        levels.append(levels[-1] + spacing * temperature)
    return levels


def truncated(energy, level):
    """V_k of an energy."""
    return ops.maximum(energy, level)


def tempered_gradient(gradient, energy, level, temperature):
    """The gradient of V_k(h)/T_k from that of h."""
    scale = ops.where(energy > level, 1.0 / temperature, 0.0)
    return tensors.add_scaled([ops.zeros_like(g) for g in gradient], scale, gradient)


def proposal_scales(step_size):
    """The Langevin move's step on the tempered gradient, and its noise."""
    return proposals.Scales(0.5 * ops.square(step_size), step_size, 1.0)


def local_log_ratio(energy, new_energy, level, temperature, log_q_ratio):
    """log r of a local move."""
    change = truncated(energy, level) - truncated(new_energy, level)
    return change / temperature + log_q_ratio


def jump_log_ratio(energy, new_energy, hotter, new_hotter, levels, temperatures):
    """log r of a jump; `levels` and `temperatures` are chain k's and chain k + 1's.

    `hotter` and `new_hotter` are the energies h_{k+1} of both states.
    """
    here = truncated(energy, levels[0]) - truncated(new_energy, levels[0])
    there = truncated(hotter, levels[1]) - truncated(new_hotter, levels[1])
    return here / temperatures[0] - there / temperatures[1]


def ring_index(energy, levels):
    """j of the ring [H_j, H_{j+1}) of each energy; what is below H_1 is in ring 0."""
    inner = ops.convert_to_tensor(levels[1:], "float32")
    above = ops.expand_dims(energy, -1) >= inner
    return ops.sum(ops.cast(above, "int32"), axis=-1)


def member_slot(count, capacity, uniform):
    """A uniform member of a ring that `count` states came to."""
    held = ops.cast(ops.minimum(count, capacity), "float32")
    slot = ops.cast(uniform * held, "int32")
    # A uniform draw next to 1 may round up.
    return ops.minimum(slot, ops.maximum(ops.minimum(count, capacity) - 1, 0))


def reservoir_slot(count, capacity, uniform):
    """Where a ring that `count` states came to keeps one more; `capacity`: nowhere.

    A full ring holds a uniform sample of all states that came (Vitter (1985),
    "Random sampling with a reservoir", algorithm R).
    """
    total = ops.cast(count + 1, "float32")
    chosen = ops.minimum(ops.cast(uniform * total, "int32"), capacity)
    return ops.where(count < capacity, count, chosen)


def adapted_step_size(step_size, accepted, proposed, target):
    """The next step size, and whether a window ended."""
    ended = proposed >= WINDOW
    share = accepted / ops.maximum(proposed, 1.0)
    change = ops.where(share < target[0], -1.0, ops.where(share > target[1], 1.0, 0.0))
    factor = ops.exp(math.log(FACTOR) * ops.where(ended, change, 0.0))
    return step_size * factor, ended
