"""The noise is standard normal and independent, and depends on seed and step alone."""

import importlib
import math

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

from keras_mhmcmc import _backend
from keras_mhmcmc.kernels import tensors

# Few numbers and many come from different generators on PyTorch, and those of small
# and of large tensors elsewhere.
SIZES = [
    ((40, 25), (7,)),
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


def test_tails():
    z, _ = drawn(stream(4), [(2_000_000,)])
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


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="PyTorch's large tensors are numpy's"
)
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
    draws = importlib.import_module(
        f"keras_mhmcmc._backend.draws_{keras.backend.backend()}"
    )
    words = [ops.convert_to_tensor(np.uint32(x)) for x in (*key, *counter)]
    x, _ = draws.threefry(*words)
    assert int(ops.convert_to_numpy(x)) == word
