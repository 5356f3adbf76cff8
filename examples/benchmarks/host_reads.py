"""How often a training step makes the host wait for the device.

A step that reads a number from the device empties the device's queue. The program
counts such reads in the steps of one `fit`, for SGD and for each sampler. What a
sampler adds to SGD should be 0.

- PyTorch counts the operations that synchronize, with `set_sync_debug_mode` of CUDA.
- JAX forbids copies from the device to the host during the steps. It also counts the
  calls back to Python in the step's program.
- TensorFlow counts the copies from the device to the host in a profile of the steps,
  and the calls back to Python in the step's graph.

On a CPU nothing is copied. There only the calls back to Python are counted, which
PyTorch does not have.

    KERAS_BACKEND=torch python examples/benchmarks/host_reads.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contextlib
import pathlib
import tempfile
import warnings

import keras
import measuring
import workloads

STEPS = 20
CALLBACKS = ("callback", "PyFunc")  # in names of operations that call Python


class Counted(keras.callbacks.Callback):
    """Count what happens in the training steps alone, between the callbacks.

    Args:
        counter: function that returns a context manager for one step. What the
            context manager gives is a list with one item for each read.
    """

    def __init__(self, counter):
        super().__init__()
        self._counter = counter
        self._open = None
        self.reads = 0

    def on_train_batch_begin(self, batch, logs=None):
        self._open = contextlib.ExitStack()
        self._seen = self._open.enter_context(self._counter())

    def on_train_batch_end(self, batch, logs=None):
        self._open.close()
        self.reads += len(self._seen)


@contextlib.contextmanager
def synchronizations():
    """PyTorch: a warning for each operation that waits for the device."""
    import torch

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            found = []
            yield found
        finally:
            torch.cuda.set_sync_debug_mode("default")
            found += [w for w in seen if "synchroniz" in str(w.message)]


@contextlib.contextmanager
def forbidden_copies():
    """JAX: a copy to the host is an error, which ends the fit."""
    import jax

    with jax.transfer_guard_device_to_host("disallow"):
        yield []


def calls_of_jax(model, x, y):
    """Calls back to Python in the program of a step."""
    import jax

    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )
    text = str(jax.make_jaxpr(model.train_step)(state, (x, y)))
    return sum(text.count(name) for name in CALLBACKS)


def calls_of_tensorflow(model, x, y):
    """The same in the graph of a step."""
    import tensorflow as tf

    graph = tf.function(model.train_step).get_concrete_function((x, y)).graph
    graphs = [graph.as_graph_def()]
    names = [node.op for node in graphs[0].node]
    names += [n.op for f in graphs[0].library.function for n in f.node_def]
    return sum(any(name in op for name in CALLBACKS) for op in names)


def profiled_copies(run):
    """TensorFlow: copies to the host while `run()` runs, by the device's profile."""
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        with tf.profiler.experimental.Profile(folder):
            run()
        found = 0
        for path in pathlib.Path(folder).rglob("*.xplane.pb"):
            space = xplane_pb2.XSpace.FromString(path.read_bytes())
            for plane in space.planes:
                if not plane.name.startswith("/device:GPU"):
                    continue
                names = {key: m.name for key, m in plane.event_metadata.items()}
                found += sum(
                    "dtoh" in names[event.metadata_id].lower().replace("2", "to")
                    for line in plane.lines
                    for event in line.events
                )
    return found


def measure(model_name, name):
    """Reads of a step and calls back to Python. None where they cannot be counted."""
    workload = workloads.WORKLOADS[model_name]
    x, y = workloads.data(model_name, STEPS)
    optimizer = workloads.optimizers(workload.batch, len(x))[name]
    model = workloads.network(model_name, optimizer)

    def fit(callbacks=()):
        model.fit(
            x,
            y,
            batch_size=workload.batch,
            verbose=0,
            callbacks=list(callbacks),
        )

    fit()  # compiles
    has_device = measuring.machine()["accelerator"] is not None
    kind = keras.backend.backend()
    reads = calls = None
    if kind == "torch" and has_device:
        counted = Counted(synchronizations)
        fit([counted])
        reads = counted.reads / STEPS
    if kind == "jax":
        counted = Counted(forbidden_copies)
        fit([counted])
        reads = counted.reads / STEPS if has_device else None
        calls = calls_of_jax(model, x[: workload.batch], y[: workload.batch])
    if kind == "tensorflow":
        reads = profiled_copies(fit) / STEPS if has_device else None
        calls = calls_of_tensorflow(model, x[: workload.batch], y[: workload.batch])
    return {"optimizer": name, "reads": reads, "calls": calls}


def main(arguments=None):
    """Counts, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=1)
    parser.add_argument("--model", choices=workloads.WORKLOADS, default="mlp")
    parser.add_argument("--only", nargs="+", help="samplers to count besides SGD")
    parsed = measuring.parse(parser, arguments)
    names = parsed.only or [
        name for name in workloads.optimizers() if name not in workloads.VARIANTS
    ]
    if parsed.quick:
        parsed.model = "tiny"
        names = parsed.only or ["SGHMC", "RSGLD"]
    rows = []
    for name in ["SGD", *(name for name in names if name != "SGD")]:
        rows.append(measure(parsed.model, name))
        plain = rows[0]["reads"]
        if plain is not None:
            rows[-1]["added"] = rows[-1]["reads"] - plain
        measuring.report(__file__, parsed, rows, complete=False)
    measuring.print_table(
        f"reads from the device in a step, {parsed.model}, {STEPS} steps",
        {
            "optimizer": "",
            "reads": "reads",
            "added": "more than SGD",
            "calls": "calls to Python",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
