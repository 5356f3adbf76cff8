"""All benchmarks of a backend, one after the other, each in its own process.

Each benchmark writes a JSON file. `docs/tools/performance.py` makes
`docs/performance.md` from these files. Run it on a machine that does nothing else.

    python examples/benchmarks/all.py --backend jax --out docs/tools/performance
    python docs/tools/performance.py
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

# Name of the JSON file -> script and arguments.
RUNS = {
    "import_time": ("import_time.py",),
    "step_time_mlp": ("step_time.py", "--model", "mlp", "--rounds", "9"),
    # JAX compiles a step of the residual network for a minute and more.
    "step_time_resnet20": (
        *("step_time.py", "--model", "resnet20", "--rounds", "3"),
        *("--only", "SGLD", "SGHMC", "CSGLD, 200 bins", "RSGLD", "SGHMC-SA"),
    ),
    "step_time_large": ("step_time.py", "--model", "large", "--rounds", "3"),
    "peers": ("peers.py", "--rounds", "9"),
    "chains": ("chains.py", "--rounds", "3"),
    "parallel_chains": ("parallel_chains.py", "--rounds", "3"),
    "ensemble": ("ensemble.py", "--rounds", "3"),
    "memory": ("memory.py",),
    "scaling": ("scaling.py", "--rounds", "3"),
}


def main(arguments=None):
    """Runs them, says how long each took, and fails if one of them did."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--backend", choices=("jax", "tensorflow", "torch"), required=True
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder")
    parser.add_argument("--only", choices=RUNS, nargs="+", default=list(RUNS))
    parser.add_argument(
        "--quick", action="store_true", help="short runs that show that all work"
    )
    parsed = parser.parse_args(arguments)
    parsed.out.mkdir(parents=True, exist_ok=True)
    here = pathlib.Path(__file__).parent
    root = str(here.parents[1])
    environment = os.environ | {
        "KERAS_BACKEND": parsed.backend,
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
    }
    failed = []
    for name in parsed.only:
        script, *words = RUNS[name]
        path = parsed.out.resolve() / f"{parsed.backend}_{name}.json"
        words += ["--quick"] if parsed.quick else []
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        code = subprocess.run(
            [sys.executable, str(here / script), *words, "--json", str(path)],
            env=environment,
        ).returncode
        print(f"== {name} took {time.perf_counter() - began:.0f} s", flush=True)
        if code:
            failed.append(name)
    if failed:
        sys.exit(f"== FAILED: {', '.join(failed)}")


if __name__ == "__main__":
    main()
