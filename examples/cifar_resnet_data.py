"""Images for `examples/cifar_resnet.py`, and their augmentation."""

import keras
import numpy as np

import keras_mhmcmc as mh

SHIFT = 4  # pixels, at most


def load(name, data_dir):
    """Images in [0, 1] and labels: (x_train, y_train), (x_test, y_test)."""
    if name == "synthetic":
        return synthetic(1024, seed=0), synthetic(512, seed=1)
    return mh.datasets.load(name, data_dir)


def synthetic(examples, seed, size=8, classes=4):
    """Noisy stripes, of a direction and a colour for each class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=examples)
    angle = np.pi * labels / classes
    rows, columns = np.mgrid[:size, :size] * (2 * np.pi / size)
    phase = rng.uniform(0.0, 2 * np.pi, examples)
    along = np.cos(angle)[:, None, None] * rows + np.sin(angle)[:, None, None] * columns
    stripes = np.sin(2.0 * along + phase[:, None, None])
    colour = np.eye(3)[labels % 3]
    images = 0.5 + 0.2 * stripes[..., None] + 0.1 * colour[:, None, None]
    images = images + rng.normal(0.0, 0.1, images.shape)
    return np.clip(images, 0.0, 1.0).astype("float32"), labels.astype("int32")


def normalized(train, test, examples, seed):
    """The sets with channels of mean 0 and standard deviation 1, as those of training.

    Of the training images a random choice of `examples` is used; None uses all.
    """
    (x, y), (x_test, y_test) = train, test
    if examples is not None and examples < len(x):
        used = np.random.default_rng(seed).permutation(len(x))[:examples]
        x, y = x[used], y[used]
    x, x_test = mh.datasets.standardized(x, x_test, axis=(0, 1, 2))
    return (x, y), (x_test, y_test)


class Batches(keras.utils.PyDataset):
    """Full batches of shifted and mirrored images, drawn anew each epoch."""

    def __init__(self, x, y, batch_size, seed):
        super().__init__()
        border = (SHIFT, SHIFT)
        self._size = x.shape[1:3]
        self._padded = np.pad(x, ((0, 0), border, border, (0, 0)))
        self._labels = y
        self._batch_size = batch_size
        self._rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return len(self._labels) // self._batch_size

    def __getitem__(self, index):
        first = index * self._batch_size
        chosen = self._order[first : first + self._batch_size]
        top, left = self._rng.integers(2 * SHIFT + 1, size=(2, len(chosen), 1))
        rows = (top + np.arange(self._size[0]))[:, :, None]
        columns = left + np.arange(self._size[1])
        mirrored = self._rng.random((len(chosen), 1)) < 0.5
        columns = np.where(mirrored, columns[:, ::-1], columns)[:, None, :]
        images = self._padded[chosen[:, None, None], rows, columns]
        return images, self._labels[chosen]

    def on_epoch_end(self):
        self._order = self._rng.permutation(len(self._labels))
