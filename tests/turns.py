"""Which backends run a test at a landing, and the guard that each test runs on one.

A test takes turns: one backend runs it at a landing. That is PyTorch, which does not
compile, on most days, and each of the others on one day of 107. A mark
`in_turn("jax")` names another backend for most days. `eager_and_compiled` gives PyTorch
each day, JAX on the first of three days, TensorFlow on the second, and neither on the
third. `every_backend` gives all three each day. `make test-all` runs all tests on all.

A test that takes seconds is heavy, and rests on nine days of ten. `tests/heavy.json`
has the names, and the seconds on the slowest backend.

    python tests/turns.py folder          what ran: does a test run nowhere?
    python tests/turns.py folder heavy    updates the list by what ran
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

BACKENDS = ("jax", "tensorflow", "torch")
DAYS = 107  # has no divisor in common with the turns of three and of ten
MOSTLY = ("torch",)
COMPILED = ("jax", "tensorflow")
RESTS = "rests"
HEAVY = Path(__file__).parent / "heavy.json"
HEAVY_DAYS = 10  # a heavy test runs on one of them
LEAST = {"torch": 1.5, "jax": 3.0, "tensorflow": 3.0}  # seconds of a heavy test
# Each sampler's contract and laws run at each landing.
NEVER_HEAVY = ("tests/fit/test_contract.py", "tests/statistics/")


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
    return _of(wheel(mostly), module, number, day)


def compiled_on(module, number, day):
    """The backend that runs such a test beside PyTorch, or `RESTS`; None for each."""
    return None if day == "all" else _of((*COMPILED, RESTS), module, number, day)


def rests(test, day):
    """Whether a heavy test rests today, by its name alone: the same on each backend."""
    return day != "all" and (day + zlib.crc32(test.encode())) % HEAVY_DAYS != 0


def heavy_tests(folder):
    """The names of the tests that are heavy, and their seconds.

    A test leaves the list if it has run on all backends, and was quick on each.
    """
    seconds = json.loads(HEAVY.read_text()) if HEAVY.exists() else {}
    collected, ran = set(), {}
    for name, least in LEAST.items():
        path = Path(folder) / f"{name}.json"
        collected |= json.loads(path.read_text()).keys()
        found = json.loads(path.with_suffix(".seconds").read_text())
        for test, now in found.items():
            ran.setdefault(test, []).append((now >= least, now))
    for test, found in ran.items():
        if any(is_slow for is_slow, _ in found):
            seconds[test] = max(now for _, now in found)
        elif len(found) == len(LEAST):
            seconds.pop(test, None)
    return {
        test: seconds[test]
        for test in sorted(seconds.keys() & collected)
        if not test.startswith(NEVER_HEAVY)
    }


def _of(days, module, number, day):
    # So a heavy test has not the same backend each time that it does not rest.
    day += day // HEAVY_DAYS
    return days[(number + day + zlib.crc32(module.encode())) % len(days)]


def missing(runs):
    """The tests that a backend has collected, and none has run or left to `test-all`.

    Args:
        runs: dict from a backend to a dict from a test to "ran", "skipped", "nightly",
            "rests", or "turn", if another backend was to run it. "shared" is the turn
            of the other one of two that compile.
    """
    compiled = [run for name, run in runs.items() if name in COMPILED]

    def is_lost(test, state, among):
        states = {run.get(test) for run in among}
        return state in states and not states & {"ran", "rests"}

    tests = set().union(*runs.values())
    return [
        test
        for test in sorted(tests)
        if is_lost(test, "turn", runs.values()) or is_lost(test, "shared", compiled)
    ]


def main(folder, what="turns"):
    """Reads what `tests/conftest.py` has written, and says what ran nowhere."""
    if what == "heavy":
        HEAVY.write_text(json.dumps(heavy_tests(folder), indent=0) + "\n")
        return 0
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
    resting = sum(state == "rests" for state in runs["torch"].values())
    told = f"tests run {counts}, nowhere {len(lost)}, {resting} heavy ones rest"
    print(f"== turns of day {today()}: {told}")
    heavy = [t for t in json.loads(HEAVY.read_text()) if t in runs["torch"]]
    if not any("ran" in {run.get(t) for run in runs.values()} for t in heavy):
        print("== turns: all heavy tests rest")
        return 1
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
