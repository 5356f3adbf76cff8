"""Is each planted bug caught by the tests of a landing, not only by those of its own?

For each bug of the statistical suite, plants it into a whole run of the tests that a
landing runs, without the tests of planted bugs, until one fails. One backend runs all
of them, or with TURN=20788 those of its turn on that day.

    KERAS_BACKEND=torch python -m tests.planted table.json    goes on where it stopped
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# First where most bugs are caught: to collect all of the rest takes half a minute.
ROOMS = {
    "statistics": (
        (
            "samplers/test_kernel_steps.py",
            "samplers/test_kernel_moves.py",
            "samplers/test_kernel_decision.py",
            "statistics/test_laws.py",
        ),
        ("samplers", "statistics", "fit", "sampling", "posterior"),
    ),
}


def bugs():
    """A dict from a room and a name to the function that plants the bug."""
    from tests.statistics import test_planted_bugs as statistics

    return {("statistics", name): bug.plant for name, bug in statistics.BUGS.items()}


class Planted:
    """The plugin: plants a bug when all tests are imported."""

    def __init__(self, plant):
        self._plant = plant

    def pytest_collection_finish(self):
        self._plant(pytest.MonkeyPatch())


def run(room, name, part):
    """Runs tests of a room under a bug in this process; pytest's exit code."""
    words = ["-x", "-m", "not slow", "-p", "no:cacheprovider", "--tb=line"]
    folders = [f"tests/{path}" for path in ROOMS[room][int(part)]]
    own = [
        f"--ignore={path.relative_to(ROOT)}"
        for path in (ROOT / "tests").rglob("test_*planted_bugs.py")
    ]
    return pytest.main([*words, *own, *folders], [Planted(bugs()[room, name])])


def main(path):
    """Runs each bug in a process of its own, and writes what caught it."""
    path = Path(path)
    rows = json.loads(path.read_text()) if path.exists() else {}
    environment = {"TURN": "all"} | os.environ | {"OMP_NUM_THREADS": "1"}
    for room, name in bugs():
        if f"{room}: {name}" in rows:
            continue
        start, failed = time.monotonic(), []
        for part in range(len(ROOMS[room])):
            words = [sys.executable, "-m", "tests.planted", room, name, str(part)]
            done = subprocess.run(
                words, cwd=ROOT, env=environment, capture_output=True, text=True
            )
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            if failed:
                break
        rows[f"{room}: {name}"] = {
            "caught_by": failed[0] if failed else None,
            "code": done.returncode,
            "seconds": round(time.monotonic() - start),
        }
        path.write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{room}: {name}: {failed[:1] or 'NOT CAUGHT'}", flush=True)
    caught = sum(row["caught_by"] is not None for row in rows.values())
    print(f"== {caught} of {len(rows)} planted bugs are caught")


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]) if len(sys.argv) == 4 else main(sys.argv[1]))
