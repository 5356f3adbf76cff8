"""Processes that die while they write samples, and disks that are full."""

import contextlib
import json
import os
import random
import resource
import signal
import time

import keras
import numpy as np
import pytest

import keras_mhmcmc as mh
from tests.support.models import compiled
from tests.support.models import fit
from tests.support.models import sequential
from tests.support.samplers import SAMPLERS

STEPS = 6  # of an epoch
EPOCHS = 8
MAX_SAMPLES = 10


@pytest.fixture(scope="module")
def truth():
    """Every state of the chain that `fit_forever` samples, in one go."""
    model = compiled(SAMPLERS["csgld"].make(seed=3))
    posterior = mh.PosteriorSamples(every=1)
    fit(model, epochs=EPOCHS, callbacks=[posterior])
    return posterior._store.read(model)


def names_in(directory):
    return os.listdir(directory) if directory.exists() else []


def newest_in(directory):
    """The iteration of the newest sample that is listed, or 0."""
    if "manifest.json" not in names_in(directory):
        return 0
    samples = json.loads((directory / "manifest.json").read_text())["samples"]
    return samples[-1]["iteration"] if samples else 0


def assert_whole(directory, truth, max_samples):
    """All listed samples are there, in order, and as in the run that never died."""
    if newest_in(directory) == 0:
        return 0
    loaded = mh.PosteriorSamples.load(directory)
    last = loaded.iterations[-1]
    if max_samples is None:
        assert len(loaded) == last
    else:  # one more while the oldest is about to go; fewer after an older checkpoint
        assert 1 <= len(loaded) <= max_samples + 1
    first = last - len(loaded) + 1
    assert loaded.iterations.tolist() == list(range(first, last + 1))
    for values, expected in zip(loaded._store.read(sequential()), truth, strict=True):
        np.testing.assert_array_equal(values, expected[first - 1 : last])
    assert np.isfinite(loaded.energies[1:]).all()
    return last


class Killer:
    """Kills processes that write, and counts what they were at."""

    def __init__(self, processes, root, truth, seed):
        self._processes, self._root, self._truth = processes, root, truth
        self._random = random.Random(seed)
        self.kills = self.midway = self.runs = 0
        self.unfinished = []

    def run(self, kills):
        while self.kills < kills:
            folder = self._root / str(self.runs)
            # Every other run removes its oldest samples as it goes.
            max_samples = MAX_SAMPLES if self.runs % 2 else None
            is_done = False
            while not is_done and self.kills < kills:
                is_done = self._start_and_kill(folder, max_samples)
            self.runs += 1

    def _start_and_kill(self, folder, max_samples):
        samples = folder / "samples"
        os.makedirs(folder, exist_ok=True)
        process = self._processes.start(
            "fit_forever", folder=str(folder), max_samples=max_samples, epochs=EPOCHS
        )
        code = self._wait_for_samples(process, samples)
        if code is None:
            time.sleep(self._random.uniform(0.0, 0.3))
            code = self._processes.kill(process)
        assert code in (0, -signal.SIGKILL), self._processes.errors()
        if code != 0:
            self.kills += 1
            unfinished = [n for n in names_in(samples) if n.startswith("unfinished")]
            self.midway += bool(unfinished)
            self.unfinished += unfinished
        last = assert_whole(samples, self._truth, max_samples)
        return last == STEPS * EPOCHS

    def _wait_for_samples(self, process, samples):
        """Until one is written; the exit code of a process that ended by itself."""
        started, deadline = time.time_ns(), time.monotonic() + 120
        while time.monotonic() < deadline:
            # Not the manifest, which is written before the first step is compiled.
            with contextlib.suppress(FileNotFoundError):
                files = samples.glob("sample-*.h5")
                if any(path.stat().st_mtime_ns > started for path in files):
                    return None
            code = self._processes.poll(process)
            if code is not None:
                return code
            time.sleep(0.005)
        raise TimeoutError(self._processes.errors())


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_while_samples_are_written_lose_none(kills, truth, processes, tmp_path):
    killer = Killer(processes, tmp_path, truth, seed=kills)
    killer.run(kills)
    assert killer.kills == kills
    if kills >= 50:  # else there may have been none
        assert killer.midway > 0
    manifests = sum("manifest" in name for name in killer.unfinished)
    print(
        f"{killer.kills} kills survived in {killer.runs} runs, {killer.midway} of them "
        f"in the middle of a write ({manifests} of a manifest)"
    )


@contextlib.contextmanager
def files_up_to(size):
    """A disk on which the byte after these does not fit."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, ignored)


def frozen():
    """A model of which all but a bias stays as it is."""
    layers = [
        keras.Input((5,)),
        keras.layers.Dense(300, "tanh", trainable=False),
        keras.layers.Dense(3, "softmax"),
    ]
    return compiled(SAMPLERS["sgld"].make(seed=3), keras.Sequential(layers))


def test_a_full_disk_at_the_first_file_is_named(tmp_path):
    model, posterior = frozen(), mh.PosteriorSamples(directory=tmp_path)
    with files_up_to(2000), pytest.raises(OSError, match="base.h5.*Free space"):
        fit(model, epochs=1, callbacks=[posterior])
    assert os.listdir(tmp_path) == []
    fit(model, epochs=2, callbacks=[posterior])
    assert mh.PosteriorSamples.load(tmp_path).iterations.tolist() == [6, 12]


def test_a_full_disk_at_a_sample_keeps_those_before_it(tmp_path):
    """The system refuses to write a sample's last byte."""
    model, posterior = frozen(), mh.PosteriorSamples(directory=tmp_path)
    fit(model, epochs=2, callbacks=[posterior])
    size = os.path.getsize(tmp_path / "sample-0000000012.h5")
    match = "sample-0000000018.h5.*Free space"
    with files_up_to(size - 1), pytest.raises(OSError, match=match):
        fit(model, epochs=2, callbacks=[posterior])
    kept = mh.PosteriorSamples.load(tmp_path)
    assert kept.iterations.tolist() == [6, 12]
    assert len(kept.ensemble(model).predict_members(np.ones((2, 5)))) == 2
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]
    # The run goes on where it stopped.
    fit(model, epochs=1, callbacks=[posterior])
    assert posterior.iterations[:2].tolist() == [6, 12]
    assert len(posterior) == len(mh.PosteriorSamples.load(tmp_path)) == 3


@pytest.mark.parametrize("max_samples", [None, 100])
def test_a_full_disk_at_the_manifest_keeps_what_it_lists(max_samples, tmp_path):
    """The samples fit on the disk, and the list of them does not."""
    model = compiled(SAMPLERS["sgld"].make(seed=3))
    posterior = mh.PosteriorSamples(
        every=1, directory=tmp_path, max_samples=max_samples
    )
    with files_up_to(12_000), pytest.raises(OSError, match="manifest.json.*Free space"):
        fit(model, epochs=50, callbacks=[posterior])
    assert 10 < newest_in(tmp_path) < 300
    kept = mh.PosteriorSamples.load(tmp_path)
    np.testing.assert_array_equal(kept.iterations, posterior.iterations)
    assert len(kept.ensemble(model).predict_members(np.ones((2, 5)))) == len(kept)
    assert not [name for name in os.listdir(tmp_path) if "unfinished" in name]
    # With space again the same call goes on, one sample after the other.
    fit(model, epochs=1, callbacks=[posterior])
    steps = np.diff(posterior.iterations)
    assert (steps >= 1).all() and posterior.iterations[-1] > kept.iterations[-1]
    np.testing.assert_array_equal(
        mh.PosteriorSamples.load(tmp_path).iterations, posterior.iterations
    )
