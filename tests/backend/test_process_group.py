"""PyTorch: two processes of a group move one chain, or each a chain of its own."""

import json
import re
import tempfile

import keras
import numpy as np
import pytest

from tests.support.limited import block
from tests.support.limited import run_python
from tests.support.models import Drive
from tests.support.samplers import SAMPLERS

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "torch", reason="PyTorch only"
)

LIMIT = 240  # seconds
STEPS = 200  # fewer steps miss a decision that depends on the last digits


def of_both(tasks):
    """For each task of `group_process`, what it returns in the two processes."""
    with tempfile.TemporaryDirectory() as folder:
        start = ["-m", "tests.support.group_process"]
        place = f"file://{folder}/group"
        scripts = [[*start, str(rank), place, json.dumps(tasks)] for rank in (0, 1)]
        printed = run_python(scripts, folder, LIMIT)
    return list(zip(*map(json.loads, printed), strict=True))


def alone(task, **arguments):
    """What a task returns in one process with the whole batch."""
    from tests.support import group_process  # imports PyTorch

    return group_process.run(0, 1, task, **arguments)


def chain(sampler, seed, steps, **others):
    return {"task": "chain", "sampler": sampler, "seed": seed, "steps": steps} | others


# One pair of processes does all of them: it takes seconds to start.
TASKS = {
    "rsgld, no seed": chain("rsgld", None, STEPS, looks=[60]),
    "rsgld, seed 3": chain("rsgld", 3, STEPS),
    "sghmc, no seed": chain("sghmc", None, 20),
    "short rsgld": chain("rsgld", 3, 30, looks=[20]),
    "short sghmc": chain("sghmc", 3, 30),
    "short sghmcsa": chain("sghmcsa", 3, 30),
    "fit": {"task": "fit", "sampler": "rsgld", "seed": 3},
    "loss": chain("rsgld", 3, 60, fault="over_replicas"),
    "seed": chain("sghmc", None, 3, fault="check_processes"),
    "no wrapper": chain("sgld", 3, 2, wrapper="none") | {"task": "refused"},
    "shards": chain("sgld", 3, 2, wrapper="shards") | {"task": "refused"},
    "two seeds": chain("sgld", [3, 4], 2) | {"task": "refused"},
    "chains": {"task": "chains"},
    "independent": chain("rsgld", 4, 20) | {"task": "independent"},
}


@pytest.fixture(scope="module")
def results():
    return dict(zip(TASKS, of_both(list(TASKS.values())), strict=True))


@pytest.mark.parametrize("name", ["rsgld, no seed", "rsgld, seed 3", "sghmc, no seed"])
def test_the_processes_have_the_same_bits(results, name):
    """Weights and all variables of the sampler, also if nobody gave a seed."""
    first, second = results[name]
    assert first["hash"] == second["hash"]
    assert first["seed"] == second["seed"]
    assert np.isfinite(first["diagnostics"]["energy"])


def assert_one_chain(results, name):
    """Two processes make the chain of one, but for the order of sums."""
    first, second = results[name]
    assert first["hash"] == second["hash"]
    one = alone(**TASKS[name])
    np.testing.assert_allclose(first["weights"], one["weights"], rtol=1e-4, atol=1e-5)
    assert first["diagnostics"] == pytest.approx(
        one["diagnostics"], rel=1e-4, nan_ok=True
    )


@pytest.mark.parametrize("name", ["short rsgld", "short sghmc", "short sghmcsa"])
def test_two_processes_make_the_chain_of_one(results, name):
    assert_one_chain(results, name)


def test_fit_with_a_wrapper_keeps_the_samples_of_one_process(results):
    """Its `batch_size` is that of a process, and the sampler has the whole one."""
    first, second = results["fit"]
    assert first == second
    one = alone("fit", sampler="rsgld", seed=3)
    assert len(one["energies"]) > 2
    np.testing.assert_allclose(first["energies"], one["energies"], rtol=1e-4)
    for weights, expected in zip(first["samples"], one["samples"], strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
    # None of sizes that do not fit.
    assert not [text for text in first["warnings"] if "_size" in text]


@pytest.mark.parametrize("fault", ["loss", "seed"])
def test_planted_faults_are_found(results, fault):
    first, second = results[fault]
    assert first["hash"] != second["hash"]


@pytest.mark.parametrize("name", ["no wrapper", "shards"])
def test_gradients_of_each_process_are_refused(results, name):
    """Nothing averages them, as in `fit` of Keras 3.15."""
    for error in results[name]:
        assert re.search("DistributedDataParallel.*gradients that differ", error)


def test_different_seeds_are_refused(results):
    for error in results["two seeds"]:
        assert re.search("same `seed`.*independent_processes.*noise_state", error)


def test_independent_processes_are_not_joined(results):
    first, second = results["independent"]
    assert first == second == alone("chain", sampler="rsgld", seed=4, steps=20)
    for error, size in results["chains"]:
        assert "independent_processes" in error and "2 processes" in error
        assert size == 2


@pytest.mark.parametrize("others", [0, 1])
def test_settling_in_one_process_alone_is_refused(others, monkeypatch):
    """The other process, which is played here, has the same loss and gradient."""
    from keras_mhmcmc._backend.torch import core

    def all_reduce(tensor, op=None):
        if op is None:  # a sum of losses and of changes
            other = tensor.clone()
            other[1] = others
            tensor.add_(other)

    drive = Drive(SAMPLERS["mhbt_langevin"].make(seed=3), [1.0, 2.0])
    monkeypatch.setattr(core, "count_processes", lambda: 2)
    monkeypatch.setattr(core.group, "all_reduce", all_reduce)
    drive.step(1.0, [0.1, 0.2])
    others, changes = 0, others
    drive.step(1.0, [0.1, 0.2])
    drive.optimizer.settle()
    others = changes
    if others:
        drive.step(1.0, [0.1, 0.2])
        return
    with pytest.raises(ValueError, match="all processes.*1 such calls.*1 in all 2"):
        drive.step(1.0, [0.1, 0.2])


@pytest.mark.slow  # the tests above are its short form
def test_the_recipe_runs(tmp_path):
    """As the page starts it, with two processes."""
    line = "# with KERAS_BACKEND=torch, in the processes of torchrun: ddp.py"
    (tmp_path / "ddp.py").write_text(block("scaling.md", line))
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    (printed,) = run_python([[*start, "ddp.py"]], tmp_path, LIMIT)
    members, acceptance = printed.split()
    assert members == "10" and 0.0 < float(acceptance) <= 1.0
