"""Which backends run a test at a landing, and the guard that each test runs on one.

A test takes turns: one backend runs it at a landing. That is PyTorch, which does not
compile, on most days, and each of the others on one day of 36. A mark
`in_turn("jax")` names another backend for most days, `every_backend` gives all backends
each day. `make test-all` runs all tests on all.

    python tests/turns.py folder    what ran on each backend: does a test run nowhere?
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

BACKENDS = ("jax", "tensorflow", "torch")
DAYS = 36
MOSTLY = ("torch",)


def today():
    """The day of the last commit: a commit has the same turns on each machine."""
    if "TURN" in os.environ:
        turn = os.environ["TURN"]
        return turn if turn == "all" else int(turn)
    log = subprocess.run(
        ["git", "log", "-1", "--format=%ct"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    )
    return int(log.stdout) // 86_400 if log.returncode == 0 else 0


def wheel(mostly=MOSTLY):
    """The backends in the order of their days, each at least once."""
    others = [name for name in BACKENDS if name not in mostly]
    days = [mostly[k % len(mostly)] for k in range(DAYS - len(others))]
    return (*others, *days)


def backend_of(module, number, day, mostly=MOSTLY):
    """The backend of the test with this number among those of a module.

    On the day "all" that is each backend: None.
    """
    if day == "all":
        return None
    days = wheel(mostly)
    return days[(number + day + zlib.crc32(module.encode())) % len(days)]


def missing(runs):
    """The tests that a backend has collected, and none has run or left to `test-all`.

    Args:
        runs: dict from a backend to a dict from a test to "ran", "skipped", "nightly",
            or "turn", if another backend was to run it.
    """
    tests = set().union(*runs.values())
    states = {
        test: {run[test] for run in runs.values() if test in run} for test in tests
    }
    return sorted(t for t, s in states.items() if "turn" in s and "ran" not in s)


def main(folder):
    """Reads what `tests/conftest.py` has written, and says what ran nowhere."""
    paths = [Path(folder) / f"{name}.json" for name in BACKENDS]
    runs = {path.stem: json.loads(path.read_text()) for path in paths if path.exists()}
    if len(runs) < len(BACKENDS):
        print(f"== turns: not compared, only {', '.join(runs) or 'nothing'} has run")
        return 0
    lost = missing(runs)
    for test in lost:
        print(f"no backend ran {test}")
    counts = {
        name: sum(state == "ran" for state in run.values())
        for name, run in runs.items()
    }
    print(f"== turns of day {today()}: tests run {counts}, nowhere {len(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
