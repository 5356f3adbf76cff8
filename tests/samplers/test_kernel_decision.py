"""Accept or reject: the decision of Metropolis-Hastings."""

import math

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import proposals
from keras_mhmcmc.samplers.parts import tensors
from tests.oracles import moves as oracle
from tests.support.kernel_tools import PROPOSALS
from tests.support.kernel_tools import assert_same
from tests.support.kernel_tools import chain
from tests.support.kernel_tools import decide
from tests.support.kernel_tools import draw
from tests.support.kernel_tools import flags
from tests.support.kernel_tools import tensor
from tests.support.kernel_tools import tensors_of
from tests.support.kernel_tools import two_states


@pytest.mark.parametrize("temperature", [1.0, 50.0])
@pytest.mark.parametrize(
    ("energy", "new_energy", "log_q_ratio"),
    [(10.0, 11.0, 0.3), (1e5, 1e5 + 40.0, 38.5), (-3.0, -2.0, -0.5), (2.5, 2.0, -1.25)],
)
def test_the_rule_accepts_exactly_below_its_threshold(
    energy, new_energy, log_q_ratio, temperature
):
    old, new = two_states(energy, new_energy)
    log_ratio = oracle.metropolis_log_ratio(
        energy, new_energy, temperature, log_q_ratio
    )
    threshold = min(math.exp(log_ratio), 1.0)
    for uniform in (0.5 * threshold, threshold * (1 - 1e-5)):
        state, info = decide(
            old, new, 1, log_q_ratio, uniform=uniform, temperature=temperature
        )
        assert flags(info) == dict(
            accepted=True, proposed=True, finite=True, has_state=True
        )
        assert float(info.log_ratio) == pytest.approx(log_ratio, abs=1e-5, rel=1e-5)
        assert_same(state, new)
    if threshold < 1.0:
        for uniform in (threshold * (1 + 1e-5), 0.5 + 0.5 * threshold):
            state, info = decide(
                old, new, 1, log_q_ratio, uniform=uniform, temperature=temperature
            )
            assert flags(info) == dict(
                accepted=False, proposed=True, finite=True, has_state=True
            )
            assert_same(state, old)


def test_nothing_pending_makes_the_first_finite_point_the_state():
    old, new = two_states(0.0, 1e6)
    state, info = decide(old, new, 0, log_q_ratio=-1e9, uniform=1 - 2**-24)
    assert flags(info) == dict(
        accepted=True, proposed=False, finite=True, has_state=True
    )
    assert_same(state, new)


@pytest.mark.parametrize(
    ("energy", "log_q_ratio"),
    [(math.nan, 0.0), (math.inf, 0.0), (-math.inf, 0.0), (1.0, math.nan)],
)
def test_a_first_point_that_is_not_finite_keeps_its_position_and_stays_nothing(
    energy, log_q_ratio
):
    old, new = two_states(0.0, energy)
    state, info = decide(old, new, 0, log_q_ratio)
    assert flags(info) == dict(
        accepted=False, proposed=False, finite=False, has_state=False
    )
    assert_same(state, acceptance.Candidate(new.position, old.gradient, old.energy))


@pytest.mark.parametrize("log_q_ratio", [-50.0, 0.0, 50.0])
def test_a_refresh_is_judged_by_the_energies_alone(log_q_ratio):
    old, new = two_states(10.0, 11.0)
    for uniform, accepted in ((0.36, True), (0.38, False)):  # exp(-1) = 0.368
        state, info = decide(old, new, 2, log_q_ratio, uniform=uniform)
        assert flags(info) == dict(
            accepted=accepted, proposed=False, finite=True, has_state=True
        )
        assert float(info.log_ratio) == pytest.approx(-1.0)
        assert_same(state, new if accepted else old)


@pytest.mark.parametrize("pending", [1, 2])
@pytest.mark.parametrize(
    ("energy", "log_q_ratio"),
    [
        (math.nan, 0.0),
        (math.inf, 0.0),
        (-math.inf, 0.0),
        (-1e9, math.nan),
        (-1e9, math.inf),
        (-1e9, -math.inf),
    ],
)
def test_what_is_not_finite_is_rejected_and_leaves_the_state(
    pending, energy, log_q_ratio
):
    old, new = two_states(10.0, energy)
    state, info = decide(old, new, pending, log_q_ratio, uniform=1e-6)
    assert flags(info) == dict(
        accepted=False, proposed=pending == 1, finite=False, has_state=True
    )
    assert float(info.log_ratio) == -math.inf
    assert_same(state, old)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize(
    "name", [name for name, proposal in PROPOSALS.items() if proposal.uses_gradient]
)
def test_a_gradient_that_is_not_finite_has_no_finite_ratio(name, bad):
    rng = np.random.default_rng(20)
    gradient, new_gradient, delta = (tensors_of(draw(rng)) for _ in range(3))
    poisoned = ops.convert_to_numpy(new_gradient[1]).copy()
    poisoned[1, 2] = bad
    new_gradient[1] = tensor(poisoned)
    proposal = PROPOSALS[name]
    scales = proposal.scales(tensor(0.1), 1.0, 10)
    ratio = proposal.log_q_ratio(delta, gradient, new_gradient, scales)
    old, new = two_states(10.0, -1e9)
    new = new._replace(gradient=new_gradient)
    state, info = decide(old, new, 1, ops.convert_to_numpy(ratio))
    assert flags(info) == dict(
        accepted=False, proposed=True, finite=False, has_state=True
    )
    assert_same(state, old)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.5])
@pytest.mark.parametrize("name", PROPOSALS)
def test_before_the_first_move_only_a_gradient_that_is_not_finite_spoils_the_ratio(
    name, bad
):
    # Nothing drew this point, so that Delta means nothing.
    rng = np.random.default_rng(23)
    gradient, new_gradient, delta = (tensors_of(draw(rng)) for _ in range(3))
    new_gradient[2] = tensor(bad)
    scales = proposals.Scales(*map(tensor, proposals.STILL))
    ratio = PROPOSALS[name].log_q_ratio(delta, gradient, new_gradient, scales)
    if math.isfinite(bad) or not PROPOSALS[name].uses_gradient:
        assert float(ratio) == 0.0
    else:
        assert not math.isfinite(float(ratio))


def test_weights_that_were_changed_after_a_refresh_start_a_new_chain():
    old, new = two_states(10.0, 1e6)
    delta = tensors.subtract(new.position, old.position)
    unmoved = [0.0 * x for x in delta]
    refresh, proposal = tensor(2, "int32"), tensor(1, "int32")
    assert bool(acceptance.was_modified(delta, refresh))
    assert not bool(acceptance.was_modified(unmoved, refresh))
    assert not bool(acceptance.was_modified(delta, proposal))
    state, info = decide(old, new, 2, restart=True, uniform=1 - 2**-24)
    assert flags(info) == dict(
        accepted=True, proposed=False, finite=True, has_state=True
    )
    assert_same(state, new)


def test_a_restart_at_a_point_that_is_not_finite_has_no_state():
    old, new = two_states(10.0, math.nan)
    state, info = decide(old, new, 2, restart=True)
    assert flags(info) == dict(
        accepted=False, proposed=False, finite=False, has_state=False
    )
    assert_same(state, acceptance.Candidate(new.position, old.gradient, old.energy))


def test_each_chain_is_decided_as_if_it_were_alone():
    rng = np.random.default_rng(22)
    # pending, restart, energy, new energy, log q ratio, uniform
    cases = [
        (0, False, 0.0, 5.0, 0.0, 0.99),
        (0, False, 0.0, math.nan, 0.0, 0.5),
        (1, False, 10.0, 11.0, 0.3, 0.49),
        (1, False, 10.0, 11.0, 0.3, 0.51),
        (1, False, 10.0, 9.0, math.nan, 0.5),
        (1, False, 10.0, math.inf, 0.0, 0.5),
        (2, False, 10.0, 11.0, 7.0, 0.36),
        (2, False, 10.0, 11.0, 7.0, 0.38),
        (2, True, 10.0, 1e5, 0.0, 0.99),
        (2, True, 10.0, math.nan, 0.0, 0.5),
    ]
    count = len(cases)
    shapes = [(count,), (count, 4), (count, 2, 3)]
    position, gradient, new_position, new_gradient = (
        draw(rng, shapes) for _ in range(4)
    )
    pending, restart, energy, new_energy, log_q_ratio, uniform = map(
        list, zip(*cases, strict=True)
    )
    temperature = 1.0 + 0.01 * np.arange(count)

    state, info = decide(
        acceptance.Candidate(
            tensors_of(position), tensors_of(gradient), tensor(energy)
        ),
        acceptance.Candidate(
            tensors_of(new_position), tensors_of(new_gradient), tensor(new_energy)
        ),
        pending,
        log_q_ratio,
        restart,
        uniform,
        tensor(temperature),
    )
    together = [*state.position, *state.gradient, state.energy, *info]
    for k in range(count):
        alone, alone_info = decide(
            acceptance.Candidate(
                chain(position, k), chain(gradient, k), tensor(energy[k])
            ),
            acceptance.Candidate(
                chain(new_position, k), chain(new_gradient, k), tensor(new_energy[k])
            ),
            pending[k],
            log_q_ratio[k],
            restart[k],
            uniform[k],
            tensor(temperature[k]),
        )
        separate = [*alone.position, *alone.gradient, alone.energy, *alone_info]
        for t, s in zip(together, separate, strict=True):
            np.testing.assert_array_equal(
                ops.convert_to_numpy(t)[k], ops.convert_to_numpy(s)
            )
