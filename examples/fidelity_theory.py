"""What closed forms say about the samplers of `examples/fidelity.py`.

Near a mode the energy is quadratic: U = (w - w*)' L (w - w*) / 2, with the precision L
in nats. A sampler with a fixed step is then a linear recursion, whose stationary
covariance is known. In one direction it is the closed form of
docs/energy_and_units.md. `Mode` finds L and the covariance of mini-batch gradients with
NumPy in float64, and the functions below give rates and covariances.

| symbol | name         | shape    | unit                                        |
|--------|--------------|----------|---------------------------------------------|
| L      | precision    | (d, d)   | nats                                        |
| V      | noise        | (d, d)   | covariance of a batch's gradient of U/N     |
| C      | number       | ()       | outputs of the model                        |
| eps    | rate         | ()       | learning rate; eta = eps / N                |
| T      | temperature  | ()       | 1 is the posterior                          |
"""

import functools

import keras
import numpy as np
import reference_problems

SPEED = 0.5  # eta L of SGLD in the stiffest direction: 2 is the edge of stability
LANGEVIN = (8 * 0.5624) ** (1 / 3)  # step of MALA that accepts 0.574 of a Gaussian
WALK = 2.38  # step of a random walk that accepts 0.234
DRAWS = 2000


class Mode:
    """The energy of a problem near given weights.

    Args:
        problem: a `reference_problems.Problem`.
        position: dict of arrays, near a mode of the posterior.
    """

    def __init__(self, problem, position):
        self.problem = problem
        self.size = len(problem.data["x"])
        self.center = flat(problem, position)
        jacobian, _, weight = self._model(self.center)
        weighted = np.einsum("ncd,ndk->nck", weight, jacobian)
        rows = (-1, len(self.center))
        self.precision = jacobian.reshape(rows).T @ weighted.reshape(rows)
        self.precision += np.eye(len(self.center))

    @functools.cached_property
    def stiffness(self):
        """Eigenvalues of the precision, in nats, rising."""
        return np.linalg.eigvalsh(self.precision)

    @functools.cached_property
    def covariance(self):
        """Covariance of the posterior."""
        return np.linalg.inv(self.precision)

    @functools.cached_property
    def _gradients(self):
        """Covariance of one example's gradient, over examples and the posterior."""
        total, count = 0.0, 5
        factor = root(self.covariance)
        for normals in np.random.default_rng(0).normal(size=(count, len(factor))):
            jacobian, slope, _ = self._model(self.center + factor @ normals)
            total += np.cov(np.einsum("nc,nck->kn", slope, jacobian), bias=True)
        return total / count

    def noise(self, batch_size):
        """Covariance V of the gradient of U/N on a random batch, (d, d)."""
        left_out = (self.size - batch_size) / (self.size - 1)
        return self._gradients * left_out / batch_size

    def _model(self, weights):
        """Jacobian (N, C, d) of the outputs; slope and curvature of the loss in them.

        The curvature of the energy then is that of Gauss and Newton. For a model with
        one layer it is exact.
        """
        x = self.problem.data["x"].astype("float64")
        y = self.problem.data["y"].astype("float64").reshape(len(x), -1)
        w = unflat(self.problem, weights)
        inputs, parts = x, {}
        if "w2" in w:
            inputs = np.tanh(x @ w["w1"] + w["b1"])
            # Of each output in what the hidden units take.
            back = (1 - inputs**2)[:, :, None] * w["w2"]
            back = back.transpose(0, 2, 1)
            parts = {"w1": back[:, :, None, :] * x[:, None, :, None], "b1": back}
        last = "w2" if "w2" in w else "w1"
        outputs = inputs @ w[last] + w[last.replace("w", "b")]
        one = np.eye(outputs.shape[1])
        parts[last] = inputs[:, None, :, None] * one[None, :, None, :]
        parts[last.replace("w", "b")] = np.broadcast_to(one, (len(x), *one.shape))
        jacobian = np.concatenate(
            [parts[name].reshape(*outputs.shape, -1) for name in w], axis=-1
        )
        if self.problem.task == "regression":
            scale = reference_problems.NOISE_STD**2
            curvature = np.broadcast_to(one / scale, (len(x), *one.shape))
            return jacobian, (outputs - y) / scale, curvature
        if outputs.shape[1] == 1:
            p = 0.5 * (1.0 + np.tanh(0.5 * outputs))
            return jacobian, p - y, (p * (1 - p))[:, :, None]
        p = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return jacobian, p - y, p[:, :, None] * (one - p[:, None, :])


def flat(problem, position):
    """The weights of a position as one vector, float64."""
    parts = [np.ravel(position[name]) for name in problem.shapes]
    return np.concatenate(parts).astype("float64")


def unflat(problem, weights):
    """A position from vectors of weights, (..., d)."""
    position, start = {}, 0
    for name, shape in problem.shapes.items():
        stop = start + int(np.prod(shape))
        part = weights[..., start:stop]
        position[name] = part.reshape(*weights.shape[:-1], *shape)
        start = stop
    return position


# Learning rates.


def langevin_rate(stiffness, size):
    """Rate of a Langevin proposal that a Gaussian accepts with 0.574.

    Roberts and Rosenthal (1998). It is the same at each temperature.
    """
    step = LANGEVIN / np.sum(stiffness**3) ** (1 / 6)
    return size * step**2 / 2.0


def walk_rate(stiffness, temperature):
    """Step of a random walk that a Gaussian accepts with 0.234."""
    return WALK * np.sqrt(temperature / np.sum(stiffness))


def preconditioner(mode, batch_size, epsilon=1e-5):
    """The mean of PSGLD's factors of the gradient, (d,)."""
    squares = np.diag(mode.precision) / mode.size**2 + np.diag(mode.noise(batch_size))
    return 1.0 / (epsilon + np.sqrt(squares))


def preconditioned_stiffness(mode, factors):
    """Largest curvature that PSGLD's steps see, nats."""
    scale = np.sqrt(factors)
    return np.linalg.eigvalsh(scale[:, None] * mode.precision * scale)[-1]


# Stationary covariances.


def stationary(transitions, noise):
    """The covariance S with S_ij = A_i S_ij A_j' + noise_ij, by doubling.

    Args:
        transitions: A_i of each direction, (d, k, k). They must be stable.
        noise: (d, d, k, k).
    """
    largest = np.abs(np.linalg.eigvals(transitions)).max()
    if largest >= 1.0:
        raise ValueError(
            "Argument `transitions` must have eigenvalues below 1 in absolute value: "
            f"lower the rate. Received: a largest one of {largest:.3g}"
        )
    total, power, more = noise, transitions, noise
    while np.abs(more).max() > 1e-10 * np.abs(total).max():
        more = np.einsum("iab,ijbc,jdc->ijad", power, total, power, optimize=True)
        total, power = total + more, power @ power
    return total


def overdamped(mode, rate, batch_size, factors=1.0):
    """Covariance of SGLD, or of PSGLD with constant factors (d,), at T = 1."""
    scale = np.sqrt(np.broadcast_to(factors, len(mode.center)))
    values, axes = np.linalg.eigh(scale[:, None] * mode.precision * scale)
    kick = axes.T @ (scale[:, None] * mode.noise(batch_size) * scale) @ axes
    kick = 2.0 * rate / mode.size * np.eye(len(values)) + rate**2 * kick
    kept = 1.0 - rate / mode.size * values
    found = stationary(kept[:, None, None], kick[:, :, None, None])[:, :, 0, 0]
    back = scale[:, None] * axes
    return back @ found @ back.T


def with_momentum(mode, rate, batch_size, momentum, friction=None):
    """Covariance of SGHMC at T = 1; a friction other than 1 - momentum is SGNHT's."""
    values, axes = np.linalg.eigh(mode.precision)
    kept = momentum if friction is None else 1.0 - friction
    transitions = np.full((len(values), 2, 2), kept)  # of velocity and position
    transitions[:, :, 1] = np.array([0.0, 1.0]) - rate / mode.size * values[:, None]
    kick = rate**2 * (axes.T @ mode.noise(batch_size) @ axes)
    kick += 2.0 * rate / mode.size * (1.0 - momentum) * np.eye(len(values))
    noise = np.broadcast_to(kick[:, :, None, None], (*kick.shape, 2, 2))
    return axes @ stationary(transitions, noise)[:, :, 1, 1] @ axes.T


def thermostat(mode, rate, batch_size, momentum):
    """Mean friction of SGNHT, from docs/energy_and_units.md."""
    values, axes = np.linalg.eigh(mode.precision)
    noise = np.einsum("ki,kl,li->i", axes, mode.noise(batch_size), axes)
    needed = 1.0 - momentum + 0.5 * rate * mode.size * noise
    pull = rate / mode.size * values
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        slowed = 1.0 - pull / (2.0 * (2.0 - middle))
        is_low = middle < np.mean(needed / slowed)
        low, high = (middle, high) if is_low else (low, middle)
    return middle


def on_batches(mode, temperature, batch_size):
    """Covariance of Metropolis on mini-batches to first order, or None.

    The precision falls from L/T by (N/T)^2 V. If none is left there is no such form.
    """
    lost = (mode.size / temperature) ** 2 * mode.noise(batch_size)
    precision = mode.precision / temperature - lost
    if np.linalg.eigvalsh(precision)[0] <= 0.0:
        return None
    return np.linalg.inv(precision)


def root(covariance):
    """The symmetric square root of a matrix."""
    values, axes = np.linalg.eigh(covariance)
    return (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T


def spread(mode, covariance):
    """Root mean square of the predictions' standard deviation for Gaussian weights."""
    normals = np.random.default_rng(1).normal(size=(DRAWS, len(mode.center)))
    weights = mode.center + normals @ root(covariance)
    position = unflat(mode.problem, weights.astype("float32"))
    found = keras.ops.convert_to_numpy(
        mode.problem.predict(position, mode.problem.x_test)
    )
    return float(np.sqrt(np.mean(np.var(found.astype("float64"), axis=0))))
