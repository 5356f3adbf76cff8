"""Chains of one posterior in processes of their own, of which some are killed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import keras_mhmcmc as mh
from keras_mhmcmc.posterior import reading
from tests.support.models import sequential

ROOT = Path(__file__).parents[2]
SEEDS = (3, 4)
LIMIT = 240  # seconds for a test


class Runs:
    """Processes with one chain each, and a time at which all of them must have ended.

    A process that is started again in its folder goes on from its last checkpoint.
    """

    def __init__(self, processes):
        self._processes = processes
        self._deadline = time.monotonic() + LIMIT

    def backed_up(self, folder, seed, epochs, stop_in=None):
        """A chain with Keras' backup, which kills itself in an epoch."""
        folder.mkdir(exist_ok=True)
        return self._processes.start(
            "backed_up",
            name="csgld",
            folder=str(folder),
            epochs=epochs,
            every=5,
            is_first=True,
            stop_in=stop_in,
            result=str(folder / "result.npz"),
            seed=seed,
        )

    def wait(self, process):
        """The exit status; a process that takes too long is killed."""
        while (status := self._processes.poll(process)) is None:
            if time.monotonic() > self._deadline:
                self._processes.kill(process)
                raise TimeoutError(self._processes.errors())
            time.sleep(0.02)
        return status

    def end(self, *started):
        """Waits for processes that must succeed."""
        statuses = [self.wait(process) for process in started]
        assert statuses == [0] * len(started), self._processes.errors()


def pool_of(*folders):
    return mh.PosteriorSamples.load([folder / "samples" for folder in folders])


def assert_same(pool, expected):
    for name in ("iterations", "weights", "energies"):
        one, other = getattr(pool, name), getattr(expected, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
    model = sequential()
    for one, other in zip(
        reading.chains(pool._store, model)[0],
        reading.chains(expected._store, model)[0],
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_a_killed_and_restarted_process_gives_the_same_pool(processes, tmp_path):
    """One of the processes kills itself in the middle of its second epoch."""
    runs, (whole, killed, other) = Runs(processes), map(tmp_path.joinpath, "abc")
    dying = runs.backed_up(killed, SEEDS[0], epochs=3, stop_in=1)
    started = [runs.backed_up(whole, SEEDS[0], 3), runs.backed_up(other, SEEDS[1], 3)]
    assert runs.wait(dying) == -signal.SIGKILL, processes.errors()
    runs.end(*started)
    with pytest.raises(ValueError, match="truncate=True"):
        pool_of(killed, other)
    runs.end(runs.backed_up(killed, SEEDS[0], epochs=3))
    assert_same(pool_of(killed, other), pool_of(whole, other))


@pytest.mark.slow  # its short form is the test of the page's blocks
def test_the_script_of_the_page_runs_as_processes(tmp_path):
    page = (ROOT / "docs" / "recipes" / "devices.md").read_text()
    (script,) = re.findall(r"```python\n(# chain.py SEED.*?)```", page, re.DOTALL)
    (tmp_path / "chain.py").write_text(script)
    started = [
        subprocess.Popen(
            [sys.executable, "chain.py", str(seed)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        for seed in SEEDS
    ]
    try:
        assert [process.wait(timeout=LIMIT) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.wait()
    folders = [tmp_path / f"chain-{seed}" for seed in SEEDS]
    pool = mh.PosteriorSamples.load(folders)
    # 20 epochs of 4 steps: every eighth one after the first 40.
    assert pool.iterations[:, 0].tolist() == [48, 56, 64, 72, 80]
    assert pool.energies.shape == (5, 2)
