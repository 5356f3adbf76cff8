"""Runs all tests, part by part, and keeps what passed when in `full_run.json`.

A landing runs each test on one backend, and leaves the slow ones out. This runs all
tests on all backends, goes on where it was stopped, and tells a release what is old.

    python tests/full_run.py                      all parts that are not fresh
    python tests/full_run.py --part docs          one part
    python tests/full_run.py --commits 20         parts older than 20 commits
    python tests/full_run.py --check              fails if a part is stale or not green
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
STAMPS = Path(__file__).parent / "full_run.json"
BACKENDS = ("torch", "tensorflow", "jax")
STALE = 100  # commits
# Modules beside the folders. What no pattern matches is of the part "package".
PATTERNS = {
    "examples": r"test_(example|accelerator|benchmarks|tuning_benchmarks|claims)",
    "docs": r"test_(docs|notebooks|minibatch_page|adding_a_sampler|first_steps)",
}


def part_of(path):
    """The part of a test module, a path relative to `tests/`."""
    if path.parent != Path("."):
        return path.parts[0]
    fits = (part for part, names in PATTERNS.items() if re.match(names, path.name))
    return next(fits, "package")


def parts():
    """A dict from each part to its test modules, relative to the repository."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        part = part_of(path.relative_to(ROOT / "tests"))
        found.setdefault(part, []).append(path.relative_to(ROOT).as_posix())
    return found


def git(*words):
    """What git says, without the end of the line; empty after an error."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def age(commit):
    """Commits since this one, of those that changed more than the stamps."""
    count = git("rev-list", "--count", f"{commit}..HEAD", "--", ".", f":!{STAMPS}")
    return int(count) if count else sys.maxsize


def stamps():
    return json.loads(STAMPS.read_text()) if STAMPS.exists() else {}


def problems(kept, names, ages, limit=STALE):
    """Sentences about parts that did not run, failed, or ran too long ago.

    Args:
        kept: the content of `full_run.json`.
        names: the parts there are.
        ages: dict from a commit to the number of commits since.
        limit: the largest age, in commits.
    """
    found = []
    for part in names:
        for backend in BACKENDS:
            stamp = kept.get(part, {}).get(backend)
            if stamp is None:
                found.append(f"{part} never ran on {backend}")
            elif stamp["failed"] or not stamp["passed"]:
                found.append(f"{part} has {stamp['failed']} failures on {backend}")
            elif ages[stamp["commit"]] > limit:
                old = ages[stamp["commit"]]
                found.append(f"{part} ran on {backend} {old} commits ago")
    return found


def stale(limit=STALE):
    """`problems` of this checkout."""
    kept = stamps()
    commits = {stamp["commit"] for runs in kept.values() for stamp in runs.values()}
    return problems(kept, parts(), {name: age(name) for name in commits}, limit)


def run(part, backend, jobs):
    """Runs a part on a backend, and returns its stamp."""
    flags = os.environ.get("XLA_FLAGS", "")
    if backend == "jax":
        flags += " --xla_backend_optimization_level=0"
        flags += " --xla_llvm_disable_expensive_passes=true"
    environment = os.environ | {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
        "XLA_FLAGS": flags.strip(),
    }
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-n", str(jobs), "--dist", "worksteal", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, *parts()[part]],
            cwd=ROOT,
            env=environment,
        )
        text = report.read_text() if report.exists() else ""
    count = {
        name: int(value)
        for name, value in re.findall(
            r'(errors|failures|skipped|tests)="(\d+)"', text.split("<testcase")[0]
        )
    }
    failed = count.get("errors", 0) + count.get("failures", 0)
    skipped = count.get("skipped", 0)
    return {
        "commit": git("rev-parse", "--short=10", "HEAD"),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "passed": count.get("tests", 0) - failed - skipped,
        "failed": failed if count else 1,
        "skipped": skipped,
        "seconds": round(time.monotonic() - start),
    }


def main(words=None):
    """Runs what the arguments ask for; 1 if a part is not green."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=sorted(parts()), nargs="+")
    parser.add_argument("--backends", choices=BACKENDS, nargs="+", default=BACKENDS)
    parser.add_argument("--commits", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args(words)
    if asked.check:
        found = stale()
        print("\n".join(found) or "== all parts are green and fresh")
        return 1 if found else 0
    red = []
    for part in asked.part or parts():
        for backend in asked.backends:
            stamp = stamps().get(part, {}).get(backend)
            is_green = stamp is not None and not stamp["failed"]
            if is_green and age(stamp["commit"]) <= asked.commits:
                continue
            print(f"== {part} on {backend}", flush=True)
            stamp = run(part, backend, asked.jobs)
            kept = stamps()
            kept.setdefault(part, {})[backend] = stamp
            rows = {name: kept[name] for name in sorted(kept)}
            STAMPS.write_text(json.dumps(rows, indent=1) + "\n")
            if stamp["failed"]:
                red.append(f"{part} on {backend}")
    print(f"== failed: {', '.join(red)}" if red else "== all parts passed")
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
