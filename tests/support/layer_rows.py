"""All layers of Keras with weights or states: a network of each, and what came out."""

import keras
import numpy as np

ROWS = 16
RNG = np.random.default_rng(0)


def _data(*shape):
    return RNG.uniform(0.05, 0.95, (ROWS, *shape)).astype("float32")


TOKENS = RNG.integers(0, 20, (ROWS, 6)).astype("int32")
VECTORS, SEQUENCES, SIGNALS = _data(5), _data(6, 4), _data(64)
IMAGES, VOLUMES = _data(8, 8, 3), _data(4, 4, 4, 2)
LABELS = TOKENS.sum(axis=1) % 2


def _rnn(cell):
    return lambda layers: layers.RNN(cell(layers))


def _by(name, *arguments, **options):
    return lambda layers: getattr(layers, name)(*arguments, **options)


def _twice(name, *arguments, **options):
    """A layer that takes its input as query and as value."""

    def block(layers):
        layer = getattr(layers, name)(*arguments, **options)
        return lambda x: layer([x, x]) if "Additive" in name else layer(x, x)

    return block


def _attention(name):
    def block(layers):
        layer = getattr(layers, name)(use_scale=True)
        return lambda x: layer([x, x])

    return block


def _adapted(name, data, **options):
    def block(layers):
        layer = getattr(layers, name)(**options)
        layer.adapt(data)
        return layer

    return block


def _spectral(layers):
    return layers.SpectralNormalization(layers.Dense(3))


def _mel(layers):
    mel = layers.MelSpectrogram(16, 8, num_mel_bins=4)
    return lambda x: layers.Rescaling(0.01)(mel(x))  # decibels


def _cropped(layers):
    crop = layers.RandomCrop(6, 6)  # leaves images whole in inference
    return lambda x: layers.GlobalAveragePooling2D()(crop(x))


def _cells(layers):
    return [layers.LSTMCell(3), layers.GRUCell(3)]


@keras.saving.register_keras_serializable("tests")
def tanh_of(params, inputs):
    return keras.ops.tanh(keras.ops.matmul(inputs, params))


@keras.saving.register_keras_serializable("tests")
def first_params(rng, inputs):
    return keras.ops.eye(5, 3)


def _jax_layer(layers):
    return layers.JaxLayer(tanh_of, first_params)


def _torch_module(layers):
    import torch

    return layers.TorchModuleWrapper(torch.nn.Linear(5, 3), output_shape=(None, 3))


_SEEDED_IMAGES = {
    "RandomBrightness": {"factor": 0.2, "value_range": (0, 1)},
    "RandomColorDegeneration": {"factor": 0.5, "value_range": (0, 1)},
    "RandomColorJitter": {"value_range": (0, 1), "brightness_factor": 0.2},
    "RandomContrast": {"factor": 0.2, "value_range": (0, 1)},
    "RandomElasticTransform": {"value_range": (0, 1)},
    "RandomErasing": {"value_range": (0, 1)},
    "RandomFlip": {},
    "RandomGaussianBlur": {"value_range": (0, 1)},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.2, "value_range": (0, 1)},
    "RandomInvert": {"value_range": (0, 1)},
    "RandomPerspective": {},
    "RandomPosterization": {"factor": 4, "value_range": (0, 1)},
    "RandomRotation": {"factor": 0.1},
    "RandomSaturation": {"factor": 0.5, "value_range": (0, 1)},
    "RandomSharpness": {"factor": 0.5, "value_range": (0, 1)},
    "RandomShear": {"x_factor": 0.2},
    "RandomTranslation": {"height_factor": 0.2, "width_factor": 0.2},
    "RandomZoom": {"height_factor": 0.2},
    "AugMix": {"value_range": (0, 1)},
    "CutMix": {},
    "MixUp": {},
    "RandAugment": {"value_range": (0, 1)},
    "Solarization": {"addition_factor": 0.2, "value_range": (0, 1)},
}

# The name of a class, the data, and a function from `keras.layers` to the block between
# the input and the head.
LAYERS = {
    "Dense": (VECTORS, _by("Dense", 3)),
    "EinsumDense": (SEQUENCES, _by("EinsumDense", "abc,cd->abd", (6, 3))),
    "Embedding": (TOKENS, _by("Embedding", 20, 4)),
    "ReversibleEmbedding": (TOKENS, _by("ReversibleEmbedding", 20, 4)),
    "PReLU": (VECTORS, _by("PReLU")),
    "Conv1D": (SEQUENCES, _by("Conv1D", 3, 3)),
    "Conv2D": (IMAGES, _by("Conv2D", 3, 3)),
    "Conv3D": (VOLUMES, _by("Conv3D", 3, 2)),
    "Conv1DTranspose": (SEQUENCES, _by("Conv1DTranspose", 3, 3)),
    "Conv2DTranspose": (IMAGES, _by("Conv2DTranspose", 3, 3)),
    "Conv3DTranspose": (VOLUMES, _by("Conv3DTranspose", 3, 2)),
    "DepthwiseConv1D": (SEQUENCES, _by("DepthwiseConv1D", 3)),
    "DepthwiseConv2D": (IMAGES, _by("DepthwiseConv2D", 3)),
    "SeparableConv1D": (SEQUENCES, _by("SeparableConv1D", 3, 3)),
    "SeparableConv2D": (IMAGES, _by("SeparableConv2D", 3, 3)),
    "SimpleRNN": (SEQUENCES, _by("SimpleRNN", 3, dropout=0.2)),
    "GRU": (SEQUENCES, _by("GRU", 3)),
    "LSTM": (SEQUENCES, _by("LSTM", 3)),
    "SimpleRNNCell": (SEQUENCES, _rnn(_by("SimpleRNNCell", 3))),
    "GRUCell": (SEQUENCES, _rnn(_by("GRUCell", 3))),
    "LSTMCell": (SEQUENCES, _rnn(_by("LSTMCell", 3))),
    "StackedRNNCells": (SEQUENCES, _rnn(lambda x: x.StackedRNNCells(_cells(x)))),
    "RNN": (SEQUENCES, lambda x: x.RNN(x.LSTMCell(3), stateful=True)),
    "Bidirectional": (SEQUENCES, lambda x: x.Bidirectional(x.GRU(3))),
    "TimeDistributed": (SEQUENCES, lambda x: x.TimeDistributed(x.Dense(3))),
    "ConvLSTM1D": (_data(3, 5, 2), _by("ConvLSTM1D", 2, 3)),
    "ConvLSTM2D": (_data(3, 4, 4, 2), _by("ConvLSTM2D", 2, 3)),
    "ConvLSTM3D": (_data(2, 3, 3, 3, 2), _by("ConvLSTM3D", 2, 2)),
    "Attention": (SEQUENCES, _attention("Attention")),
    "AdditiveAttention": (SEQUENCES, _attention("AdditiveAttention")),
    "MultiHeadAttention": (SEQUENCES, _twice("MultiHeadAttention", 2, 2, dropout=0.1)),
    "GroupQueryAttention": (SEQUENCES, _twice("GroupQueryAttention", 2, 2, 1)),
    "BatchNormalization": (IMAGES, _by("BatchNormalization")),
    "LayerNormalization": (VECTORS, _by("LayerNormalization")),
    "RMSNormalization": (VECTORS, _by("RMSNormalization")),
    "GroupNormalization": (IMAGES, _by("GroupNormalization", 3)),
    "SpectralNormalization": (VECTORS, _spectral),
    "Normalization": (VECTORS, _adapted("Normalization", VECTORS)),
    "Discretization": (VECTORS, _adapted("Discretization", VECTORS, num_bins=4)),
    "Dropout": (VECTORS, _by("Dropout", 0.3)),
    "AlphaDropout": (VECTORS, _by("AlphaDropout", 0.3)),
    "GaussianDropout": (VECTORS, _by("GaussianDropout", 0.3)),
    "GaussianNoise": (VECTORS, _by("GaussianNoise", 0.3)),
    "SpatialDropout1D": (SEQUENCES, _by("SpatialDropout1D", 0.3)),
    "SpatialDropout2D": (IMAGES, _by("SpatialDropout2D", 0.3)),
    "SpatialDropout3D": (VOLUMES, _by("SpatialDropout3D", 0.3)),
    "MelSpectrogram": (SIGNALS, _mel),
    "STFTSpectrogram": (
        SIGNALS[..., None],
        _by("STFTSpectrogram", frame_length=16, frame_step=8, fft_length=16),
    ),
    "RandomCrop": (IMAGES, _cropped),
    "Pipeline": (IMAGES, lambda x: x.Pipeline([x.RandomFlip(), x.RandomZoom(0.2)])),
    **{name: (IMAGES, _by(name, **o)) for name, o in _SEEDED_IMAGES.items()},
    "JaxLayer": (VECTORS, _jax_layer),
    "TorchModuleWrapper": (VECTORS, _torch_module),
}
STATEFUL = ("RNN",)


def model_of(name):
    """A classifier with the layer between its inputs and its head."""
    keras.utils.set_random_seed(0)
    x, block = LAYERS[name]
    size = ROWS if name in STATEFUL else None
    inputs = keras.Input(x.shape[1:], batch_size=size, dtype=x.dtype.name)
    hidden = keras.layers.Flatten()(block(keras.layers)(inputs))
    if not keras.backend.is_float_dtype(hidden.dtype):
        hidden = keras.layers.Rescaling(1.0)(hidden)
    return keras.Model(inputs, keras.layers.Dense(2, "softmax")(hidden))


# Layers without a row, by the reason.
NO_WEIGHTS = "no weights, no random numbers"
LEFT_OUT = {
    NO_WEIGHTS: """
        Activation ActivityRegularization AdaptiveAveragePooling1D
        AdaptiveAveragePooling2D AdaptiveAveragePooling3D AdaptiveMaxPooling1D
        AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add AutoContrast Average
        AveragePooling1D AveragePooling2D AveragePooling3D CategoryEncoding CenterCrop
        Concatenate ContrastLimitedAdaptiveHistogramEqualization Cropping1D Cropping2D
        Cropping3D Dot ELU Equalization Flatten GlobalAveragePooling1D
        GlobalAveragePooling2D GlobalAveragePooling3D GlobalMaxPooling1D
        GlobalMaxPooling2D GlobalMaxPooling3D HashedCrossing Hashing Identity InputLayer
        Lambda LeakyReLU Masking MaxNumBoundingBoxes MaxPooling1D MaxPooling2D
        MaxPooling3D Maximum Minimum Multiply Permute ReLU RepeatVector Rescaling
        Reshape Resizing Softmax Subtract UnitNormalization UpSampling1D
        UpSampling2D UpSampling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D
        """,
    "a vocabulary, which belongs into the pipeline of the data": """
        IntegerLookup StringLookup TextVectorization
        """,
    "abstract": "Layer Wrapper",
    "as JaxLayer": "FlaxLayer",
    "refused as TorchModuleWrapper is": "TFSMLayer",
}

SEEDED = ("AlphaDropout", "GaussianDropout", "GaussianNoise", "Pipeline", "RandomCrop")
SEEDED += ("SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", *_SEEDED_IMAGES)
# What differs from one pass over all chains, with what the error says.
LOOPS = [
    (
        "torch",
        "their moving statistics change in place",
        "inplace arithmetic",
        ("BatchNormalization",),
    ),
    (
        "torch",
        "their random numbers or conditions are made of Python numbers",
        ".item()",
        tuple(name for name in SEEDED if name != "RandomShear")
        + ("SpectralNormalization",),
    ),
    (
        "tensorflow",
        "`tf.vectorized_map` cannot take a `tf.cond` inside",
        "spectral_normalization",
        ("SpectralNormalization",),
    ),
]
ALL = ("jax", "tensorflow", "torch")
REFUSALS = [
    (
        ALL,
        ("chains", "ensemble"),
        "the states belong to one network. Build it with `stateful=False`",
        "stateful=False",
        ("RNN",),
    ),
    (
        ("torch",),
        ("chains", "ensemble"),
        "code of another library reads its own weights. Fit one model for each chain",
        "wrap code of another library",
        ("TorchModuleWrapper",),
    ),
    (
        ALL,
        ("chains",),
        "Keras 3.15 cannot rebuild it from its configuration. Put it into the data",
        "can rebuild from its configuration",
        ("RandomShear",),
    ),
    (
        ("jax",),
        ("`fit` of chains",),
        "it cannot be traced. Put it into the pipeline of the data",
        "Put it into the pipeline of the data",
        ("RandomCrop",),
    ),
    (
        ("tensorflow",),
        ("`fit` in one pass",),
        'the sizes inside are random. Pass `strategy="loop"`',
        'must be "loop" for this model',
        ("RandAugment",),
    ),
    (("jax",), ("`fit`",), "Keras 3.15 fails", "", ("RandomElasticTransform",)),
]
# Layers that Keras has on some backends only.
BACKENDS = {
    "JaxLayer": ("jax",),
    "TorchModuleWrapper": ("torch",),
    "RandomElasticTransform": ("tensorflow", "torch"),  # Keras 3.15 fails in `fit`
}


def is_of_another_backend(name):
    """Whether Keras has the layer on other backends only."""
    own = keras.backend.backend()
    return own not in BACKENDS.get(name, (own,))


def reason_of_loop(name):
    """What the error says for which the chains are evaluated one by one, or None."""
    for backend, _, error, names in LOOPS:
        if keras.backend.backend() == backend and name in names:
            return error
    return None


def refusal(name, what):
    """What is said where chains or an ensemble of the layer are refused, or None."""
    for backends, kinds, _, error, names in REFUSALS:
        is_here = keras.backend.backend() in backends
        if is_here and name in names and what in kinds:
            return error
    return None


_TITLES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
_PAGE = """# Layers of Keras

Each layer of Keras with weights, states or random numbers was tried on three backends:
one chain by `fit`, two chains by `mh.ParallelChains`, `posterior.ensemble` and
`predict_members`. Each member predicts what a model of its own predicts with the
weights of this member (`test_one_chain`, `test_two_chains`). Chains in one pass are
those of `strategy="loop"`. A test writes this table.

| | On | Because | Layers |
|---|---|---|---|
"""


# How the page calls them.
_SHOWN = {
    "RNN": "all recurrent layers with `stateful=True`",
    "TorchModuleWrapper": "TorchModuleWrapper, TFSMLayer",
}


def _short(names):
    """Names of layers, those of random images in one word."""
    several = sum(name.startswith("Random") for name in names) > 1
    rest = [n for n in names if not (several and n.startswith("Random"))]
    return ", ".join([*rest, *(["all other `Random...`"] if several else [])])


def page():
    """The text of `docs/layers.md`."""
    special = {name for *_, names in LOOPS for name in names}
    special |= {name for *_, names in REFUSALS for name in names} - {"RNN"}
    works = [name for name in LAYERS if name not in special]
    rows = [
        ("works", _on(backends), "", _short([n for n in works if _of(n) == backends]))
        for backends in dict.fromkeys(map(_of, works))
    ]
    rows += [
        ("works; chains by the loop", _TITLES[backend], because, _short(names))
        for backend, because, _, names in LOOPS
    ]
    rows += [
        (
            f"{' and '.join(what)} refused",
            _on(on),
            because,
            _SHOWN.get(names[0], names[0]),
        )
        for on, what, because, _, names in REFUSALS
    ]
    rows += [
        ("left out", "all", reason, "all others")
        if reason == NO_WEIGHTS
        else ("left out", "all", reason, ", ".join(names.split()))
        for reason, names in LEFT_OUT.items()
    ]
    return _PAGE + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _of(name):
    return BACKENDS.get(name, tuple(_TITLES))


def _on(backends):
    found = ", ".join(_TITLES[backend] for backend in backends)
    return "all" if len(backends) == len(_TITLES) else found


if __name__ == "__main__":
    print(page(), end="")
