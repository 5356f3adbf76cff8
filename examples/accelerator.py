"""Everything that is to be measured on an accelerator, in order of worth.

Each stage is a program of its own process, takes a few minutes at most, and writes its
results at once, to BACKEND_STAGE.json under `--out`. A stage whose file is there is
skipped. Therefore the same command goes on where it was stopped. At the end it prints
what is left.

    KERAS_BACKEND=jax python examples/accelerator.py --data-dir folder
    KERAS_BACKEND=torch python examples/accelerator.py --stages smoke host_reads
    make accelerator ARGS=--quick

`folder` has mnist.npz and cifar10.npz. Without `--data-dir` the stages that need them
are left out. `--quick` runs each stage small and short on random data, also on a CPU,
to show that it works. `docs/tools/accelerator_rows.py` puts the results into the pages.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "tools" / "accelerator"


class Stage(NamedTuple):
    """A program, its arguments, and what it shows."""

    what: str
    script: str
    words: tuple = ()
    data: str | None = None  # argument for the data, "{folder}" is replaced
    output: str = "--json"  # argument for the file of results
    quick: tuple = ()  # arguments of a short run beside --quick


SAMPLERS = ("--only", "SGLD", "SGHMC", "CSGLD, 200 bins", "RSGLD", "SGHMC-SA")
CHAINS = ("--optimizers", "SGD", "SGLD", "RSGLD", "--rounds", "3", "--steps")
STAGES = {
    "smoke": Stage(
        "all samplers train, in float32 and bfloat16", "benchmarks/smoke.py"
    ),
    "host_reads": Stage("steps do not make the host wait", "benchmarks/host_reads.py"),
    "step_time_mlp": Stage(
        "time of a step, perceptron",
        "benchmarks/step_time.py",
        ("--model", "mlp", "--rounds", "3", "--steps", "100"),
    ),
    "parallel_chains": Stage(
        "30 chains of the perceptron against one",
        "benchmarks/parallel_chains.py",
        ("--model", "large", *CHAINS, "100"),
    ),
    "step_time_resnet20": Stage(
        "time of a step, ResNet20",
        "benchmarks/step_time.py",
        ("--model", "resnet20", "--rounds", "3", "--steps", "20", *SAMPLERS),
    ),
    "step_time_large": Stage(
        "time of a step, 25 million weights",
        "benchmarks/step_time.py",
        ("--model", "large", "--rounds", "3", "--steps", "50", *SAMPLERS),
    ),
    "table1": Stage(
        "table 1 of the MHBT paper with 30 chains",
        "mnist_table1.py",
        (
            *("--methods", "RSGLD", "SGD", "RSGLD-paper", "SGLD", "SGD-naive"),
            *("--rates", "0.4", "0.1", "0.2", "0.05", "0.6", "--chains", "30"),
        ),
        data="--data {folder}/mnist.npz",
    ),
    "memory": Stage(
        "memory of a step", "benchmarks/memory.py", SAMPLERS, quick=("--only", "RSGLD")
    ),
    "ensemble": Stage(
        "predictions of 30 members", "benchmarks/ensemble.py", ("--rounds", "3")
    ),
    "attack_speed": Stage(
        "images a second under PGD", "benchmarks/attack_speed.py", ("--rounds", "3")
    ),
    "parallel_chains_resnet20": Stage(
        "30 chains of ResNet20 against one",
        "benchmarks/parallel_chains.py",
        ("--model", "resnet20", *CHAINS, "10"),
        quick=("--model", "small"),
    ),
    "cifar_ensemble": Stage(
        "CIFAR-10, BayesianEnsemble beside four and eight networks",
        "cifar_ensemble.py",
        data="--data-dir {folder}",
    ),
    "cifar_resnet": Stage(
        "CIFAR-10, ResNet20, CSGHMC with and without annealing",
        "cifar_resnet.py",
        (
            *("--dataset", "cifar10", "--methods", "CSGHMC", "saCSGHMC"),
            *("--epochs", "20", "--batch-size", "1000"),
        ),
        data="--data-dir {folder}",
        output="--output",
        quick=("--methods", "CSGHMC", "--epochs", "2", "--examples", "128"),
    ),
    "cifar_cnn": Stage(
        "table 2 of the MHBT paper",
        "cifar_cnn.py",
        ("--epochs", "20", "--rates", "0.02"),
        data="--data-dir {folder}",
        quick=("--epochs", "1", "--rates", "0.02"),
    ),
}


def path_of(args, name):
    """The file of results of a stage."""
    return Path(args.out) / f"{args.backend}_{name}.json"


def is_done(args, name):
    """Whether the results of a stage are there, and complete."""
    path = path_of(args, name)
    if not path.exists():
        return False
    content = json.loads(path.read_text(encoding="utf-8"))
    # A program that writes a list has written all of it.
    return isinstance(content, list) or content.get("complete", True)


def command(args, name):
    """The program of a stage with its arguments."""
    stage = STAGES[name]
    words = [str(HERE / stage.script), *(stage.quick if args.quick else stage.words)]
    if args.quick:
        words.append("--quick")
    elif stage.data is not None:
        words += stage.data.format(folder=args.data_dir).split(" ", 1)
    if name == "table1":  # it has states of its own, and stops in time to save them
        words += ["--out", str(Path(args.out) / f"{args.backend}_table1")]
        words += ["--minutes", f"{0.7 * args.minutes:g}"]
    path = path_of(args, name)
    return [sys.executable, *words, stage.output, str(path)]


def run(args, name):
    """Run a stage. Returns what kept it from its results, or None."""
    if STAGES[name].data and not args.quick and args.data_dir is None:
        return "needs --data-dir"
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    environment = {"KERAS_BACKEND": args.backend, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        code = subprocess.run(
            command(args, name),
            env=os.environ | environment,
            timeout=60 * args.minutes,
        ).returncode
    except subprocess.TimeoutExpired:
        return f"took more than {args.minutes:g} minutes; give it more with --minutes"
    if code:
        return f"failed with exit status {code}"
    return None if is_done(args, name) else "is not finished; the command goes on"


def main(argv=None):
    """Run the stages that are missing. Returns what is left: a dict of reasons."""
    args = parse(argv)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    left = {}
    for place, name in enumerate(args.stages):
        title = f"{name} ({place + 1} of {len(args.stages)}): {STAGES[name].what}"
        if is_done(args, name):
            print(f"== {title}: is there", flush=True)
            continue
        print(f"== {title}", flush=True)
        begin = time.perf_counter()
        reason = run(args, name)
        if reason is not None:
            left[name] = reason
        print(f"== {name} took {time.perf_counter() - begin:.0f} s", flush=True)
    print(f"== {args.backend}: {len(args.stages) - len(left)} stages are done")
    for name, reason in left.items():
        print(f"== left: {name} {reason}")
    return left


def parse(argv):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES))
    parser.add_argument("--data-dir", help="folder with mnist.npz and cifar10.npz")
    parser.add_argument("--out", help="folder of the results; that of the docs")
    parser.add_argument("--minutes", type=float, default=3.0, help="for each stage")
    parser.add_argument(
        "--quick", action="store_true", help="small and short, on random data"
    )
    args = parser.parse_args(argv)
    args.backend = os.environ.get("KERAS_BACKEND", "jax")
    if args.out is None:
        args.out = str(HERE.parent / "out" / "accelerator" if args.quick else RESULTS)
    return args


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
