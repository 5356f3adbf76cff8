"""What all tests share: the framework's set-up. Seeds belong to the tests."""

import collections
import json
import os
import pathlib
import sys

# Most of the time on JAX goes into compiling, and many tests compile the same programs:
# all processes share them, and the next run has them already.
CACHE = pathlib.Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

if os.environ.get("KERAS_BACKEND") == "torch":
    import torch  # before keras, which may import TensorFlow

import keras
import pytest

from tests import turns
from tests.support.process_tools import Processes

# On recent GPUs TF32 would cost the products of matrices thirteen bits.
if keras.backend.backend() == "jax":
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
elif keras.backend.backend() == "tensorflow":
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
elif keras.backend.backend() == "torch":
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


NOW = turns.today()
HEAVY = json.loads(turns.HEAVY.read_text())
TURNS = "every_backend", "eager_and_compiled", "in_turn"
STATES = pytest.StashKey[dict]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks as `slow` what is `slow_on` this backend, or has its turn on another.

    Skipping costs nothing: a test that asks for a backend itself is tried on all.
    """
    backend = keras.backend.backend()
    numbers = collections.Counter()
    states = config.stash[STATES] = {}
    for item in items:
        slow_on = item.get_closest_marker("slow_on")
        in_turn = item.get_closest_marker("in_turn")
        kinds = [mark.name for mark in item.iter_markers()]  # the closest first
        module = item.nodeid.split("::")[0]
        mostly = in_turn.args if in_turn is not None else turns.MOSTLY
        states[item.nodeid] = "skipped"
        if item.get_closest_marker("slow") is not None:
            states[item.nodeid] = "nightly"
        elif slow_on is not None:
            if backend in slow_on.args:
                states[item.nodeid] = "turn"
        elif "skipif" not in kinds:
            kind = next((k for k in kinds if k in TURNS), "in_turn")
            numbers[module, kind, mostly] += 1
            number, runs_on = numbers[module, kind, mostly], None
            if kind == "in_turn":
                runs_on = turns.backend_of(module, number, NOW, mostly)
            elif kind == "eager_and_compiled" and backend != "torch":
                runs_on = turns.compiled_on(module, number, NOW)
            if runs_on not in (backend, None):
                states[item.nodeid] = "turn" if kind == "in_turn" else "shared"
            if runs_on == turns.RESTS:
                states[item.nodeid] = "rests"
        is_heavy = item.nodeid in HEAVY and states[item.nodeid] != "nightly"
        if is_heavy and turns.rests(item.nodeid, NOW):
            states[item.nodeid] = "rests"
        if states[item.nodeid] in ("turn", "shared", "rests"):
            item.add_marker("slow")


def pytest_runtest_logreport(report):
    if report.when == "call" and report.outcome != "skipped":
        RAN[report.nodeid] = round(report.duration, 2)


def pytest_sessionfinish(session):
    """Writes what was collected, and what ran for how long, for `tests/turns.py`."""
    folder = os.environ.get("TURNS_FOLDER")
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if folder is None or worker not in (None, "gw0"):
        # The controller of xdist has the outcomes, its workers have the tests.
        return
    backend = keras.backend.backend()
    kind = "states" if worker or not session.config.getoption("numprocesses") else None
    os.makedirs(folder, exist_ok=True)
    if kind:
        path = pathlib.Path(folder) / f"{backend}.states"
        path.write_text(json.dumps(session.config.stash.get(STATES, {})))
    if not worker:
        states = json.loads((pathlib.Path(folder) / f"{backend}.states").read_text())
        states |= dict.fromkeys(RAN, "ran")
        path = pathlib.Path(folder) / f"{backend}.json"
        path.write_text(json.dumps(states, indent=0))
        path.with_suffix(".seconds").write_text(json.dumps(RAN, indent=0))


RAN = {}


@pytest.fixture(autouse=True)
def close_figures():
    """Matplotlib keeps every figure, and warns of more than twenty."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    """New processes for tests of what outlives one."""
    processes = Processes(tmp_path_factory.mktemp("processes") / "errors.txt")
    yield processes
    processes.close()
