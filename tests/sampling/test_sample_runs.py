"""`mh.sample` as a program: what is kept, resumed, interrupted, shown, refused."""

import pickle

import keras
import numpy as np
import pytest
from keras import ops

import keras_mhmcmc as mh
from keras_mhmcmc.sampling import loop

DATA = np.random.default_rng(0).normal(size=(64, 2)).astype("float32")


def log_density(x):
    return -0.5 * ops.sum(ops.square(x))


def log_likelihood(position, batch):
    offset = ops.square(batch - position["mean"]) * ops.exp(-position["log_scale"])
    return -0.5 * ops.sum(offset, axis=1) - position["log_scale"]


START = {"mean": [0.0, 0.0], "log_scale": 0.0}

KERNELS = {
    "sgld": mh.kernels.sgld(0.1),
    "psgld": mh.kernels.psgld(0.01, epsilon=0.1),
    "sghmc": mh.kernels.sghmc(0.02),
    "random walk": mh.kernels.mhbt(0.3),
    "Langevin": mh.kernels.mhbt(0.1, proposal=mh.proposals.Langevin()),
    "reversible": mh.kernels.mhbt(
        0.1, proposal=mh.proposals.ReversibleLangevin(1.5), temperature=4.0
    ),
    "mint": mh.kernels.mint(0.1),
    "schedule": mh.kernels.sgld(mh.schedules.PowerDecay(0.1, 1.0, 0.3)),
}

SLOW_TO_COMPILE = pytest.mark.slow_on("jax", "tensorflow")


def run(kernel="sgld", init=START, num_steps=40, **arguments):
    target = {"log_likelihood": log_likelihood, "data": DATA, "batch_size": 16}
    return mh.sample(
        KERNELS.get(kernel, kernel),
        init,
        num_steps=num_steps,
        **({"num_chains": 3, "progress": False} | target | arguments),
    )


def assert_same(actual, expected):
    for a, e in zip(
        keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True
    ):
        np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(k, marks=[] if k in ("sghmc", "reversible") else SLOW_TO_COMPILE)
        for k in KERNELS
    ],
)
def test_a_run_goes_on_bit_for_bit_from_its_state(kernel):
    whole = run(kernel)
    first = run(kernel, num_steps=15)
    state = pickle.loads(pickle.dumps(first.state))
    second = run(kernel, init=state, num_steps=25)
    together = keras.tree.map_structure(
        lambda a, b: np.concatenate([a, b], axis=1), first.position, second.position
    )
    assert_same(together, whole.position)
    assert_same(second.state.values, whole.state.values)
    assert whole.state.steps == second.state.steps == 40


@pytest.mark.parametrize("kernel", ["sgld", "Langevin"])
def test_burn_in_and_thinning_keep_a_part_of_the_whole_run(kernel):
    whole = run(kernel).position
    part = run(kernel, burn_in=7, every=4)
    assert len(part) == 8
    assert_same(part.position, keras.tree.map_structure(lambda x: x[:, 10::4], whole))


@pytest.mark.slow_on("jax")
def test_pieces_do_not_change_a_run(monkeypatch):
    whole = run("Langevin", num_steps=100, burn_in=3, every=2)
    monkeypatch.setattr(loop, "_BUFFER_DRAWS", 5)
    monkeypatch.setattr(loop, "_FIRST_STEPS", 1)
    pieces = run("Langevin", num_steps=100, burn_in=3, every=2)
    assert_same(pieces.position, whole.position)
    assert_same(pieces.info, whole.info)


def test_the_first_draw_is_the_start_and_has_its_energy():
    draws = run("Langevin", batch_size=None, num_steps=3)
    assert_same(draws.position["mean"][:, 0], np.zeros((3, 2)))
    expected = 0.5 * np.sum(np.square(DATA, dtype="float64"))
    np.testing.assert_allclose(draws.info["energy"][:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("kernel", ["sgld", "Langevin"])
def test_each_draw_has_its_own_energy(kernel):
    draws = run(kernel, batch_size=None, num_steps=10)
    mean, log_scale = draws.position["mean"], draws.position["log_scale"]
    squares = np.square(DATA[None, None] - mean[:, :, None]).sum((2, 3))
    expected = 0.5 * squares * np.exp(-log_scale) + 64 * log_scale
    np.testing.assert_allclose(draws.info["energy"], expected, rtol=1e-4)


def test_seeds_repeat_and_differ():
    first, again, other = (run(seed=seed).position["mean"] for seed in (1, 1, 2))
    assert_same(first, again)
    assert not np.isclose(first[:, -1], other[:, -1]).any()


def test_each_chain_may_have_its_own_start():
    start = {"mean": np.arange(6.0).reshape(3, 2), "log_scale": np.zeros(3)}
    draws = run(init=start)
    assert_same(draws.position["mean"][:, 0], start["mean"])
    assert draws.position["log_scale"].shape == (3, 40)


def test_a_vector_as_long_as_the_chains_is_what_the_density_takes():
    def scalar(x):
        return -0.5 * ops.square(x)

    def vector(x):
        return -0.5 * (ops.square(x[0]) + ops.square(x[1]))

    arguments = {"num_steps": 3, "num_chains": 2, "progress": False}
    kernel = mh.kernels.sgld(0.1)
    draws = mh.sample(kernel, [1.0, 2.0], log_density=scalar, **arguments)
    assert_same(draws.position[:, 0], np.array([1.0, 2.0]))
    draws = mh.sample(kernel, [1.0, 2.0], log_density=vector, **arguments)
    assert_same(draws.position[:, 0], np.array([[1.0, 2.0], [1.0, 2.0]]))
    with pytest.raises(ValueError, match=r"`init`.*\(2, 1\)"):
        mh.sample(kernel, [1.0, 2.0], log_density=log_density, **arguments)


def test_a_step_is_traced_a_few_times_however_many_there_are():
    calls = []

    def counted(x):
        calls.append(1)
        return log_density(x)

    counts = []
    for steps in (10, 300):
        calls.clear()
        mh.sample(
            mh.kernels.sgld(0.1),
            [0.0, 0.0],
            log_density=counted,
            num_steps=steps,
            progress=False,
        )
        counts.append(len(calls))
    if keras.backend.backend() == "torch":
        assert counts[1] - counts[0] == 290
    else:
        assert counts[0] == counts[1] < 10


def test_ctrl_c_returns_the_draws_until_then(monkeypatch):
    whole = run(num_steps=200)
    piece = loop.Plan.piece

    def interrupted(plan, done, *others):
        if done >= 50:
            raise KeyboardInterrupt
        return piece(plan, done, *others)

    monkeypatch.setattr(loop.Plan, "piece", interrupted)
    monkeypatch.setattr(loop, "_SECONDS", 1e-9)
    with pytest.warns(UserWarning, match="Interrupted after 5"):
        draws = run(num_steps=200)
    assert draws.interrupted
    assert 50 <= len(draws) < 60
    count = len(draws)
    assert_same(draws.position["mean"], whole.position["mean"][:, :count])
    monkeypatch.undo()
    rest = run(init=draws.state, num_steps=200 - count)
    assert_same(rest.position["mean"], whole.position["mean"][:, count:])


def test_ctrl_c_before_the_first_draw(monkeypatch):
    def interrupted(plan, *others):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.Plan, "piece", interrupted)
    with pytest.warns(UserWarning, match="Interrupted after 0"):
        draws = run(num_steps=200)
    assert draws.position["mean"].shape == (3, 0, 2)
    assert draws.weights.shape == (3, 0)


def test_the_bar_shows_rate_and_acceptance(capsys):
    run("Langevin", progress=True)
    shown = capsys.readouterr().out
    assert "40/40" in shown
    assert "s/step" in shown
    assert "acceptance" in shown
    run("Langevin", progress=False)
    assert capsys.readouterr().out == ""


def test_acceptance_counts_the_steps_after_the_burn_in():
    draws = run("random walk", num_steps=400, burn_in=200, batch_size=None)
    moved = np.any(np.diff(draws.position["mean"], axis=1) != 0, axis=2)
    np.testing.assert_allclose(
        draws.info["acceptance"], moved.mean(axis=1), atol=1.5 / 200
    )


def test_a_lost_chain_is_reported_and_a_rejected_move_counted():
    arguments = {"num_steps": 200, "num_chains": 2, "progress": False}

    def steep(x):
        return -ops.sum(x**4)

    with pytest.warns(UserWarning, match="2 of 2 chains ran to where"):
        mh.sample(mh.kernels.sgld(1.0), [9.0], log_density=steep, **arguments)
    kernels = {
        "mhbt": mh.kernels.mhbt(1e12),
        "amagold": mh.kernels.amagold(1e12, steps_per_test=2),
    }
    for kernel in kernels.values():
        with pytest.warns(UserWarning, match="2 of 2 chains accepted no") as w:
            draws = mh.sample(kernel, [0.1], log_density=steep, **arguments)
        assert [x.filename for x in w if "accepted no" in str(x.message)] == [__file__]
        assert draws.info["nonfinite"].sum() > 300
        assert np.isfinite(draws.position).all()


def test_a_temperature_that_accepts_nothing_is_reported():
    """Its chains move by swaps alone."""
    with pytest.warns(UserWarning, match="of 4 chains .* only swaps move a chain"):
        mh.replica_exchange(
            mh.kernels.mhbt(1e12),
            [0.1],
            log_density=lambda x: -ops.sum(x**2),
            temperatures=[1.0, 2.0],
            num_steps=200,
            num_chains=2,
            progress=False,
        )


def test_draws_go_to_arviz():
    pytest.importorskip("arviz")
    group = run("Langevin").to_arviz()
    assert group["posterior"]["mean"].shape == (3, 40, 2)
    assert group["posterior"]["log_scale"].shape == (3, 40)
    assert group["sample_stats"]["energy"].shape == (3, 40)
    draws = mh.sample(
        KERNELS["sgld"], [0.0], log_density=log_density, num_steps=5, progress=False
    )
    assert draws.to_arviz()["posterior"]["position"].shape == (1, 5, 1)


def test_a_start_that_is_not_finite_is_refused_for_its_chains():
    def nowhere(position, batch):
        return ops.log(batch[:, 0] + position["log_scale"])

    with pytest.raises(ValueError, match="(?s)`init`.*3 of 3 chains"):
        run(log_likelihood=nowhere)


def test_mint_needs_data():
    with pytest.raises(ValueError, match="MINT.*mhbt"):
        mh.sample(KERNELS["mint"], [0.0], log_density=log_density, num_steps=3)
