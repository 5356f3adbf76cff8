"""Layers and models as people subclass them, after the guides of Keras."""

import keras
from keras import layers
from keras import ops

FEATURES, CLASSES = 5, 3


@keras.saving.register_keras_serializable("people")
class Subclass(keras.Model):
    """No `training`, no `get_config`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense1 = layers.Dense(8, activation="relu")
        self.dense2 = layers.Dense(CLASSES, activation="softmax")

    def call(self, inputs):
        return self.dense2(self.dense1(inputs))


@keras.saving.register_keras_serializable("people")
class WithTraining(keras.Model):
    def __init__(self, units=8, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.blocks = [layers.Dense(units, activation="relu") for _ in range(2)]
        self.dropout = layers.Dropout(0.3, seed=1)
        self.dense = layers.Dense(CLASSES, activation="softmax")

    def call(self, inputs, training=False):
        x = inputs
        for block in self.blocks:
            x = self.dropout(block(x), training=training)
        return self.dense(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("people")
class Around(keras.Model):
    """Wraps a model, as for another training step."""

    def __init__(self, model, **kwargs):
        super().__init__(**kwargs)
        self.model = model

    def call(self, inputs):
        return self.model(inputs)

    def get_config(self):
        config = super().get_config()
        return config | {"model": keras.saving.serialize_keras_object(self.model)}

    @classmethod
    def from_config(cls, config):
        model = keras.saving.deserialize_keras_object(config.pop("model"))
        return cls(model, **config)


@keras.saving.register_keras_serializable("people")
class OwnLoss(keras.Model):
    """`compute_loss` in place of a compiled loss."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = layers.Dense(8, activation="tanh")
        self.out = layers.Dense(1)

    def call(self, x, training=None):
        return self.out(self.hidden(x))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return 2.0 * ops.mean(ops.square(y - y_pred))


@keras.saving.register_keras_serializable("people")
class Linear(layers.Layer):
    """The guide's: weights without names, made in `build`."""

    def __init__(self, units=32, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(
            shape=(input_shape[-1], self.units),
            initializer="random_normal",
            trainable=True,
        )
        self.b = self.add_weight(
            shape=(self.units,), initializer="random_normal", trainable=True
        )

    def call(self, inputs):
        return ops.matmul(inputs, self.w) + self.b

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("people")
class MLPBlock(layers.Layer):
    """The guide's: layers inside a layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.linear_1 = Linear(8)
        self.linear_2 = Linear(CLASSES)

    def call(self, inputs):
        x = ops.relu(self.linear_1(inputs))
        return ops.softmax(self.linear_2(x))


@keras.saving.register_keras_serializable("people")
class ActivityRegularizer(layers.Layer):
    """The guide's: adds a loss of its inputs."""

    def __init__(self, rate=1e-2, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, inputs):
        self.add_loss(self.rate * ops.mean(ops.square(inputs)))
        return inputs

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


@keras.saving.register_keras_serializable("people")
class ComputeSum(layers.Layer):
    """The guide's: state that is not trained, and an integer that counts calls."""

    def build(self, input_shape):
        shape = (input_shape[-1],)
        self.total = self.add_weight(shape=shape, initializer="zeros", trainable=False)
        self.calls = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False
        )

    def call(self, inputs, training=False):
        if training:
            self.total.assign(self.total + ops.mean(inputs, axis=0))
            self.calls.assign(self.calls + 1)
        return inputs + 0.01 * self.total


@keras.saving.register_keras_serializable("people")
class TransformerBlock(layers.Layer):
    """The example of text classification's."""

    def __init__(self, embed_dim, num_heads, ff_dim, **kwargs):
        super().__init__(**kwargs)
        self.sizes = dict(embed_dim=embed_dim, num_heads=num_heads, ff_dim=ff_dim)
        self.att = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        attention = self.att(inputs, inputs)
        out1 = self.layernorm1(inputs + attention)
        return self.layernorm2(out1 + self.ffn(out1))

    def get_config(self):
        return {**super().get_config(), **self.sizes}


@keras.saving.register_keras_serializable("people")
class TokenAndPositionEmbedding(layers.Layer):
    """The example of text classification's."""

    def __init__(self, maxlen, vocab_size, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.sizes = dict(maxlen=maxlen, vocab_size=vocab_size, embed_dim=embed_dim)
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1], 1)
        return self.token_emb(x) + self.pos_emb(positions)

    def get_config(self):
        return {**super().get_config(), **self.sizes}


def of_own_layers():
    return keras.Sequential([MLPBlock()])


def of_added_loss():
    inputs = keras.Input((FEATURES,))
    x = layers.Dense(8, activity_regularizer="l2")(inputs)
    x = ActivityRegularizer()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation="softmax")(x))


def of_counter():
    return keras.Sequential(
        [
            keras.Input((FEATURES,)),
            ComputeSum(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
