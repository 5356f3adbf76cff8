"""What all tests share: the framework's set-up. Seeds belong to the tests."""

import os
import pathlib
import sys
import zlib

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


BACKENDS = ("jax", "tensorflow", "torch")
TURNS = 8  # JAX and TensorFlow, which compile, take one turn each


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks as `slow` what is `slow_on` this backend, or in turn on another.

    A test that is `in_turn` runs on the backends of its mark, unless it is the turn of
    JAX or of TensorFlow: then it runs there alone.
    """
    backend = keras.backend.backend()
    for item in items:
        slow_on = item.get_closest_marker("slow_on")
        in_turn = item.get_closest_marker("in_turn")
        is_slow = False
        if slow_on is not None:
            is_slow = backend in slow_on.args
        elif in_turn is not None and set(in_turn.args) != set(BACKENDS):
            turn = zlib.crc32(item.nodeid.encode()) % TURNS
            at_turn = {0: ("jax",), 1: ("tensorflow",)}.get(turn, in_turn.args)
            is_slow = backend not in at_turn
        if is_slow:
            item.add_marker("slow")


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
