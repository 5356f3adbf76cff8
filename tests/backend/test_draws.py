"""The noise is standard normal and independent, and depends on seed and step alone."""

import contextlib
import importlib
import math

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special
from scipy import stats

from keras_mhmcmc import _backend
from keras_mhmcmc.samplers.parts import tensors

pytestmark = pytest.mark.eager_and_compiled

BACKEND = keras.backend.backend()
draws = importlib.import_module(f"keras_mhmcmc._backend.{BACKEND}.random")
on_torch_alone = pytest.mark.skipif(
    BACKEND != "torch", reason="elsewhere one generator makes these"
)

# Few numbers, several and many come from different generators on PyTorch, and those of
# small and of large tensors elsewhere.
SIZES = [
    ((40, 25), (7,)),
    ((60, 50), (11,)),
    ((150, 400), (40_001,)),
    ((300, 250), (11,), (300, 250), (65_537,)),
]


def stream(seed, count=0):
    return _backend.NoiseStream(state_of([seed, count]))


def state_of(values):
    values = np.array(values, _backend.SEED_DTYPE)
    return keras.Variable(values, trainable=False, dtype=_backend.SEED_DTYPE)


def drawn(noise, shapes, uniforms=1):
    """All normals of one step as one vector, and the uniforms."""
    normals, uniform = noise.draw([ops.zeros(shape) for shape in shapes], uniforms)
    assert [tuple(z.shape) for z in normals] == list(shapes)
    flat = [np.ravel(ops.convert_to_numpy(z)) for z in normals]
    return np.concatenate(flat).astype("float64"), ops.convert_to_numpy(uniform)


@pytest.mark.parametrize("shapes", SIZES)
def test_normals_are_standard_and_independent(shapes):
    noise = stream(3)
    steps = [drawn(noise, shapes)[0] for _ in range(20)]
    z = np.concatenate(steps)
    # Moments of a standard normal, in standard errors.
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - mean) < 4.5 * (variance / len(z)) ** 0.5
    assert stats.kstest(z, "norm").pvalue > 1e-4
    assert np.isfinite(z).all()
    # Neighbours, the two halves of a step, tensors of one size, and following steps.
    half = len(steps[0]) // 2
    size = math.prod(shapes[0])
    pairs = [
        (z[:-1], z[1:]),
        *[(step[:half], step[half : 2 * half]) for step in steps[:2]],
        *[
            (step[:size], step[size + math.prod(shapes[1]) :][:size])
            for step in steps[:2]
            if shapes[0] in shapes[2:]
        ],
        *zip(steps[:-1], steps[1:], strict=True),
    ]
    for x, y in pairs:
        for transformed in (lambda v: v, np.square):
            r = np.corrcoef(transformed(x), transformed(y))[0, 1]
            assert abs(r) < 5 / len(x) ** 0.5


@pytest.mark.parametrize(
    "shapes, steps",
    [
        ([(2_000_000,)], 1),
        ([(50_000,)] * 40, 1),
        pytest.param([(1000,)], 2000, marks=on_torch_alone),
        pytest.param([(5000,)], 400, marks=on_torch_alone),
    ],
)
def test_tails(shapes, steps):
    noise = stream(4)
    z = np.concatenate([drawn(noise, shapes)[0] for _ in range(steps)])
    for limit in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(limit) * len(z)
        count = (abs(z) > limit).sum()
        low, high = stats.poisson.interval(1 - 1e-5, expected)
        assert low <= count <= high


@pytest.mark.parametrize("shapes", SIZES)
def test_draws_depend_on_seed_and_step_alone(shapes):
    first, u = drawn(stream(7), shapes)
    again, same = drawn(stream(7), shapes)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(u, same)
    noise = stream(7)
    drawn(noise, shapes)
    second, _ = drawn(noise, shapes)
    np.testing.assert_array_equal(second, drawn(stream(7, count=1), shapes)[0])
    for other in (second, drawn(stream(8), shapes)[0]):
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / len(first) ** 0.5


@pytest.mark.parametrize("in_memory_of_variables", [False, True])
@pytest.mark.parametrize("shapes", SIZES)
def test_what_is_added_is_what_is_drawn(shapes, in_memory_of_variables):
    # PyTorch may make the normals while it adds them, and not at once.
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype("float32") for shape in shapes]
    arrays[0] = np.asfortranarray(arrays[0])
    variables = [keras.Variable(array) for array in arrays]
    start = [ops.convert_to_tensor(array) for array in arrays]
    if in_memory_of_variables:
        start = _backend.donated(variables, start)
    normals, uniform = stream(3).draw(start, 2)
    sums = tensors.add_terms(start, (0.5, normals))
    expected, same = stream(3).draw([ops.zeros(shape) for shape in shapes], 2)
    np.testing.assert_array_equal(*map(ops.convert_to_numpy, (uniform, same)))
    sums += tensors.add_terms(sums, (-0.25, normals))
    for i, z in enumerate(expected):
        z = ops.convert_to_numpy(z)
        for total, share in ((sums[i], 0.5), (sums[i + len(arrays)], 0.25)):
            total = ops.convert_to_numpy(total)
            np.testing.assert_allclose(total, arrays[i] + share * z, atol=1e-6)


@pytest.mark.parametrize("shapes", SIZES)
def test_a_chain_draws_what_a_single_run_with_its_seed_draws(shapes):
    seeds = [5, 6, 2**31 - 1]
    noise = _backend.ChainsNoise(state_of([[seed, 0] for seed in seeds]))
    like = [ops.zeros((len(seeds), *shape)) for shape in shapes]
    for step in range(2):
        normals, uniforms = noise.draw(like, 2)
        for i, seed in enumerate(seeds):
            z, u = drawn(stream(seed, count=step), shapes, uniforms=2)
            rows = [np.ravel(ops.convert_to_numpy(x[i])) for x in normals]
            np.testing.assert_allclose(np.concatenate(rows), z, atol=1e-6)
            np.testing.assert_array_equal(ops.convert_to_numpy(uniforms[i]), u)


def test_uniforms_fill_the_unit_interval():
    _, u = drawn(stream(9), [(20_000,)], uniforms=100_000)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    assert stats.kstest(u, "uniform").pvalue > 1e-4


def double_precision():
    """JAX has float64 in a scope alone."""
    if BACKEND != "jax":
        return contextlib.nullcontext()
    import jax

    return jax.enable_x64(True)


@pytest.mark.parametrize("size", [300, 5000, 70_000])
def test_float64_normals_have_the_digits_of_float64(size):
    with double_precision():
        noise = stream(11)
        like = [ops.zeros((size,), "float64")]
        steps = [noise.draw(like, 1) for _ in range(3)]
        z = [ops.convert_to_numpy(normals[0]) for normals, _ in steps]
        u = [ops.convert_to_numpy(uniform) for _, uniform in steps]
    assert {x.dtype.name for x in z} == {"float64"}
    assert {x.dtype.name for x in u} == {"float32"}
    z = np.concatenate(z)
    assert np.mean(z != z.astype("float32")) > 0.99
    assert stats.kstest(z, "norm").pvalue > 1e-4
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(np.mean(z**power) - mean) < 4.5 * (variance / len(z)) ** 0.5


def transformations(bits):
    """The ways from integers of 32 or 64 bits to normals: functions of an array."""
    if BACKEND == "torch":
        import torch

        def of_bits(integers):
            numbers = torch.empty(len(integers))
            draws.make_normals_of_bits_(integers, numbers)
            return math.sqrt(2.0) * numbers

        return [of_bits]
    if BACKEND == "tensorflow":
        import tensorflow as tf

        def of_bits(integers):
            integers = tf.convert_to_tensor(integers)
            return draws._normals(integers, 24 if bits == 32 else 53)

        xla = tf.function(of_bits, jit_compile=True)
        return [of_bits, tf.function(of_bits), xla]
    import jax

    def of_bits(integers):
        return draws._normals(integers.view(f"uint{bits}"))

    return [of_bits, jax.jit(of_bits)]


@pytest.mark.parametrize("bits", [32, 64])
def test_all_integers_give_finite_and_symmetric_normals(bits):
    if BACKEND == "torch" and bits == 64:
        pytest.skip("float64 comes from numpy's own normals on PyTorch")
    kept = {32: 24, 64: 53}[bits]
    half = 2 ** (kept - 1)
    # The largest ones, the neighbours of the centre, and some between.
    between = np.random.default_rng(0).integers(0, half, 10_000).tolist()
    upper = np.array([0, 1, 2, *sorted(between), half - 3, half - 2, half - 1])
    exact = math.sqrt(2.0) * special.erfinv((upper + 0.5) / half)
    lower = -1 - upper
    rest = 2 ** (bits - kept)
    if BACKEND == "torch":
        # All of the bits count there, rounded: k to -k, and the ends alike.
        upper, lower = (upper + 0.5) * rest, -(upper + 0.5) * rest
        rest = 1
        upper[-1], lower[-1] = 2**31 - 1, -(2**31)
    with double_precision():
        for function in transformations(bits):
            z, mirrored = (
                np.array(function(np.array(rest * x, f"int{bits}")), "float64")
                for x in (upper, lower)
            )
            assert np.isfinite(z).all()
            np.testing.assert_array_equal(mirrored, -z)
            if BACKEND == "torch":  # the rounding moves the tails by a step
                share = special.erf(z / math.sqrt(2.0))
                np.testing.assert_allclose(share, upper / 2**31, 1e-5, 2**-23)
            else:
                np.testing.assert_allclose(z, exact, rtol=1e-5)
    assert 5.0 < z[-1] < 8.5


@on_torch_alone
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [4, 2000, 20_000])
def test_all_bits_of_a_seed_count(size, dtype):
    seeds = [5, 5 + 2**32, 5 + 2**40, 5 + 2**62]
    drawn = draws.rows_of(seeds, size, 3, ops.zeros((), dtype))
    rows, uniforms = map(ops.convert_to_numpy, drawn)
    assert len(np.unique(rows[:, 0])) == len(seeds)
    assert len(np.unique(uniforms[:, 0])) == len(seeds)
    r = np.corrcoef(rows)[np.triu_indices(len(seeds), 1)]
    if size > 4:
        assert (abs(r) < 5 / size**0.5).all()


@on_torch_alone
def test_no_step_repeats_another():
    # Of 300,000 seeds of 32 bits ten would be expected to be equal.
    seeds = [draws.seed_of(7, step) for step in range(300_000)]
    rows = ops.convert_to_numpy(draws.rows_of(seeds, 4, 0, ops.zeros(()))[0])
    assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.skipif(BACKEND == "torch", reason="PyTorch's large tensors are numpy's")
@pytest.mark.parametrize(
    "key, counter, word",
    [
        ((0, 0), (0, 0), 0x6B200159),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, 0x1CB996FC),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), 0xC4923A9C),
    ],
)
def test_threefry_gives_the_words_of_its_authors(key, counter, word):
    # Known answers of the library Random123, `threefry2x32 20`.
    words = [ops.convert_to_tensor(np.uint32(x)) for x in (*key, *counter)]
    x, _ = draws._threefry(words[:2], words[2:])
    assert int(ops.convert_to_numpy(x)) == word
