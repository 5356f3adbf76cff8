"""What spike-and-slab samplers take for kernels and residuals, and what they refuse."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit

N = 96
PRIOR = mh.priors.SpikeSlab("kernel|weights", v0=1e-2, v1=1.0)
SAMPLERS = {"sgldsa": mh.SGLDSA, "sghmcsa": mh.SGHMCSA, "esm": mh.ESM}
KERNELS = {"sgldsa": mh.kernels.sgldsa, "sghmcsa": mh.kernels.sghmcsa}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def make(name="sgldsa", **options):
    options = {"prior": PRIOR, "seed": 3} | options
    return SAMPLERS[name](0.01, train_size=N, **options)


def rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 4)).astype("float32")
    return x, (x[:, :1] + 0.3 * rng.normal(size=(N, 1))).astype("float32")


# Residuals.


@keras.saving.register_keras_serializable("spike_slab_input")
class AddsALoss(keras.layers.Layer):
    def call(self, x):
        self.add_loss(0.01 * ops.mean(ops.square(x)))
        return x


OF_ITS_OWN = {
    "activity": lambda: keras.layers.Dense(
        4, activity_regularizer=keras.regularizers.L2(0.1), name="penalised"
    ),
    "add_loss": lambda: AddsALoss(name="penalised"),
}


def with_a_loss_of_its_own(kind):
    layers = [keras.Input((4,)), OF_ITS_OWN[kind](), keras.layers.Dense(1)]
    return keras.Sequential(layers)


@pytest.mark.parametrize("kind", OF_ITS_OWN)
def test_a_loss_of_a_layer_is_no_residual(kind):
    model = with_a_loss_of_its_own(kind)
    model.compile(make(likelihood="gaussian"), loss="mse")
    with pytest.raises(ValueError, match="`add_loss`.*the layer 'penalised'"):
        model.fit(*rows(), verbose=0)


def test_a_regularizer_is_a_second_prior():
    penalised = keras.layers.Dense(3, "softmax", kernel_regularizer="l2")
    model = keras.Sequential([keras.Input((5,)), penalised])
    with pytest.warns(UserWarning, match="regularizer is a second prior"):
        fit(compiled(make(), model), epochs=1)


def sampled(kernel, **options):
    x, y = rows()

    def minus_squares(position, batch):
        x, y = batch
        return -ops.square(y[:, 0] - ops.matmul(x, position["weights"]))

    target = {"log_likelihood": minus_squares, "data": (x, y)} | options
    run = {"num_steps": 4, "progress": False}
    return mh.sample(kernel, {"weights": np.zeros(4)}, **target, **run)


@every_kernel
def test_a_log_prior_is_no_residual(name):
    kernel = KERNELS[name](0.01, prior=PRIOR, likelihood="gaussian")
    assert np.isfinite(sampled(kernel).info["sigma"]).all()
    with pytest.raises(ValueError, match="gaussian.*Received: `log_prior`"):
        sampled(kernel, log_prior=lambda position: -500.0 + 0 * position["weights"][0])


@every_kernel
def test_residuals_need_data(name):
    kernel = KERNELS[name](0.01, prior=PRIOR, likelihood="gaussian")
    with pytest.raises(ValueError, match="`data`.*Received: `log_density`"):
        mh.sample(
            kernel,
            {"weights": np.zeros(4)},
            log_density=lambda position: -ops.sum(ops.square(position["weights"])),
            num_steps=4,
        )


# Step sizes.

TOO_LARGE = mh.schedules.PowerDecay(10.0, 1.0, 0.75)


@pytest.mark.parametrize("name", ["sgldsa", "sghmcsa"])
def test_step_sizes_above_1_are_refused(name):
    with pytest.raises(ValueError, match=r"`step_size`.*\[0, 1\].*10\.0.*iterations"):
        make(name, step_size=TOO_LARGE)
    with pytest.raises(ValueError, match="`step_size`"):
        KERNELS[name](0.01, prior=PRIOR, step_size=TOO_LARGE)
    make(name, step_size=mh.schedules.PowerDecay(10.0, 1000.0, 0.75))


# Kernels.


def recurrent():
    return keras.Sequential(
        [keras.Input((6, 3)), keras.layers.GRU(4), keras.layers.Dense(2, "softmax")]
    )


def attending():
    inputs = keras.Input((6, 4))
    x = keras.layers.MultiHeadAttention(2, 2)(inputs, inputs)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(2, "softmax")(x))


@pytest.mark.parametrize("build", [recurrent, attending])
@pytest.mark.parametrize("num_chains", [None, 2])
def test_a_bias_of_two_axes_is_no_kernel(build, num_chains):
    model = build()
    assert any(
        len(v.shape) > 1 and v.path.endswith("bias") for v in model.trainable_variables
    )
    if num_chains:
        model = mh.ParallelChains(model, num_chains, seed=0)
    sampler = make(prior=mh.priors.SpikeSlab(".", v0=1e-2, v1=1.0))
    model.compile(sampler, loss="sparse_categorical_crossentropy")
    shape = model.input_shape[1:] if num_chains is None else build().input_shape[1:]
    x = np.random.default_rng(0).normal(size=(N, *shape)).astype("float32")
    model.fit(x, np.arange(N) % 2, verbose=0)
    paths = list(sampler.inclusion_probabilities())
    assert len(paths) > 1
    assert not [path for path in paths if path.endswith("bias")]
    weights = sampler.sampled_variables
    normal = [weights[i].path for i in sampler.algorithm.normal]
    assert normal == []  # every other weight is a bias, with a flat prior
