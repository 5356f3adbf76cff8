"""Extra memory of every sampler, in units of the parameters.

The size of the slots is the bytes of the optimizer's variables over the bytes of the
weights. The peak is the peak memory of training a perceptron with 25 million weights
and batches of 10, minus the peak of the same training with SGD. On JAX the peak is the
memory that XLA plans for the compiled step (arguments, results and temporaries, minus
shared memory). On a GPU, TensorFlow and PyTorch count what they have allocated there.
On a CPU it is the peak resident memory of a new process, on Linux, after a first `fit`
has compiled. There the program subtracts the same difference for a perceptron of half a
million weights. This removes memory that does not grow with the weights, such as XLA,
which Keras' SGD does not load on TensorFlow's CPU.

    KERAS_BACKEND=jax python examples/benchmarks/memory.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import ctypes
import math
import pathlib
import re
import statistics

import keras
import measuring
import workloads

BATCH, STEPS = 10, 3
SMALL = "mlp"
SEEN = 1e6  # bytes of weights below which the peak is that of everything else
BYTES = {"float32": 4, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1}


def build(model_name, name):
    """The compiled model with this optimizer; bytes of its weights and its slots."""
    model = workloads.network(model_name, workloads.optimizers(BATCH)[name])
    model.optimizer.build(model.trainable_variables)
    return model, size(model.trainable_variables), size(model.optimizer.variables)


def size(variables):
    """Bytes of the variables."""
    kinds = [keras.backend.standardize_dtype(v.dtype) for v in variables]
    counts = [math.prod(v.shape) for v in variables]
    return sum(n * BYTES[kind] for n, kind in zip(counts, kinds, strict=True))


def batches(model_name):
    """Inputs and labels of a few small batches."""
    x, y = workloads.data(model_name, 1)
    return x[: STEPS * BATCH], y[: STEPS * BATCH]


def planned_peak(model, x, y):
    """Bytes that a compiled step of JAX needs at once, as XLA plans them."""
    import jax

    state = model._get_jax_state(
        trainable_variables=True,
        non_trainable_variables=True,
        optimizer_variables=True,
        metrics_variables=True,
    )
    step = jax.jit(model.train_step, donate_argnums=0)
    plan = step.lower(state, (x[:BATCH], y[:BATCH])).compile().memory_analysis()
    return (
        plan.argument_size_in_bytes
        + plan.output_size_in_bytes
        - plan.alias_size_in_bytes
        + plan.temp_size_in_bytes
    )


def resident_peak(model, x, y):
    """Bytes of this process at their peak in some steps, once it has compiled."""
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    ctypes.CDLL(None).malloc_trim(0)  # or what the compiler freed would be used again
    process = pathlib.Path("/proc/self")
    (process / "clear_refs").write_text("5")  # the peak starts from here
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    status = (process / "status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def allocated_peak(model, x, y):
    """Bytes that the backend has allocated on the GPU at the peak of some steps."""
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    if keras.backend.backend() == "torch":
        import torch

        torch.cuda.reset_peak_memory_stats()
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
        return torch.cuda.max_memory_allocated()
    import tensorflow as tf

    tf.config.experimental.reset_memory_stats("GPU:0")
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def one(model_name, name):
    """Bytes of the weights, of the slots and of the peak, of this optimizer."""
    model, weights, slots = build(model_name, name)
    if keras.backend.backend() == "jax":
        peak = planned_peak
    elif measuring.machine()["accelerator"] is not None:
        peak = allocated_peak
    else:
        peak = resident_peak
    return weights, slots, peak(model, *batches(model_name))


def in_fresh_process(model_name, name):
    """The same, of a process of its own."""
    output = measuring.fresh_process(__file__, "--model", model_name, "--one", name)
    return [int(word) for word in output.split()]


def measure(model_name, names, rounds):
    """Rows, a line for each optimizer."""
    names = ["SGD", *(name for name in names if name != "SGD")]
    # XLA's plan does not depend on what else the process holds.
    is_planned = keras.backend.backend() == "jax"
    run = one if is_planned else in_fresh_process
    models = [model_name] if is_planned else [model_name, SMALL]
    figures = measuring.alternate(
        {(m, n): lambda m=m, n=n: run(m, n) for m in models for n in names}, rounds
    )
    rows = []
    for name in names:
        weights, slots, _ = figures[model_name, name][0]
        row = {"model": model_name, "optimizer": name, "slots": slots / weights}
        if weights > SEEN:
            extra, counted = beyond_sgd(figures, model_name, name), weights
            if not is_planned:
                fixed = beyond_sgd(figures, SMALL, name)
                extra = [a - b for a, b in zip(extra, fixed, strict=True)]
                counted -= figures[SMALL, name][0][0]
            row["peak"] = statistics.median(extra) / counted
        rows.append(row)
    return rows


def beyond_sgd(figures, model_name, name):
    """Bytes of the peak beyond that of SGD, round by round."""
    own, plain = figures[model_name, name], figures[model_name, "SGD"]
    return [a[2] - b[2] for a, b in zip(own, plain, strict=True)]


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=1)
    parser.add_argument("--model", choices=workloads.WORKLOADS, default="large")
    parser.add_argument("--only", nargs="+", help="optimizers to measure besides SGD")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parsed = measuring.parse(parser, arguments)
    if parsed.one:
        print(*one(parsed.model, parsed.one))
        return []
    if parsed.quick:
        parsed.model = "tiny"
        parsed.only = parsed.only or ["SGHMC", "RSGLD"]
    rows = measure(parsed.model, parsed.only or workloads.optimizers(), parsed.rounds)
    measuring.print_table(
        "memory in units of the weights; the peak minus that of SGD",
        {"optimizer": "", "slots": "slots", "peak": "peak"},
        rows,
    )
    measuring.report(__file__, parsed, rows)
    return rows


if __name__ == "__main__":
    main()
