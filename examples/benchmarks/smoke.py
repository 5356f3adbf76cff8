"""Every sampler trains, keeps samples, averages and resumes, on the device at hand.

Each sampler trains a perceptron for two epochs: once in one piece, once with the
compiled model saved and loaded in between. The program prints on which kind of device
the weights are, whether all numbers are finite, whether the weights moved, and the
largest difference between the two runs. In mixed_bfloat16 it leaves the second run out.
Last, three chains of RSGLD train as one `mh.ParallelChains`.

    KERAS_BACKEND=jax python examples/benchmarks/smoke.py
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import tempfile
import time

import keras
import measuring
import numpy as np
import workloads

import keras_mhmcmc as mh

POLICIES = ("float32", "mixed_bfloat16")
STEPS = 20  # in an epoch
CHAINS = 3


def device_of(variable):
    """The kind of device that holds a variable: cpu, gpu, cuda, ..."""
    value = variable.value
    if keras.backend.backend() == "jax":
        return next(iter(value.devices())).platform
    if keras.backend.backend() == "tensorflow":
        return value.device.rsplit("device:", 1)[-1].split(":")[0].lower()
    return value.device.type


def devices(model):
    """The kinds of devices of the weights and of the optimizer's slots like weights."""
    shapes = {tuple(w.shape) for w in model.trainable_variables}
    slots = [v for v in model.optimizer.variables if tuple(v.shape) in shapes]
    return sorted({device_of(v) for v in [*model.trainable_variables, *slots]})


def fit(model, x, y, batch, callbacks=()):
    """Train for an epoch, with the batches in the same order each time."""
    model.fit(
        x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def difference(a, b):
    """The largest difference between the weights of two models."""
    pairs = zip(a.get_weights(), b.get_weights(), strict=True)
    return max(float(np.abs(x - y).max()) for x, y in pairs)


def check(model_name, sampler, folder=None):
    """What became of two epochs of a sampler: a row without its names.

    With a folder, the second epoch is run again from a saved model.
    """
    begin = time.perf_counter()
    workload = workloads.WORKLOADS[model_name]
    x, y = workloads.data(model_name, STEPS)
    keras.utils.set_random_seed(0)
    optimizer = workloads.optimizers(workload.batch, len(x), seed=0)[sampler]
    model = workloads.network(model_name, optimizer)
    first = [np.array(w) for w in model.get_weights()]
    fit(model, x, y, workload.batch)
    path = None if folder is None else folder / "model.keras"
    if path is not None:
        model.save(path)
    posterior = mh.PosteriorSamples()
    fit(model, x, y, workload.batch, [posterior])
    row = {}
    if path is not None:
        resumed = keras.saving.load_model(path)
        fit(resumed, x, y, workload.batch, [mh.PosteriorSamples()])
        row["resumed_difference"] = difference(model, resumed)
    ensemble = posterior.ensemble(model)
    averaged = ensemble.predict(x[: workload.batch], verbose=0)
    moved = zip(first, model.get_weights(), strict=True)
    return row | {
        "devices": ", ".join(devices(model)),
        "is_finite": bool(
            np.isfinite(averaged).all()
            and all(np.isfinite(w).all() for w in model.get_weights())
        ),
        "has_moved": any(not np.array_equal(a, b) for a, b in moved),
        "check_s": time.perf_counter() - begin,
    }


def check_chains(model_name):
    """The same of chains of RSGLD, without the resumed run."""
    begin = time.perf_counter()
    workload = workloads.WORKLOADS[model_name]
    x, y = workloads.data(model_name, STEPS)
    chains = mh.ParallelChains(workloads.perceptron(workload.widths), CHAINS, seed=0)
    optimizer = workloads.optimizers(workload.batch, len(x), seed=0)["RSGLD"]
    chains.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    first = [np.array(w) for w in chains.get_weights()]
    fit(chains, x, y, workload.batch)
    last = chains.get_weights()
    return {
        "devices": ", ".join(devices(chains)),
        "is_finite": all(np.isfinite(w).all() for w in last),
        "has_moved": any(
            not np.array_equal(a, b) for a, b in zip(first, last, strict=True)
        ),
        "check_s": time.perf_counter() - begin,
    }


def main(arguments=None):
    """Checks, prints the table, and returns its rows. Fails if a check does."""
    parser = measuring.parser(__doc__, rounds=1)
    parser.add_argument("--model", choices=workloads.WORKLOADS, default="mlp")
    parser.add_argument("--only", nargs="+", help="samplers to check")
    parsed = measuring.parse(parser, arguments)
    names = parsed.only or [
        name for name in workloads.optimizers() if name not in workloads.VARIANTS
    ]
    if parsed.quick:
        parsed.model = "tiny"
        names = parsed.only or ["SGHMC", "RSGLD"]
    before = keras.config.dtype_policy()
    rows = []

    def add(name, policy, found):
        rows.append({"optimizer": name, "dtype": policy, **found})
        measuring.report(__file__, parsed, rows, complete=False)

    with tempfile.TemporaryDirectory() as folder:
        for policy in POLICIES:
            keras.config.set_dtype_policy(policy)
            where = pathlib.Path(folder) if policy == "float32" else None
            for name in names:
                add(name, policy, check(parsed.model, name, where))
            add(f"RSGLD, {CHAINS} chains", policy, check_chains(parsed.model))
    keras.config.set_dtype_policy(before)
    measuring.print_table(
        f"two epochs of {STEPS} steps, {parsed.model}",
        {
            "optimizer": "",
            "dtype": "dtype",
            "devices": "weights on",
            "is_finite": "finite",
            "has_moved": "moved",
            "resumed_difference": "resumed differs by",
            "check_s": "s",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows)
    bad = [
        f"{row['optimizer']} ({row['dtype']})"
        for row in rows
        if not (row["is_finite"] and row["has_moved"])
    ]
    if bad:
        raise SystemExit(f"Not finite, or standing still: {', '.join(bad)}.")
    return rows


if __name__ == "__main__":
    main()
