"""What the benchmarks share: alternating rounds, medians, tables, and their JSON.

The machine of a benchmark also does other work, and heats up. The compared tasks
therefore take turns, every other round reverses the order, and a ratio is the median of
the ratios within the rounds.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

PACKAGES = {
    "jax": ("keras", "jax", "numpy"),
    "tensorflow": ("keras", "tensorflow", "numpy"),
    "torch": ("keras", "torch", "numpy"),
}


def backend():
    """The Keras backend, which every benchmark sets before it imports Keras."""
    return os.environ["KERAS_BACKEND"]


def parser(doc, rounds):
    """The arguments that every benchmark has.

    Args:
        doc: the benchmark's docstring; its first line is the description.
        rounds: default number of rounds.
    """
    result = argparse.ArgumentParser(description=doc.split("\n")[0])
    result.add_argument("--rounds", type=int, default=rounds, help="turns of each")
    result.add_argument(
        "--quick", action="store_true", help="small and short: shows that it works"
    )
    result.add_argument("--json", help="file to write the results to")
    return result


def parse(of, arguments=None):
    """Parsed arguments of the parser `of`, with what was given as `given`."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = of.parse_args(given)
    parsed.given = given
    return parsed


def seconds(function):
    """Wall time of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def alternate(tasks, rounds, show=True):
    """Lets the tasks take turns.

    Args:
        tasks: dict of functions without arguments that return a figure.
        rounds: how often each of them is called.
        show: whether the round is written to the terminal.

    Returns:
        A dict of lists, the figures of each task, round by round.
    """
    figures = {name: [] for name in tasks}
    for turn in range(rounds):
        if show and sys.stderr.isatty():
            print(f"round {turn + 1} of {rounds}", end="\r", file=sys.stderr)
        for name in list(tasks)[:: -1 if turn % 2 else 1]:
            figures[name].append(tasks[name]())
    return figures


def ratios(numerators, denominators):
    """The ratios round by round."""
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def quartiles(values):
    """First and third quartile; both the only value where there is one."""
    if len(values) == 1:
        return [values[0], values[0]]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return [first, third]


def machine():
    """What the figures depend on, besides the versions."""
    info = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(_memory_bytes() / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "accelerator": _accelerator(),
    }
    threads = os.environ.get("OMP_NUM_THREADS")
    return info | ({"OMP_NUM_THREADS": threads} if threads else {})


def _processor():
    """The processor's name, where the system tells it."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _accelerator():
    """Name of the accelerator that the backend uses, or None."""
    if backend() == "jax":
        import jax

        device = jax.devices()[0]
        return None if device.platform == "cpu" else device.device_kind
    if backend() == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_physical_devices("GPU")
        if devices:
            return tf.config.experimental.get_device_details(devices[0])["device_name"]
        return None
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def versions(*packages):
    """Versions of the backend's packages and of these, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES[backend()], *packages):
        # TensorFlow has a package without GPUs as well.
        names = (name, f"{name}-cpu")
        known = [installed for installed in map(_version, names) if installed]
        found[name] = known[0] if known else "not installed"
    return found


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def report(script, parsed, rows, packages=(), complete=True):
    """Writes the results as JSON, if `--json` asks for it.

    Args:
        script: `__file__` of the benchmark.
        parsed: its parsed arguments.
        rows: list of dicts, a line of the benchmark's table each.
        packages: names of further packages whose versions count.
        complete: whether these are all rows.
    """
    if not parsed.json:
        return
    results = {
        "command": command_line(script, parsed),
        "backend": backend(),
        "date": datetime.date.today().isoformat(),
        "rounds": parsed.rounds,
        "quick": parsed.quick,
        "complete": complete,
        "machine": machine(),
        "versions": versions(*packages),
        "rows": [{key: rounded(value) for key, value in row.items()} for row in rows],
    }
    with open(parsed.json, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


def command_line(script, parsed):
    """How the benchmark was called, without the file that it writes."""
    words = list(parsed.given)
    if "--json" in words:
        where = words.index("--json")
        del words[where : where + 2]
    words = [f'"{word}"' if " " in word else word for word in words]
    name = pathlib.Path(script).name
    return " ".join(
        [f"KERAS_BACKEND={backend()} python examples/benchmarks/{name}", *words]
    )


def rounded(value):
    """Four significant digits of a float, or of the floats in a list."""
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def print_table(title, headers, rows):
    """Prints a table: the first column to the left, numbers to the right.

    Args:
        title: line above it, after which backend and cores are named.
        headers: dict from keys of the rows to headers.
        rows: list of dicts. None and a missing key are printed as a dash.
    """
    cells = [[as_text(row.get(key)) for key in headers] for row in rows]
    widths = [
        max(len(line[i]) for line in [list(headers.values()), *cells])
        for i in range(len(headers))
    ]
    print(f"\n{title} ({backend()}, {os.cpu_count()} cores)")
    for line in [list(headers.values()), *cells]:
        first, *others = zip(line, widths, strict=True)
        print("  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in others)]))
    sys.stdout.flush()


def as_text(value):
    """A cell: floats with three significant digits, at least two decimals below 10."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return " to ".join(as_text(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.{decimals(value)}f}"


def decimals(value):
    """Decimals that show two significant digits of a number below 10: 2 or more."""
    places = 2
    while 0 < abs(value) < 10.0 ** (1 - places) and places < 6:
        places += 1
    return places


def fresh_process(script, *words):
    """The last line that a new Python process prints, run with these arguments."""
    output = subprocess.run(
        [sys.executable, script, *map(str, words)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return output.stdout.strip().split("\n")[-1]
