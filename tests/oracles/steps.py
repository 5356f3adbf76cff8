"""A step of SGLD and others in float64; a position is a list of arrays."""

import numpy as np


def sgld_step(position, gradient, normals, learning_rate, temperature, train_size):
    """theta - epsilon grad(U/N) + sqrt(2 epsilon T / N) Z."""
    deviation = np.sqrt(2 * learning_rate * temperature / train_size)
    return [
        x - learning_rate * g + deviation * z
        for x, g, z in zip(position, gradient, normals, strict=True)
    ]


def psgld_step(
    position,
    second_moment,
    gradient,
    normals,
    learning_rate,
    temperature,
    train_size,
    decay,
    epsilon,
):
    """SGLD with the metric G = 1 / (lambda + sqrt(V)) of each weight."""
    positions, moments = [], []
    for x, v, g, z in zip(position, second_moment, gradient, normals, strict=True):
        v = decay * v + (1 - decay) * g**2
        metric = 1 / (epsilon + np.sqrt(v))
        variance = 2 * learning_rate * metric * temperature / train_size
        positions.append(x - learning_rate * metric * g + np.sqrt(variance) * z)
        moments.append(v)
    return positions, moments


def sghmc_step(
    position,
    velocity,
    gradient,
    normals,
    learning_rate,
    momentum,
    temperature,
    train_size,
):
    """The momentum first, then the position by the new momentum."""
    deviation = np.sqrt(2 * learning_rate * (1 - momentum) * temperature / train_size)
    velocity = [
        momentum * v - learning_rate * g + deviation * z
        for v, g, z in zip(velocity, gradient, normals, strict=True)
    ]
    return [x + v for x, v in zip(position, velocity, strict=True)], velocity


def baoab_step(
    position,
    velocity,
    gradient,
    normals,
    learning_rate,
    momentum,
    temperature,
    train_size,
):
    """One kick, half a drift, friction and noise, half a drift."""
    deviation = np.sqrt(learning_rate * (1 - momentum**2) * temperature / train_size)
    positions, velocities = [], []
    for x, v, g, z in zip(position, velocity, gradient, normals, strict=True):
        v = v - learning_rate * g
        x = x + v / 2
        v = momentum * v + deviation * z
        positions.append(x + v / 2)
        velocities.append(v)
    return positions, velocities


def sgnht_step(
    position,
    velocity,
    thermostat,
    gradient,
    normals,
    learning_rate,
    friction,
    rate,
    temperature,
    train_size,
):
    """SGHMC with the thermostat in the place of 1 - mu, then the thermostat."""
    heat = learning_rate * temperature / train_size  # of each velocity, squared
    deviation = np.sqrt(2 * friction * heat)
    velocity = [
        v - thermostat * v - learning_rate * g + deviation * z
        for v, g, z in zip(velocity, gradient, normals, strict=True)
    ]
    if heat > 0:
        size = sum(v.size for v in velocity)
        energy = sum((v**2).sum() for v in velocity) / (size * heat)
        change = rate * ((1 - thermostat / 2) * energy - 1)
        thermostat = min(thermostat + change, 1.0)
    position = [x + v for x, v in zip(position, velocity, strict=True)]
    return position, velocity, thermostat


def sgmclmc_step(
    position,
    velocity,
    noise,
    gradient,
    before,
    normals,
    number,
    learning_rate,
    temperature,
    train_size,
    warm_up,
    added_noise=1.0,
):
    """Learn the noise, kick, drift; arrays (chains, weights)."""
    count = position.shape[1]
    if number == 0:
        noise = gradient**2
    elif number < warm_up:
        noise = noise + 2 / (number + 11) * ((gradient - before) ** 2 / 2 - noise)
    floor = 0.01 * noise.mean(axis=1, keepdims=True)
    scale = np.maximum(noise, floor) ** -0.5
    kick = learning_rate / np.sqrt((1 + added_noise) * count)
    own = np.sqrt(1 + added_noise - scale**2 * noise)
    velocity = velocity - kick * scale * gradient + kick * own * normals
    velocity = velocity / np.linalg.norm(velocity, axis=1, keepdims=True)
    keep = 1 / np.sqrt(1 + learning_rate**2)
    step = kick * (count - 1) * temperature / train_size * 2 * keep / (1 + keep)
    return position + step * scale * velocity, velocity, noise


def ivon_step(
    mean,
    noise,
    momentum,
    hessian,
    slope,
    normals,
    number,
    learning_rate,
    hessian_init,
    delta,
    beta_1,
    beta_2,
    temperature,
    train_size,
    clip_radius=np.inf,
):
    """Algorithm 1 of the paper on one array, with the step's number from 0."""
    size = train_size / temperature
    estimate = size * (hessian + delta) * noise * slope
    momentum = beta_1 * momentum + (1 - beta_1) * slope
    correction = (1 - beta_2) ** 2 * (hessian - estimate) ** 2 / (2 * (hessian + delta))
    hessian = beta_2 * hessian + (1 - beta_2) * estimate + correction
    unbiased = momentum / (1 - beta_1 ** (number + 1))
    change = (unbiased + delta * mean) / (hessian + delta)
    change = np.clip(change, -clip_radius, clip_radius)
    mean = mean - learning_rate * (hessian_init + delta) * change
    return mean, normals / np.sqrt(size * (hessian + delta)), momentum, hessian
