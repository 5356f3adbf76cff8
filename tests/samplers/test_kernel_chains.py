"""The chain axis: K chains at once are K separate calls."""

import numpy as np
import pytest
from keras import ops

from keras_mhmcmc.samplers import psgld
from keras_mhmcmc.samplers import sghmc
from keras_mhmcmc.samplers import sgld
from keras_mhmcmc.samplers.parts import acceptance
from keras_mhmcmc.samplers.parts import tensors
from tests.support.kernel_tools import PROPOSALS
from tests.support.kernel_tools import K
from tests.support.kernel_tools import assert_chains_equal
from tests.support.kernel_tools import assert_close
from tests.support.kernel_tools import chain
from tests.support.kernel_tools import chains
from tests.support.kernel_tools import float32
from tests.support.kernel_tools import moved
from tests.support.kernel_tools import tensor
from tests.support.kernel_tools import tensors_of

PER_CHAIN = np.zeros(K, "float32")  # the rank of K chains


def test_list_algebra_with_a_chain_axis_is_one_call_for_each_chain():
    rng = np.random.default_rng(14)
    xs, ys, a = chains(rng), chains(rng), float32([0.5, -2.0, 0.0])
    condition = np.array([True, False, True])
    added = tensors.add_scaled(tensors_of(xs), tensor(a), tensors_of(ys))
    chosen = tensors.select(tensor(condition, "bool"), tensors_of(xs), tensors_of(ys))
    squares = tensors.sum_squares(tensors_of(xs), like=PER_CHAIN)
    assert tuple(ops.shape(squares)) == (K,)
    assert tensors.size(tensors_of(xs), like=PER_CHAIN) == 1 + 4 + 6
    assert tensors.size(chain(xs, 0), like=0.0) == 1 + 4 + 6
    for k in range(K):
        x, y = chain(xs, k), chain(ys, k)
        assert_close(
            [t[k] for t in added],
            [ops.convert_to_numpy(t) for t in tensors.add_scaled(x, tensor(a[k]), y)],
        )
        assert_close(
            [t[k] for t in chosen],
            [
                ops.convert_to_numpy(t)
                for t in tensors.select(tensor(condition[k], "bool"), x, y)
            ],
            rtol=0,
            atol=0,
        )
        expected = sum(np.sum(x[k] ** 2) for x in xs)
        assert float(squares[k]) == pytest.approx(expected, rel=1e-5)
        assert float(tensors.sum_squares(x, like=0.0)) == pytest.approx(
            expected, rel=1e-5
        )


@pytest.mark.parametrize("has_chains", [False, True])
def test_squares_of_half_precision_weights_are_summed_in_float32(has_chains):
    ones = ops.cast(ops.ones((1, 1001)), "bfloat16")
    total = tensors.sum_squares([ones], like=PER_CHAIN if has_chains else 0.0)
    assert float(ops.reshape(ops.cast(total, "float32"), ())) == 1001.0


def test_steps_take_one_learning_rate_and_temperature_for_each_chain():
    rng = np.random.default_rng(15)
    x, v, g, z = (chains(rng) for _ in range(4))
    moment = [np.abs(array) for array in v]
    rates, temperatures = [0.1, 0.3, 0.7], [1.0, 0.0, 4.0]

    def run(pick, rate, temperature):
        settings = dict(
            learning_rate=tensor(rate), temperature=tensor(temperature), train_size=5
        )
        here = [pick(array) for array in (x, v, moment, g, z)]
        kernel = psgld.psgld(1.0, decay=0.9, epsilon=0.1)
        states = {
            sgld.sgld(1.0): sgld.State(here[0]),
            kernel: psgld.State(here[0], here[2]),
            sghmc.sghmc(1.0, momentum=0.8): sghmc.State(*here[:2]),
        }
        return [
            x
            for kernel, state in states.items()
            for tensors_of_field in moved(kernel, state, *here[3:], **settings)
            for x in tensors_of_field
        ]

    together = run(tensors_of, rates, temperatures)
    separate = [
        run(lambda arrays, k=k: chain(arrays, k), rates[k], temperatures[k])
        for k in range(K)
    ]
    assert_chains_equal(together, separate)


@pytest.mark.parametrize("name", PROPOSALS)
def test_a_proposal_gives_each_chain_its_own_ratio(name):
    rng = np.random.default_rng(17)
    x, g, new, z = (chains(rng) for _ in range(4))
    proposal, uniform = PROPOSALS[name], [0.2, 0.8, 0.4]

    def run(pick, uniform, has_chains):
        rate = tensor([0.1] * K if has_chains else 0.1)
        scales = proposal.scales(rate, 2.0, 10)
        here = [pick(array) for array in (x, g, new, z)]
        end, forward = proposal.propose(
            here[0], here[1], here[3], tensor(uniform), scales
        )
        delta = tensors.subtract(end, here[0])
        ratio = proposal.log_q_ratio(delta, here[1], here[2], scales)
        return [*end, forward, ratio]

    together = run(tensors_of, uniform, True)
    separate = [
        run(lambda arrays, k=k: chain(arrays, k), uniform[k], False) for k in range(K)
    ]
    assert_chains_equal(together, separate, rtol=1e-4, atol=1e-4)


def test_a_refresh_that_moved_is_told_for_each_chain():
    delta = [tensor([[0.0, 0.0], [0.0, 1e-3], [1.0, 0.0], [0.0, 0.0]])]
    pending = tensor([2, 2, 1, 0], "int32")
    told = ops.convert_to_numpy(acceptance.was_modified(delta, pending))
    assert told.tolist() == [False, True, False, False]
    for k in range(4):
        alone = acceptance.was_modified([delta[0][k]], pending[k])
        assert bool(alone) == told[k]
