"""Small data and models that the tests train, and a loop without a model."""

import keras
import numpy as np

from tests.support.samplers import BATCH_SIZE
from tests.support.samplers import TRAIN_SIZE

FEATURES = 5
CLASSES = 3
# The version of Keras, without its last number.
KERAS_VERSION = tuple(int(part) for part in keras.__version__.split(".")[:2])


def numpy(value):
    """A copy of a tensor or variable."""
    return np.array(keras.ops.convert_to_numpy(value))


def data(seed=0):
    """Three overlapping clusters: x (96, 5) and labels (96,)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, TRAIN_SIZE)
    centres = rng.normal(size=(CLASSES, FEATURES))
    x = centres[y] + rng.normal(size=(TRAIN_SIZE, FEATURES))
    return x.astype("float32"), y.astype("int32")


def sequential(seed=1):
    """A two-layer classifier with fixed first weights."""
    initializers = [keras.initializers.GlorotUniform(seed=seed + i) for i in range(2)]
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(7, "tanh", kernel_initializer=initializers[0]),
            keras.layers.Dense(CLASSES, "softmax", kernel_initializer=initializers[1]),
        ]
    )


def compiled(optimizer, model=None, **options):
    """A classifier compiled with `optimizer`."""
    model = model or sequential()
    model.compile(
        optimizer=optimizer,
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        **options,
    )
    return model


def fit(model, epochs=2, callbacks=None, **options):
    """Fits without shuffling, silently."""
    x, y = data()
    return model.fit(
        x,
        y,
        batch_size=BATCH_SIZE,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
        **options,
    )


def weights(model):
    """Copies of the trainable weights as one float64 vector."""
    arrays = [numpy(variable).ravel() for variable in model.trainable_variables]
    return np.concatenate(arrays).astype("float64")


def optimizer_state(optimizer):
    """Copies of all optimizer variables."""
    return [numpy(variable) for variable in optimizer.variables]


class Drive:
    """Steps of an optimizer on one variable, the loss and gradient given by hand."""

    def __init__(self, optimizer, start):
        self.optimizer = optimizer
        self.variable = keras.Variable(np.asarray(start, "float32"))
        optimizer.build([self.variable])

    def step(self, loss, gradient):
        """One step at the variable's point; returns the state of the chain after it."""
        self._observe(keras.ops.convert_to_tensor(np.float32(loss)))
        gradient = np.asarray(gradient, "float32")
        self.optimizer.apply([keras.ops.convert_to_tensor(gradient)])
        return self.state()

    def point(self):
        """The point that is evaluated next."""
        return numpy(self.variable)

    def state(self):
        """The current state of the chain."""
        return numpy(self.optimizer.state_values()[0])

    def _observe(self, loss):
        if keras.backend.backend() == "jax":
            import jax

            # On JAX the loss arrives when `scale_loss` is differentiated.
            jax.grad(self.optimizer.scale_loss)(loss)
        else:
            self.optimizer.scale_loss(loss)
