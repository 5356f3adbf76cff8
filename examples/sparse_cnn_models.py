"""Networks of `examples/sparse_cnn.py`, and the augmentation of their images."""

from typing import NamedTuple

import keras
import numpy as np
from keras import layers
from scipy import ndimage

SHIFT = 4  # pixels, at most
ANGLE = 15  # degrees, at most


class Network(NamedTuple):
    """Sizes of a network with two convolutions, each with 2 x 2 max pooling."""

    filters: tuple
    kernel_size: int
    padding: tuple
    dense: tuple  # hidden nodes of each dense layer; the first one is FC1
    batch_norm: bool = False  # on FC1


# Appendix D.1 does not give the padding. With this one the networks have 682 and 494
# thousand weights, and in the paper 670 and 490 thousand.
NETWORKS = {
    "2-conv-2-fc": Network((32, 64), 5, ("same", "same"), (200,)),
    "2-conv-2-fc-half": Network((16, 32), 5, ("same", "same"), (100,)),  # half as wide
    "2-conv-bn-3-fc": Network((64, 64), 4, ("same", "valid"), (256, 64), True),
}


def small(network):
    """A network of the same kind for images of 8 x 8 pixels."""
    dense = tuple(max(nodes // 4, 16) for nodes in network.dense)
    return network._replace(filters=(16, 32), kernel_size=3, dense=dense)


def make_model(network, shape, mean, std, dropout=0.0, classes=10):
    """The network, which scales its images itself: it takes them in [0, 1]."""
    stack = [keras.Input(shape), layers.Rescaling(1 / std, -mean / std)]
    for filters, padding in zip(network.filters, network.padding, strict=True):
        stack.append(
            layers.Conv2D(
                filters, network.kernel_size, padding=padding, activation="relu"
            )
        )
        stack.append(layers.MaxPooling2D())
    stack.append(layers.Flatten())
    for number, nodes in enumerate(network.dense, start=1):
        stack.append(layers.Dense(nodes, name=f"fc{number}"))
        if number == 1 and network.batch_norm:
            stack.append(layers.BatchNormalization())
        stack.append(layers.ReLU())
        if number == 1 and dropout > 0.0:
            stack.append(layers.Dropout(dropout))
    stack.append(layers.Dense(classes, name=f"fc{len(network.dense) + 1}"))
    return keras.Sequential(stack)


class Augmented(keras.utils.PyDataset):
    """Batches of shifted and turned images, drawn anew each epoch (appendix D.3)."""

    def __init__(self, x, y, batch_size, seed):
        super().__init__()
        self._x = x
        self._y = y
        self._batch_size = batch_size
        self._rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self._y) // self._batch_size)

    def __getitem__(self, index):
        first = index * self._batch_size
        chosen = self._order[first : first + self._batch_size]
        shifts = self._rng.integers(-SHIFT, SHIFT + 1, size=(len(chosen), 2))
        angles = np.deg2rad(self._rng.uniform(-ANGLE, ANGLE, len(chosen)))
        images = [
            moved(self._x[i, ..., 0], shift, angle)
            for i, shift, angle in zip(chosen, shifts, angles, strict=True)
        ]
        return np.stack(images)[..., None], self._y[chosen]

    def on_epoch_end(self):
        self._order = self._rng.permutation(len(self._y))


def moved(image, shift, angle):
    """The image, moved by `shift` pixels and turned about the centre; outside is 0."""
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = (np.array(image.shape) - 1) / 2
    offset = centre - matrix @ centre - shift
    return ndimage.affine_transform(image, matrix, offset, order=1)
