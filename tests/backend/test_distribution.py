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

pytestmark = pytest.mark.eager_and_compiled

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
    script = ["-m", SCRIPT, *names]
    runs = json.loads(in_new_process(script, **simulated_devices(8)))
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


@pytest.mark.slow  # 8 and 12 seconds
@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is for JAX")
@pytest.mark.parametrize(
    "shards", [{"units": [2, 5, 8]}, {"members": [1, 5, 16], "model": [2, 5, 8]}]
)
def test_an_ensemble_lies_on_several_devices(shards):
    """By the layout of the member, or by a layout of its own, it predicts the same."""
    environment = simulated_devices(2, os.environ.get("XLA_FLAGS", ""))
    script = ["-m", "tests.support.ensemble_process", *shards]
    reports = json.loads(in_new_process(script, **environment))
    one = reports.pop("one")
    assert one["shard"] == [2, 5, 16]
    assert {way: report["shard"] for way, report in reports.items()} == shards
    for report in reports.values():
        for key in ("predictions", "members"):
            np.testing.assert_allclose(report[key], one[key], rtol=1e-4, atol=1e-5)


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
