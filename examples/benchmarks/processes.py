"""What many machines add to a step: all-reduces between processes, and sample files.

Two processes of JAX on this machine sum arrays with gloo, as `DataParallel` on several
hosts sums gradients. A sample of as many float32 weights is then written as
`mh.PosteriorSamples(directory=...)` writes it, flushed to the disk.

    KERAS_BACKEND=jax python examples/benchmarks/processes.py
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

import measuring

WEIGHTS = (1_000, 477_010, 2_500_000)
# The only arguments of a process that takes part in the sums.
PARTNER = "--partner"


def sums(address, rank, counts, rounds):
    """Seconds of each of the all-reduces over two processes, by number of floats."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("hosts",))
    split = NamedSharding(mesh, PartitionSpec("hosts"))
    whole = NamedSharding(mesh, PartitionSpec())
    add = jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole)
    result = {}
    for count in counts:
        part = np.ones((1, count), "float32")
        array = jax.make_array_from_process_local_data(split, part)
        times = [
            measuring.seconds(lambda array=array: add(array).block_until_ready())
            for _ in range(rounds + 1)
        ]
        result[count] = times[1:]  # the first one compiles
    jax.distributed.shutdown()
    return result


def sums_in_two_processes(counts, rounds):
    """The seconds that the first of two processes measures."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    task = json.dumps([counts, rounds])
    flags = os.environ.get("XLA_FLAGS", "")
    one_device = {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=1"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, PARTNER, address, str(rank), task],
            env=os.environ | one_device,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed, _ = processes[0].communicate(timeout=300)
        processes[1].communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
    return {int(n): s for n, s in json.loads(printed.splitlines()[-1]).items()}


def write_sample(weights, rounds):
    """Bytes of a sample's file, and seconds of each of the writes."""
    import keras
    import numpy as np

    from keras_mhmcmc.posterior.store import Record
    from keras_mhmcmc.posterior.store import Store

    layers = [keras.Input((weights - 1,)), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd")
    model.optimizer.build(model.trainable_variables)
    model.set_weights([np.random.normal(size=v.shape) for v in model.weights])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        store.open(model, 0)
        times = [
            measuring.seconds(lambda i=i: store.append(Record(i, 0.0), model))
            for i in range(1, rounds + 1)
        ]
        store.close()
        size = max(path.stat().st_size for path in pathlib.Path(folder).glob("s*.h5"))
    return size, times


def main(arguments=None):
    """Measures, prints the table, and returns its rows."""
    parser = measuring.parser(__doc__, rounds=20)
    parsed = measuring.parse(parser, arguments)
    counts = WEIGHTS
    if parsed.quick:
        parsed.rounds, counts = 2, WEIGHTS[:1]
    reduced = sums_in_two_processes(counts, parsed.rounds)
    rows = []
    for count in counts:
        size, times = write_sample(count, parsed.rounds)
        rows.append(
            {
                "weights": count,
                "all_reduce_ms": 1e3 * statistics.median(reduced[count]),
                "write_ms": 1e3 * statistics.median(times),
                "bytes": size,
            }
        )
    measuring.print_table(
        f"medians of {parsed.rounds}",
        {
            "weights": "weights",
            "all_reduce_ms": "all-reduce, ms",
            "write_ms": "write a sample, ms",
            "bytes": "bytes of a sample",
        },
        rows,
    )
    measuring.report(__file__, parsed, rows, ["jax"])
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == [PARTNER]:
        _, _, address, rank, task = sys.argv
        print(json.dumps(sums(address, int(rank), *json.loads(task))))
    else:
        main()
