"""Stochastic gradient Hamiltonian Monte Carlo, momentum first.

Paper: Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo",
eq. (15), in the form with momentum decay and without the estimate of gradient noise.

Law: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise. On a
Gaussian with precision L in nats, and eta = epsilon/N, the variance of the position is
T / (L (1 - eta L / (2 (1 + mu)))). Gradient noise of variance V, in the gradient of
U/N, raises T there to T + epsilon N V / (2 (1 - mu)).

Equations, with N the number of training examples and Z standard normal:

    v     <- mu v - epsilon grad(U/N) + sqrt(2 epsilon (1 - mu) T / N) Z
    theta <- theta + v

The momentum moves first: the other order uses a gradient that is one step old, and
doubles the variance at eta L = 0.05, mu = 0.9.

| paper     | name            | shape           | unit                        |
|-----------|-----------------|-----------------|-----------------------------|
| theta     | `position`      | list of tensors | weights                     |
| v         | `velocity`      | list of tensors | weights per step            |
| grad(U/N) | `gradient`      | list of tensors | nats per example and weight |
| epsilon   | `learning_rate` | scalar          | as in SGD                   |
| mu        | `momentum`      | float           | 1; friction is 1 - mu       |
| T         | `temperature`   | scalar          | 1                           |
| N         | `train_size`    | int             | examples                    |
| Z         | `normals`       | list of tensors | 1                           |
"""

from keras_mhmcmc.algorithms import langevin
from keras_mhmcmc.algorithms import tensors


def sghmc_step(
    position,
    velocity,
    gradient,
    normals,
    *,
    learning_rate,
    momentum,
    temperature,
    train_size,
    multiplier=1.0,
):
    """One SGHMC step: the next position and velocity.

    `multiplier` scales the gradient alone.
    """
    friction = 1.0 - momentum
    noise = langevin.noise_scale(learning_rate * friction, temperature, train_size)
    step = -learning_rate * multiplier
    velocity = tensors.add_terms(
        velocity, (-friction, velocity), (step, gradient), (noise, normals)
    )
    return tensors.add_scaled(position, 1.0, velocity), velocity
