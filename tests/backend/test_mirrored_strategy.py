"""TensorFlow: the replicas of `MirroredStrategy` move the chain of one device."""

import json

import keras
import numpy as np
import pytest

from keras_mhmcmc import _backend
from tests.support.limited import block
from tests.support.limited import run_python
from tests.support.samplers import SAMPLERS

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="TensorFlow only"
)

LIMIT = 400  # seconds


def in_new_process(tasks, folder):
    """What the tasks of `mirrored_process` return."""
    command = ["-m", "tests.support.mirrored_process", json.dumps(tasks)]
    (printed,) = run_python([command], folder, LIMIT)
    return json.loads(printed.splitlines()[-1])


def chain(sampler, **others):
    return {"task": "chain", "sampler": sampler} | others


# One process does all of them: it takes seconds to start.
TASKS = {
    # Where the replicas wait for each other inside of a step.
    "rsgld": chain("rsgld", is_normalized=True),
    "sghmc": chain("sghmc"),
    "sghmcsa": chain("sghmcsa"),
    "loss": {"task": "two", "sampler": "mint", "epochs": 1, "fault": "loss"},
    "gradients": {"task": "two", "sampler": "sgld", "epochs": 1, "fault": "gradients"},
    "chains": {"task": "refused", "what": "chains"},
    "scope": {"task": "refused", "what": "scope"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    tasks = list(TASKS.values())
    folder = tmp_path_factory.mktemp("mirrored")
    return dict(zip(TASKS, in_new_process(tasks, folder), strict=True))


def assert_one_chain(two, one):
    """Two devices with equal bits, and the chain of one but for the order of sums."""
    assert two["equal"] and two["devices"] == [2] and one["devices"] == [0]
    assert two["iterations"] == one["iterations"]
    assert two["diagnostics"] == pytest.approx(
        one["diagnostics"], rel=1e-4, nan_ok=True
    )
    assert len(one["energies"]) > 1
    np.testing.assert_allclose(two["energies"], one["energies"], rtol=1e-4)
    for weights, expected in zip(two["samples"], one["samples"], strict=True):
        np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(two["weights"], one["weights"], rtol=1e-4, atol=1e-5)
    # None of sizes that do not fit: the `batch_size` of `fit` is the whole one.
    assert not [text for text in two["warnings"] if "_size" in text]


@pytest.mark.parametrize("name", ["rsgld", "sghmc", "sghmcsa"])
def test_two_replicas_make_the_chain_of_one_device(results, name):
    assert_one_chain(*results[name])


@pytest.mark.parametrize("fault", ["loss", "gradients"])
def test_planted_faults_are_found(results, fault):
    assert results[fault]["devices"] == [2] and not results[fault]["equal"]


@pytest.mark.slow
def test_two_replicas_make_the_chain_of_one_device_with_every_sampler(tmp_path):
    names = [name for name in SAMPLERS if name not in TASKS]
    tasks = [*map(chain, names), chain("sghmc", seed=None)]
    *pairs, (two, _) = in_new_process(tasks, tmp_path)
    for name, pair in zip(names, pairs, strict=True):
        assert pair[0]["iterations"] > 0, name
        assert_one_chain(*pair)
    assert two["equal"]  # nobody gave a seed


@pytest.mark.slow  # the tests above are its short form
def test_the_recipe_runs(tmp_path):
    line = "# with KERAS_BACKEND=tensorflow, in a process of its own"
    (tmp_path / "mirrored.py").write_text(block("scaling.md", line))
    (printed,) = run_python([["mirrored.py"]], tmp_path, LIMIT)
    replicas, members = printed.split()
    assert replicas == "2" and int(members) > 3


def test_what_is_made_outside_of_the_scope_is_refused(results):
    assert "strategy.scope" in results["scope"]
    assert "sgld/iteration" in results["scope"]


def test_parallel_chains_are_refused(results):
    assert "MirroredStrategy with 2 replicas" in results["chains"]


@pytest.mark.parametrize(
    "name",
    [
        "MultiWorkerMirroredStrategy",
        "ParameterServerStrategy",
        "TPUStrategy",
        "experimental.CentralStorageStrategy",
    ],
)
def test_other_strategies_are_refused(name, monkeypatch):
    """They need a cluster, so only their classes are looked at."""
    import operator

    import tensorflow as tf

    kind = operator.attrgetter(name)(tf.distribute)

    class Several(kind):
        num_replicas_in_sync = 2
        extended = tf.distribute.get_strategy().extended

        def __init__(self):
            """There is no cluster."""

    monkeypatch.setattr(tf.distribute, "get_strategy", Several)
    with pytest.raises(ValueError, match="` alone.*several processes.*2 replicas"):
        _backend.refuse_strategy([])
