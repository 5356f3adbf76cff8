"""A logistic regression in float64, and its control variates on a mini-batch."""

import numpy as np


class Logistic:
    """Labels y in {0, 1} of rows x, with the prior N(0, scale^2) of each weight."""

    def __init__(self, x, y, scale):
        self.x, self.y, self.scale = x.astype("float64"), y.astype("float64"), scale

    def energy(self, theta, rows):
        """U on the rows, as if they were all of the data."""
        logits = (1 - 2 * self.y[rows]) * (self.x[rows] @ theta)
        likelihood = len(self.x) * np.logaddexp(0, logits).mean()
        return likelihood + 0.5 * (theta @ theta) / self.scale**2

    def gradient(self, theta, rows):
        """The gradient of U on the rows."""
        residual = self.y[rows] - 1 / (1 + np.exp(-self.x[rows] @ theta))
        slopes = len(self.x) * (self.x[rows] * residual[:, None]).mean(axis=0)
        return -slopes + theta / self.scale**2


def controlled(model, theta, reference, rows):
    """E and g of a mini-batch."""
    every = np.arange(len(model.x))
    full, batch = model.gradient(reference, every), model.gradient(reference, rows)
    energy = model.energy(theta, rows) - model.energy(reference, rows)
    energy += model.energy(reference, every) + (full - batch) @ (theta - reference)
    return energy, model.gradient(theta, rows) - batch + full
