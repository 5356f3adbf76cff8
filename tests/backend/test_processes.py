"""Two processes of JAX make the chain of one process, or refuse with a sentence."""

import os
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.support.devices import simulated_devices
from tests.support.host_processes import ROOT
from tests.support.host_processes import run_processes

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(BACKEND != "jax", reason="processes of JAX")


def alone(name, folder):
    """The same run in this process, on one device."""
    from tests.support.host_tasks import trained

    return trained(name, folder / f"alone-{name}")


def check_chain(reports, one):
    """Both processes have the chain, the samples and the files of one process."""
    first, second = reports
    assert first["hash"] == second["hash"]  # bit for bit
    for report in reports:
        # The variables lie on devices of both processes.
        assert not report["is_addressable"]
        assert report["iterations"] == one["iterations"] == [6, 12, 18]
        for key in ("samples", "files", "energies"):
            np.testing.assert_allclose(report[key], one[key], rtol=1e-4, atol=1e-5)
        assert report["logs"].keys() == one["logs"].keys()
        for key in report["logs"]:
            np.testing.assert_allclose(
                report["logs"][key], one["logs"][key], rtol=1e-3, atol=1e-5
            )


def printed_by_hosts(folder):
    """The lines that two processes print, which run `hosts.py` as on two hosts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        **simulated_devices(2),
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "hosts.py"],
            cwd=folder,
            env=environment | {"KERAS_DISTRIBUTION_PROCESS_ID": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    return [output.splitlines()[-2:] for output in printed]


@pytest.mark.slow  # 27 seconds
def test_two_processes_make_the_chain_of_one(tmp_path):
    """With the mini-batch divided, one writer of files, and errors in both."""
    one = alone("rsgld", tmp_path)
    tasks = [["data", "rsgld"], ["refusals", "rsgld"]]
    chain, refused = run_processes(tmp_path, tasks)
    check_chain(chain, one)
    assert all(report["is_replicated"] for report in chain)
    # The first process alone wrote, and left no unfinished file.
    names = sorted(os.listdir(tmp_path / "rsgld"))
    samples = [f"sample-{iteration:010d}.h5" for iteration in (6, 12, 18)]
    assert names == ["base.h5", "manifest.json", *samples]

    first, second = refused
    assert first["seed"] == second["seed"]  # although Python's generators differ
    for report in refused:
        assert "set_distribution" in report["no distribution"]
        assert "Received: JAX with 2 processes" in report["chains"]
        assert report["two seeds"].endswith("Received: seed=[3, 4]")
    assert first["an old folder"].startswith("ValueError: Argument `directory`")
    assert second["an old folder"].startswith("RuntimeError: The first process")
    assert "must be empty for a new run" in second["an old folder"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sghmc", "sghmcsa"])
def test_diffusions_in_two_processes(name, tmp_path):
    one = alone(name, tmp_path)
    (chain,) = run_processes(tmp_path, [["data", name]])
    check_chain(chain, one)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rsgld", "sghmc", "sghmcsa"])
def test_a_model_that_two_processes_divide(name, tmp_path):
    """`ModelParallel`: no process has all of a kernel, and samples are gathered."""
    one = alone(name, tmp_path)
    (chain,) = run_processes(tmp_path, [["model", name]])
    check_chain(chain, one)
    for report in chain:
        assert report["columns"] == [4, 4] and not report["is_replicated"]


@pytest.mark.slow
def test_the_recipe_of_the_documentation(tmp_path):
    """Each process prints the same samples, and predicts by itself."""
    page = (ROOT / "docs" / "scaling.md").read_text()
    recipe = page.partition("```python\n# hosts.py")[2].partition("```")[0]
    (tmp_path / "hosts.py").write_text(f"#{recipe}")
    first, second = printed_by_hosts(tmp_path)
    assert first == second
    assert first[0].startswith("5 ") and first[1] == "(256, 2)"


@pytest.mark.slow
def test_data_that_keras_divides(tmp_path):
    """The default: each process is given all of the data, as a `tf.data.Dataset`."""
    one = alone("rsgld", tmp_path)
    (chain,) = run_processes(tmp_path, [["global", "rsgld"]])
    check_chain(chain, one)
