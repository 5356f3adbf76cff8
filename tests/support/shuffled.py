"""Data whose order has a seed of its own."""

import keras
import numpy as np


class Shuffled(keras.utils.PyDataset):
    """Mini-batches in a new order in each epoch, or in each of its passes.

    `keras.utils.set_random_seed` makes TensorFlow repeat the order of the first epoch.
    """

    def __init__(self, x, y, batch_size, seed, passes=1):
        super().__init__()
        self.x, self.y, self.size = x, y, batch_size
        self.passes = passes
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return self.passes * len(self.x) // self.size

    def __getitem__(self, index):
        rows = self.order[self.size * index : self.size * (index + 1)]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        orders = [self.rng.permutation(len(self.x)) for _ in range(self.passes)]
        self.order = np.concatenate(orders)
