"""Models as people write them: one row each in `MODELS`, with data that they take.

The code follows the guides and examples of Keras, and what is asked of it in forums:
what is usual there comes before what would be shortest here.
"""

from typing import Any
from typing import NamedTuple

import keras
from keras import layers

import keras_mhmcmc as mh
from tests.support import layers_people_write as own
from tests.support.inputs_people_write import CLASSES
from tests.support.inputs_people_write import FEATURES
from tests.support.inputs_people_write import STEPS
from tests.support.inputs_people_write import WORDS
from tests.support.inputs_people_write import each_step
from tests.support.inputs_people_write import images
from tests.support.inputs_people_write import labels
from tests.support.inputs_people_write import named_inputs
from tests.support.inputs_people_write import named_outputs
from tests.support.inputs_people_write import one_hot
from tests.support.inputs_people_write import pairs
from tests.support.inputs_people_write import photographs
from tests.support.inputs_people_write import sentences
from tests.support.inputs_people_write import signals
from tests.support.inputs_people_write import table
from tests.support.inputs_people_write import target
from tests.support.inputs_people_write import two_inputs
from tests.support.inputs_people_write import two_outputs
from tests.support.inputs_people_write import yes_or_no


class Written(NamedTuple):
    """A model that somebody wrote."""

    build: Any  # makes it, not compiled
    data: Any  # makes x and y
    loss: Any = "sparse_categorical_crossentropy"  # or a function that makes it
    metrics: Any = None
    options: dict = {}  # more of `compile`
    attack: dict | None = None  # options of an attack, where there is one


# Dense networks, in every way in which Keras takes them.


def sequential():
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(8, activation="relu"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def unbuilt():
    return keras.Sequential(
        [
            layers.Dense(8, activation="relu"),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def added():
    model = keras.Sequential(name="my_model")
    model.add(layers.Input(shape=(FEATURES,)))
    model.add(layers.Dense(8, name="block_1-hidden"))
    model.add(layers.LeakyReLU())
    model.add(layers.Dropout(0.2, seed=1))
    model.add(layers.Dense(CLASSES))
    return model


def functional():
    inputs = keras.Input(shape=(FEATURES,), name="features")
    x = layers.Dense(8, activation="relu")(inputs)
    residual = x
    x = layers.Dense(8, activation="relu")(x)
    x = layers.add([x, residual])
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def of_two_inputs():
    one, other = keras.Input((FEATURES,)), keras.Input((2,))
    x = layers.concatenate([layers.Dense(4, "relu")(one), layers.Dense(4)(other)])
    return keras.Model([one, other], layers.Dense(CLASSES, "softmax")(x))


def of_named_inputs():
    inputs = {
        "age": keras.Input((1,), name="age"),
        "income": keras.Input((2,), name="income"),
    }
    x = layers.concatenate(list(inputs.values()))
    x = layers.Dense(8, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def of_two_outputs():
    inputs = keras.Input((FEATURES,))
    x = layers.Dense(8, activation="relu")(inputs)
    kind = layers.Dense(CLASSES, activation="softmax", name="kind")(x)
    return keras.Model(inputs, [kind, layers.Dense(1, name="size")(x)])


def of_named_outputs():
    inputs = keras.Input((FEATURES,))
    x = layers.Dense(8, activation="relu")(inputs)
    kind = layers.Dense(CLASSES, name="kind")(x)
    return keras.Model(inputs, {"kind": kind, "size": layers.Dense(1)(x)})


def siamese():
    tower = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(4)], name="tower")
    left, right = keras.Input((FEATURES,)), keras.Input((FEATURES,))
    distance = layers.Subtract()([tower(left), tower(right)])
    distance = keras.ops.abs(distance)
    return keras.Model([left, right], layers.Dense(1, "sigmoid")(distance))


def nested():
    encoder = keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(8, "relu", name="hidden")],
        name="encoder",
    )
    head = keras.Sequential(
        [keras.Input((8,)), layers.Dense(CLASSES, "softmax", name="hidden")],
        name="head",
    )
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, head(encoder(inputs)))


def binary():
    return keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(8, "tanh"), layers.Dense(1, "sigmoid")]
    )


def linear(units):
    return lambda: keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(8, "tanh"), layers.Dense(units)]
    )


def frozen():
    model = sequential()
    model.layers[0].trainable = False
    return model


def lora():
    model = sequential()
    model.layers[0].enable_lora(2)
    return model


def normalised():
    """Adapted to the data before training, as for structured data."""
    scale = layers.Normalization()
    scale.adapt(3.0 + 2.0 * table()[0])
    return keras.Sequential(
        [keras.Input((FEATURES,)), scale, layers.Dense(CLASSES, "softmax")]
    )


def spectral():
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.SpectralNormalization(layers.Dense(8, "relu")),
            layers.Dense(CLASSES, "softmax"),
        ]
    )


# Images.


def convolutional():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3, seed=1),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def augmented():
    augment = keras.Sequential(
        [
            layers.RandomFlip("horizontal", seed=1),
            layers.RandomTranslation(0.1, 0.1, seed=2),
        ]
    )
    inputs = keras.Input((8, 8, 1))
    x = augment(inputs)
    x = layers.Rescaling(2.0, offset=-1.0)(x)
    x = layers.Conv2D(4, 3, strides=2, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def transferred():
    """The guide on transfer learning: a frozen base, in inference mode.

    Of its first layers, as for features; and all of them take long to compile.
    """
    base = keras.applications.MobileNet(
        input_shape=(32, 32, 3), alpha=0.25, include_top=False, weights=None
    )
    base = keras.Model(base.input, base.get_layer("conv_pw_2_relu").output)
    base.trainable = False
    inputs = keras.Input((32, 32, 3))
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    x = base(x, training=False)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2, seed=1)(x)
    return keras.Model(inputs, layers.Dense(CLASSES)(x))


# Sequences.


def bag_of_words():
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int64"),
            layers.Embedding(WORDS, 4),
            layers.GlobalAveragePooling1D(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def lstm():
    return keras.Sequential(
        [
            layers.Embedding(WORDS, 4, mask_zero=True),
            layers.LSTM(4),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def tagger():
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 4, mask_zero=True)(inputs)
    x = layers.GRU(3, return_sequences=True)(x)
    x = layers.TimeDistributed(layers.Dense(CLASSES, activation="softmax"))(x)
    return keras.Model(inputs, x)


def waves():
    return keras.Sequential(
        [
            keras.Input((STEPS, 2)),
            layers.Conv1D(4, 3, activation="relu", padding="same"),
            layers.LayerNormalization(),
            layers.GlobalMaxPooling1D(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def transformer():
    inputs = keras.Input((STEPS,), dtype="int32")
    x = own.TokenAndPositionEmbedding(STEPS, WORDS, 4)(inputs)
    x = own.TransformerBlock(4, 2, 8)(x)
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def from_logits():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def gaussian():
    return mh.losses.GaussianNLL(noise_std=0.5)


ANYWHERE = {"clip": None}
SIZES = {"kind": "sparse_categorical_crossentropy", "size": gaussian}
MODELS = {
    "sequential": Written(sequential, table, metrics=["accuracy"], attack=ANYWHERE),
    "unbuilt": Written(unbuilt, table, metrics=["accuracy"], attack=ANYWHERE),
    "added": Written(added, table, from_logits, ["accuracy"], attack=ANYWHERE),
    "functional": Written(functional, table, metrics=["acc"]),
    "two_inputs": Written(of_two_inputs, two_inputs, metrics=["accuracy"]),
    "named_inputs": Written(of_named_inputs, named_inputs),
    "two_outputs": Written(
        of_two_outputs,
        two_outputs,
        ["sparse_categorical_crossentropy", gaussian],
        [["accuracy"], ["mae"]],
        {"loss_weights": [1.0, 0.5]},
    ),
    "two_outputs_and_a_dict": Written(
        of_two_outputs,
        named_outputs,
        SIZES,
        {"kind": ["accuracy"]},
        {"loss_weights": {"kind": 1.0, "size": 0.5}},
    ),
    "named_outputs": Written(
        of_named_outputs, named_outputs, SIZES | {"kind": from_logits}
    ),
    "siamese": Written(siamese, pairs, "binary_crossentropy", ["accuracy"]),
    "nested": Written(nested, table),
    "subclass": Written(own.Subclass, table, metrics=["accuracy"], attack=ANYWHERE),
    "subclass_with_training": Written(
        own.WithTraining, table, metrics=["accuracy"], attack=ANYWHERE
    ),
    "subclass_around_functional": Written(
        lambda: own.Around(functional()), table, attack=ANYWHERE
    ),
    "subclass_with_loss": Written(own.OwnLoss, target, None),
    "own_layers": Written(own.of_own_layers, table, attack=ANYWHERE),
    "own_layer_with_loss": Written(own.of_added_loss, table),
    "own_layer_with_state": Written(own.of_counter, table),
    "binary": Written(
        binary, yes_or_no, "binary_crossentropy", ["accuracy"], attack=ANYWHERE
    ),
    "binary_logits": Written(
        linear(1),
        yes_or_no,
        lambda: keras.losses.BinaryCrossentropy(from_logits=True),
        lambda: [keras.metrics.AUC(from_logits=True), "accuracy"],
        attack=ANYWHERE,
    ),
    "many_labels": Written(
        lambda: keras.Sequential([layers.Dense(CLASSES, activation="sigmoid")]),
        labels,
        "binary_crossentropy",
    ),
    "one_hot": Written(sequential, one_hot, "categorical_crossentropy", ["accuracy"]),
    "regression": Written(linear(1), target, gaussian, ["mae"]),
    "frozen": Written(frozen, table),
    "lora": Written(lora, table),
    "normalised": Written(normalised, table),
    "spectral": Written(spectral, table),
    "convolutional": Written(convolutional, images, attack={}),
    "augmented": Written(augmented, images, attack={}),
    "transferred": Written(
        transferred,
        photographs,
        from_logits,
        ["accuracy"],
        attack={"clip": (0, 255)},
    ),
    "bag_of_words": Written(bag_of_words, sentences),
    "lstm": Written(lstm, sentences),
    "tagger": Written(tagger, each_step),
    "waves": Written(waves, signals, attack=ANYWHERE),
    "transformer": Written(transformer, sentences),
}
