"""Adam, which expectation stochastic-maximization (ESM) moves the weights with.

Paper: Kingma and Ba (2015), "Adam: a method for stochastic optimization", algorithm 1.

Law: none; it seeks the least U.

Equations, with k counted from 1 and g = grad(U/N):

    m     <- beta_1 m + (1 - beta_1) g
    v     <- beta_2 v + (1 - beta_2) g^2
    alpha =  alpha_0 sqrt(1 - beta_2^k) / (1 - beta_1^k)
    theta <- theta - alpha m / (sqrt(v) + epsilon_hat)

| paper          | name               | shape           | unit                        |
|----------------|--------------------|-----------------|-----------------------------|
| theta          | `position`         | list of tensors | weights                     |
| m, v           | `mean`, `square`   | list of tensors | gradient, its square        |
| g              | `gradient`         | list of tensors | nats per example and weight |
| k - 1          | `number`           | scalar          | steps                       |
| alpha_0        | `learning_rate`    | scalar          | weights                     |
| beta_1, beta_2 | `beta_1`, `beta_2` | float           | 1                           |
| epsilon_hat    | `epsilon`          | float           | gradient                    |
"""

from keras_mhmcmc.algorithms import tensors
from keras_mhmcmc.algorithms.tensors import ops


def adam_step(
    position,
    mean,
    square,
    gradient,
    number,
    *,
    learning_rate,
    beta_1,
    beta_2,
    epsilon,
):
    """One step of Adam: the next position and the two running means."""
    mean = tensors.add_scaled(mean, 1.0 - beta_1, tensors.subtract(gradient, mean))
    squares = [ops.square(g) for g in gradient]
    square = tensors.add_scaled(square, 1.0 - beta_2, tensors.subtract(squares, square))
    steps = ops.cast(number, "float32") + 1.0
    unbiased = ops.sqrt(1.0 - ops.power(beta_2, steps)) / (
        1.0 - ops.power(beta_1, steps)
    )
    move = [m / (ops.sqrt(v) + epsilon) for m, v in zip(mean, square, strict=True)]
    return tensors.add_scaled(position, -learning_rate * unbiased, move), mean, square
