"""Several devices: the chain is that of one device, or is refused."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.devices import simulated_devices
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.samplers import SAMPLERS

BACKEND = keras.backend.backend()
ROOT = str(pathlib.Path(__file__).parents[2])
SCRIPT = "tests.support.distribution_process"


def in_new_process(arguments, **environment):
    """What a new process prints, which has the tests' modules."""
    result = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": ROOT} | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is for JAX")
@pytest.mark.parametrize(
    "names",
    [
        ["rsgld"],
        pytest.param(
            ["sgld", "sghmc", "mint", "csghmc", "sghmcsa"], marks=pytest.mark.slow
        ),
    ],
)
def test_eight_devices_make_the_chain_of_one(names):
    """`DataParallel` and `ModelParallel`, on simulated devices."""
    flags = simulated_devices(8)
    runs = json.loads(in_new_process(["-m", SCRIPT, *names], XLA_FLAGS=flags))
    assert set(runs) == set(names)
    for run in runs.values():
        # The hidden layer of 16 units, and the slots that belong to it, are spread.
        for way, columns in (("one", [16]), ("data", [16] * 8), ("model", [4] * 8)):
            assert all(each == columns for each in run[way]["columns"])
        for way in ("data", "model"):
            np.testing.assert_allclose(
                run[way]["weights"], run["one"]["weights"], rtol=1e-4, atol=1e-5
            )
            # One decision for all devices at every step.
            assert run[way]["tally"] == run["one"]["tally"]


_MIRRORED = """
import keras
import tensorflow as tf
from tests.support.samplers import SAMPLERS
from tests.support.models import compiled, fit

(cpu,) = tf.config.list_physical_devices("CPU")
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
for name in ("sgld", "rsgld", "csghmc", "sghmcsa"):
    with strategy.scope():
        model = compiled(SAMPLERS[name].make(seed=3))
    try:
        fit(model, epochs=1)
    except ValueError as error:
        assert "DataParallel" in str(error) and "2 replicas" in str(error), error
        print("refused", name)
"""


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow only")
def test_replicas_that_would_share_a_chain_are_refused():
    """`MirroredStrategy` on two logical processors."""
    printed = in_new_process(["-c", _MIRRORED])
    assert printed.split() == [
        word
        for name in ("sgld", "rsgld", "csghmc", "sghmcsa")
        for word in ("refused", name)
    ]


_OTHER_RANK = """
import sys
import torch.distributed as group

group.init_process_group("gloo", init_method=sys.argv[1], rank=1, world_size=2)
group.barrier()
group.destroy_process_group()
"""


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch only")
@pytest.mark.parametrize("count", [1, 2])
def test_a_process_group_is_refused(count, tmp_path):
    """A real one, whose other process does nothing but belong to it."""
    import torch.distributed as group

    place = f"file://{tmp_path}/group"
    script = [sys.executable, "-c", _OTHER_RANK, place]
    others = [subprocess.Popen(script) for _ in range(count - 1)]
    group.init_process_group("gloo", init_method=place, rank=0, world_size=count)
    try:
        for name in ("sgld", "rsgld"):
            model = compiled(SAMPLERS[name].make(seed=3))
            if count == 1:
                fit(model, epochs=1)
                continue
            with pytest.raises(ValueError, match="init_process_group.*2 processes"):
                fit(model, epochs=1)
        if count > 1:
            with pytest.raises(ValueError, match="group of 2 processes"):
                mh.ParallelChains(sequential(), 2)
        fit(compiled("sgd"), epochs=1)  # nothing of ours
        group.barrier()
    finally:
        group.destroy_process_group()
        for other in others:
            assert other.wait(60) == 0


@pytest.mark.skipif(BACKEND != "jax", reason="JAX only")
def test_several_hosts_are_refused(monkeypatch):
    import jax

    models = [compiled(SAMPLERS[name].make(seed=3)) for name in ("sgld", "rsgld")]
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for model in models:
        with pytest.raises(ValueError, match="distribution.initialize.*2 processes"):
            fit(model, epochs=1)
    with pytest.raises(ValueError, match="ParallelChains.*2 processes"):
        mh.ParallelChains(sequential(), 2)
