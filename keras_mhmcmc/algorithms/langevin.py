"""Stochastic gradient Langevin dynamics, plain and preconditioned.

Papers: Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin
dynamics", eq. (4); Li, Chen, Carlson and Carin (2016), "Preconditioned stochastic
gradient Langevin dynamics for deep neural networks", algorithm 1.

Law: exp(-U(theta)/T), up to the bias of a finite step and of gradient noise. On a
Gaussian with precision L in nats, and eta = epsilon/N, the variance of `sgld_step` is
T / (L (1 - eta L / 2)). Gradient noise of variance V, in the gradient of U/N, raises T
there to T + epsilon N V / 2.

Equations, with N the number of training examples and Z standard normal:

    SGLD   theta <- theta - epsilon grad(U/N) + sqrt(2 epsilon T / N) Z
    pSGLD  V <- a V + (1 - a) grad(U/N)^2,   G = 1 / (lambda + sqrt(V))
           theta <- theta - epsilon G grad(U/N) + sqrt(2 epsilon T G / N) Z

The papers' curvature correction Gamma(theta) is left out of pSGLD, as in their
experiments: its law is biased where G changes quickly.

| paper        | name            | shape          | unit                       |
|--------------|-----------------|----------------|----------------------------|
| theta        | `position`      | list of tensors| weights                    |
| grad(U/N)    | `gradient`      | list of tensors| nats per example and weight|
| epsilon      | `learning_rate` | scalar         | as in SGD                  |
| T            | `temperature`   | scalar         | 1                          |
| N            | `train_size`    | int            | examples                   |
| Z            | `normals`       | list of tensors| 1                          |
| V            | `second_moment` | list of tensors| gradient squared           |
| a, lambda    | `decay`, `epsilon` | float       | 1, gradient                |
"""

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops


def noise_scale(learning_rate, temperature, train_size):
    """Standard deviation of the Langevin noise, sqrt(2 epsilon T / N)."""
    return ops.sqrt(2.0 * learning_rate * temperature / train_size)


def sgld_step(
    position,
    gradient,
    normals,
    *,
    learning_rate,
    temperature,
    train_size,
    multiplier=1.0,
):
    """One SGLD step: the next position. `multiplier` scales the gradient alone."""
    noise = noise_scale(learning_rate, temperature, train_size)
    step = -learning_rate * multiplier
    return tensors.add_terms(position, (step, gradient), (noise, normals))


def psgld_step(
    position,
    second_moment,
    gradient,
    normals,
    *,
    learning_rate,
    temperature,
    train_size,
    decay,
    epsilon,
):
    """One pSGLD step: the next position and second moment."""
    squares = [ops.square(g) for g in gradient]
    change = tensors.subtract(squares, second_moment)
    second_moment = tensors.add_scaled(second_moment, 1.0 - decay, change)
    scaling = [1.0 / (epsilon + ops.sqrt(v)) for v in second_moment]

    drift = [g * scale for g, scale in zip(gradient, scaling, strict=True)]
    noise = [z * ops.sqrt(scale) for z, scale in zip(normals, scaling, strict=True)]
    deviation = noise_scale(learning_rate, temperature, train_size)
    moved = tensors.add_terms(position, (-learning_rate, drift), (deviation, noise))
    return moved, second_moment
