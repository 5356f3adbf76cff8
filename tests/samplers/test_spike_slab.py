"""The kernels of spike-and-slab priors, against float64 and against theory."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc import _backend
from keras_mhmcmc.samplers import spike_slab
from tests.oracles import spike_slab as oracle
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import float32
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor
from tests.support.kernel_tools import tensors_of

SHAPES = [(30, 4), (7, 6), (2, 3, 5)]
GROUPS = (0, 0, 1)
EXAMPLES = 50
PRIOR = dict(v0=1e-3, v1=10.0, a=2.0, b=20.0, nu=1.5, lam=0.7)
kinds = pytest.mark.parametrize("is_regression", [False, True])


def prior(groups=GROUPS, **numbers):
    return spike_slab.Numbers(**(PRIOR | numbers), groups=groups)


def first(shapes=SHAPES, groups=GROUPS, chains=None, sigma=0.5, delta=0.4):
    """Both kinds of latent variables before the first step."""
    lead = () if chains is None else (chains,)
    numbers = np.ones((*lead, max(groups) + 1))
    spike = [tensor(np.full((*lead, *shape), 1 - delta)) for shape in shapes]
    ours = spike_slab.Latents(spike, tensor(sigma * numbers), tensor(delta * numbers))
    v0, v1 = PRIOR["v0"], PRIOR["v1"]
    return ours, oracle.first(shapes, groups, sigma, delta, v0, v1)


def ours_as_oracle(latents):
    spike = [ops.convert_to_numpy(q).astype("float64") for q in latents.spike]
    kappa = [q / PRIOR["v0"] + (1 - q) / PRIOR["v1"] for q in spike]
    sigma, delta = map(ops.convert_to_numpy, (latents.sigma, latents.delta))
    return oracle.Latents([1 - q for q in spike], kappa, sigma, delta)


def assert_same(ours, theirs, rtol):
    for one, other in zip(ours_as_oracle(ours), theirs, strict=True):
        for x, y in zip(one, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=rtol)


def walk(steps, seed, shapes=SHAPES):
    """Weights of every size that change from step to step, and an RSS for each."""
    rng = np.random.default_rng(seed)
    scales = [np.exp(rng.uniform(-5, 1, size=shape)) for shape in shapes]
    for _ in range(steps):
        weights = [float32(s * rng.normal(size=s.shape)) for s in scales]
        yield weights, float(np.float32(rng.gamma(5.0) * 4.0))


def learn(groups=GROUPS):
    """One step of our latent variables, compiled."""

    def step(position, latents, rss, omega):
        size = dict(step_size=omega, train_size=EXAMPLES)
        return spike_slab.update_latents(
            position, latents, prior(groups), rss=rss, **size
        )[0]

    return _backend.compile_function(step)


learned = learn()


def energy_of(position, latents):
    size = dict(step_size=tensor(0.0), train_size=EXAMPLES)
    _, weighted = spike_slab.update_latents(position, latents, prior(), **size)
    return spike_slab.prior_energy(weighted, latents, prior())


def pulls_of(position, latents, numbers=None, examples=EXAMPLES):
    """The prior's part of the gradient alone."""
    numbers = prior() if numbers is None else numbers
    rows = zip(position, latents.spike, numbers.groups, strict=True)
    return [
        spike_slab.add_gradient(
            x, ops.zeros_like(x), q, latents.sigma[..., g], numbers, examples
        )
        for x, q, g in rows
    ]


def stepped(ours, theirs, weights, rss, omega, groups=GROUPS):
    rule = learned if groups == GROUPS else learn(groups)
    given = None if rss is None else tensor(rss)
    ours = rule(tensors_of(weights), ours, given, tensor(omega))
    new = oracle.expected(weights, theirs, groups, examples=EXAMPLES, rss=rss, **PRIOR)
    return ours, oracle.averaged(theirs, new, omega)


def omega_at(k):
    return float(np.float32(0.1 * (k + 1000.0) ** -0.75))


@kinds
@pytest.mark.parametrize("groups", [(0, 0, 1), (0, 1, 2), (0, 0, 0)])
def test_one_em_step_is_that_of_the_oracle(is_regression, groups):
    ours, theirs = first(groups=groups)
    ((weights, rss),) = walk(1, seed=1)
    rss = rss if is_regression else None
    ours, theirs = stepped(ours, theirs, weights, rss, 1.0, groups)
    assert_same(ours, theirs, rtol=2e-4)


@kinds
def test_a_thousand_steps_stay_with_the_oracle(is_regression):
    ours, theirs = first()
    for k, (weights, rss) in enumerate(walk(1000, seed=2)):
        rss = rss if is_regression else None
        ours, theirs = stepped(ours, theirs, weights, rss, omega_at(k))
    assert_same(ours, theirs, rtol=1e-4)
    assert np.ptp(theirs.rho[0]) > 0.2  # they did move


@kinds
def test_chains_are_as_if_each_were_alone(is_regression):
    many, _ = first(chains=3)
    alone = [first()[0] for _ in range(3)]
    walks = [list(walk(4, seed)) for seed in (3, 4, 5)]
    for k in range(4):
        steps = [w[k] for w in walks]
        weights = [np.stack(each) for each in zip(*(s[0] for s in steps), strict=True)]
        rss = tensor([s[1] for s in steps]) if is_regression else None
        many = learned(tensors_of(weights), many, rss, tensor(0.3))
        for c, (one, total) in enumerate(steps):
            rss = tensor(total) if is_regression else None
            alone[c] = learned(tensors_of(one), alone[c], rss, tensor(0.3))
    position = tensors_of(weights)
    energies, pulls = energy_of(position, many), pulls_of(position, many)
    for c in range(3):
        both = [(many.sigma[c], alone[c].sigma), (many.delta[c], alone[c].delta)]
        both += [(x[c], y) for x, y in zip(many.spike, alone[c].spike, strict=True)]
        mine = [x[c] for x in position]
        own = pulls_of(mine, alone[c])
        both += [(x[c], y) for x, y in zip(pulls, own, strict=True)]
        both.append((energies[c], energy_of(mine, alone[c])))
        for x, y in both:
            x, y = ops.convert_to_numpy(x), ops.convert_to_numpy(y)
            np.testing.assert_allclose(x, y, rtol=2e-6)


@kinds
@pytest.mark.parametrize("size", [1e6, 1e3, 1.0, 1e-12, 1e-30, 0.0])
def test_weights_of_every_size_have_finite_latents(is_regression, size):
    ours, _ = first()
    rng = np.random.default_rng(6)
    weights = [float32(size * rng.choice([-1, 1], size=s)) for s in SHAPES]
    rss = tensor(3.0) if is_regression else None
    for _ in range(3):
        ours = learned(tensors_of(weights), ours, rss, tensor(1.0))
    for values in ours_as_oracle(ours):
        assert all(np.isfinite(x).all() for x in values)
    pulls = pulls_of(tensors_of(weights), ours)
    assert all(np.isfinite(ops.convert_to_numpy(x)).all() for x in pulls)
    slab = ops.convert_to_numpy(ours.spike[0]).max() < 0.5
    assert slab == (size >= 1.0)


def test_a_share_of_zero_can_be_left_again():
    ours, _ = first()
    none = ours._replace(delta=tensor(np.zeros(2)))
    large = tensors_of([np.full(shape, 10.0) for shape in SHAPES])
    new = learned(large, none, None, tensor(1.0))
    assert float(ops.max(new.spike[0])) < 1e-6


def test_a_kappa_near_that_of_the_slab_keeps_its_digits():
    """1 - rho is 1e-9 here, which a rho in float32 would not hold."""
    v0, v1 = 1e-5, 100.0
    latents = spike_slab.Latents([tensor([[1e-9]])], tensor([1.0]), tensor([0.5]))
    numbers = spike_slab.Numbers(v0, v1, 1.0, 1.0, 1.0, 1.0, (0,))
    (pull,) = pulls_of([tensor([[1.0]])], latents, numbers, 1)
    np.testing.assert_allclose(float(pull[0, 0]), 1e-9 / v0 + 1 / v1, rtol=1e-5)


def test_the_gradient_is_that_of_the_energy():
    _, theirs = first()
    ((weights, _),) = walk(1, seed=8)
    new = oracle.expected(weights, theirs, GROUPS, examples=EXAMPLES, **PRIOR)
    spike = [tensor(1 - r) for r in new.rho]
    ours = spike_slab.Latents(spike, tensor(new.sigma), tensor(new.delta))
    position = tensors_of(weights)
    energy = float(energy_of(position, ours))
    expected = oracle.prior_energy(weights, new, GROUPS)
    np.testing.assert_allclose(energy, expected, rtol=1e-5)
    pulls = pulls_of(position, ours)
    for i, index in ((0, (3, 2)), (1, (6, 5)), (2, (1, 2, 4))):
        moved = [w.copy() for w in weights]
        moved[i][index] += 1e-6
        slope = (oracle.prior_energy(moved, new, GROUPS) - expected) / 1e-6
        pull = ops.convert_to_numpy(pulls[i])[index]
        np.testing.assert_allclose(EXAMPLES * pull, slope, rtol=1e-3, atol=1e-3)


def test_residuals_are_those_of_a_normal_likelihood():
    latents = spike_slab.Latents([], tensor([0.5]), tensor([0.5]))
    gradient, energy = spike_slab.of_residuals([tensor([3.0])], tensor(8.0), latents)
    assert float(gradient[0][0]) == pytest.approx(6.0)
    assert float(energy) == pytest.approx(16.0)


def test_adam_is_that_of_keras():
    import keras

    rng = np.random.default_rng(9)
    position = draw(rng, [(3, 2), (4,)])
    variables = [keras.Variable(x.astype("float32")) for x in position]
    theirs = keras.optimizers.Adam(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-6)
    theirs.build(variables)
    kernel = spike_slab.Adam(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-6)
    zeros = [np.zeros_like(x) for x in position]
    state = spike_slab.AdamState(position, zeros, zeros)
    settings = dict(learning_rate=tensor(0.01), temperature=0.0, train_size=1)
    for k in range(20):
        gradient = tensors_of(draw(rng, [(3, 2), (4,)]))
        theirs.apply(gradient)
        state = moved(kernel, state, gradient, [], number=k, **settings)
    for x, variable in zip(state.point, variables, strict=True):
        x, y = ops.convert_to_numpy(x), ops.convert_to_numpy(variable)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chains", [None, 2])
def test_the_noise_of_a_layer_is_in_proportion_to_its_gradients_spread(chains):
    rng = np.random.default_rng(10)
    lead = () if chains is None else (chains,)
    gradient = [tensor(s * rng.normal(size=(*lead, 200, 3))) for s in (0.1, 5.0, 1.0)]
    unknown = tensor(np.full((*lead, 3), spike_slab.NO_GRADIENT))
    spreads = spike_slab.update_spreads(unknown, gradient)
    deviations = np.array(
        [np.std(ops.convert_to_numpy(g)[..., :, :]) for g in gradient]
    )
    np.testing.assert_allclose(
        ops.convert_to_numpy(spreads) / deviations, 1.0, atol=0.1
    )
    normals = [tensor(np.ones((*lead, 200, 3))) for _ in gradient]
    scaled = spike_slab.scaled_noise(normals, spreads)
    scales = [float(ops.max(z)) for z in scaled]
    np.testing.assert_allclose(scales, [0.02, 1.0, 0.2], rtol=0.15)
    again = spike_slab.update_spreads(spreads, [3.0 * g for g in gradient])
    np.testing.assert_allclose(
        ops.convert_to_numpy(again), 1.02 * ops.convert_to_numpy(spreads), rtol=1e-5
    )
    still = [ops.zeros_like(g) for g in gradient]
    nothing = spike_slab.scaled_noise(
        normals, spike_slab.update_spreads(unknown, still)
    )
    assert all(float(ops.max(z)) == 0.0 for z in nothing)


@pytest.mark.parametrize("chains", [None, 2])
def test_a_layer_of_one_weight_has_noise_by_the_size_of_its_gradient(chains):
    lead = () if chains is None else (chains,)
    gradient = [tensor(np.full(lead, -2.0)), tensor(np.full((*lead, 1), 3.0))]
    gradient.append(tensor(np.full((*lead, 2), 1.0) * np.array([1.0, -1.0])))
    unknown = tensor(np.full((*lead, 3), spike_slab.NO_GRADIENT))
    spreads = ops.convert_to_numpy(spike_slab.update_spreads(unknown, gradient))
    np.testing.assert_allclose(spreads, np.broadcast_to([2.0, 3.0, 1.0], (*lead, 3)))
