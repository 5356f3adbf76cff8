"""Processes with a time limit: those that do not agree wait for each other for ever."""

import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run_python(commands, folder, limit):
    """What each command prints. They run together, and end after `limit` seconds.

    Args:
        commands: arguments of Python, a list for each process.
        folder: where they run.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        results = [process.communicate(timeout=limit) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its own children
    for process, (_, errors) in zip(processes, results, strict=True):
        assert process.returncode == 0, errors[-3000:]
    return [printed for printed, _ in results]


def block(page, first_line):
    """The Python block of a page that begins with a line."""
    parts = (ROOT / "docs" / page).read_text().split("```python\n")
    (found,) = [part for part in parts if part.startswith(first_line)]
    return found.partition("```")[0]
