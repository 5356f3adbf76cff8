"""Data as people give them to `fit`: one row each in `DATA`; and callbacks.

Each makes the arguments of `fit` for `EXAMPLES` examples, of which an epoch has `STEPS`
batches of `BATCH_SIZE`, unless it says otherwise.
"""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np

EXAMPLES, FEATURES, CLASSES, BATCH_SIZE, STEPS = 48, 5, 3, 16, 3


class Given(NamedTuple):
    """A form of data, and what to expect of it."""

    make: Any  # the arguments of `fit`
    steps: int = STEPS  # of an epoch
    options: dict = {}  # of `compile`
    backends: tuple = ("jax", "tensorflow", "torch")
    inputs: Any = FEATURES  # of the model


def arrays(dtype="float32"):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, FEATURES))
    y = (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0.5)
    return (8.0 * np.abs(x) if dtype == "uint8" else x).astype(dtype), y


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x, y

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
        return self.x[rows], self.y[rows]


def endless():
    x, y = arrays()
    while True:
        for i in range(0, EXAMPLES, BATCH_SIZE):
            yield x[i : i + BATCH_SIZE], y[i : i + BATCH_SIZE]


def numpy(**options):
    x, y = arrays()
    return dict(x=x, y=y, batch_size=BATCH_SIZE) | options


def of_type(dtype):
    x, y = arrays(dtype)
    return dict(x=x, y=y, batch_size=BATCH_SIZE)


def tensors():
    x, y = map(keras.ops.convert_to_tensor, arrays())
    return dict(x=x, y=y, batch_size=BATCH_SIZE)


def frame():
    import pandas as pd

    x, y = arrays()
    names = [f"feature_{i}" for i in range(FEATURES)]
    return dict(x=pd.DataFrame(x, columns=names), y=pd.Series(y), batch_size=BATCH_SIZE)


def tf_data():
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(arrays())
    return dict(x=data.shuffle(EXAMPLES, seed=0).batch(BATCH_SIZE).prefetch(2))


def tf_data_of_dicts():
    import tensorflow as tf

    x, y = arrays()
    features = {"age": x[:, :1], "income": x[:, 1:3]}
    return dict(x=tf.data.Dataset.from_tensor_slices((features, y)).batch(BATCH_SIZE))


def tf_data_without_end():
    """Of a number of batches that nobody knows, and repeated."""
    import tensorflow as tf

    x, y = arrays()
    data = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: True)
    return dict(x=data.batch(BATCH_SIZE).repeat(), steps_per_epoch=2)


def tf_data_of_unknown_length():
    import tensorflow as tf

    data = tf.data.Dataset.from_tensor_slices(arrays()).filter(lambda x, y: True)
    return dict(x=data.batch(BATCH_SIZE))


def data_loader():
    import torch

    x, y = arrays()
    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    return dict(x=torch.utils.data.DataLoader(data, batch_size=BATCH_SIZE))


def of_named_inputs():
    inputs = {
        "age": keras.Input((1,), name="age"),
        "income": keras.Input((2,), name="income"),
    }
    x = keras.layers.concatenate(list(inputs.values()))
    return keras.Model(inputs, keras.layers.Dense(CLASSES, "softmax")(x))


def one_hot():
    x, y = arrays()
    y = keras.utils.to_categorical(y, CLASSES)
    return dict(x=x, y=y, batch_size=BATCH_SIZE)


def sample_weight():
    weights = np.random.default_rng(1).uniform(0.5, 1.5, EXAMPLES)
    return numpy(sample_weight=weights / weights.mean())


CATEGORICAL = {"loss": "categorical_crossentropy"}
DATA = {
    "numpy": Given(numpy),
    "short_last_batch": Given(lambda: numpy(batch_size=20)),
    "default_batch": Given(lambda: numpy(batch_size=None), steps=2),
    "float64": Given(lambda: of_type("float64")),
    "uint8": Given(lambda: of_type("uint8")),
    "tensors": Given(tensors),
    "frame": Given(frame),
    "one_hot": Given(one_hot, options=CATEGORICAL),
    "sample_weight": Given(sample_weight),
    "class_weight": Given(lambda: numpy(class_weight={0: 1.0, 1: 2.0, 2: 0.5})),
    "validation_split": Given(lambda: numpy(validation_split=1 / 3), steps=2),
    "validation_data": Given(lambda: numpy(validation_data=arrays())),
    "tf_data": Given(tf_data),
    "tf_data_of_dicts": Given(tf_data_of_dicts, inputs=of_named_inputs),
    "tf_data_without_end": Given(tf_data_without_end, steps=2),
    "tf_data_of_unknown_length": Given(tf_data_of_unknown_length),
    "py_dataset": Given(lambda: dict(x=Batches(*arrays()))),
    "py_dataset_in_threads": Given(
        lambda: dict(x=Batches(*arrays(), workers=2), shuffle=True)
    ),
    "generator": Given(lambda: dict(x=endless(), steps_per_epoch=STEPS)),
    "data_loader": Given(data_loader),
    "several_steps_per_execution": Given(
        numpy,
        options={"steps_per_execution": 3},
        backends=("jax", "tensorflow"),
    ),
}


def halved(epoch, rate):
    return 0.5 * rate


callbacks = keras.callbacks
# Those that leave the chain as it is, as far as they go here.
WATCHING = {
    "checkpoint": lambda folder: callbacks.ModelCheckpoint(folder / "model.keras"),
    "best_weights": lambda folder: callbacks.ModelCheckpoint(
        folder / "best.weights.h5",
        monitor="val_loss",
        save_best_only=True,
        save_weights_only=True,
    ),
    "early_stopping": lambda folder: callbacks.EarlyStopping(patience=9),
    "csv": lambda folder: callbacks.CSVLogger(folder / "log.csv"),
    "terminate_on_nan": lambda folder: callbacks.TerminateOnNaN(),
    "backup": lambda folder: callbacks.BackupAndRestore(folder / "backup"),
    "lambda": lambda folder: callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: logs["loss"]
    ),
}
