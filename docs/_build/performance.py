"""Makes `docs/performance.md` from the benchmarks' JSON: `python docs/_build/performance.py`.

The files are `docs/_build/performance/BACKEND_NAME.json`, as written by
`examples/benchmarks/all.py`; whoever measures anew replaces them and runs this.
"""

import json
import pathlib

from performance_bars import BACKENDS
from performance_bars import BARS

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "performance"
PAGE = HERE.parent / "performance.md"
MODELS = {
    "mlp": "Perceptron 784-600-10, batches of 100",
    "resnet20": "ResNet20 on 32x32x3, batches of 128",
    "large": "Perceptron 784-4620-4620-10, batches of 100",
    "tiny": "Perceptron 20-8-10, batches of 100: to try the tools",
}
NOT_MEASURED = "-"



def load(folder=FOLDER):
    """The files' contents by backend and name."""
    results = {}
    for path in sorted(folder.glob("*.json")):
        backend, name = path.stem.split("_", 1)
        results[backend, name] = json.loads(path.read_text(encoding="utf-8"))
    if not results:
        raise FileNotFoundError(
            f"{folder} must hold the benchmarks' JSON files. Write them with "
            "examples/benchmarks/all.py."
        )
    return results


def figure(value, places=2):
    """A figure with thousands separators, or a dash."""
    if value is None:
        return NOT_MEASURED
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if 0 < abs(value) < 0.1:
        places = 3
    return f"{value:.{1 if abs(value) >= 10 else places}f}"


def table(headers, lines):
    """Lines of a Markdown table."""
    cells = [headers, ["---"] * len(headers), *lines]
    return ["| " + " | ".join(line) + " |" for line in cells] + [""]


def find(results, backend, name, wanted):
    """The first row of a file that has these values, or an empty one."""
    rows = results.get((backend, name), {"rows": []})["rows"]
    for row in rows:
        if all(row.get(key) == value for key, value in wanted.items()):
            return row
    return {}


def bars(results):
    """The table of the bars. A short run does not count as a measurement."""
    long = {key: value for key, value in results.items() if not value["quick"]}
    lines = []
    for what, name, wanted, key, limits in BARS:
        line = [what]
        for backend in BACKENDS:
            value = find(long, backend, name, wanted).get(key)
            limit = limits.get(backend)
            if limit is None:
                line.append("")
            elif value is None:
                line.append(f"not measured (at most {figure(limit)})")
            else:
                text = f"{figure(value)} (at most {figure(limit)})"
                line.append(text if value <= limit else f"**{text}: missed**")
        lines.append(line)
    return table(["", *BACKENDS.values()], lines)


def pivot(results, name, keys, columns):
    """A table with a line for each row of the files, the backends side by side.

    Args:
        results: what `load` returns.
        name: of the file.
        keys: dict from the keys that name a row to headers.
        columns: dict from the keys of figures to headers.
    """
    present = [backend for backend in BACKENDS if (backend, name) in results]
    rows = {}
    for backend in present:
        for row in results[backend, name]["rows"]:
            if all(key in row for key in keys):
                rows.setdefault(tuple(row[key] for key in keys), {})[backend] = row
    if not rows:
        return ["Not measured.", ""]
    headers = list(keys.values())
    for backend in present:
        headers += [f"{BACKENDS[backend]}, {header}" for header in columns.values()]
    lines = []
    for names, found in rows.items():
        line = [figure(value) for value in names]
        for backend in present:
            row = found.get(backend, {})
            line += [figure(row.get(key)) for key in columns]
        lines.append(line)
    return table(headers, lines)


def step_times(results):
    """A table for each model."""
    lines = []
    for model, title in MODELS.items():
        chosen = {
            (backend, name): content
            | {"rows": [row for row in content["rows"] if row["model"] == model]}
            for (backend, name), content in results.items()
            if name.startswith("step_time")
        }
        merged = {}
        for (backend, _), content in chosen.items():
            if content["rows"]:
                merged.setdefault((backend, "step_time"), content)
        if not merged:
            continue
        weights = next(iter(merged.values()))["rows"][0]["weights"]
        lines += [f"### {title}", "", f"{weights:,} weights.", ""]
        lines += pivot(
            merged,
            "step_time",
            {"optimizer": "optimizer"},
            {"ms": "ms", "ratio": "/ floor"},
        )
        for (backend, _), content in merged.items():
            floor = content["rows"][-1]
            lines.append(
                f"- {BACKENDS[backend]}: {figure(floor['draw_ms'])} ms of the floor are "
                f"for the normals, by `{floor['generator']}`."
            )
        lines.append("")
    return lines or ["Not measured.", ""]


def provenance(results):
    """Machines, versions and commands."""
    machines, lines = {}, []
    for (backend, _), content in results.items():
        machine = content["machine"]
        text = (
            f"{machine['processor']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB, {machine['system']}"
        )
        if machine["accelerator"]:
            text += f", {machine['accelerator']}"
        if "OMP_NUM_THREADS" in machine:
            text += f", OMP_NUM_THREADS={machine['OMP_NUM_THREADS']}"
        versions = ", ".join(
            f"{name} {version}" for name, version in content["versions"].items()
        )
        machines.setdefault((text, versions), set()).add(BACKENDS[backend])
    for (text, versions), backends in machines.items():
        lines.append(f"- {', '.join(sorted(backends))}: {text}; {versions}.")
    lines.append("")
    return lines + table(
        ["command", "rounds", "date"],
        [
            [
                f"`{content['command']}`",
                f"{content['rounds']}{', short run' if content['quick'] else ''}",
                content["date"],
            ]
            for content in results.values()
        ],
    )


def page(results):
    """The page's text."""
    dates = sorted({content["date"] for content in results.values()})
    rounds = sorted({content["rounds"] for content in results.values()})
    dates, rounds = (
        str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
        for values in (dates, rounds)
    )
    lines = [
        "<!-- Made by docs/_build/performance.py from JSON: do not edit. -->",
        "# Performance",
        "",
        "What a step costs, beside what it must cost and beside other libraries.",
        f"Measured {dates}, medians of {rounds} alternating rounds;",
        "machine, versions, and the command and the rounds of each file",
        "[at the end](#how-it-was-measured).",
        "",
    ]
    if any(content["quick"] for content in results.values()):
        lines += [
            '!!! warning "Short runs"',
            "    Some of the tables come from short runs on a busy machine, marked",
            "    below. They show that the programs work, and are no measurements.",
            "",
        ]
    lines += [
        "## What was aimed at",
        "",
        "The floor is a step of Keras' SGD in the same `fit`, and one draw of as many",
        "standard normals as there are weights. Figures of short runs are not in this",
        "table.",
        "",
        *bars(results),
        "Why some of it is missed: PyTorch runs a step operation by operation, and",
        "each goes over memory that the pass before has left the cache with; operations",
        "on single numbers come to that. TensorFlow's XLA computes normals again where",
        "two results need them, as a velocity and a position do. And no proposal can be",
        "decided before the gradients of all layers are there, of which SGD frees each",
        "when it is added: the peak of Adam, [below](#memory), is about as high, or higher.",
        "",
        "## Time of a step",
        "",
        *step_times(results),
        "## Beside other libraries",
        "",
        "Milliseconds that a sampler adds to a step of SGD in the library's own training",
        "loop: ours in Keras' `fit`, blackjax in steps jitted one by one, posteriors and",
        "torch-sgld in a loop over the batches. The network is the perceptron above.",
        "",
    ]
    names = {"library": "library", "sampler": "sampler"}
    figures = {"plain_ms": "SGD ms", "ms": "ms", "added_ms": "added"}
    for backend, title in BACKENDS.items():
        if (backend, "peers") in results:
            only = {(backend, "peers"): results[backend, "peers"]}
            lines += [f"{title}:", ""]
            lines += pivot(only, "peers", names, figures | {"ours_over": "ours/theirs"})
    lines += [
        "`mh.sample` beside blackjax's kernels in `lax.scan`, on a mixture of two normals",
        "in one dimension, microseconds a step:",
        "",
        *pivot(
            results,
            "chains",
            {"kernel": "kernel", "chains": "chains"},
            {"ours_us": "ours", "blackjax_us": "blackjax", "ratio": "ratio"},
        ),
        "## Chains and ensembles",
        "",
        "A step of chains of one `mh.ParallelChains` beside as many single fits",
        "(`large`: the perceptron 784-600-10; `small`: 3,754 weights), milliseconds:",
        "",
        *pivot(
            results,
            "parallel_chains",
            {"model": "model", "optimizer": "optimizer", "chains": "chains"},
            {"chains_ms": "chains", "single_ms": "single", "ratio": "ratio"},
        ),
        "Predictions of an `mh.Ensemble` for 10,000 images beside those of its members,",
        "one after the other, seconds:",
        "",
        *pivot(
            results,
            "ensemble",
            {"members": "members"},
            {"ensemble_s": "ensemble", "single_s": "single", "ratio": "ratio"},
        ),
        "## Memory",
        "",
        "In units of the weights: the slots, and the peak of a training step less that",
        "of SGD. On JAX the peak is what XLA plans for the compiled step; on the others",
        "it is the resident memory of a process.",
        "",
        *pivot(
            results,
            "memory",
            {"optimizer": "optimizer"},
            {"slots": "slots", "peak": "peak"},
        ),
        "## How the cost grows",
        "",
        "The exponent is that of the growth since the line before of the same optimizer:",
        "1 is linear, 0 is none. With the number of weights, in a layer of d numbers:",
        "",
        *growth(results, "weights"),
        "With the number of chains of a network of 3,754 weights:",
        "",
        *growth(results, "chains"),
        "Early and late in a run that keeps a sample every ten steps, milliseconds:",
        "",
        *pivot(
            results,
            "scaling",
            {"samples": "samples go", "kept": "kept"},
            {"first_ms": "first quarter", "last_ms": "last", "ratio": "ratio"},
        ),
        "## Import",
        "",
        "Seconds: of Keras with its backend, and of keras_mhmcmc once Keras is there.",
        "",
        *table(
            ["backend", "Keras", "keras_mhmcmc"],
            [
                [BACKENDS[backend], figure(row.get("keras_s")), figure(row.get("beyond_s"))]
                for backend in BACKENDS
                for row in [find(results, backend, "import_time", {})]
            ],
        ),
        "## How it was measured",
        "",
        "What is compared takes turns, in an order that is reversed in every other",
        "round; a ratio is the median of the ratios within the rounds, compilation is",
        "left out. All of it again, for a backend:",
        "",
        "```bash",
        "python examples/benchmarks/all.py --backend jax --out docs/_build/performance",
        "python docs/_build/performance.py",
        "```",
        "",
        *provenance(results),
    ]
    return "\n".join(lines).rstrip() + "\n"


def growth(results, size):
    """The table of the cost against one size."""
    return pivot(
        results,
        "scaling",
        {"optimizer": "optimizer", size: size},
        {"ms": "ms", "exponent": "exponent"},
    )


if __name__ == "__main__":
    PAGE.write_text(page(load()), encoding="utf-8")
