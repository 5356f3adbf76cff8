"""Two processes of JAX that make one chain, started as on two hosts."""

import faulthandler
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from tests.support.devices import simulated_devices

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 200  # seconds; a process that waits for another one would never end
COUNT = 2


def run_processes(folder, tasks):
    """Run tasks, [task, sampler] each, in two processes with two devices each.

    Returns the reports of both processes, for each task.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    devices = simulated_devices(2, os.environ.get("XLA_FLAGS", ""))
    module = "tests.support.host_processes"
    started = []
    for rank in range(COUNT):
        given = [address, str(rank), str(folder), json.dumps(tasks)]
        with (folder / f"errors-{rank}.txt").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *given],
                env=os.environ | devices | {"PYTHONPATH": str(ROOT)},
                stderr=errors,
            )
        started.append(process)
    try:
        # After the first failure the other process would wait, and not end.
        while None in (states := [process.poll() for process in started]):
            if any(states):
                break
            time.sleep(0.1)
    finally:
        for process in started:
            process.kill()
            process.wait()
    errors = [path.read_text()[-3000:] for path in folder.glob("errors-*.txt")]
    assert states == [0] * COUNT, "\n".join(errors)
    reports = [folder / f"reports-{rank}.json" for rank in range(COUNT)]
    return zip(*(json.loads(path.read_text()) for path in reports), strict=True)


def main(address, rank, folder, tasks):
    """Do the tasks of one process, and write the reports."""
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    import keras

    keras.distribution.initialize(address, COUNT, rank)
    assert (jax.process_count(), jax.device_count()) == (COUNT, 4)
    from tests.support.host_tasks import TASKS

    reports = [TASKS[task](name, rank, COUNT, folder) for task, name in tasks]
    (folder / f"reports-{rank}.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    _, address, rank, folder, tasks = sys.argv
    main(address, int(rank), pathlib.Path(folder), json.loads(tasks))
